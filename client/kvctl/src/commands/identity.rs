//! `kvctl identity`: files only, no server.

use serde_json::{Value, json};

use crate::cli::IdentityCommand;
use crate::identity::{Difference, differences, read, template};
use crate::outcome::{Code, Failure};
use crate::print::{Output, count, facts, hex, size, table};

pub(crate) fn run(what: &IdentityCommand, out: &Output) -> Result<Code, Failure> {
    match what {
        IdentityCommand::Check { file } => check(file, out),
        IdentityCommand::Diff { a, b } => diff(a, b, out),
        IdentityCommand::Template => {
            let text = serde_json::to_string_pretty(&template());
            out.text(&text.map_err(|e| Failure::usage(e.to_string()))?)?;
            Ok(Code::Fine)
        }
    }
}

fn check(file: &str, out: &Output) -> Result<Code, Failure> {
    let identity = read(file)?;
    let canonical = identity.canonical_bytes();
    let digest = hex(blake3::hash(&canonical).as_bytes());
    let json = json!({ "digest": digest, "canonical_bytes": canonical.len() });
    out.result(&json, || {
        let (bytes, tokens) = (identity.page_bytes, u64::from(identity.page_tokens));
        facts(&[
            ("identity", format!("{file}: complete, every field in range")),
            ("digest", digest.clone()),
            (
                "",
                format!(
                    "BLAKE3 of its {} canonical bytes: the same for the same identity, in any file",
                    canonical.len()
                ),
            ),
            (
                "page",
                format!("{} for {}, {} a token", size(bytes), count(tokens, "token"), size(bytes / tokens.max(1))),
            ),
        ])
    })?;
    Ok(Code::Fine)
}

fn diff(a: &str, b: &str, out: &Output) -> Result<Code, Failure> {
    let standard_input = |file: &str| matches!(file, "-" | "@-");
    if standard_input(a) && standard_input(b) {
        return Err(Failure::usage("only one of the two can be standard input"));
    }
    let found = differences(&read(a)?, &read(b)?);
    let fields: Vec<Value> =
        found.iter().map(|found| json!({ "field": found.field, "a": found.a, "b": found.b })).collect();
    out.result(&json!({ "same": found.is_empty(), "differences": fields }), || explain(&found, a, b))?;
    Ok(if found.is_empty() { Code::Fine } else { Code::Short })
}

fn explain(found: &[Difference], a: &str, b: &str) -> String {
    if found.is_empty() {
        return "the same identity: pages stored under one are found under the other".to_owned();
    }
    let row = |found: &Difference| vec![found.field.clone(), plain(&found.a), plain(&found.b)];
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let fields = count(found.len() as u64, "field");
    let differ = if found.len() == 1 { "differs" } else { "differ" };
    format!(
        "{fields} {differ}: two namespaces, and no page of one is found in the other\n\n{}",
        table(&["field", a, b], &rows)
    )
}

/// A value as people write it: text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
