//! `kvctl scrub`: what the scrub has done, how far it is, and a pass now.

use std::time::Duration;

use cairn_client::Client;
use cairn_core::ByteSize;
use cairn_proto::v1::ScrubStats;
use serde_json::{Value, json};

use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, number, size, time};

pub(crate) async fn run(client: &Client, now: bool, rate: Option<ByteSize>, out: &Output) -> Result<Code, Failure> {
    let scrub = if now { client.scrub_now(rate.map(|rate| rate.0)).await? } else { client.scrub().await? };
    out.result(&as_json(&scrub), || as_text(&scrub))?;
    Ok(Code::Fine)
}

fn as_text(scrub: &ScrubStats) -> String {
    let every = match scrub.period_seconds {
        0 => "off; a pass begins with `kvctl scrub --now`".to_owned(),
        seconds => format!("everything once in {}, {}", time(Duration::from_secs(seconds)), limit(scrub)),
    };
    let pass = match (scrub.verifying, scrub.asked, scrub.period_seconds) {
        (true, ..) => format!("{}, waiting for a verification to end", percent(scrub.progress_ppm)),
        (_, true, _) => format!("{}, everything at once", percent(scrub.progress_ppm)),
        (_, _, 0) => "none".to_owned(),
        _ => percent(scrub.progress_ppm),
    };
    let oldest = match scrub.oldest_seconds {
        Some(seconds) => format!("{} ago", time(Duration::from_secs(seconds))),
        None => "no page on the ssd".to_owned(),
    };
    facts(&[
        ("scrub", every),
        ("pass", pass),
        ("passes complete", number(scrub.passes)),
        ("oldest unverified", oldest),
        ("verified", format!("{}, {} since the start", count(scrub.pages, "page"), size(scrub.bytes))),
        ("found damaged", count(scrub.damaged, "page")),
    ])
}

fn limit(scrub: &ScrubStats) -> String {
    match scrub.bytes_per_second_max {
        0 => "as fast as the ssd can".to_owned(),
        bytes => format!("at {}/s at most", size(bytes)),
    }
}

pub(super) fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm / 1000 % 10)
}

pub(super) fn as_json(scrub: &ScrubStats) -> Value {
    json!({
        "period_seconds": scrub.period_seconds, "bytes_per_second_max": scrub.bytes_per_second_max,
        "asked": scrub.asked, "verifying": scrub.verifying, "progress_ppm": scrub.progress_ppm, "passes": scrub.passes,
        "pages": scrub.pages, "bytes": scrub.bytes, "damaged": scrub.damaged, "oldest_seconds": scrub.oldest_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_reads_as_how_far_it_is_and_how_old_the_oldest_page_is() {
        let scrub = ScrubStats {
            period_seconds: 604_800,
            bytes_per_second_max: 64 << 20,
            progress_ppm: 415_900,
            oldest_seconds: Some(90_000),
            ..ScrubStats::default()
        };
        let text = as_text(&scrub);
        for line in ["everything once in 7 d 00 h, at 64.0 MiB/s at most", "pass               41.5 %", "1 d 01 h ago"]
        {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(as_text(&ScrubStats::default()).contains("off; a pass begins with `kvctl scrub --now`"));
    }
}
