//! Figures of a benchmark, each judged against what bounds it on the same machine in the same run.
//!
//! The JSON form is a list of `{name, value, unit, limit, ratio, budget, met}`. `limit` is what the machine can do, in the same unit, or
//! null; `ratio` is the median of `value / limit` over the rounds, or null without a limit; `budget` is the least ratio that is good enough,
//! or, without a limit, the largest value, or null if the figure is only reported; `met` says whether it is good enough.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::error::{BenchError, Result};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    limit: Option<f64>,
    ratio: Option<f64>,
    budget: Option<f64>,
    met: bool,
}

impl Figure {
    /// A figure that should reach at least the share `budget` of its limit. What slows a round down slows both of its sides, so it is
    /// judged by the median of the rounds' ratios.
    pub fn share_of(name: &'static str, rounds: &Rounds, unit: &'static str, budget: f64) -> Self {
        let ratio = median(rounds.0.iter().map(|(value, limit)| value / limit));
        Self {
            name,
            value: median(rounds.0.iter().map(|(value, _)| *value)),
            unit,
            limit: Some(rounds.limit()),
            ratio: Some(ratio),
            budget: Some(budget),
            met: ratio >= budget,
        }
    }

    /// The same, only reported.
    pub fn reported_share_of(name: &'static str, rounds: &Rounds, unit: &'static str) -> Self {
        Self { budget: None, met: true, ..Self::share_of(name, rounds, unit, 0.0) }
    }

    /// A figure that should stay at or below `budget`.
    pub fn at_most(name: &'static str, value: f64, unit: &'static str, budget: f64) -> Self {
        Self { name, value, unit, limit: None, ratio: None, budget: Some(budget), met: value <= budget }
    }

    /// A figure that is only reported.
    pub fn reported(name: &'static str, value: f64, unit: &'static str) -> Self {
        Self { name, value, unit, limit: None, ratio: None, budget: None, met: true }
    }

    /// Whether it is good enough.
    pub fn met(&self) -> bool {
        self.met
    }
}

/// What was measured in turns with its limit.
#[derive(Clone, Default, Debug)]
pub struct Rounds(Vec<(f64, f64)>);

impl Rounds {
    /// Adds a round: the value, and the limit measured right before or after it.
    pub fn add(&mut self, value: f64, limit: f64) {
        self.0.push((value, limit));
    }

    /// The limit, over all rounds.
    pub fn limit(&self) -> f64 {
        median(self.0.iter().map(|(_, limit)| *limit))
    }
}

/// The one in the middle; not a number if there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The value that so many percent are below; not a number if there is none.
pub fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

/// The figures as a table for people.
pub fn table(figures: &[Figure]) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let mut text =
        format!("{:<46} {:>10} {:<8} {:>10} {:>7} {:>8}  met\n", "figure", "value", "unit", "limit", "ratio", "budget");
    for figure in figures {
        text += &format!(
            "{:<46} {:>10.3} {:<8} {:>10} {:>7} {:>8}  {}\n",
            figure.name,
            figure.value,
            figure.unit,
            number(figure.limit),
            number(figure.ratio),
            number(figure.budget),
            if figure.met { "yes" } else { "NO" },
        );
    }
    text
}

/// Writes the figures as JSON, one a line. Makes the folder if it is not there.
///
/// # Errors
/// What the file system says.
pub fn write_json(figures: &[Figure], path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, cairn_testkit::rigs::json_lines(figures)?)
}

/// # Errors
/// [`BenchError::BudgetMissed`] with the names of the figures that miss theirs.
pub fn judge(figures: &[Figure]) -> Result<()> {
    let missed: Vec<&str> = figures.iter().filter(|figure| !figure.met).map(|figure| figure.name).collect();
    if missed.is_empty() { Ok(()) } else { Err(BenchError::BudgetMissed { names: missed.join(", ") }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of(rounds: &[(f64, f64)]) -> Figure {
        Figure::share_of("get", &Rounds(rounds.to_vec()), "GB/s", 0.25)
    }

    #[test]
    fn a_figure_is_met_by_its_share_of_the_limit() {
        assert!(share_of(&[(1.0, 4.0)]).met());
        assert!(!share_of(&[(0.9, 4.0)]).met());
        assert!(!Figure::at_most("idle", 1.1, "%", 1.0).met());
    }

    #[test]
    fn a_slow_moment_of_the_machine_does_not_decide() {
        let figure = share_of(&[(1.0, 4.0), (0.1, 0.4), (0.01, 4.0)]);
        assert!(figure.met(), "{figure:?}");
        assert_eq!((figure.value, figure.limit), (0.1, Some(4.0)));
    }

    #[test]
    fn a_figure_without_measurement_is_not_met() {
        assert!(!share_of(&[]).met());
        assert!(!share_of(&[(f64::NAN, 4.0)]).met());
        assert!(!share_of(&[(0.0, 0.0)]).met());
        assert!(!Figure::at_most("idle", median([]), "%", 1.0).met());
    }

    #[test]
    fn a_percentile_has_so_many_percent_below_it() {
        let hundred = || (0..100).map(f64::from);
        assert_eq!((median(hundred()), percentile(hundred(), 99)), (50.0, 99.0));
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target/bench.json");
        write_json(&[share_of(&[(1.0, 4.0)]), Figure::reported("sum", 5.0, "GB/s")], &path).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(
            read[0],
            serde_json::json!({
                "name": "get", "value": 1.0, "unit": "GB/s", "limit": 4.0, "ratio": 0.25, "budget": 0.25, "met": true
            })
        );
        assert_eq!(read[1]["limit"], serde_json::Value::Null);
    }
}
