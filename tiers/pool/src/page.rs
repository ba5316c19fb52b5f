//! A page in memory: written by one owner, sealed, shared, read after a check.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use cairn_core::{Checksum, SlotId};

use crate::error::{Damaged, Mismatch};
use crate::pool::{Shared, Taken};
use crate::raw::Frame;

/// A frame and the right to it. The fields drop in this order: the memory is let go before the slot is on offer again.
#[derive(Debug)]
struct Held {
    frame: Frame,
    taken: Taken,
    page_bytes: usize,
}

impl Held {
    fn bytes(&self) -> &[u8] {
        &self.frame.as_slice()[..self.page_bytes]
    }
}

/// Room for one page, owned and writable; invisible to everybody else. Dropping it frees the frame.
///
/// It begins 4 KiB aligned, and holds whatever the same tenant left there: write every byte.
#[derive(Debug)]
pub struct PageBufMut(Held);

impl PageBufMut {
    /// `page_bytes` must not be more than the frame has.
    pub(crate) fn new(frame: Frame, taken: Taken, page_bytes: usize) -> Self {
        Self(Held { frame, taken, page_bytes })
    }

    /// Where the page lies: arena and place in it.
    pub fn slot(&self) -> SlotId {
        self.0.taken.slot()
    }

    /// The bytes of the page, exactly as many as were reserved.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let page_bytes = self.0.page_bytes;
        &mut self.0.frame.as_mut_slice()[..page_bytes]
    }

    /// Makes the page immutable, if its bytes have the checksum that their writer claims. Reads them all: about 0.2 ms for 2.25 MiB.
    ///
    /// # Errors
    /// [`Mismatch`], and the frame is free again.
    pub fn seal(self, claimed: Checksum) -> Result<SealedPage, Mismatch> {
        let found = Checksum::of(&self);
        if found != claimed {
            return Err(Mismatch { claimed, found });
        }
        let let_go = LetGo(Arc::clone(self.0.taken.pool()));
        Ok(SealedPage { sealed: Arc::new(Sealed { held: self.0, checksum: found }), _let_go: let_go })
    }
}

impl Deref for PageBufMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for PageBufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl AsMut<[u8]> for PageBufMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

struct Sealed {
    held: Held,
    checksum: Checksum,
}

/// An immutable page that nobody has checked lately. Clones share it; the frame is free when the last clone, and everything that came
/// of [`SealedPage::verified`], is gone.
#[derive(Clone)]
pub struct SealedPage {
    sealed: Arc<Sealed>,
    _let_go: LetGo,
}

/// Tells the pool that one holder less has the page. The last field of a page, so dropped after its hold has ended: whoever waits for a
/// page that nobody else holds looks again, and sees it.
#[derive(Clone)]
struct LetGo(Arc<Shared>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl SealedPage {
    /// Where the page lies: arena and place in it.
    pub fn slot(&self) -> SlotId {
        self.sealed.held.taken.slot()
    }

    /// Length of the page.
    pub fn len_bytes(&self) -> u64 {
        self.sealed.held.page_bytes as u64
    }

    /// The checksum it was sealed with.
    pub fn checksum(&self) -> Checksum {
        self.sealed.checksum
    }

    /// How many hold the page now, this one included. Others may come and go meanwhile, unless a lock of the caller's keeps them away.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.sealed)
    }

    /// The only way to the bytes: checks them against the checksum. Reads them all: about 0.2 ms for 2.25 MiB.
    ///
    /// # Errors
    /// [`Damaged`] if they changed since the seal. The page stays as it is; drop it.
    pub fn verified(&self) -> Result<VerifiedPage, Damaged> {
        let found = Checksum::of(self.sealed.held.bytes());
        if found != self.sealed.checksum {
            return Err(Damaged { slot: self.slot(), sealed: self.sealed.checksum, found });
        }
        Ok(VerifiedPage(self.clone()))
    }
}

impl fmt::Debug for SealedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slot, bytes, checksum) = (self.slot(), self.len_bytes(), self.checksum());
        write!(f, "SealedPage(region={} slot={} bytes={bytes} checksum={checksum:?})", slot.region, slot.slot)
    }
}

/// A page whose bytes matched their checksum when this was made; readable. Clones share the frame and keep it.
#[derive(Clone, Debug)]
pub struct VerifiedPage(SealedPage);

impl VerifiedPage {
    /// The checksum the bytes have.
    pub fn checksum(&self) -> Checksum {
        self.0.checksum()
    }

    /// The page as [`Bytes`], without a copy; the frame stays taken until the last of them is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for VerifiedPage {
    fn as_ref(&self) -> &[u8] {
        self.0.sealed.held.bytes()
    }
}
