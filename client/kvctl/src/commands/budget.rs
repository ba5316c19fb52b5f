//! `kvctl budget`: what may be written to the SSD, what was, and how long the drive will last.

use std::time::Duration;

use cairn_client::Client;
use cairn_proto::v1::{BudgetStats, DriveWear};
use serde_json::{Value, json};

use super::stats::{counts_json, counts_text};
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, number, rate, size, time};

const DAY: Duration = Duration::from_secs(86_400);
/// The bits of an NVMe drive's critical warning, from the lowest.
const WARNINGS: [&str; 6] = [
    "its spare is low",
    "its temperature is out of bounds",
    "it is no longer reliable",
    "it only reads",
    "the backup of its memory has failed",
    "its persistent memory is not reliable",
];

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
    lines.extend(drive_lines(budget));
    if budget.plan_years > 0 || budget.years_left.is_some() {
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
    let ran = time(Duration::from_secs(budget.running_seconds.clamp(1, DAY.as_secs())));
    let pace = rate(budget.pace_day_bytes, DAY);
    format!("{} in the last {ran} of running, a pace of {pace} over an hour at least", size(budget.day_bytes))
}

fn written_in_all(budget: &BudgetStats) -> String {
    let ran = time(Duration::from_secs(budget.running_seconds.max(1)));
    format!("{} in {ran} of running (source: ledger)", size(budget.written_bytes))
}

/// What the drive says of itself, or why nothing is known of that.
fn drive_lines(budget: &BudgetStats) -> Vec<(&'static str, String)> {
    let Some(drive) = &budget.drive else {
        let reason = &budget.drive_unknown;
        // A server before there was such a thing gives none.
        let unknown = || ("drive wear", format!("not known: {reason} (the ledger stands in its place)"));
        return if reason.is_empty() { Vec::new() } else { vec![unknown()] };
    };
    let mut lines = vec![("drive wear", drive_wear(drive))];
    if drive.critical_warning != 0 {
        lines.push(("drive warns", warnings(drive.critical_warning)));
    }
    if !budget.drive_unknown.is_empty() {
        lines.push(("drive silent", format!("not read again since: {}", budget.drive_unknown)));
    }
    lines
}

fn drive_wear(drive: &DriveWear) -> String {
    let mut wear = format!("{} % of {}", drive.used_percent, drive.disk);
    if let Some(bytes) = drive.written_bytes {
        wear += &format!(", {} written to it by all", size(bytes));
    }
    if let Some(bytes) = drive.pace_day_bytes {
        wear += &format!(", {} now", rate(bytes, DAY));
    }
    if let Some(percent) = drive.spare_percent {
        wear += &format!(", {percent} % spare");
    }
    wear + &format!(" (source: drive, {} ago)", time(Duration::from_secs(drive.age_seconds)))
}

fn warnings(bits: u64) -> String {
    let known = WARNINGS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, what)| *what);
    let other = (bits >> WARNINGS.len() != 0).then_some("something newer than this program");
    known.chain(other).collect::<Vec<_>>().join(", ")
}

fn lifetime(budget: &BudgetStats) -> String {
    let left = budget.years_left.map_or("no end in sight".to_owned(), |years| {
        if years > 100.0 { "more than 100 years left".to_owned() } else { format!("{years:.1} years left") }
    });
    let plan = match budget.plan_years {
        0 => String::new(),
        years => format!(", planned {}", count(years, "year")),
    };
    format!("{left} at this pace{plan}; {}", used(budget))
}

/// How much of the drive's life is used, by what the years left are reckoned by.
fn used(budget: &BudgetStats) -> String {
    if let Some(drive) = budget.drive.as_ref().filter(|_| budget.wear_source == "drive") {
        return format!("{} % of the drive used (source: drive)", drive.used_percent);
    }
    let rated = u128::from(budget.rated_bytes).max(1);
    let used = u128::from(budget.written_bytes) * 1000 / rated;
    format!("{}.{} % of {} used (source: ledger)", used / 10, used % 10, size(budget.rated_bytes))
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
        "not_durable_pages": budget.not_durable_pages, "drive": budget.drive.as_ref().map(drive_json),
        "drive_unknown": Some(&budget.drive_unknown).filter(|reason| !reason.is_empty()),
    })
}

fn drive_json(drive: &DriveWear) -> Value {
    json!({
        "disk": drive.disk, "used_percent": drive.used_percent, "written_bytes": drive.written_bytes,
        "pace_day_bytes": drive.pace_day_bytes, "spare_percent": drive.spare_percent,
        "critical_warning": drive.critical_warning, "age_seconds": drive.age_seconds,
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

    fn drive() -> DriveWear {
        DriveWear {
            disk: "nvme0n1".to_owned(),
            used_percent: 7,
            written_bytes: Some(12 << 40),
            pace_day_bytes: Some(86_400 << 20),
            spare_percent: Some(98),
            critical_warning: 0,
            age_seconds: 1500,
        }
    }

    #[test]
    fn a_drive_that_tells_its_wear_is_shown_with_the_age_of_that_and_the_lifetime_is_reckoned_by_it() {
        let told = BudgetStats {
            policy: "all".to_owned(),
            drive: Some(drive()),
            years_left: Some(12.34),
            wear_source: "drive".to_owned(),
            ..BudgetStats::default()
        };
        let text = as_text(&told);
        for line in [
            "drive wear      7 % of nvme0n1, 12.0 TiB written to it by all, 1.00 MiB/s now, 98 % spare (source: drive, 25 min 00 s ago)",
            "lifetime        12.3 years left at this pace; 7 % of the drive used (source: drive)",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let json = as_json(&told);
        assert_eq!((&json["drive"]["used_percent"], &json["drive"]["age_seconds"]), (&json!(7), &json!(1500)));
        assert_eq!((&json["wear_source"], &json["drive_unknown"]), (&json!("drive"), &Value::Null));
        let sata = DriveWear { written_bytes: None, pace_day_bytes: None, spare_percent: None, ..drive() };
        let text = as_text(&BudgetStats { drive: Some(sata), ..told.clone() });
        assert!(text.contains("7 % of nvme0n1 (source: drive, 25 min 00 s ago)"), "{text}");
        let warning = BudgetStats { drive: Some(DriveWear { critical_warning: 0b100_1001, ..drive() }), ..told };
        let text = as_text(&warning);
        let warns = "drive warns     its spare is low, it only reads, something newer than this program";
        assert!(text.contains(warns), "{text}");
    }

    #[test]
    fn a_drive_that_tells_nothing_leaves_a_reason_and_one_that_fell_silent_its_last_word() {
        let reason = "smartctl is not installed";
        let untold = BudgetStats { drive_unknown: reason.to_owned(), ..BudgetStats::default() };
        let text = as_text(&untold);
        assert!(text.contains("not known: smartctl is not installed (the ledger stands in its place)"), "{text}");
        assert_eq!((&as_json(&untold)["drive"], &as_json(&untold)["drive_unknown"]), (&Value::Null, &json!(reason)));
        let silent = as_text(&BudgetStats { drive: Some(drive()), ..untold });
        assert!(silent.contains("7 % of nvme0n1") && silent.contains("not read again since: smartctl"), "{silent}");
        assert!(!as_text(&BudgetStats::default()).contains("drive"));
    }

    #[test]
    fn without_a_plan_it_says_so() {
        let text = as_text(&BudgetStats { policy: "all".to_owned(), ..BudgetStats::default() });
        assert!(text.contains("[endurance] sets neither dwpd nor tbw") && !text.contains("lifetime"), "{text}");
    }
}
