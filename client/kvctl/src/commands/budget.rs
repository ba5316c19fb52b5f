//! `kvctl budget`: what may be written to the SSD, what was, and how long the drive will last.

use std::time::Duration;

use cairn_client::Client;
use cairn_proto::v1::BudgetStats;
use serde_json::{Value, json};

use super::stats::{counts_json, counts_text};
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, number, rate, size, time};

const DAY: Duration = Duration::from_secs(86_400);

pub(crate) async fn run(client: &Client, out: &Output) -> Result<Code, Failure> {
    let budget = client.stats().await?.budget;
    let budget = budget.ok_or_else(|| Failure::usage("this server keeps no account of what it writes"))?;
    out.result(&as_json(&budget), || as_text(&budget))?;
    Ok(Code::Fine)
}

fn as_text(budget: &BudgetStats) -> String {
    let mut lines = vec![("policy", budget.policy.clone())];
    lines.extend(plan_lines(budget));
    lines.push(("written today", written_today(budget)));
    lines.push(("written in all", written_in_all(budget)));
    if let Some(percent) = of_plan(budget.pace_day_bytes, budget) {
        lines.push(("burn", format!("{percent} of the plan")));
    }
    if budget.plan_years > 0 {
        lines.push(("lifetime", lifetime(budget)));
    }
    lines.push(("admitted", count(budget.admitted_pages, "page")));
    if !budget.refused_pages.is_empty() {
        lines.push(("kept off pages", counts_text(&budget.refused_pages)));
        let bytes = budget.refused_bytes.iter().map(|of| format!("{} {}", of.reason, size(of.count)));
        lines.push(("kept off bytes", bytes.collect::<Vec<_>>().join(", ")));
    }
    if budget.not_durable_pages > 0 {
        lines.push((
            "not durable",
            format!("{} asked for ssd and stayed in memory", count(budget.not_durable_pages, "page")),
        ));
    }
    facts(&lines)
}

fn plan_lines(budget: &BudgetStats) -> Vec<(&'static str, String)> {
    if budget.plan_day_bytes == 0 {
        return vec![("budget", "none: [endurance] sets neither dwpd nor tbw".to_owned())];
    }
    let left = match u64::try_from(budget.level_bytes) {
        Ok(bytes) => format!("{} of {}", size(bytes), size(budget.bucket_bytes)),
        Err(_) => format!("none, {} are owed", size(budget.level_bytes.unsigned_abs())),
    };
    let held =
        if budget.held_bytes > 0 { format!(", {} on their way", size(budget.held_bytes)) } else { String::new() };
    vec![
        ("budget", format!("{} a day, {}", size(budget.plan_day_bytes), rate(budget.plan_day_bytes, DAY))),
        ("left now", left + &held),
    ]
}

fn written_today(budget: &BudgetStats) -> String {
    format!("{} in 24 hours of running, {}", size(budget.day_bytes), rate(budget.pace_day_bytes, DAY))
}

fn written_in_all(budget: &BudgetStats) -> String {
    let ran = time(Duration::from_secs(budget.running_seconds.max(1)));
    format!("{} in {ran} of running (source: {})", size(budget.written_bytes), budget.wear_source)
}

fn lifetime(budget: &BudgetStats) -> String {
    let rated = u128::from(budget.rated_bytes).max(1);
    let used = u128::from(budget.written_bytes) * 1000 / rated;
    let left = budget.years_left.map_or("no end in sight".to_owned(), |years| {
        if years > 100.0 { "more than 100 years left".to_owned() } else { format!("{years:.1} years left") }
    });
    let plan = count(budget.plan_years, "year");
    format!("{left} at this pace, planned {plan}; {}.{} % of {} used", used / 10, used % 10, size(budget.rated_bytes))
}

/// A part of what the plan allows a day, in per cent.
fn of_plan(day_bytes: u64, budget: &BudgetStats) -> Option<String> {
    let percent = (u128::from(day_bytes) * 100).checked_div(u128::from(budget.plan_day_bytes))?;
    Some(format!("{} %", number(u64::try_from(percent).unwrap_or(u64::MAX))))
}

fn as_json(budget: &BudgetStats) -> Value {
    json!({
        "policy": budget.policy, "plan_day_bytes": budget.plan_day_bytes, "bucket_bytes": budget.bucket_bytes,
        "level_bytes": budget.level_bytes, "held_bytes": budget.held_bytes, "day_bytes": budget.day_bytes,
        "pace_day_bytes": budget.pace_day_bytes, "written_bytes": budget.written_bytes,
        "running_seconds": budget.running_seconds, "plan_years": budget.plan_years, "rated_bytes": budget.rated_bytes,
        "years_left": budget.years_left, "wear_source": budget.wear_source, "admitted_pages": budget.admitted_pages,
        "refused_pages": counts_json(&budget.refused_pages), "refused_bytes": counts_json(&budget.refused_bytes),
        "not_durable_pages": budget.not_durable_pages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_as_what_is_left_and_how_long_the_drive_lasts() {
        let budget = BudgetStats {
            policy: "budget".to_owned(),
            plan_day_bytes: 100 << 30,
            bucket_bytes: 700 << 30,
            level_bytes: 350 << 30,
            pace_day_bytes: 25 << 30,
            written_bytes: 1 << 40,
            plan_years: 5,
            rated_bytes: 200 << 40,
            years_left: Some(19.96),
            wear_source: "ledger".to_owned(),
            ..BudgetStats::default()
        };
        let text = as_text(&budget);
        for line in [
            "left now        350.0 GiB of 700.0 GiB",
            "burn            25 % of the plan",
            "lifetime        20.0 years left at this pace, planned 5 years; 0.5 % of 200.0 TiB used",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let owed = BudgetStats { level_bytes: -(1 << 20), ..budget };
        assert!(as_text(&owed).contains("none, 1.00 MiB are owed"));
    }

    #[test]
    fn without_a_plan_it_says_so() {
        let text = as_text(&BudgetStats { policy: "all".to_owned(), ..BudgetStats::default() });
        assert!(text.contains("[endurance] sets neither dwpd nor tbw") && !text.contains("lifetime"), "{text}");
    }
}
