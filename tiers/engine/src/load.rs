//! Loading: a page from the SSD into a frame, once however many ask.
//!
//! Each load is a task of its own: who waits for it may go away, the load goes on, and its page is published in DRAM for the next one.
//! The frame belongs to the read until the device has answered. What bounds it: the read queue, and each get's window.

use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_core::{Deadline, PageKey};
use cairn_directory::NamespaceNo;
use cairn_pool::{PageBufMut, SealedPage};
use cairn_ssd::{Expected, ReadFault, ReadJob, ReadPin, Submitted};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::watch;
use tracing::warn;

use crate::engine::Shared;
use crate::namespace::Namespace;
use crate::room;
use crate::write_queue::Work;

/// A page on the SSD that somebody wants; the pin keeps its slot from being reused.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) pin: ReadPin,
    pub(crate) expected: Expected,
}

/// How a load ended.
#[derive(Clone, Debug)]
pub(crate) enum Loaded {
    Page(SealedPage),
    Damaged,
    ReadFailed,
    NoSpace,
}

/// The loads in flight.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    in_flight: DashMap<(NamespaceNo, PageKey), watch::Receiver<Option<Loaded>>>,
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

/// Joins the load of a page that is in flight, or starts it. Must be called within a runtime.
pub(crate) fn start(shared: &Arc<Shared>, namespace: &Arc<Namespace>, wanted: Wanted, deadline: Deadline) -> Ticket {
    let name = (namespace.no(), wanted.expected.key);
    match shared.loads.in_flight.entry(name) {
        Entry::Occupied(running) => Ticket(running.get().clone()),
        Entry::Vacant(free) => {
            // A load is published before it leaves the table, so what is in neither place has not been loaded since the caller looked.
            if let Some(page) = in_dram(shared, &name) {
                return Ticket::answered(Loaded::Page(page));
            }
            let (tell, told) = watch::channel(None);
            free.insert(told.clone());
            let (shared, namespace) = (Arc::clone(shared), Arc::clone(namespace));
            tokio::spawn(async move {
                let loaded = load(&shared, &namespace, wanted, deadline).await;
                shared.loads.in_flight.remove(&name);
                // Nobody may be waiting any more.
                let _ = tell.send(Some(loaded));
            });
            Ticket(told)
        }
    }
}

fn in_dram(shared: &Shared, (namespace, key): &(NamespaceNo, PageKey)) -> Option<SealedPage> {
    shared.catalogue.lock().entry_of(*namespace, key)?.dram.clone()
}

async fn load(shared: &Shared, namespace: &Namespace, wanted: Wanted, deadline: Deadline) -> Loaded {
    let Wanted { pin, expected } = wanted;
    let (key, generation, checksum) = (expected.key, expected.generation, expected.checksum);
    let started = shared.clock.now();
    let Some(frame) = room::frame(shared, namespace, deadline).await else { return Loaded::NoSpace };
    let frame = match read(shared, ReadJob { pin, expected, into: frame }).await {
        Ok(frame) => frame,
        Err(ReadEnd::Fault(ReadFault::Damaged(damage))) => {
            warn!(page = %key, fault = ?damage, "a page on the SSD is damaged; it is dropped");
            let left = shared.catalogue.lock().drop_damaged_on_ssd(namespace.no(), &key, generation);
            if let Some(left) = left {
                shared.queue.push(Work::Retire(left));
            }
            return Loaded::Damaged;
        }
        Err(ReadEnd::Fault(fault)) => {
            warn!(page = %key, %fault, "a page could not be read from the SSD");
            return Loaded::ReadFailed;
        }
        Err(ReadEnd::Closed) => return Loaded::ReadFailed,
    };
    shared.read_pace.observe(namespace.page_bytes(), shared.clock.now().since(started));
    let Ok(page) = frame.seal(checksum) else { return Loaded::ReadFailed };
    shared.catalogue.lock().publish_loaded(namespace.no(), &key, generation, page.clone());
    Loaded::Page(page)
}

enum ReadEnd {
    Fault(ReadFault),
    /// The engine is closing.
    Closed,
}

/// Reads from the SSD; waits for a place in the line.
async fn read(shared: &Shared, job: ReadJob<PageBufMut>) -> Result<PageBufMut, ReadEnd> {
    // As many permits as the line has places, so it is never found full.
    let Ok(_place) = shared.read_places.acquire().await else { return Err(ReadEnd::Closed) };
    match shared.pages.read(IoClass::Demand, job) {
        Submitted::Queued(reply) => reply.await.map_err(|_| ReadEnd::Closed)?.map_err(ReadEnd::Fault),
        Submitted::Full => Err(ReadEnd::Closed),
    }
}
