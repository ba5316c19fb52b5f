//! Loading: a page from the SSD into a frame, once however many ask.
//!
//! Each load is a task of its own: who waits for it may go away, the load goes on, and its page is published in DRAM for the next one.
//! The frame belongs to the read until the device has answered. What bounds it: a load needs a place in the read queue and a frame
//! before it starts ([`Start`]), so there are never more loads, waited for or not, than places.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_core::{Generation, Moment, PageKey};
use cairn_directory::NamespaceNo;
use cairn_pool::{PageBufMut, SealedPage};
use cairn_ssd::{Expected, ReadFault, ReadJob, ReadPin, Submitted};
use tracing::error;

use crate::engine::Shared;
use crate::namespace::Namespace;
use crate::room;
use crate::sync::{Mutex, OwnedSemaphorePermit, spawn, watch};

/// A page on the SSD that somebody wants; the pin keeps its slot from being reused.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) pin: ReadPin,
    pub(crate) expected: Expected,
}

/// What a load needs to start: a place in the read queue and a frame.
#[derive(Debug)]
pub(crate) struct Start {
    place: OwnedSemaphorePermit,
    frame: PageBufMut,
}

/// How a load ended.
#[derive(Clone, Debug)]
pub(crate) enum Loaded {
    Page(SealedPage),
    Damaged,
    ReadFailed,
}

/// A page, by its name and the filling of its slot.
type LoadName = (NamespaceNo, PageKey, Generation);

/// The loads in flight. The lock is taken before the catalogue's.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    in_flight: Mutex<HashMap<LoadName, watch::Receiver<Option<Loaded>>>>,
}

/// A place in the line for a load's result.
#[derive(Debug)]
pub(crate) struct Ticket(watch::Receiver<Option<Loaded>>);

impl Ticket {
    /// A ticket that is answered already.
    pub(crate) fn answered(loaded: Loaded) -> Self {
        Self(watch::channel(Some(loaded)).1)
    }

    /// Waits for the load's end. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> Loaded {
        match self.0.wait_for(Option::is_some).await {
            Ok(loaded) => loaded.clone().unwrap_or(Loaded::ReadFailed),
            Err(_) => Loaded::ReadFailed,
        }
    }
}

/// What a load needs, if it can be had now.
pub(crate) fn start_now(shared: &Shared, namespace: &Namespace) -> Option<Start> {
    let place = Arc::clone(&shared.read_places).try_acquire_owned().ok()?;
    let frame = room::frame_now(shared, namespace, None)?;
    Some(Start { place, frame })
}

/// What a load needs, as soon as it can be had. Waits for one of the two while holding none of the other. Cancel-safe.
pub(crate) async fn start(shared: &Shared, namespace: &Namespace) -> Option<Start> {
    loop {
        let place = Arc::clone(&shared.read_places).acquire_owned().await.ok()?;
        let mut freed = pin!(shared.pool.freed().notified());
        freed.as_mut().enable();
        if let Some(frame) = room::frame_now(shared, namespace, None) {
            return Some(Start { place, frame });
        }
        drop(place);
        freed.await;
    }
}

/// Joins the load of a page that is in flight, or finds the page in DRAM.
pub(crate) fn join(shared: &Shared, namespace: &Namespace, wanted: &Wanted) -> Option<Ticket> {
    let name = name_of(namespace, wanted);
    let running = shared.loads.in_flight.lock().get(&name).cloned();
    if let Some(running) = running {
        return Some(Ticket(running));
    }
    // A load is published before it leaves the table, so what is in neither place has not been loaded since the caller looked.
    in_dram(shared, &name).map(|page| Ticket::answered(Loaded::Page(page)))
}

/// Loads a page, or joins whoever was faster. Must be called within a runtime.
pub(crate) fn load(shared: &Arc<Shared>, namespace: &Arc<Namespace>, wanted: Wanted, start: Start) -> Ticket {
    let name = name_of(namespace, &wanted);
    let (tell, told) = match shared.loads.in_flight.lock().entry(name) {
        Entry::Occupied(running) => return Ticket(running.get().clone()),
        Entry::Vacant(free) => {
            if let Some(page) = in_dram(shared, &name) {
                return Ticket::answered(Loaded::Page(page));
            }
            let (tell, told) = watch::channel(None);
            free.insert(told.clone());
            (tell, told)
        }
    };
    let (shared, namespace) = (Arc::clone(shared), Arc::clone(namespace));
    let read = Read::begin(&shared, wanted, start);
    spawn(async move {
        let leave = Leave { shared: &shared, name };
        let loaded = read.end(&shared, &namespace).await;
        drop(leave);
        // Nobody may be waiting any more.
        let _ = tell.send(Some(loaded));
    });
    Ticket(told)
}

fn name_of(namespace: &Namespace, wanted: &Wanted) -> LoadName {
    (namespace.no(), wanted.expected.key, wanted.expected.generation)
}

fn in_dram(shared: &Shared, (namespace, key, generation): &LoadName) -> Option<SealedPage> {
    let catalogue = shared.catalogue.lock();
    let entry = catalogue.entry_of(*namespace, key)?;
    entry.dram.clone().filter(|_| entry.generation == *generation)
}

/// Takes a load out of the table, however it ends.
struct Leave<'a> {
    shared: &'a Shared,
    name: LoadName,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.shared.loads.in_flight.lock().remove(&self.name);
    }
}

/// A read that the device has been asked for.
struct Read {
    expected: Expected,
    submitted: Submitted<PageBufMut>,
    place: OwnedSemaphorePermit,
    started: Moment,
}

impl Read {
    /// Asks the device, in the order of the calls: the pages of a chain lie side by side, and those that wait are read together.
    fn begin(shared: &Shared, wanted: Wanted, start: Start) -> Self {
        let Wanted { pin, expected } = wanted;
        let Start { place, frame } = start;
        let started = shared.clock.now();
        // As many places as the line has, so it is never found full.
        let submitted = shared.pages.read(IoClass::Demand, ReadJob { pin, expected, into: frame });
        Self { expected, submitted, place, started }
    }

    /// Waits for the answer, and publishes the page.
    async fn end(self, shared: &Shared, namespace: &Namespace) -> Loaded {
        let Self { expected, submitted, place, started } = self;
        let Expected { key, generation, checksum, .. } = expected;
        let Submitted::Queued(reply) = submitted else { return Loaded::ReadFailed };
        let read = reply.await;
        drop(place);
        let frame = match read {
            Ok(Ok(frame)) => frame,
            Ok(Err(fault)) => return lost(shared, namespace, &key, generation, &fault),
            // The engine is closing.
            Err(_) => return Loaded::ReadFailed,
        };
        shared.read_pace.observe(namespace.page_bytes(), shared.clock.now().since(started));
        let Ok(page) = frame.seal(checksum) else {
            shared.metrics.dram_damaged.inc();
            if let Some(kept_back) = shared.page_troubles.damaged_in_dram.line(shared.clock.now()) {
                error!(page = %key, kept_back, "a page changed in memory while it was being loaded");
            }
            return Loaded::ReadFailed;
        };
        shared.catalogue.lock().publish_loaded(namespace.no(), &key, generation, page.clone());
        Loaded::Page(page)
    }
}

/// A page could not be had from the SSD.
fn lost(shared: &Shared, namespace: &Namespace, key: &PageKey, generation: Generation, fault: &ReadFault) -> Loaded {
    shared.drop_lost_on_ssd(namespace.no(), key, generation, fault);
    if matches!(fault, ReadFault::Damaged(_)) { Loaded::Damaged } else { Loaded::ReadFailed }
}
