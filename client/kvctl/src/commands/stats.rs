//! `kvctl stats`: what the server is, holds and has done.

use std::time::Duration;

use cairn_client::{Client, StatsResponse};
use cairn_proto::v1::{Count, FlashStats, RecoveryStats, ScrubStats, ServerStats, TierStats, TrafficStats};
use serde_json::{Map, Value, json};

use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, hex, number, size, table, time};

pub(crate) async fn run(client: &Client, out: &Output) -> Result<Code, Failure> {
    let stats = client.stats().await?;
    out.result(&as_json(&stats), || as_text(stats))?;
    Ok(Code::Fine)
}

fn as_text(stats: StatsResponse) -> String {
    let StatsResponse { server, dram, ssd, traffic, recovery, flash, scrub, .. } = stats;
    let (dram, ssd) = (dram.unwrap_or_default(), ssd.unwrap_or_default());
    let mut lines = server_lines(&server.unwrap_or_default());
    lines.extend(recovery.map(|recovery| ("recovery", recovery_line(&recovery))));
    let mut text = vec![facts(&lines), tiers(&dram, &ssd)];
    if ssd.write_quarantined {
        text.push("QUARANTINED: a write to the ssd failed; it takes no more (see `kvctl quarantine list`)".to_owned());
    }
    if let Some(flash) = flash {
        text.push(facts(&flash_lines(&flash, scrub.as_ref())));
    }
    if !ssd.skipped.is_empty() {
        text.push(facts(&[("not written to ssd", counts_text(&ssd.skipped))]));
    }
    text.push(facts(&traffic_lines(&traffic.unwrap_or_default())));
    text.join("\n\n")
}

fn server_lines(server: &ServerStats) -> Vec<(&'static str, String)> {
    let up = time(Duration::from_millis(server.uptime_ms));
    let mut lines = vec![
        ("server", format!("cairn {}, up {up}, boot {}", server.version, hex(&server.boot_id))),
        ("holds", format!("{}, {} directory entries", count(server.namespaces, "namespace"), number(server.entries))),
        ("memory", format!("{} resident", size(server.resident_bytes))),
    ];
    if server.insecure {
        lines.push(("INSECURE", "it listens on a routable address and asks nobody who they are".to_owned()));
    }
    lines
}

fn recovery_line(recovery: &RecoveryStats) -> String {
    let took = time(Duration::from_millis(recovery.millis));
    let dropped = if recovery.dropped > 0 { format!(", {} dropped", number(recovery.dropped)) } else { String::new() };
    format!("{}: {} found{dropped}, in {took}", recovery.mode, count(recovery.pages, "page"))
}

fn tiers(dram: &TierStats, ssd: &TierStats) -> String {
    let row = |name: &str, tier: &TierStats, device: bool| {
        let on_device = |text: String| if device { text } else { "-".to_owned() };
        vec![
            name.to_owned(),
            size(tier.used_bytes),
            size(tier.capacity_bytes),
            format!("{} %", (tier.used_bytes * 100).checked_div(tier.capacity_bytes).unwrap_or(0)),
            number(tier.pages),
            number(tier.evicted_pages),
            number(tier.damaged_pages),
            on_device(number(tier.queued_pages)),
            on_device(size(tier.written_bytes)),
            on_device(size(tier.read_bytes)),
            if tier.backing.is_empty() { "?".to_owned() } else { tier.backing.clone() },
        ]
    };
    let header = ["tier", "used", "of", "full", "pages", "evicted", "damaged", "queued", "written", "read", "backing"];
    table(&header, &[row("dram", dram, false), row("ssd", ssd, true)])
}

fn flash_lines(flash: &FlashStats, scrub: Option<&ScrubStats>) -> Vec<(&'static str, String)> {
    let FlashStats { written_bytes, page_bytes, reinserted_bytes, reclaimed_regions, trimmed_bytes, .. } = *flash;
    let mut lines = vec![
        (
            "flash written",
            format!(
                "{} for {} of pages, {} of them again; amplification {}",
                size(written_bytes),
                size(page_bytes + reinserted_bytes),
                size(reinserted_bytes),
                amplification(flash).map_or("-".to_owned(), |amplification| format!("{amplification:.3}")),
            ),
        ),
        ("flash freed", format!("{}, {} trimmed", count(reclaimed_regions, "region"), size(trimmed_bytes))),
        ("flash idle", format!("{} dead, {} in quarantine", size(flash.dead_bytes), size(flash.quarantined_bytes))),
    ];
    if let Some(scrub) = scrub {
        let oldest = scrub.oldest_seconds.map_or("no page".to_owned(), |seconds| time(Duration::from_secs(seconds)));
        let done = super::scrub::percent(scrub.progress_ppm);
        lines
            .push(("scrub", format!("{done} of the pass, oldest unverified page {oldest}, {} damaged", scrub.damaged)));
    }
    lines
}

