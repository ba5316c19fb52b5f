//! `kvctl match`.

use cairn_client::{Client, MatchOptions};
use cairn_core::StopReason;
use serde_json::json;

use super::{open, part_of, runs_json, runs_text};
use crate::cli::ChainArgs;
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, time};

pub(crate) async fn run(
    client: &Client,
    chain: &ChainArgs,
    request_tokens: Option<u64>,
    out: &Output,
) -> Result<Code, Failure> {
    let (namespace, chain) = open(client, chain).await?;
    let options = MatchOptions { request_tokens, timeout: None };
    let matched = namespace.match_prefix(&chain, options).await?;
    let json = json!({
        "namespace": namespace.id().to_string(), "chain_pages": chain.pages(), "pages": matched.pages, "tokens": matched.tokens,
        "runs": runs_json(&matched.runs), "pages_beyond": matched.pages_beyond,
        "ready_in_us": u64::try_from(matched.ready_in.as_micros()).unwrap_or(u64::MAX), "stop": matched.stop.label(),
    });
    out.result(&json, || {
        let mut lines = vec![
            ("namespace", namespace.id().to_string()),
            ("there", format!("{}, {}", part_of(matched.pages, chain.pages()), count(matched.tokens, "token"))),
            ("tiers", runs_text(&matched.runs)),
            ("ready in", time(matched.ready_in)),
            ("ends by", matched.stop.label().to_owned()),
        ];
        if matched.pages_beyond > 0 {
            lines.push((
                "beyond",
                format!("{} more there, of no use to the request", count(matched.pages_beyond as u64, "page")),
            ));
        }
        facts(&lines)
    })?;
    Ok(code_of(matched.stop))
}

/// Whether a prefix that ends for this reason is all that was asked for.
pub(super) fn code_of(stop: StopReason) -> Code {
    match stop {
        StopReason::EndOfChain | StopReason::MaxTokens => Code::Fine,
        StopReason::Deadline => Code::Deadline,
        StopReason::NotStored | StopReason::Damaged | StopReason::ReadFailed | StopReason::NoSpace => Code::Short,
    }
}
