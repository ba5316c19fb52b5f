//! Why a message is refused before anything is done with it.

use cairn_core::{ChainFault, Error};
use thiserror::Error as ThisError;

/// What is wrong with a message. Fields are named as in the .proto file, with dots.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum Refused {
    /// A field that every call must have was left out.
    #[error("a required field is missing; what does not apply is stated as none field={0}")]
    Missing(&'static str),
    /// An enum has its unspecified value, or one that this version does not know.
    #[error("an enum has no known value field={field} value={value}")]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// The number that came.
        value: i32,
    },
    /// A field of fixed length has another.
    #[error("a field has the wrong length field={field} bytes={bytes} bytes_expected={expected}")]
    Length {
        /// The field.
        field: &'static str,
        /// The length that came.
        bytes: usize,
        /// The only length that is taken.
        expected: usize,
    },
    /// A packed field is not a whole number of its items.
    #[error("a packed field is not a whole number of its items field={field} bytes={bytes} item_bytes={item_bytes}")]
    Packing {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// Length of one item.
        item_bytes: usize,
    },
    /// The packed extra inputs end in the middle of one.
    #[error("the extra inputs end in the middle of one field=chain.tokens.inputs bytes={bytes}")]
    InputsCutOff {
        /// Bytes of what should be one more.
        bytes: usize,
    },
    /// The chain has more pages than the server takes.
    #[error("the chain is too long pages={pages} chain_pages_max={pages_max}")]
    ChainTooLong {
        /// Pages in the chain.
        pages: u64,
        /// The most that is taken.
        pages_max: u64,
    },
    /// A key occurs twice: two pages of one prefix can not have the same name.
    #[error("key list out of order or repeated page={page}")]
    Repeated {
        /// Position of the second occurrence.
        page: usize,
    },
    /// Tokens were given, but the keys of this namespace are hashes of the engine.
    #[error("the namespace is keyed by engine hashes; tokens can not name its pages")]
    TokensForEngineHashes,
    /// A chain that `cairn-core` refuses.
    #[error(transparent)]
    Chain(#[from] ChainFault),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Error::invalid(refused.to_string())
    }
}
