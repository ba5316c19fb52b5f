//! The engine: what it is made of, how it opens and closes, and the calls that are short.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{
    Clock, Error, ErrorKind, Generation, Identity, NamespaceId, PageKey, Principal, Result, ServerSecret,
    metrics::Metrics,
};
use cairn_directory::{Directory, NamespaceNo, NamespaceRecord};
use cairn_pool::{Pool, SealedPage};
use cairn_ssd::{IoSettings, PageIo, ReadFault, SsdComponents, SsdError, SsdTier};
use tracing::{error, warn};

use crate::catalogue::Catalogue;
use crate::endurance::{Endurance, NAMESPACE_BYTES};
use crate::load::Loads;
use crate::namespace::{Namespace, NamespaceSummary, Namespaces};
use crate::pace::ReadPace;
use crate::quarantine::WriteState;
use crate::recovery::{OpenMode, Recovery, recover};
use crate::scrub::{self, Scrub};
use crate::settings::{Components, EngineSettings};
use crate::sparing::PageTroubles;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, Semaphore, scope, spawn_blocking, timeout};
use crate::values::Shape;
use crate::write_queue::{Work, WriteQueue};
use crate::writer;

/// A storage engine, open. Dropping it without [`Engine::close`] is like a crash: what was acknowledged durable is found again, what
/// waited to be written is not.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    scrub: Mutex<Option<JoinHandle<()>>>,
}

/// How an engine was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// Nothing of it works any more.
    Orderly,
    /// The time was up: the writer may still be busy with the device and the directory, so nobody else may open them while this process
    /// lives.
    Abandoned,
}

/// What calls, loads and the writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: EngineSettings,
    /// The largest page that an arena, a region and the settings allow.
    pub(crate) page_bytes_max: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secret: ServerSecret,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pool: Pool,
    pub(crate) tier: Arc<SsdTier>,
    /// Moves pages between memory and the SSD.
    pub(crate) pages: PageIo,
    /// Places in the line of reads; a load takes one before it submits.
    pub(crate) read_places: Arc<Semaphore>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) namespaces: Namespaces,
    pub(crate) catalogue: Mutex<Catalogue>,
    pub(crate) queue: WriteQueue,
    pub(crate) endurance: Arc<Endurance>,
    pub(crate) write_state: WriteState,
    pub(crate) recovery: Mutex<Recovery>,
    /// Notified when a rebuild has ended.
    pub(crate) rebuilt: Condvar,
    pub(crate) scrub: Scrub,
    pub(crate) loads: Loads,
    pub(crate) read_pace: ReadPace,
    pub(crate) page_troubles: PageTroubles,
}

impl Engine {
    /// Opens an engine on a device and a directory, new or used; finds what is there. Blocks: on the first arena of the pool, and on
    /// reading the directory. If that was lost, the engine serves at once, and finds what is there from the header of every slot meanwhile.
    ///
    /// # Errors
    /// `Invalid` if the settings can not be, `Unavailable` or `Internal` if device or directory can not be used.
    pub fn open(settings: EngineSettings, components: Components) -> Result<Arc<Self>> {
        settings.validate()?;
        let Components { clock, entropy, secret, directory, device, metrics } = components;
        let started = clock.now();
        let parts = SsdComponents { device, clock: Arc::clone(&clock), metrics: Arc::clone(&metrics) };
        let (tier, fresh) = match SsdTier::open(parts.clone()) {
            Ok(tier) => (tier, false),
            Err(SsdError::Blank) => (SsdTier::format(parts, settings.region_bytes, &*entropy)?, true),
            Err(failed) => return Err(failed.into()),
        };
        let tier = Arc::new(tier);
        let io =
            IoSettings { kind: settings.ssd_device, threads: settings.read_threads, line_max: settings.read_queue };
        let start_pages = || PageIo::start(Arc::clone(&tier), io);
        let namespaces = Namespaces::new(settings.namespaces_max);
        let mut catalogue = Catalogue::new();
        let mut recover = || {
            let mut recovery = recover(&tier, fresh, &*directory, &namespaces, &mut catalogue)?;
            recovery.took = clock.now().since(started);
            Ok::<_, Error>(recovery)
        };
        let (recovery, pages) = match directory.device()? {
            // The disk is measured while the directory is read ...
            Some(known) if known.id == tier.device_id() => beside(recover, start_pages),
            // ... but not while headers are scanned.
            _ => (recover(), start_pages()),
        };
        let (recovery, pages) = (recovery?, pages?);
        metrics.recovered_pages.set(i64::try_from(recovery.pages).unwrap_or(i64::MAX));
        metrics.recovery_seconds.observe(recovery.took.as_secs_f64());
        // After the recovery: a caller that mends the directory and opens again does not find the memory taken.
        let pool = Pool::start(settings.dram, Arc::clone(&metrics))?;
        let page_bytes_max = settings.page_bytes_limit().min(tier.page_bytes_max());
        let read_places = Arc::new(Semaphore::new(settings.read_queue));
        // Waiting pages hold frames: at most half of them, so that puts and gets always find some that can leave.
        let waiting_bytes = settings.write_behind_bytes.min(settings.dram.bytes / 2);
        let rebuilding = recovery.mode == OpenMode::Rebuilding;
        let queue = WriteQueue::new(waiting_bytes, settings.write_behind_time, rebuilding);
        metrics.rebuilding.set(i64::from(rebuilding));
        let endurance = Endurance::open(
            settings.write_policy,
            settings.endurance,
            &*directory,
            Arc::clone(&tier),
            &recovery,
            Arc::clone(&clock),
            Arc::clone(&metrics),
        )?;
        let (mode, unclean) = (recovery.mode, !recovery.clean && recovery.mode != OpenMode::Fresh);
        let scrub = Scrub::open(settings.scrub, settings.read_queue, &*directory, &tier, mode, unclean, clock.now())?;
        let shared = Arc::new(Shared {
            settings,
            page_bytes_max,
            clock,
            secret,
            metrics,
            pool,
            tier,
            pages,
            read_places,
            directory,
            namespaces,
            catalogue: Mutex::new(catalogue),
            queue,
            endurance,
            write_state: WriteState::default(),
            recovery: Mutex::new(recovery),
            rebuilt: Condvar::new(),
            scrub,
            loads: Loads::default(),
            read_pace: ReadPace::default(),
            page_troubles: PageTroubles::default(),
        });
        let writer = {
            let shared = Arc::clone(&shared);
            Builder::new()
                .name("cairn-writer".to_owned())
                .spawn(move || writer::run(&shared))
                .map_err(|e| Error::new(ErrorKind::Internal, "start the writer thread").caused_by(e))?
        };
        // Dropped, it ends the writer too.
        let engine = Arc::new(Self { shared, writer: Mutex::new(Some(writer)), scrub: Mutex::default() });
        *engine.scrub.lock() = Some(scrub::start(&engine.shared)?);
        Ok(engine)
    }

