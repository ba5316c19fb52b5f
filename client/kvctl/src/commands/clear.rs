//! `kvctl clear`.

use cairn_client::Client;
use cairn_core::NamespaceId;
use serde_json::json;

use crate::chain::unhex;
use crate::outcome::{Code, Failure};
use crate::print::{Output, count};

/// Fewest digits that may stand for an id.
const DIGITS_MIN: usize = 8;

pub(crate) async fn run(client: &Client, start: &str, out: &Output) -> Result<Code, Failure> {
    let id = find(client, start).await?;
    let pages = client.clear(&id).await?;
    let json = json!({ "namespace": id.to_string(), "pages": pages });
    out.result(&json, || format!("dropped {} of namespace {id} from every tier", count(pages, "page")))?;
    Ok(Code::Fine)
}

/// The namespace with this id, or the one known that starts like this.
pub(super) async fn find(client: &Client, start: &str) -> Result<NamespaceId, Failure> {
    let hex = start.chars().all(|c| c.is_ascii_hexdigit());
    if !hex || !(DIGITS_MIN..=64).contains(&start.len()) {
        return Err(Failure::usage(format!("a namespace is {DIGITS_MIN} to 64 hex digits: {start:?}"))
            .hint("`kvctl namespaces` lists them"));
    }
    if let Some(id) = unhex(start).and_then(|id| id.try_into().ok()) {
        return Ok(NamespaceId::from_bytes(id));
    }
    let start = start.to_ascii_lowercase();
    let known = client.namespaces().await?.namespaces;
    let found: Vec<NamespaceId> =
        known.into_iter().map(|namespace| namespace.id).filter(|id| id.to_string().starts_with(&start)).collect();
    match found[..] {
        [id] => Ok(id),
        [] => Err(Failure::usage(format!("no namespace starts with {start}")).hint("`kvctl namespaces` lists them")),
        _ => Err(Failure::usage(format!("{} namespaces start with {start}", found.len())).hint("give more digits")),
    }
}
