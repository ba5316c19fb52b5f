//! The pages of a put: from a file, or made up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use cairn_client::{Chain, Error, ErrorKind, PageSource, Result};

use crate::outcome::Failure;

/// The bytes of the test page with the given key: random-looking, different for every key, and to be recognised without remembering
/// them. BLAKE3 in key-derivation mode over the key, as a stream.
pub(crate) fn test_page(key: &[u8], page_bytes: usize) -> Bytes {
    let mut page = vec![0; page_bytes];
    let mut hasher = blake3::Hasher::new_derive_key("cairn 2026 kvctl test page v1");
    hasher.update(key).finalize_xof().fill(&mut page);
    page.into()
}

/// Where the pages of a put come from.
pub(crate) enum Source {
    /// A file that holds the pages one after the other.
    File { file: File, page_bytes: usize },
    /// Test pages of this chain.
    Test { chain: Chain, page_bytes: usize },
}

impl Source {
    /// Opens a file that holds at least `pages` pages.
    pub(crate) fn open(path: &Path, pages: usize, page_bytes: usize) -> Result<Self, Failure> {
        let named = |e: std::io::Error| Failure::usage(format!("can not read {}: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        let there = file.metadata().map_err(named)?.len();
        let needed = pages as u64 * page_bytes as u64;
        if there < needed {
            return Err(Failure::usage(format!(
                "{} is too short: {pages} pages of {page_bytes} bytes are {needed} bytes, it has {there}",
                path.display()
            )));
        }
        Ok(Self::File { file, page_bytes })
    }
}

impl PageSource for Source {
    fn page(&mut self, page: usize) -> Result<Bytes> {
        match self {
            Self::Test { chain, page_bytes } => Ok(test_page(chain.key(page).unwrap_or_default(), *page_bytes)),
            Self::File { file, page_bytes } => {
                let mut bytes = vec![0; *page_bytes];
                let at = page as u64 * *page_bytes as u64;
                let read = file.read_exact_at(&mut bytes, at);
                read.map_err(|e| {
                    Error::new(ErrorKind::Invalid, format!("read a page from the file page={page}")).caused_by(e)
                })?;
                Ok(bytes.into())
            }
        }
    }
}
