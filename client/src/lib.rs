//! The Rust client of Cairn.
//!
//! A [`Client`] is a connection that is made when needed. It opens a [`Namespace`] for an identity; a namespace makes a [`Chain`] of
//! tokens or hashes, and with it asks what is there ([`Namespace::match_prefix`]), stores pages ([`Namespace::put_prefix`]) and reads
//! them ([`Namespace::get_prefix`], [`Namespace::get_prefix_into`]).
//!
//! What holds for every call:
//! - It ends. The server is told the time that is left; if it does not keep to it, the client gives up after a short grace.
//! - It is repeated only where that does no harm, a bounded number of times, within its own time: calls that change nothing, a get
//!   before the first page, a put that has not begun.
//! - No page is handed out before its bytes have been checked against the checksum that it was sealed with.
//! - A miss, a short answer and a page that was not stored are values. An [`Error`] has a kind that says what to do.
//!
//! ```no_run
//! use bytes::Bytes;
//! use cairn_client::{Client, ClientOptions, GetOptions, MatchOptions, PutOptions};
//! use cairn_core::{
//!     Declared, HeadRange, Heads, Identity, KeyScheme, LayerRange, StateKind,
//! };
//!
//! # async fn use_it() -> cairn_client::Result<()> {
//! let client = Client::connect(ClientOptions::new("http://127.0.0.1:7420")).await?;
//! // Everything that shapes the bytes of a page. There are no defaults: what does not apply is stated as `None`.
//! let identity = Identity {
//!     model: "meta-llama/Llama-3.1-8B".to_owned(),
//!     model_revision: "d04e592bb4f6aa9cfee91e2e20afa771667e1d4b".to_owned(),
//!     adapter: Declared::None,
//!     positions: Declared::Is("rope theta=500000".to_owned()),
//!     kind: StateKind::Attention,
//!     dtype: "bf16".to_owned(),
//!     layout: "NHD".to_owned(),
//!     layout_version: "1".to_owned(),
//!     page_tokens: 16,
//!     page_bytes: 2 << 20,
//!     layers: LayerRange { first: 0, count: 32, of: 32 },
//!     heads: Heads::Range(HeadRange { first: 0, count: 8, of: 8 }),
//!     quantisation: Declared::None,
//!     cache_salt: Declared::None,
//!     keys: KeyScheme::Tokens,
//! };
//! let namespace = client.open_namespace(&identity).await?;
//!
//! // A prompt of 1,000 tokens has 62 full pages.
//! let tokens: Vec<u32> = (0..1000).collect();
//! let chain = namespace.chain_of_tokens(&tokens, &[])?;
//! let there = namespace.match_prefix(&chain, MatchOptions { request_tokens: Some(1000), ..Default::default() }).await?;
//! println!("{} of {} pages, ready in {:?}", there.pages, chain.pages(), there.ready_in);
//!
//! // Read what is there, page by page ...
//! let mut pages = namespace.get_prefix(&chain, GetOptions::default()).await?;
//! while let Some(page) = pages.next_page().await {
//!     println!("page {} from {:?}", page.index(), page.tier());
//! }
//! let report = pages.end().await;
//!
//! // ... or straight into memory of your own.
//! let mut memory = vec![0; chain.pages() << 21];
//! let report = namespace.get_prefix_into(&chain, GetOptions::default(), &mut memory).await?;
//! println!("{} tokens need no computing", report.good_tokens);
//!
//! // Compute the rest, and store it. Only pages that the server lacks are asked for and sent.
//! let all = Bytes::from(memory);
//! let stored = namespace.put_prefix(&chain, |page| all.slice(page << 21..(page + 1) << 21), PutOptions::default()).await?;
//! println!("{} pages are there now, {} of them were sent", stored.good_pages, stored.stored());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admin;
mod assemble;
mod budget;
mod chain;
mod client;
mod fault;
mod get;
mod get_into;
mod namespace;
mod options;
mod put;
mod upkeep;

pub use admin::{BootId, Health, NamespaceList, NamespaceSummary};
pub use cairn_core::{Error, ErrorKind, Result};
pub use cairn_proto::v1::StatsResponse;
pub use chain::Chain;
pub use client::Client;
pub use get::{GetReport, GetStop, GetStream, Page};
pub use get_into::PageMemory;
pub use namespace::{Limits, Matched, Namespace, TierRun};
pub use options::{ClientOptions, GetOptions, MatchOptions, PutOptions};
pub use put::{PageSource, PutReport};
pub use upkeep::{Verification, Verified};
