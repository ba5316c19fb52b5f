//! The server as the load sees it: chains of numbered pages whose bytes everybody knows.
//!
//! Page `id` of salt `salt` is named by 16 bytes made of both, as an engine names pages by its own hashes, and holds the bytes that
//! [`cairn_testkit::payload`] gives for that name. So every byte that comes back can be judged without remembering what was written. One
//! page is in memory at a time.

use std::time::Duration;

use bytes::Bytes;
use cairn_client::{Chain, Client, ClientOptions, GetOptions, GetStop, Namespace, Page, PutOptions, PutReport};
use cairn_core::{
    Clock, Declared, Durability, Error, ErrorKind, HeadRange, Heads, Identity, KeyScheme, LayerRange, Result,
    StateKind, SystemClock, Tier,
};
use cairn_testkit::payload;
use tokio::time::sleep;

use crate::trace::PAGE_TOKENS;

/// Longest time of one get or put. Generous: what is measured is how long it takes, not whether it is in time.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two looks at how far a recovery is.
const LOOK_GAP: Duration = Duration::from_millis(10);

/// A namespace full of pages with known bytes. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Store {
    client: Client,
    namespace: Namespace,
    salt: u64,
}

/// What a get brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Got {
    /// Pages that are there from the start of the chain.
    pub good_pages: usize,
    /// Of the pages read, those that came from DRAM.
    pub dram_pages: u64,
    /// Of the pages read, those that came from the SSD.
    pub ssd_pages: u64,
    /// Bytes read that are not those of their page. Anything but 0 is a defect of the server.
    pub wrong_bytes: u64,
    /// Why the prefix ends, as a label.
    pub stop: &'static str,
}

impl Store {
    /// Connects to the server at `endpoint` and opens the namespace of this benchmark for pages of `page_bytes`. A call is not repeated:
    /// an error is seen.
    ///
    /// # Errors
    /// As [`Client::open_namespace`].
    pub async fn open(endpoint: &str, page_bytes: u64, salt: u64) -> Result<Self> {
        let options = ClientOptions { timeout: CALL_TIMEOUT, retries_max: 0, ..ClientOptions::new(endpoint) };
        let client = Client::connect(options).await?;
        let namespace = client.open_namespace(&identity(page_bytes)).await?;
        Ok(Self { client, namespace, salt })
    }

    /// Waits until the server has found all that it has: a directory that is made again is not whole before.
    ///
    /// # Errors
    /// `Deadline` if that takes longer than a call may; otherwise as [`Client::stats`].
    pub async fn recovered(&self) -> Result<()> {
        let clock = SystemClock::start();
        while self.client.stats().await?.recovery.is_some_and(|recovery| recovery.rebuilding) {
            if clock.now().since_start() > CALL_TIMEOUT {
                return Err(Error::new(ErrorKind::Deadline, "the server still makes its directory again"));
            }
            sleep(LOOK_GAP).await;
        }
        Ok(())
    }

    /// The chain of these pages.
    ///
    /// # Errors
    /// `Invalid` if it is longer than the server takes.
    pub fn chain(&self, ids: &[u64]) -> Result<Chain> {
        let names: Vec<[u8; 16]> = ids.iter().map(|id| name(self.salt, *id)).collect();
        self.namespace.chain_of_engine_hashes(names.iter().map(<[u8; 16]>::as_slice))
    }

    /// The namespace below.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Reads the longest prefix of `chain` and judges every byte.
    ///
    /// # Errors
    /// What the call ends with.
    pub async fn get(&self, chain: &Chain) -> Result<Got> {
        let mut pages = self.namespace.get_prefix(chain, GetOptions::default()).await?;
        let (mut dram_pages, mut ssd_pages, mut wrong_bytes) = (0, 0, 0);
        while let Some(page) = pages.next_page().await {
            match page.tier() {
                Tier::Dram => dram_pages += 1,
                Tier::Ssd => ssd_pages += 1,
            }
            wrong_bytes += wrong_bytes_of(chain.key(page.index()).unwrap_or_default(), &page);
        }
        let end = pages.end().await;
        let stop = match end.stop {
            GetStop::Server(reason) => reason.label(),
            GetStop::Broken(error) => return Err(error),
            _ => "damaged_in_transit",
        };
        Ok(Got { good_pages: end.good_pages, dram_pages, ssd_pages, wrong_bytes, stop })
    }

    /// Stores what is missing of `chain`. Bytes are made for the pages that the server asks for, and for no others.
    ///
    /// # Errors
    /// What the call ends with.
    pub async fn put(&self, chain: &Chain, durability: Durability) -> Result<PutReport> {
        let page_bytes = usize::try_from(self.namespace.identity().page_bytes).unwrap_or(usize::MAX);
        let source = |page| Bytes::from(payload::page(chain.key(page).unwrap_or_default(), page_bytes));
        self.namespace.put_prefix(chain, source, PutOptions { durability, timeout: None }).await
    }
}

/// The name of page `id`.
fn name(salt: u64, id: u64) -> [u8; 16] {
    ((u128::from(salt) << 64) | u128::from(id)).to_le_bytes()
}

/// Bytes of `page` that differ from those of the page called `name`.
fn wrong_bytes_of(name: &[u8], page: &Page) -> u64 {
    let mut offset = 0;
    let mut wrong_bytes = 0;
    for part in page.parts() {
        wrong_bytes += differing(name, offset, part);
        offset += part.len();
    }
    wrong_bytes
}

/// Bytes of `part` that differ from those at `offset` of the page called `name`.
fn differing(name: &[u8], offset: usize, part: &[u8]) -> u64 {
    if offset.is_multiple_of(8) && payload::is_right(name, offset, part) {
        return 0;
    }
    let right = payload::page(name, offset + part.len());
    right[offset..].iter().zip(part).filter(|(right, found)| right != found).count() as u64
}

/// A model that nobody trains, so that the load never meets the pages of a real one.
pub(crate) fn identity(page_bytes: u64) -> Identity {
    Identity {
        model: "cairn-bench".to_owned(),
        model_revision: "1".to_owned(),
        adapter: Declared::None,
        positions: Declared::None,
        kind: StateKind::Attention,
        dtype: "bf16".to_owned(),
        layout: "known bytes".to_owned(),
        layout_version: "1".to_owned(),
        page_tokens: PAGE_TOKENS,
        page_bytes,
        layers: LayerRange { first: 0, count: 36, of: 36 },
        heads: Heads::Range(HeadRange { first: 0, count: 8, of: 8 }),
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::EngineHash { algorithm: "cairn-bench".to_owned(), seed: Declared::None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_every_salt_has_its_own_name() {
        let names = [name(0, 0), name(0, 1), name(1, 0), name(1, 1)];
        assert!((1..4).all(|n| !names[..n].contains(&names[n])));
    }

    #[test]
    fn foreign_bytes_are_counted_one_by_one() {
        let mut bytes = payload::page(b"a", 1000);
        assert_eq!(differing(b"a", 0, &bytes), 0);
        assert_eq!(differing(b"a", 501, &bytes[501..]), 0);
        bytes[7] ^= 1;
        bytes[999] ^= 1;
        assert_eq!(differing(b"a", 0, &bytes), 2);
        assert_eq!(differing(b"a", 504, &bytes[504..]), 1);
    }
}
