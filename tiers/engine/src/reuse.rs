//! A get shows which pages are used again: admission learns from it, and what deserves it now is written behind the get.

use cairn_core::metrics::Skipped;
use cairn_core::{PageKey, Tier};
use cairn_policy::Link;
use cairn_pool::SealedPage;

use crate::endurance::fingerprint;
use crate::engine::Shared;
use crate::namespace::Namespace;
use crate::values::PageName;
use crate::write_queue::{Offered, WriteJob};

/// Notes a get of `chain`. `found` says of a page: not found, found on the SSD only, or the page in DRAM. Does not block on I/O.
pub(crate) fn note<'a>(
    shared: &Shared,
    namespace: &Namespace,
    chain: &[PageKey],
    found: impl Fn(usize) -> Option<Option<&'a SealedPage>>,
) {
    let on_ssd: Vec<bool> = {
        let catalogue = shared.catalogue.lock();
        let on_ssd = |key: &PageKey| catalogue.entry_of(namespace.no(), key).is_some_and(|entry| entry.ssd.is_some());
        chain.iter().enumerate().map(|(page, key)| found(page).is_some() && on_ssd(key)).collect()
    };
    let place = |page: usize| match (found(page), on_ssd[page]) {
        (None, _) => None,
        (Some(_), true) | (Some(None), _) => Some(Tier::Ssd),
        (Some(Some(_)), false) => Some(Tier::Dram),
    };
    let links: Vec<Link> =
        chain.iter().enumerate().map(|(page, key)| Link { page: fingerprint(key), place: place(page) }).collect();
    let mut admitted = shared.endurance.get(namespace, &links);
    for page in (0..admitted.pages).filter(|page| links[*page].place == Some(Tier::Dram)) {
        let Some(Some(sealed)) = found(page) else { continue };
        let Ok(position) = u32::try_from(page) else { return };
        let parent = page.checked_sub(1).map(|parent| chain[parent]);
        let name = PageName { namespace: namespace.no(), key: chain[page], parent, position };
        let charge = admitted.charge.of_page(namespace);
        let (page, since) = (sealed.clone(), shared.clock.now());
        let job = WriteJob { name, namespace: *namespace.id(), page, charge, since };
        let reason = match shared.queue.offer(job, None, &shared.metrics) {
            Offered::Taken => continue,
            Offered::Full(_) => Skipped::QueueFull,
            Offered::NotYet => Skipped::Rebuilding,
            Offered::Closed => return,
        };
        shared.metrics.ssd_skipped.of(reason).inc();
        return;
    }
}
