//! What goes wrong in the client, and what its caller is told.

use std::error::Error as StdError;
use std::time::Duration;

use cairn_core::{ChainFault, Error, ErrorKind, NamespaceId};
use cairn_proto::{Refused, status};
use thiserror::Error as ThisError;
use tonic::{ConnectError, Status};

/// A cause inside the client.
#[derive(Debug, ThisError)]
pub(crate) enum Fault {
    #[error("not an endpoint; write http://host:port or host:port endpoint={endpoint:?}")]
    Endpoint { endpoint: String },
    #[error("can not reach the server; is it running, and is this its address? endpoint={endpoint}")]
    Unreachable { endpoint: String },
    #[error("the connection to the server broke off; the call may be repeated endpoint={endpoint}")]
    BrokeOff { endpoint: String },
    #[error("the server did not end the call in time; it may be overloaded or hang call={call} waited_ms={}", .waited.as_millis())]
    Hangs { call: &'static str, waited: Duration },
    #[error(
        "the server's answer breaks the protocol; client and server may be of different versions call={call}: {what}"
    )]
    Protocol { call: &'static str, what: String },
    #[error("the chain belongs to another namespace; make it again chain_namespace={chain} namespace={namespace}")]
    ForeignChain { chain: NamespaceId, namespace: NamespaceId },
    #[error("the chain is too long for this server pages={pages} pages_max={pages_max}")]
    ChainTooLong { pages: usize, pages_max: u64 },
    #[error("the keys of this namespace are {wanted}; make the chain of those")]
    KeyScheme { wanted: &'static str },
    #[error("all hashes of a chain have one length page={page} bytes={bytes} bytes_expected={expected}")]
    HashBytes { page: usize, bytes: usize, expected: usize },
    #[error(transparent)]
    Chain(#[from] ChainFault),
    #[error("a page has the wrong length page={page} bytes={bytes} page_bytes={page_bytes}")]
    PageBytes { page: usize, bytes: usize, page_bytes: usize },
    #[error("the memory given is not a whole number of pages bytes={bytes} page_bytes={page_bytes}")]
    MemoryBytes { bytes: usize, page_bytes: usize },
}

impl Fault {
    /// An answer that `call` can not have.
    pub(crate) fn protocol(call: &'static str, what: impl Into<String>) -> Self {
        Self::Protocol { call, what: what.into() }
    }

    /// An answer of `call` that was refused on arrival.
    pub(crate) fn refused(call: &'static str) -> impl Fn(Refused) -> Self {
        move |refused| Self::protocol(call, refused.to_string())
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::BrokeOff { .. } => ErrorKind::Unavailable,
            Self::Hangs { .. } => ErrorKind::Deadline,
            Self::Protocol { .. } => ErrorKind::Internal,
            Self::ForeignChain { .. } => ErrorKind::Fenced,
            Self::Endpoint { .. }
            | Self::ChainTooLong { .. }
            | Self::KeyScheme { .. }
            | Self::HashBytes { .. }
            | Self::Chain(_)
            | Self::PageBytes { .. }
            | Self::MemoryBytes { .. } => ErrorKind::Invalid,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::new(fault.kind(), fault.to_string())
    }
}

/// The error of a call that ended with `status`.
///
/// Only a status made on this side has a source: the connection could not be made, or broke. Everything else is the server's word.
pub(crate) fn of_status(endpoint: &str, status: Status) -> Error {
    let endpoint = endpoint.to_owned();
    let Some(root) = sources(&status).last() else { return status::from_status(&status) };
    // The deepest cause is the one that says something, such as "connection refused".
    let cause = root.to_string();
    let never_left = sources(&status).any(|source| source.is::<ConnectError>());
    let fault = if never_left { Fault::Unreachable { endpoint } } else { Fault::BrokeOff { endpoint } };
    Error::from(fault).caused_by(Broken { cause, never_left })
}

/// Whether the call ended before it left, so that the server can not have seen it.
pub(crate) fn never_left(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(|broken: &Broken| broken.never_left)
}

fn sources(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(status.source(), |&source| source.source())
}

/// What became of a connection.
#[derive(Debug, ThisError)]
#[error("{cause}")]
struct Broken {
    cause: String,
    never_left: bool,
}
