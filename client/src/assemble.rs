//! Parts into pages: the order that they must come in, and the proof of their bytes.
//!
//! Every reader of a get goes through a [`Cursor`]: place the part, put its bytes where they go, sum them there, close. A page counts
//! as good when its last part has been closed with a checksum that matches, and not before.

use std::ops::Range;

use cairn_core::{Checksum, RunningChecksum, Tier};
use cairn_proto::v1;

use crate::fault::Fault;

const CALL: &str = "get_prefix";

/// The place in a stream of parts.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The page under way.
    page: usize,
    /// Bytes of it that have come.
    filled: usize,
    sum: RunningChecksum,
    /// The first page that is not planned.
    end: usize,
    page_bytes: usize,
}

/// What the end of a part means.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// More parts of the page follow.
    Open,
    /// The page is whole and right.
    Good {
        /// Its position in the chain.
        page: usize,
        /// Where the server found it.
        tier: Tier,
    },
    /// The page is whole, and its bytes are not those that the server sealed.
    Damaged,
}

impl Cursor {
    /// Before the first part of page `first`, with all pages before `end` to come.
    pub(crate) fn new(first: usize, end: usize, page_bytes: usize) -> Self {
        Self { page: first, filled: 0, sum: RunningChecksum::default(), end, page_bytes }
    }

    /// The page under way; all before it have come.
    pub(crate) fn page(&self) -> usize {
        self.page
    }

    /// Where in its page the bytes of `part` go.
    pub(crate) fn place(&self, part: &v1::PagePart) -> Result<Range<usize>, Fault> {
        let in_order = part.page == self.page as u64 && part.offset == self.filled as u64;
        let fits = part.data.len() <= self.page_bytes - self.filled;
        if !in_order || !fits || self.page >= self.end {
            let what = format!(
                "a part is out of order or too long page={} offset={} bytes={} page_expected={} offset_expected={}",
                part.page,
                part.offset,
                part.data.len(),
                self.page,
                self.filled
            );
            return Err(Fault::protocol(CALL, what));
        }
        Ok(self.filled..self.filled + part.data.len())
    }

    /// Counts and sums the bytes of the part that was placed last, as they lie where they will be read.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.sum.add(bytes);
        self.filled += bytes.len();
    }

    /// Ends the part that was added last.
    pub(crate) fn close(&mut self, seal: Option<v1::PageSeal>) -> Result<Closed, Fault> {
        let whole = self.filled == self.page_bytes;
        let seal = match seal {
            None if !whole => return Ok(Closed::Open),
            Some(seal) if whole => seal,
            _ => {
                return Err(Fault::protocol(
                    CALL,
                    format!("a page is sealed too early or not at all page={}", self.page),
                ));
            }
        };
        if self.sum.so_far() != Checksum::from_u64(seal.checksum) {
            return Ok(Closed::Damaged);
        }
        let tier = v1::Tier::word(seal.tier).map_err(Fault::refused(CALL))?;
        let page = self.page;
        self.page += 1;
        self.filled = 0;
        self.sum.restart();
        Ok(Closed::Good { page, tier })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(page: u64, offset: u64, data: &'static [u8], seal: Option<u64>) -> v1::PagePart {
        let tier = v1::Tier::number(Tier::Ssd);
        let seal = seal.map(|checksum| v1::PageSeal { checksum, tier });
        v1::PagePart { page, offset, data: bytes::Bytes::from_static(data), seal }
    }

    fn accept(cursor: &mut Cursor, part: v1::PagePart) -> Result<Closed, Fault> {
        cursor.place(&part)?;
        cursor.add(&part.data);
        cursor.close(part.seal)
    }

    fn checksum(bytes: &[u8]) -> Option<u64> {
        Some(Checksum::of(bytes).to_u64())
    }

    #[test]
    fn parts_of_two_pages_come_out_as_two_pages() {
        let mut cursor = Cursor::new(3, 5, 6);
        assert_eq!(accept(&mut cursor, part(3, 0, b"abcd", None)).unwrap(), Closed::Open);
        let good = |page| Closed::Good { page, tier: Tier::Ssd };
        assert_eq!(accept(&mut cursor, part(3, 4, b"ef", checksum(b"abcdef"))).unwrap(), good(3));
        assert_eq!(accept(&mut cursor, part(4, 0, b"ghijkl", checksum(b"ghijkl"))).unwrap(), good(4));
        assert_eq!(cursor.page(), 5);
    }

    #[test]
    fn a_page_with_another_checksum_is_damaged() {
        let mut cursor = Cursor::new(0, 1, 6);
        assert_eq!(accept(&mut cursor, part(0, 0, b"abcdeX", checksum(b"abcdef"))).unwrap(), Closed::Damaged);
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let wrong = [
            part(0, 0, b"abc", None),
            part(2, 0, b"abc", None),
            part(1, 3, b"abc", None),
            part(1, 0, b"abcdefg", None),
            part(1, 0, b"abc", checksum(b"abc")),
            part(1, 0, b"abcdef", None),
        ];
        for part in wrong {
            assert!(accept(&mut Cursor::new(1, 9, 6), part.clone()).is_err(), "{part:?}");
        }
        assert!(accept(&mut Cursor::new(1, 1, 6), part(1, 0, b"abc", None)).is_err(), "beyond the plan");
    }
}