/// Bytes written for each byte of pages that were put.
fn amplification(flash: &FlashStats) -> Option<f64> {
    (flash.page_bytes > 0).then(|| flash.written_bytes as f64 / flash.page_bytes as f64)
}

fn traffic_lines(traffic: &TrafficStats) -> Vec<(&'static str, String)> {
    let pages = traffic.get_pages_dram + traffic.get_pages_ssd;
    let mut lines = vec![
        ("matches", number(traffic.matches)),
        (
            "gets",
            format!(
                "{}: {} ({} dram, {} ssd), {}",
                number(traffic.gets),
                count(pages, "page"),
                number(traffic.get_pages_dram),
                number(traffic.get_pages_ssd),
                size(traffic.get_bytes)
            ),
        ),
        ("  ended by", counts_text(&traffic.get_stops)),
        (
            "puts",
            format!(
                "{}: {} stored, {} present, {}",
                number(traffic.puts),
                count(traffic.put_pages_stored, "page"),
                number(traffic.put_pages_present),
                size(traffic.put_bytes)
            ),
        ),
        ("  not stored", counts_text(&traffic.put_not_stored)),
    ];
    lines.retain(|(_, line)| line != "-");
    lines
}

pub(super) fn counts_text(counts: &[Count]) -> String {
    if counts.is_empty() {
        return "-".to_owned();
    }
    counts.iter().map(|of| format!("{} {}", of.reason, number(of.count))).collect::<Vec<_>>().join(", ")
}

pub(super) fn as_json(stats: &StatsResponse) -> Value {
    let StatsResponse { server, dram, ssd, traffic, recovery, flash, scrub, .. } = stats;
    json!({
        "server": server.as_ref().map(|server| json!({
            "version": server.version, "boot_id": hex(&server.boot_id), "uptime_ms": server.uptime_ms,
            "insecure": server.insecure, "resident_bytes": server.resident_bytes, "namespaces": server.namespaces,
            "entries": server.entries,
        })),
        "dram": dram.as_ref().map(tier_json),
        "ssd": ssd.as_ref().map(tier_json),
        "traffic": traffic.as_ref().map(traffic_json),
        "flash": flash.as_ref().map(flash_json),
        "scrub": scrub.as_ref().map(super::scrub::as_json),
        "recovery": recovery.as_ref().map(|recovery| json!({
            "mode": recovery.mode, "pages": recovery.pages, "dropped": recovery.dropped, "millis": recovery.millis,
            "rebuilding": recovery.rebuilding,
        })),
    })
}

fn tier_json(tier: &TierStats) -> Value {
    json!({
        "capacity_bytes": tier.capacity_bytes, "used_bytes": tier.used_bytes, "pages": tier.pages,
        "evicted_pages": tier.evicted_pages, "written_bytes": tier.written_bytes, "read_bytes": tier.read_bytes,
        "damaged_pages": tier.damaged_pages, "write_quarantined": tier.write_quarantined, "backing": tier.backing,
        "queued_pages": tier.queued_pages, "skipped": counts_json(&tier.skipped),
    })
}

fn flash_json(flash: &FlashStats) -> Value {
    json!({
        "written_bytes": flash.written_bytes, "page_bytes": flash.page_bytes,
        "reinserted_bytes": flash.reinserted_bytes, "reclaimed_regions": flash.reclaimed_regions,
        "trimmed_bytes": flash.trimmed_bytes, "dead_bytes": flash.dead_bytes,
        "quarantined_bytes": flash.quarantined_bytes, "write_amplification": amplification(flash),
    })
}

fn traffic_json(traffic: &TrafficStats) -> Value {
    json!({
        "gets": traffic.gets, "puts": traffic.puts, "matches": traffic.matches,
        "get_pages_dram": traffic.get_pages_dram, "get_pages_ssd": traffic.get_pages_ssd, "get_bytes": traffic.get_bytes,
        "get_stops": counts_json(&traffic.get_stops), "put_pages_stored": traffic.put_pages_stored,
        "put_pages_present": traffic.put_pages_present, "put_bytes": traffic.put_bytes,
        "put_not_stored": counts_json(&traffic.put_not_stored),
    })
}

pub(super) fn counts_json(counts: &[Count]) -> Value {
    Value::Object(counts.iter().map(|of| (of.reason.clone(), of.count.into())).collect::<Map<_, _>>())
}
