//! `kvctl verify`: everything on the SSD of a running server, or all of one namespace, is read and verified now.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use cairn_client::{Client, Verified};
use cairn_core::ByteSize;
use cairn_proto::v1::VerifyCounts;
use serde_json::json;

use super::clear;
use super::scrub::percent;
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, rate, size, time};

pub(crate) async fn run(
    client: &Client,
    namespace: Option<&str>,
    limit: Option<ByteSize>,
    out: &Output,
) -> Result<Code, Failure> {
    let namespace = match namespace {
        Some(start) => Some(clear::find(client, start).await?),
        None => None,
    };
    let started = started();
    let mut verification = client.verify(namespace.as_ref(), limit.map_or(0, |limit| limit.0));
    let mut found = VerifyCounts::default();
    while let Some(verified) = verification.next().await? {
        found = verified.counts;
        show(&verified, out);
    }
    let took = started.elapsed();
    let VerifyCounts { pages, bytes, damaged, unreadable } = found;
    let is_clean = damaged == 0 && unreadable == 0;
    let json = json!({
        "clean": is_clean, "pages": pages, "bytes": bytes, "damaged": damaged, "unreadable": unreadable,
        "seconds": took.as_secs_f64(), "namespace": namespace.map(|id| id.to_string()),
    });
    out.result(&json, || {
        facts(&[
            ("whole", format!("{}, {}", count(pages, "page"), size(bytes))),
            ("damaged", format!("{}{}", count(damaged, "page"), if damaged > 0 { ", dropped" } else { "" })),
            ("unreadable", format!("{}{}", count(unreadable, "page"), if unreadable > 0 { ", kept" } else { "" })),
            ("took", format!("{}, {}", time(took), rate(bytes, took))),
        ])
    })?;
    Ok(if is_clean { Code::Fine } else { Code::Short })
}

#[expect(clippy::disallowed_methods, reason = "a tool that people wait for, not the server")]
fn started() -> Instant {
    Instant::now()
}

/// Progress, for whoever waits at a terminal; as JSON, for a program, a line each.
fn show(verified: &Verified, out: &Output) {
    if verified.done {
        return;
    }
    let mut err = std::io::stderr().lock();
    let VerifyCounts { pages, bytes, damaged, unreadable } = verified.counts;
    // Nobody is left to tell if this fails.
    let _ = if out.json {
        let progress = json!({ "progress_ppm": verified.progress_ppm, "pages": pages, "damaged": damaged });
        writeln!(err, "{progress}")
    } else if err.is_terminal() {
        let done = percent(verified.progress_ppm);
        writeln!(err, "{done}: {}, {}, {damaged} damaged, {unreadable} unreadable", count(pages, "page"), size(bytes))
    } else {
        Ok(())
    };
}
