//! The looks: aligned plain text for people, JSON for programs. Results go to standard output, words about failures to standard error.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::{Code, Failure};

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result, in the form that was asked for.
    pub(crate) fn result(&self, json: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { self.text(&json.to_string()) } else { self.text(&text()) }
    }

    /// Prints text as it is, with a line end.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        written.map_err(|e| match e.kind() {
            // The reader, such as `head`, has seen enough.
            ErrorKind::BrokenPipe => Failure { code: Code::Fine, text: String::new(), hint: None },
            _ => Failure::usage(format!("can not write the result: {e}")),
        })
    }

    /// Says on standard error why a command failed and what to do, and returns its exit code.
    pub(crate) fn explain(&self, failure: &Failure) -> Code {
        if failure.text.is_empty() {
            return failure.code;
        }
        let text = if self.json {
            json!({ "error": failure.text, "hint": failure.hint, "exit": failure.code.word() }).to_string()
        } else {
            let hint = failure.hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"));
            format!("error: {}{hint}", failure.text)
        };
        // Nobody is left to tell if this fails.
        let _ = writeln!(std::io::stderr(), "{text}");
        failure.code
    }
}

/// Rows as aligned columns, two spaces apart. The first column is left-aligned, and so is any with a cell that does not start with a
/// digit; the others are right-aligned.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let columns: Vec<Column> = (0..header.len()).map(|at| Column::of(at, &header, rows)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&columns).map(|(cell, column)| column.pad(cell));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(&header).chain(rows).map(line).collect::<Vec<_>>().join("\n")
}

struct Column {
    width: usize,
    right: bool,
}

impl Column {
    fn of(at: usize, header: &[String], rows: &[Vec<String>]) -> Self {
        let cells = || rows.iter().filter_map(|row| row.get(at));
        let width = cells().chain(header.get(at)).map(String::len).max().unwrap_or(0);
        let number = |cell: &String| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit());
        Self { width, right: at > 0 && cells().all(number) }
    }

    fn pad(&self, cell: &str) -> String {
        let width = self.width;
        if self.right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    }
}

/// Names and what they are, aligned.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, fact)| format!("{name:<width$}  {fact}")).collect::<Vec<_>>().join("\n")
}

/// A size with three digits or so: `512 B`, `2.25 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `3 pages`, `1 page`.
pub(crate) fn count(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(value), if value == 1 { "" } else { "s" })
}

/// A time as people say it: `85 us`, `1.25 ms`, `3.40 s`, `2 h 05 min`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_secs() {
        0 if time < Duration::from_millis(1) => format!("{} us", time.as_micros()),
        0 => format!("{:.2} ms", seconds * 1e3),
        1..60 => format!("{seconds:.2} s"),
        whole @ 60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        whole @ 3600..86_400 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        whole => format!("{} d {:02} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// Bytes per time; nothing to say about no time.
pub(crate) fn rate(bytes: u64, time: Duration) -> String {
    let per_second = bytes as f64 / time.as_secs_f64().max(1e-9);
    #[expect(clippy::cast_possible_truncation, reason = "a rate for people; casts of floats saturate")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let per_second = per_second as u64;
    format!("{}/s", size(per_second))
}

/// Bytes as lowercase hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_numbers_and_times_read_well() {
        assert_eq!(
            [0, 1023, 1024, 2_359_296, 1 << 40].map(size),
            ["0 B", "1023 B", "1.00 KiB", "2.25 MiB", "1.00 TiB"]
        );
        assert_eq!(size(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        let times = [85, 1250, 3_400_000, 7_500_000_000].map(|us| time(Duration::from_micros(us)));
        assert_eq!(times, ["85 us", "1.25 ms", "3.40 s", "2 h 05 min"]);
    }

    #[test]
    fn columns_of_numbers_are_aligned_right() {
        let rows = vec![vec!["dram".to_owned(), "7".to_owned()], vec!["ssd".to_owned(), "1,000".to_owned()]];
        assert_eq!(table(&["tier", "pages"], &rows), "tier  pages\ndram      7\nssd   1,000");
    }
}
