//! An engine on a temporary folder, and callers that check every byte.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{
    ByteSize, Checksum, Clock, Deadline, Declared, Durability, Heads, Identity, KeyScheme, LayerRange, Moment,
    NotStored, OsEntropy, PageKey, PageOutcome, Principal, ServerSecret, StateKind, StopReason, Tier,
    chain_from_tokens,
};
use cairn_directory::{Directory, DirectoryError, RocksDirectory};
use cairn_engine::{Components, Engine, EngineSettings, GetEnd, GetOptions, Namespace, Put, PutReport};
use cairn_policy::{ScrubPlan, WritePolicy};
use cairn_pool::{HugePages, PoolSettings};
use cairn_ssd::{Device, DeviceError, FileDevice};
use cairn_testkit::payload;
use tempfile::TempDir;

pub(crate) const PAGE_BYTES: u64 = 8192;
pub(crate) const PAGE_TOKENS: u32 = 16;

/// Time from tokio, so that a test with paused time reaches its deadlines at once.
#[derive(Debug)]
pub(crate) struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_start(self.0.elapsed())
    }
}

/// A clock that stands still but for the jumps that a test makes.
#[derive(Debug, Default)]
pub(crate) struct JumpClock(AtomicU64);

impl JumpClock {
    pub(crate) fn jump(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).expect("a jump"), Ordering::SeqCst);
    }
}

impl Clock for JumpClock {
    fn now(&self) -> Moment {
        Moment::from_start(Duration::from_nanos(self.0.load(Ordering::SeqCst)))
    }
}

/// A data folder and the settings that engines on it are opened with.
pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) settings: EngineSettings,
    pub(crate) ssd_bytes: u64,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Rig {
    /// A rig with room for so many pages of `PAGE_BYTES` in DRAM and on the SSD.
    pub(crate) fn new(dram_pages: u64, ssd_pages: u64) -> Self {
        // A slot is a header of 4 KiB and the page; at least eight regions, of up to 64 slots, and their own header.
        let slot = PAGE_BYTES + 4096;
        let per_region = (ssd_pages / 8).clamp(1, 64);
        let region_bytes = per_region * slot + 4096;
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            settings: EngineSettings {
                dram: PoolSettings {
                    bytes: dram_pages * PAGE_BYTES,
                    arena_bytes: (dram_pages * PAGE_BYTES).min(64 * PAGE_BYTES),
                    huge_pages: HugePages::Off,
                },
                region_bytes,
                ssd_device: cairn_ssd::DeviceKind::Auto,
                read_threads: 2,
                read_queue: 16,
                write_policy: WritePolicy::All,
                endurance: None,
                scrub: ScrubPlan { period: None, bytes_per_second_max: 0 },
                write_behind_bytes: ByteSize(64 << 20).0,
                write_behind_time: Duration::from_secs(60),
                load_window_bytes: 16 * PAGE_BYTES,
                chain_pages_max: 4096,
                page_bytes_max: 1 << 20,
                namespaces_max: 64,
            },
            ssd_bytes: 65_536 + ssd_pages.div_ceil(per_region) * region_bytes,
            clock: Arc::new(TokioClock(tokio::time::Instant::now())),
        }
    }

    pub(crate) fn ssd_path(&self) -> std::path::PathBuf {
        self.folder.path().join("pages")
    }

    pub(crate) fn directory_path(&self) -> std::path::PathBuf {
        self.folder.path().join("directory")
    }

    /// Opens an engine on the folder. Loads that the one before it left running end first: they hold its device.
    pub(crate) async fn open(&self) -> Running {
        let busy = |error: &DeviceError| matches!(error, DeviceError::InUse { .. });
        let device = self.patiently(|| FileDevice::open_or_create(&self.ssd_path(), self.ssd_bytes), busy).await;
        self.open_on(Arc::new(device)).await
    }

    async fn patiently<T, E: std::fmt::Debug>(&self, open: impl Fn() -> Result<T, E>, busy: impl Fn(&E) -> bool) -> T {
        let patience = Deadline::after(&*self.clock, Duration::from_secs(10));
        loop {
            match open() {
                Err(error) if busy(&error) && !patience.passed(&*self.clock) => tokio::task::yield_now().await,
                opened => return opened.expect("it opens"),
            }
        }
    }

    pub(crate) async fn open_on(&self, device: Arc<dyn Device>) -> Running {
        let running = self.serve_on(device).await;
        running.engine.wait_rebuilt();
        running
    }

    /// The same, without waiting for a rebuild.
    pub(crate) async fn serve_on(&self, device: Arc<dyn Device>) -> Running {
        let busy = |error: &DirectoryError| matches!(error, DirectoryError::Locked { .. });
        let directory = self.patiently(|| RocksDirectory::open(&self.directory_path()), busy).await;
        let directory: Arc<dyn Directory> = Arc::new(directory);
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(Metrics::new(&registry).expect("metrics register once"));
        let engine = Engine::open(
            self.settings.clone(),
            Components {
                clock: Arc::clone(&self.clock),
                entropy: Arc::new(OsEntropy),
                secret: ServerSecret::from_bytes([7; 32]),
                directory,
                device,
                metrics: Arc::clone(&metrics),
            },
        )
        .expect("the engine opens");
        engine.wait_warm();
        Running { engine, metrics, clock: Arc::clone(&self.clock) }
    }
}

/// An open engine.
pub(crate) struct Running {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

/// What a get returned.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) end: GetEnd,
    pub(crate) tiers: Vec<Tier>,
}

