//! The randomness seam.

use std::fmt;

use crate::{Error, ErrorKind, Result};

/// Where randomness comes from. The real one is [`OsEntropy`]; tests bring a seeded one.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills `out` with random bytes, fit for secrets.
    ///
    /// # Errors
    /// `Internal` if the source fails.
    fn fill(&self, out: &mut [u8]) -> Result<()>;
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<()> {
        getrandom::fill(out)
            .map_err(|e| Error::new(ErrorKind::Internal, format!("read the system's random source: {e}")))
    }
}