    /// Opens the namespace of `identity` for the caller's tenant. Idempotent; a new one is durable when the call returns, so that the
    /// server knows it after a restart. Blocks on a disk flush if it is new.
    ///
    /// # Errors
    /// `Invalid` if a field of the identity is empty or out of range, or its pages are larger than this server takes; `NoSpace` at the
    /// limit of namespaces.
    pub fn open_namespace(&self, principal: &Principal, identity: &Identity) -> Result<Arc<Namespace>> {
        let shared = &self.shared;
        identity.validate().map_err(|fault| Error::invalid("the identity is refused").caused_by(fault))?;
        let page_bytes_max = shared.page_bytes_max;
        if identity.page_bytes > page_bytes_max {
            return Err(Error::invalid(format!(
                "pages are larger than this server takes page_bytes={} page_bytes_max={page_bytes_max}",
                identity.page_bytes
            )));
        }
        let id = identity.namespace_id(&shared.secret.tenant_salt(&principal.tenant));
        if let Ok(open) = shared.namespaces.get(principal, &id) {
            return Ok(open);
        }
        shared.namespaces.admit(&id)?;
        let record = NamespaceRecord { id, tenant: principal.tenant.clone(), identity: identity.clone() };
        let mut charge = shared.endurance.demand(NAMESPACE_BYTES);
        shared.endurance.cover(&*shared.directory, charge.bytes())?;
        let saved = shared.directory.save_namespace(&record);
        charge.spend();
        saved?;
        // Nobody finds the namespace before its pages' shape is known.
        let mut catalogue = shared.catalogue.lock();
        let namespace = shared.namespaces.open(id, &principal.tenant, identity);
        let shape = Shape { id, tenant: Some(namespace.tenant_no()), page_bytes: identity.page_bytes };
        catalogue.set_shape(namespace.no(), shape);
        Ok(namespace)
    }

    /// The namespace `id`, if the caller's tenant has opened it, in this run of the server or an earlier one.
    ///
    /// # Errors
    /// `Fenced` if not: open it, then repeat the call. An unknown namespace and another tenant's get the same answer.
    pub fn namespace(&self, principal: &Principal, id: &NamespaceId) -> Result<Arc<Namespace>> {
        self.shared.namespaces.get(principal, id)
    }

    /// The caller's namespaces, with their pages counted. Walks all entries: for operators.
    pub fn namespaces(&self, principal: &Principal) -> Vec<NamespaceSummary> {
        let namespaces = self.shared.namespaces.of(principal);
        let catalogue = self.shared.catalogue.lock();
        namespaces
            .iter()
            .map(|namespace| {
                let (dram_pages, ssd_pages) = catalogue.count(namespace.no());
                NamespaceSummary { id: *namespace.id(), identity: namespace.identity().clone(), dram_pages, ssd_pages }
            })
            .collect()
    }