impl Running {
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(&*self.clock, Duration::from_secs(5))
    }

    pub(crate) fn deadline_in(&self, budget: Duration) -> Deadline {
        Deadline::after(&*self.clock, budget)
    }

    pub(crate) fn namespace(&self) -> Arc<Namespace> {
        self.namespace_of(&identity())
    }

    pub(crate) fn namespace_of(&self, identity: &Identity) -> Arc<Namespace> {
        self.engine.open_namespace(&Principal::local(), identity).expect("the namespace opens")
    }

    pub(crate) fn begin(&self, namespace: &Arc<Namespace>, chain: &[PageKey], durability: Durability) -> Put {
        self.engine.begin_put(namespace, chain.to_vec(), durability, self.deadline()).expect("the put begins")
    }

    /// Puts every page of `chain` that is needed.
    pub(crate) async fn put(&self, namespace: &Arc<Namespace>, chain: &[PageKey], durability: Durability) -> PutReport {
        self.put_until(namespace, chain, durability, self.deadline()).await
    }

    pub(crate) async fn put_until(
        &self,
        namespace: &Arc<Namespace>,
        chain: &[PageKey],
        durability: Durability,
        deadline: Deadline,
    ) -> PutReport {
        let mut put = self.engine.begin_put(namespace, chain.to_vec(), durability, deadline).expect("the put begins");
        for page in put.needed().into_iter().flatten() {
            send(&mut put, page, &chain[page]).await;
        }
        put.finish().await
    }

    /// Gets the longest prefix and checks every byte of it.
    pub(crate) async fn get(&self, namespace: &Arc<Namespace>, chain: &[PageKey]) -> Got {
        self.get_with(namespace, chain, 0, u64::MAX, self.deadline()).await
    }

    pub(crate) async fn get_with(
        &self,
        namespace: &Arc<Namespace>,
        chain: &[PageKey],
        first_page: usize,
        usable_pages: u64,
        deadline: Deadline,
    ) -> Got {
        let options = GetOptions { first_page, usable_pages, deadline };
        let mut get = self.engine.get_prefix(namespace, chain.to_vec(), options).expect("the get begins");
        let planned: usize = get.planned_runs().iter().map(|(_, pages)| pages).sum();
        let mut tiers = Vec::new();
        while let Some(served) = get.next().await {
            assert_eq!(served.page, first_page + tiers.len(), "pages come in order");
            assert!(payload::is_right(chain[served.page].as_bytes(), 0, served.bytes.as_ref()), "wrong bytes");
            tiers.push(served.tier);
        }
        let end = get.end();
        if matches!(end.stop, StopReason::EndOfChain | StopReason::MaxTokens | StopReason::NotStored) {
            assert_eq!(tiers.len(), planned, "what the plan names is held: {end:?}");
        }
        Got { end, tiers }
    }

    /// Pages that a match finds.
    pub(crate) fn matched(&self, namespace: &Namespace, chain: &[PageKey]) -> usize {
        self.engine.match_prefix(namespace, chain, u64::MAX).expect("the match is answered").pages
    }

    /// Waits until everything that was offered to the SSD has been written: a durable put of one more page ends behind it.
    pub(crate) async fn written(&self, namespace: &Arc<Namespace>) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX / 2);
        let tail = chain(namespace, NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(self.put(namespace, &tail, Durability::Ssd).await.durability, Durability::Ssd);
    }
}

/// Sends the bytes of one page; false if the engine has no use for them.
pub(crate) async fn send(put: &mut Put, page: usize, key: &PageKey) -> bool {
    let mut frame = match put.reserve(page).await {
        Ok(frame) => frame,
        Err(NotStored::ParentMissing | NotStored::NoSpace) => return false,
        Err(other) => panic!("reserve refused: {other:?}"),
    };
    payload::fill(key.as_bytes(), &mut frame);
    let checksum = Checksum::of(&frame);
    matches!(put.commit(page, frame, checksum), PageOutcome::Stored(_) | PageOutcome::Present(_))
}

/// Where the payload of a page lies in the SSD file: found by its bytes.
pub(crate) fn find_payload(rig: &Rig, key: &PageKey) -> u64 {
    let file = std::fs::read(rig.ssd_path()).expect("the SSD file");
    let page = payload::page(key.as_bytes(), PAGE_BYTES as usize);
    let at = file.chunks(4096).position(|block| block == &page[..4096]).expect("the page is in the file");
    at as u64 * 4096
}

pub(crate) fn flip_bit(rig: &Rig, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(rig.ssd_path()).expect("the SSD file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("a flipped byte");
}

/// A chain of `pages` pages of its own.
pub(crate) fn chain(namespace: &Namespace, name: u32, pages: usize) -> Vec<PageKey> {
    let tokens: Vec<u32> = (0..pages as u32 * PAGE_TOKENS).map(|at| if at == 0 { name } else { at }).collect();
    chain_from_tokens(namespace.id(), &tokens, PAGE_TOKENS, &[]).expect("a chain")
}

/// The first `shared` pages of `base`, and `pages` more of its own.
pub(crate) fn branch(namespace: &Namespace, base: &[PageKey], shared: usize, name: u32, pages: usize) -> Vec<PageKey> {
    let mut keys = base[..shared].to_vec();
    for page in 0..pages as u32 {
        keys.push(PageKey::of_tokens(namespace.id(), keys.last(), &[name, page], &[]));
    }
    keys
}

/// An identity whose pages have `PAGE_BYTES`.
pub(crate) fn identity() -> Identity {
    Identity {
        model: "qwen3-8b".into(),
        model_revision: "r1".into(),
        adapter: Declared::None,
        positions: Declared::Is("rope theta=1000000".into()),
        kind: StateKind::Attention,
        dtype: "bf16".into(),
        layout: "NHD".into(),
        layout_version: "1".into(),
        page_tokens: PAGE_TOKENS,
        page_bytes: PAGE_BYTES,
        layers: LayerRange { first: 0, count: 36, of: 36 },
        heads: Heads::Replicated,
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}
