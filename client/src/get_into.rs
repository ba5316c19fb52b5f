//! Getting a prefix straight into the caller's memory.
//!
//! Each part is copied once, from the message it came in to where the page is wanted, and summed there: what is verified is what the
//! caller will read. That copy is the price of gRPC, whose messages own their memory.

use std::ops::Range;

use cairn_core::Result;

use crate::assemble::Cursor;
use crate::fault::Fault;
use crate::get::GetReport;
use crate::{Chain, GetOptions, Namespace};

/// Memory that pages are read into, such as the frames of a paged cache.
pub trait PageMemory: Send {
    /// The memory for page `page` of the chain, of exactly one page. Asked for before each of its parts; the same memory each time.
    fn page(&mut self, page: usize) -> &mut [u8];
}

/// Pages side by side.
struct Contiguous<'a> {
    memory: &'a mut [u8],
    first_page: usize,
    page_bytes: usize,
}

impl PageMemory for Contiguous<'_> {
    fn page(&mut self, page: usize) -> &mut [u8] {
        let from = page.saturating_sub(self.first_page).saturating_mul(self.page_bytes);
        self.memory.get_mut(from..from.saturating_add(self.page_bytes)).unwrap_or_default()
    }
}

impl Namespace {
    /// Reads the pages of the longest reusable prefix of `chain` into `memory`: page `options.first_page` at its start, the others
    /// after it without gaps. `memory` is a whole number of pages; of a longer chain only as many pages are read as fit.
    ///
    /// The report says how many pages are good. Memory after them holds no page, whatever was written there: it may have been cut
    /// short or damaged on the way. Dropping the future ends the call and leaves `memory` in between.
    ///
    /// # Errors
    /// `Invalid` if `memory` is not a whole number of pages; otherwise as [`Namespace::get_prefix`].
    pub async fn get_prefix_into(&self, chain: &Chain, options: GetOptions, memory: &mut [u8]) -> Result<GetReport> {
        let page_bytes = self.page_bytes();
        if !memory.len().is_multiple_of(page_bytes) {
            return Err(Fault::MemoryBytes { bytes: memory.len(), page_bytes }.into());
        }
        let chain = chain.prefix(options.first_page.saturating_add(memory.len() / page_bytes));
        let mut memory = Contiguous { memory, first_page: options.first_page, page_bytes };
        self.get_prefix_to(&chain, options, &mut memory).await
    }

    /// Reads the pages of the longest reusable prefix of `chain`, each into the memory that `memory` names for it. Otherwise as
    /// [`Namespace::get_prefix_into`].
    ///
    /// # Errors
    /// `Invalid` if `memory` gives anything but one page for a page; otherwise as [`Namespace::get_prefix`].
    pub async fn get_prefix_to(
        &self,
        chain: &Chain,
        options: GetOptions,
        memory: &mut impl PageMemory,
    ) -> Result<GetReport> {
        let mut reading = self.read(chain, options).await?;
        while let Some((place, part)) = reading.next_part().await {
            copy_part(&mut reading.cursor, place, &part.data, memory, self.page_bytes())?;
            reading.close(part.seal);
        }
        Ok(reading.report())
    }
}

fn copy_part(
    cursor: &mut Cursor,
    place: Range<usize>,
    part: &[u8],
    memory: &mut impl PageMemory,
    page_bytes: usize,
) -> Result<(), Fault> {
    let page = cursor.page();
    let into = memory.page(page);
    if into.len() != page_bytes {
        return Err(Fault::PageBytes { page, bytes: into.len(), page_bytes });
    }
    // The cursor places parts within a page.
    let into = &mut into[place];
    into.copy_from_slice(part);
    cursor.add(into);
    Ok(())
}
