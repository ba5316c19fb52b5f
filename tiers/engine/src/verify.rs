//! A verification: all that lies on the SSD, or all of one namespace, is read and verified now because somebody asks.
//!
//! One at a time, in place of the [scrub's thread](crate::scrub) and by the same rules: behind everybody else, a few pages at once, damage judged under
//! the catalogue's lock. It can be given up at any time, and another one goes on where it was.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Error, ErrorKind, Result, SlotId};
use cairn_directory::NamespaceNo;

use crate::engine::{Engine, Shared};
use crate::namespace::Namespace;
use crate::scrub::{Place, Scrub};
use crate::sync::sleep;
use crate::under_way::{UnderWay, Verified};

/// When to ask again while another verification is under way.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the rate without a look at whether the engine is closing.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// What a verification has found so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerifyCounts {
    /// Pages found whole.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pages found damaged; they were dropped.
    pub damaged: u64,
    /// Pages that the device refused to read; they stay.
    pub unreadable: u64,
}

/// A verification under way; nothing happens between two steps. Dropping it ends it.
#[derive(Debug)]
pub struct Verification {
    shared: Arc<Shared>,
    _place: Place,
    only: Option<NamespaceNo>,
    bytes_per_second: u64,
    at: SlotId,
    counts: VerifyCounts,
    /// When the region under way was begun, of running, if from its first slot on everything in it was whole or has left.
    began: Option<Duration>,
}

impl Engine {
    /// Begins to verify what lies on the SSD from the slot `from` on, of one namespace or all, at so many bytes a second (0: as fast as the
    /// device can). Waits for a few reads. Must be called within a runtime. Cancel-safe.
    ///
    /// # Errors
    /// `Overloaded` while another verification, or a rebuild of the directory, is under way.
    pub async fn verify(&self, only: Option<&Namespace>, from: SlotId, bytes_per_second: u64) -> Result<Verification> {
        let shared = Arc::clone(&self.shared);
        let taken = ErrorKind::Overloaded { retry_after: RETRY_AFTER };
        if shared.is_rebuilding() {
            return Err(Error::new(taken, "the directory is being made again, and not all pages are found yet"));
        }
        let place = Scrub::take_place(&shared).await;
        let place = place.ok_or_else(|| Error::new(taken, "another verification is under way"))?;
        let only = only.map(Namespace::no);
        let counts = VerifyCounts::default();
        let began = Some(shared.scrub.running(shared.clock.now())).filter(|_| from.slot == 0);
        Ok(Verification { shared, _place: place, only, bytes_per_second, at: from, counts, began })
    }
}

impl Verification {
    /// Verifies a few pages more, in the order of their slots; false if there are none. Waits for them, and for the rate. Cancel-safe: what has
    /// been counted is not read again by a later step.
    ///
    /// # Errors
    /// `Unavailable` if the engine is closing.
    pub async fn step(&mut self) -> Result<bool> {
        while self.at.region < self.regions() {
            let closing = || Error::new(ErrorKind::Unavailable, "the server is stopping");
            if self.shared.scrub.is_stopping() {
                return Err(closing());
            }
            let slots = (self.at.slot, u32::MAX);
            let scrub = &self.shared.scrub;
            let pages = scrub.pick(&self.shared, self.at.region, slots, self.only, self.bytes_per_second);
            if pages.is_empty() {
                match scrub.until_free(self.shared.clock.now()) {
                    Duration::ZERO => self.next_region(),
                    wait => sleep(wait.min(WAIT_MAX)).await,
                }
                continue;
            }
            let begun: Option<Vec<UnderWay>> =
                pages.into_iter().map(|page| UnderWay::begin(&self.shared, page)).collect();
            for page in begun.ok_or_else(closing)? {
                let slot = page.slot;
                let verified = page.end(&self.shared).await;
                self.count(verified);
                self.at.slot = slot.slot + 1;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// What was found so far.
    pub fn counts(&self) -> VerifyCounts {
        self.counts
    }

    /// Where the next step begins: another verification can go on there.
    pub fn at(&self) -> SlotId {
        self.at
    }

    /// Regions of the SSD: it has come to its end when it is [at](Verification::at) this one.
    pub fn regions(&self) -> u32 {
        self.shared.tier.regions()
    }

    fn count(&mut self, verified: Verified) {
        match verified {
            Verified::Whole { bytes } => {
                self.counts.pages += 1;
                self.counts.bytes += bytes;
            }
            Verified::Damaged => self.counts.damaged += 1,
            Verified::Unreadable => {
                self.counts.unreadable += 1;
                self.began = None;
            }
            Verified::Gone => {}
        }
    }

    fn next_region(&mut self) {
        let scrub = &self.shared.scrub;
        if let Some(began) = self.began.filter(|_| self.only.is_none()) {
            scrub.note_verified(self.at.region, began);
        }
        self.at = SlotId { region: self.at.region + 1, slot: 0 };
        self.began = Some(scrub.running(self.shared.clock.now()));
    }
}
