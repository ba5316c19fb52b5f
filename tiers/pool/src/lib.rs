//! Page memory.
//!
//! The pool is a fixed number of arenas, each a sealed memfd mapped once: nothing is allocated, and nothing touched for the first time,
//! on the way of a page. An arena serves one tenant at a time and is cut into frames of one size; it is wiped before it changes hands,
//! so that another process may be shown an arena and see nothing of another tenant.
//!
//! The life of a frame, and the type that says who may do what with it:
//!
//! ```text
//! reserve --> PageBufMut --seal, checksum fits--> SealedPage (clones share it) --verified--> VerifiedPage --> bytes::Bytes
//!  free         one owner writes                   nobody sees the bytes                      anybody reads
//!   ^              |                                      |                                       |
//!   +--- dropped, or seal refused --- last clone dropped -+---------------------------------------+
//! ```
//!
//! What bounds it: the pool never grows. [`Pool::reserve`] answers `None` when there is no frame; it neither waits nor evicts, that is
//! its caller's part ([`Pool::freed`] tells when to try again). `raw` is the only place with `unsafe`; it keeps its own record of what
//! is lent, so a mistake in the bookkeeping above it can lose a frame, never share one.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod backing;
mod error;
mod limits;
mod page;
mod pool;
#[allow(unsafe_code, reason = "maps memory and hands out slices of it; the one place that does")]
mod raw;
mod sync;

pub use backing::{BackingBytes, HugePages};
pub use error::{Damaged, Mismatch, PoolError};
pub use page::{PageBufMut, SealedPage, VerifiedPage};
pub use pool::{Pool, PoolSettings, TenantNo};
