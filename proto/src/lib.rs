//! The API of Cairn on the wire.
//!
//! [`v1`] is generated from `cairn/v1/cairn.proto`; the other modules turn its messages into the words of `cairn-core` and back. What
//! comes in is refused unless it is complete: an absent field, an unspecified enum or a key of the wrong length is a [`Refused`] that
//! names it, never a default. Errors cross the wire in [`status`] and nowhere else.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod chain;
mod identity;
mod outcome;
mod refused;
pub mod status;

pub use chain::{chain_keys, key_chain, namespace_id, token_chain};
pub use refused::Refused;

/// Messages, clients and servers of `cairn.v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto file explains it"
)]
pub mod v1 {
    tonic::include_proto!("cairn.v1");
}