    /// Drops every page of a namespace from every tier; returns their number. When it returns, the pages are gone for good: no restart
    /// brings them back. Pages that are put meanwhile stay.
    ///
    /// # Errors
    /// `Internal` or `Unavailable` if the SSD or the directory failed: the pages are gone from memory, but may come back at a restart.
    pub async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        writer::ask_to_clear(&self.shared, namespace.no(), *namespace.id()).await
    }

    /// Ends the engine in order: writes what waits to be written, then closes the directory; all of it within `grace`. Later calls find it
    /// closed.
    pub async fn close(&self, grace: Duration) -> Closed {
        let Some(writer) = self.writer.lock().take() else { return Closed::Orderly };
        let scrub = self.scrub.lock().take();
        self.shared.scrub.stop();
        self.shared.queue.stop(false);
        let shared = Arc::clone(&self.shared);
        let closing = spawn_blocking(move || {
            // A panic of either has been reported by its thread.
            let _ = (scrub.map(JoinHandle::join), writer.join());
            shared.end()
        });
        match timeout(grace, closing).await {
            Ok(Ok(Ok(()))) => Closed::Orderly,
            Ok(Ok(Err(failed))) => {
                error!(cause = failed.chain(), "close the storage");
                Closed::Orderly
            }
            Ok(Err(failed)) => {
                error!(cause = %failed, "close the storage");
                Closed::Orderly
            }
            Err(_) => {
                warn!("the time to stop is over: pages that waited to be written are dropped");
                self.shared.queue.stop(true);
                Closed::Abandoned
            }
        }
    }

    /// Blocks until what is on the SSD is known, if it had to be found from the pages' headers. For benchmarks and tests: a server serves
    /// meanwhile.
    pub fn wait_rebuilt(&self) {
        let mut recovery = self.shared.recovery.lock();
        while recovery.mode == OpenMode::Rebuilding && self.shared.metrics.rebuilding.get() > 0 {
            self.shared.rebuilt.wait(&mut recovery);
        }
    }

    /// Blocks until all page memory is ready. For benchmarks and tests: a server serves while it warms.
    pub fn wait_warm(&self) {
        self.shared.pool.wait_warm();
    }
}

/// Does both at once.
fn beside<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        (one, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.scrub.stop();
        self.shared.queue.stop(true);
        for thread in [self.scrub.get_mut().take(), self.writer.get_mut().take()].into_iter().flatten() {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Ends the run of the device, when nothing is under way any more. It is marked clean only if all was well in it.
    fn end(&self) -> Result<()> {
        let remembered = scrub::close(self).and(self.endurance.close(&*self.directory));
        self.directory.close()?;
        remembered?;
        if self.was_well() { Ok(self.tier.end_run()?) } else { Ok(()) }
    }

    /// Whether no error was met since the engine was opened.
    fn was_well(&self) -> bool {
        let damaged: u64 = self.metrics.ssd_damaged.iter().map(|(_, pages)| pages.get()).sum();
        !self.write_state.was_failed()
            && !self.is_write_quarantined()
            && self.recovery.lock().mode != OpenMode::Rebuilding
            && self.metrics.ssd_read_failed.get() == 0
            && damaged == 0
    }

    pub(crate) fn check_chain(&self, chain: &[PageKey]) -> Result<()> {
        if chain.len() > self.settings.chain_pages_max {
            return Err(Error::invalid(format!(
                "the chain is too long pages={} chain_pages_max={}",
                chain.len(),
                self.settings.chain_pages_max
            )));
        }
        Ok(())
    }

    /// Drops a page whose bytes in memory no longer fit their checksum.
    pub(crate) fn drop_damaged_in_dram(&self, namespace: NamespaceNo, key: &PageKey, damaged: &SealedPage) {
        self.metrics.dram_damaged.inc();
        if let Some(kept_back) = self.page_troubles.damaged_in_dram.line(self.clock.now()) {
            error!(page = %key, kept_back, "a page in memory is damaged; it is dropped");
        }
        self.catalogue.lock().drop_damaged_in_dram(namespace, key, damaged.slot());
    }

    /// Takes a page off the SSD that could not be had from there, so that the next one who asks is told so at once, and a put can mend it.
    /// False if it had left already: then its bytes are no damage.
    pub(crate) fn drop_lost_on_ssd(
        &self,
        no: NamespaceNo,
        key: &PageKey,
        generation: Generation,
        fault: &ReadFault,
    ) -> bool {
        let is_damaged = matches!(fault, ReadFault::Damaged(_));
        let left = {
            let mut catalogue = self.catalogue.lock();
            let left = catalogue.drop_from_ssd(no, key, generation);
            if let Some(left) = left.filter(|_| !is_damaged) {
                catalogue.note_unread(no, left);
            }
            left
        };
        // A page that was cleared while it was being read is no news.
        if left.is_some() || !is_damaged {
            self.tier.note(fault);
        }
        let Some(left) = left else { return false };
        if let ReadFault::Damaged(damage) = fault {
            if let Some(kept_back) = self.page_troubles.damaged_on_ssd.line(self.clock.now()) {
                warn!(page = %key, fault = ?damage, kept_back, "a page on the SSD is damaged; it is dropped");
            }
            self.queue.push(Work::Retire(left, *damage));
        } else if let Some(kept_back) = self.page_troubles.unreadable.line(self.clock.now()) {
            warn!(page = %key, %fault, kept_back, "a page could not be read from the SSD; it is dropped until the next start");
        }
        true
    }
}
