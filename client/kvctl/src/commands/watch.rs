//! `kvctl stats --watch`: a line of rates, again and again, until it is stopped.

use std::time::Duration;

use cairn_client::{Client, StatsResponse};
use cairn_core::{Clock, Moment, SystemClock};
use cairn_proto::v1::TrafficStats;

use super::stats::as_json;
use crate::outcome::{Code, Failure};
use crate::print::{Output, number, rate, size};

/// Lines between two headers.
const LINES_PER_HEADER: usize = 20;
/// A column is as wide as its longest likely value.
const COLUMNS: [(&str, usize); 10] = [
    ("match/s", 9),
    ("get/s", 9),
    ("get", 12),
    ("dram hits", 9),
    ("put/s", 9),
    ("put", 12),
    ("dram", 10),
    ("ssd", 10),
    ("ssd written", 12),
    ("queued", 8),
];

pub(crate) async fn run(client: &Client, every: Duration, out: &Output) -> Result<Code, Failure> {
    if every < Duration::from_millis(10) {
        return Err(Failure::usage("--watch takes 10ms and more"));
    }
    let clock = SystemClock::start();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before: Option<(Moment, StatsResponse)> = None;
    let mut lines = 0;
    loop {
        ticks.tick().await;
        let (now, stats) = (clock.now(), client.stats().await?);
        if out.json {
            out.text(&as_json(&stats).to_string())?;
        } else if let Some((then, old)) = &before {
            if lines % LINES_PER_HEADER == 0 {
                out.text(&line(COLUMNS.map(|(name, _)| name.to_owned())))?;
            }
            out.text(&line(cells(old, &stats, now.since(*then))))?;
            lines += 1;
        }
        before = Some((now, stats));
    }
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let pad = |(cell, (_, width)): (&String, (&str, usize))| format!("{cell:>width$}");
    cells.iter().zip(COLUMNS).map(pad).collect::<Vec<_>>().join(" ")
}

/// Counters start at 0 again with a new server process; such a step shows as nothing.
fn cells(old: &StatsResponse, new: &StatsResponse, time: Duration) -> [String; COLUMNS.len()] {
    let (before, now) = (old.traffic.clone().unwrap_or_default(), new.traffic.clone().unwrap_or_default());
    let (dram, ssd) = (new.dram.clone().unwrap_or_default(), new.ssd.clone().unwrap_or_default());
    let written_before = old.ssd.as_ref().map_or(0, |ssd| ssd.written_bytes);
    let step = |of: fn(&TrafficStats) -> u64| of(&now).saturating_sub(of(&before));
    let per_second = |of: fn(&TrafficStats) -> u64| format!("{:.0}", step(of) as f64 / time.as_secs_f64().max(1e-9));
    let (from_dram, from_ssd) = (step(|t| t.get_pages_dram), step(|t| t.get_pages_ssd));
    let dram_hits =
        (from_dram * 100).checked_div(from_dram + from_ssd).map_or("-".to_owned(), |percent| format!("{percent} %"));
    [
        per_second(|t| t.matches),
        per_second(|t| t.gets),
        rate(step(|t| t.get_bytes), time),
        dram_hits,
        per_second(|t| t.puts),
        rate(step(|t| t.put_bytes), time),
        size(dram.used_bytes),
        size(ssd.used_bytes),
        rate(ssd.written_bytes.saturating_sub(written_before), time),
        number(ssd.queued_pages),
    ]
}
