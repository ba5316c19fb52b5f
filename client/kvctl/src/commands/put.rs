//! `kvctl put`.

use std::collections::BTreeMap;

use cairn_client::{Client, PutOptions, PutReport};
use cairn_core::{Clock, Durability, KeptOff, NotStored, PageOutcome, SystemClock};
use serde_json::{Value, json};

use super::{open, part_of};
use crate::cli::{ChainArgs, DurabilityArg, SourceArgs};
use crate::outcome::{Code, Failure};
use crate::pages::Source;
use crate::print::{Output, count, facts, rate, size, time};

pub(crate) async fn run(
    client: &Client,
    chain: &ChainArgs,
    source: &SourceArgs,
    durability: DurabilityArg,
    out: &Output,
) -> Result<Code, Failure> {
    let (namespace, chain) = open(client, chain).await?;
    let page_bytes = usize::try_from(namespace.identity().page_bytes).unwrap_or(usize::MAX);
    let source = match &source.from {
        Some(path) => Source::open(path, chain.pages(), page_bytes)?,
        None => Source::Test { chain: chain.clone(), page_bytes },
    };
    let durability = match durability {
        DurabilityArg::Memory => Durability::Memory,
        DurabilityArg::Ssd => Durability::Ssd,
    };
    let clock = SystemClock::start();
    let report = namespace.put_prefix(&chain, source, PutOptions { durability, timeout: None }).await?;
    let took = clock.now().since_start();

    let bytes = report.stored() as u64 * page_bytes as u64;
    let reached = report.durability.map_or("-", Durability::label);
    let json = json!({
        "namespace": namespace.id().to_string(), "chain_pages": chain.pages(), "good_pages": report.good_pages,
        "durability": report.durability.map(Durability::label), "stored": report.stored(), "present": report.present(),
        "not_stored": Value::Object(not_stored(&report).into_iter().map(|(why, n)| (why.to_owned(), n.into())).collect()),
        "kept_off": report.kept_off.map(KeptOff::label), "sent_bytes": bytes, "took_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    });
    out.result(&json, || {
        let mut lines = vec![
            ("namespace", namespace.id().to_string()),
            (
                "there",
                format!(
                    "{}, {} stored, {} present",
                    part_of(report.good_pages, chain.pages()),
                    report.stored(),
                    report.present()
                ),
            ),
            ("durable in", reached.to_owned()),
            ("sent", format!("{} in {}, {}", size(bytes), time(took), rate(bytes, took))),
        ];
        if let Some(reason) = report.kept_off {
            lines.push(("kept off ssd", format!("by {}", reason.label())));
        }
        let reasons: Vec<String> =
            not_stored(&report).into_iter().map(|(why, pages)| format!("{} by {why}", count(pages, "page"))).collect();
        if !reasons.is_empty() {
            lines.push(("not stored", reasons.join(", ")));
        }
        facts(&lines)
    })?;
    Ok(code_of(&report, durability))
}

fn not_stored(report: &PutReport) -> BTreeMap<&'static str, u64> {
    let mut reasons = BTreeMap::new();
    for outcome in &report.outcomes {
        if let PageOutcome::NotStored(reason) = outcome {
            *reasons.entry(reason.label()).or_default() += 1;
        }
    }
    reasons
}

fn code_of(report: &PutReport, asked: Durability) -> Code {
    match report.first_missing() {
        Some(NotStored::Deadline) => Code::Deadline,
        Some(_) => Code::Short,
        None if report.durability < Some(asked) => Code::Short,
        None => Code::Fine,
    }
}
