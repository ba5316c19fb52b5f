//! Pages on the SSD in the order of their slots, for whoever verifies them.

use std::ops::RangeInclusive;

use cairn_directory::{Entry, NamespaceNo};
use cairn_policy::PageId;
use cairn_pool::SealedPage;
use cairn_ssd::{Expected, SsdTier};

use super::Catalogue;
use crate::values::ToVerify;

impl Catalogue {
    pub(super) fn to_verify(&self, id: PageId, tier: &SsdTier) -> Option<ToVerify> {
        let entry = self.index.get(id)?;
        let (slot, shape) = (entry.ssd?, self.shape(entry.namespace)?);
        let expected = Expected {
            namespace: shape.id,
            key: entry.key,
            generation: entry.generation,
            checksum: entry.checksum,
            payload_bytes: shape.page_bytes,
        };
        Some(ToVerify { namespace: entry.namespace, expected, pin: tier.pin(slot) })
    }

    /// The first page in these slots of a region, of one namespace or any.
    pub(crate) fn next_to_verify(
        &self,
        region: u32,
        slots: RangeInclusive<u32>,
        only: Option<NamespaceNo>,
        tier: &SsdTier,
    ) -> Option<ToVerify> {
        let (mut first, last) = slots.into_inner();
        loop {
            let (slot, id) = self.ssd.residents.next_in(region, first..=last)?;
            let is_asked = |entry: &Entry<SealedPage>| only.is_none_or(|only| entry.namespace == only);
            if self.index.get(id).is_some_and(is_asked) {
                return self.to_verify(id, tier);
            }
            first = slot.checked_add(1)?;
        }
    }

    /// The first slot of a region from `first` on that holds a page.
    pub(crate) fn next_slot(&self, region: u32, first: u32) -> Option<u32> {
        self.ssd.residents.next_in(region, first..=u32::MAX).map(|(slot, _)| slot)
    }
}
