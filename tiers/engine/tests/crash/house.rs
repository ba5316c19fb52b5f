//! An engine on disks that remember, and the small universe of pages that it is given.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{
    Checksum, Clock, Deadline, Declared, Durability, Heads, Identity, KeyScheme, LayerRange, NamespaceId, PageKey,
    Principal, ServerSecret, SlotId, StateKind, StopReason, SystemClock, chain_from_tokens,
};
use cairn_directory::{Directory, Record};
use cairn_engine::{Components, Engine, EngineSettings, GetOptions, Namespace, Put};
use cairn_policy::{ScrubPlan, WritePolicy};
use cairn_pool::{HugePages, PoolSettings};
use cairn_testkit::fault_device::SeededEntropy;
use cairn_testkit::payload;
use cairn_testkit::recorder::{DirectoryState, Recorder, World};

/// Bytes of a page of each space. The second does not fill its last block.
pub(crate) const PAGE_BYTES: [u64; 2] = [4096, 10_000];
const PAGE_TOKENS: u32 = 4;
const FRONT_BYTES: u64 = 65_536;
const BLOCK_BYTES: u64 = 4096;
/// Six slots for small pages, or three for large ones.
const REGION_BYTES: u64 = BLOCK_BYTES + 6 * 8192;
const REGIONS: u64 = 5;
/// Bytes of the device.
pub(crate) const DEVICE_BYTES: u64 = FRONT_BYTES + REGIONS * REGION_BYTES;
const CHAINS: usize = 12;
/// An arena: 16 small pages, or 5 large ones.
const ARENA_BYTES: u64 = 65_536;
/// Half of them take all pages that one operation puts, so that these wait for the writer together.
const ARENAS: u64 = 6;

/// A list of keys of one space.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) space: usize,
    pub(crate) keys: Vec<PageKey>,
}

/// A page of the universe: the chain and the position at which it is found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) chain: usize,
    pub(crate) page: usize,
}

/// Opens engines; owns the runtime that they run on.
pub(crate) struct House {
    pub(crate) runtime: tokio::runtime::Runtime,
    clock: Arc<dyn Clock>,
    identities: [Identity; 3],
    ids: [NamespaceId; 3],
    /// Every chain there is; some share their first pages.
    pub(crate) chains: Vec<Chain>,
    /// Every page there is, once.
    pub(crate) places: Vec<Place>,
    spaces: HashMap<PageKey, usize>,
    parents: HashMap<PageKey, PageKey>,
}

/// An open engine.
pub(crate) struct Cairn {
    pub(crate) engine: Arc<Engine>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) spaces: Vec<Arc<Namespace>>,
    clock: Arc<dyn Clock>,
}

/// What a reader sees of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    There,
    Absent,
    Damaged,
    ReadFailed,
}

impl House {
    pub(crate) fn new() -> Self {
        let secret = ServerSecret::from_bytes([7; 32]);
        let identities = [identity("small", PAGE_BYTES[0]), identity("large", PAGE_BYTES[1]), identity("empty", 4096)];
        let ids = [0, 1, 2]
            .map(|space: usize| identities[space].namespace_id(&secret.tenant_salt(&Principal::local().tenant)));
        let mut house = Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"),
            clock: Arc::new(SystemClock::start()),
            identities,
            ids,
            chains: Vec::new(),
            places: Vec::new(),
            spaces: HashMap::new(),
            parents: HashMap::new(),
        };
        for space in 0..2 {
            for name in 0..CHAINS {
                house.add_chain(space, name);
            }
        }
        house
    }

    /// Every third chain shares its first half with the one before it.
    fn add_chain(&mut self, space: usize, name: usize) {
        let pages = 1 + (name * 5 + space) % 8;
        let head = if name % 3 == 2 { name - 1 } else { name };
        let shared = if head == name { 0 } else { 1 + (head * 5 + space) % 8 / 2 };
        let token = |page: usize| if page < shared { head * 100 + page } else { name * 100 + page } as u32;
        let tokens: Vec<u32> = (0..pages).flat_map(|page| [token(page); PAGE_TOKENS as usize]).collect();
        let keys = chain_from_tokens(&self.ids[space], &tokens, PAGE_TOKENS, &[]).expect("a chain");
        let chain = self.chains.len();
        for (page, key) in keys.iter().enumerate() {
            if self.spaces.insert(*key, space).is_none() {
                self.places.push(Place { chain, page });
                self.parents.extend(page.checked_sub(1).map(|parent| (*key, keys[parent])));
            }
        }
        self.chains.push(Chain { space, keys });
    }

    pub(crate) fn key(&self, place: Place) -> PageKey {
        self.chains[place.chain].keys[place.page]
    }

    pub(crate) fn parent(&self, key: &PageKey) -> Option<&PageKey> {
        self.parents.get(key)
    }

    /// Keys of all pages of a space.
    pub(crate) fn keys_of(&self, space: usize) -> impl Iterator<Item = &PageKey> {
        self.spaces.iter().filter(move |(_, of)| **of == space).map(|(key, _)| key)
    }

    /// Bytes of the slots of these pages.
    pub(crate) fn slots_bytes<'a>(&self, keys: impl IntoIterator<Item = &'a PageKey>) -> u64 {
        keys.into_iter().map(|key| slot_bytes(PAGE_BYTES[self.spaces[key]])).sum()
    }

    /// The space with this id, of the two that have pages.
    pub(crate) fn space_of(&self, id: &NamespaceId) -> Option<usize> {
        self.ids[..2].iter().position(|of| of == id)
    }

    /// The record of a page, if the directory names it.
    pub(crate) fn record<'a>(&self, directory: &'a DirectoryState, key: &PageKey) -> Option<&'a Record> {
        let space = self.spaces.get(key)?;
        directory.records.get(&(*self.ids[*space].as_bytes(), *key.as_bytes()))
    }

    /// Nothing on the disks.
    pub(crate) fn blank() -> World {
        World::blank(DEVICE_BYTES as usize)
    }

    /// Opens an engine whose disks are `recorder`'s.
    pub(crate) fn open(&self, recorder: &Arc<Recorder>) -> Result<Cairn, String> {
        self.open_with(recorder, recorder.directory().map_err(|failed| format!("{failed}: {failed:?}"))?)
    }

    /// Opens an engine on `recorder`'s device and a directory of another kind.
    pub(crate) fn open_with(&self, recorder: &Arc<Recorder>, directory: Arc<dyn Directory>) -> Result<Cairn, String> {
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).expect("metrics register once"));
        let components = Components {
            clock: Arc::clone(&self.clock),
            entropy: Arc::new(SeededEntropy::new(11)),
            secret: ServerSecret::from_bytes([7; 32]),
            directory,
            device: recorder.clone(),
            metrics: Arc::clone(&metrics),
        };
        let engine = Engine::open(settings(), components).map_err(|failed| failed.chain())?;
        engine.wait_rebuilt();
        let open = |identity| engine.open_namespace(&Principal::local(), identity).map_err(|failed| failed.chain());
        let spaces = self.identities.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Cairn { engine, recorder: Arc::clone(recorder), metrics, spaces, clock: Arc::clone(&self.clock) })
    }

    /// Reads one page, whatever lies before it, and checks its bytes. If it is damaged, waits until it is retired.
    pub(crate) async fn read(&self, cairn: &Cairn, place: Place) -> Result<Seen, String> {
        let seen = self.look(cairn, place).await?;
        if seen == Seen::Damaged {
            cairn.retired(&self.ids[self.chains[place.chain].space], &self.key(place));
        }
        Ok(seen)
    }

    /// Reads one page, whatever lies before it, and checks its bytes.
    pub(crate) async fn look(&self, cairn: &Cairn, place: Place) -> Result<Seen, String> {
        let chain = &self.chains[place.chain];
        let options = GetOptions { first_page: place.page, usable_pages: u64::MAX, deadline: cairn.deadline() };
        let keys = chain.keys[..=place.page].to_vec();
        let get = cairn.engine.get_prefix(&cairn.spaces[chain.space], keys, options);
        let mut get = get.map_err(|failed| failed.chain())?;
        let mut seen = Seen::Absent;
        while let Some(served) = get.next().await {
            let key = &chain.keys[served.page];
            if !payload::is_right(key.as_bytes(), 0, served.bytes.as_ref())
                || served.bytes.as_ref().len() as u64 != PAGE_BYTES[chain.space]
            {
                return Err(format!("I1: wrong bytes of page {} of chain {}", served.page, place.chain));
            }
            seen = Seen::There;
        }
        let stop = get.end().stop;
        drop(get);
        match (seen, stop) {
            (Seen::There, StopReason::EndOfChain) => Ok(Seen::There),
            (Seen::Absent, StopReason::NotStored) => Ok(Seen::Absent),
            (Seen::Absent, StopReason::Damaged) => Ok(Seen::Damaged),
            (Seen::Absent, StopReason::ReadFailed) => Ok(Seen::ReadFailed),
            other => Err(format!("I2: a get ended with {other:?}")),
        }
    }
}

impl Cairn {
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(&*self.clock, Duration::from_secs(30))
    }

    pub(crate) fn begin(&self, chain: &Chain, pages: usize, durability: Durability) -> Result<Put, String> {
        let keys = chain.keys[..pages].to_vec();
        let put = self.engine.begin_put(&self.spaces[chain.space], keys, durability, self.deadline());
        put.map_err(|failed| failed.chain())
    }

    /// Damage that was found so far, on the SSD.
    pub(crate) fn damaged(&self) -> u64 {
        self.metrics.ssd_damaged.iter().map(|(_, counter): (Damage, _)| counter.get()).sum()
    }

    /// Waits until the directory has forgotten a page that was found damaged.
    fn retired(&self, namespace: &NamespaceId, key: &PageKey) {
        while self.recorder.names(namespace, key) && !self.recorder.has_failed() {
            std::thread::yield_now();
        }
    }

    /// Waits until nothing waits to be written.
    pub(crate) fn written(&self) {
        while self.metrics.ssd_write_queue_pages.get() > 0 {
            std::thread::yield_now();
        }
    }

    /// Bytes of SSD slots and of DRAM frames that the pages in them need.
    pub(crate) fn needed_bytes(&self) -> (u64, u64) {
        let spaces = self.engine.namespaces(&Principal::local());
        spaces.iter().fold((0, 0), |(ssd, dram), space| {
            let frame = space.identity.page_bytes.next_multiple_of(BLOCK_BYTES);
            (ssd + space.ssd_pages * (frame + BLOCK_BYTES), dram + space.dram_pages * frame)
        })
    }
}

/// Sends the bytes of every page that the put needs.
pub(crate) async fn send_all(put: &mut Put, chain: &Chain) {
    for page in put.needed().into_iter().flatten() {
        let Ok(mut frame) = put.reserve(page).await else { continue };
        payload::fill(chain.keys[page].as_bytes(), &mut frame);
        let checksum = Checksum::of(&frame);
        put.commit(page, frame, checksum);
    }
}

/// Bytes of a slot for a page of so many bytes.
pub(crate) fn slot_bytes(page_bytes: u64) -> u64 {
    cairn_ssd::slot_bytes(page_bytes).expect("a page of some bytes")
}

/// Where a slot begins.
pub(crate) fn slot_at(slot: SlotId, page_bytes: u64) -> usize {
    let region = FRONT_BYTES + u64::from(slot.region) * REGION_BYTES;
    (region + BLOCK_BYTES + u64::from(slot.slot) * slot_bytes(page_bytes)) as usize
}

fn settings() -> EngineSettings {
    EngineSettings {
        dram: PoolSettings { bytes: ARENAS * ARENA_BYTES, arena_bytes: ARENA_BYTES, huge_pages: HugePages::Off },
        region_bytes: REGION_BYTES,
        ssd_device: cairn_ssd::DeviceKind::Auto,
        read_threads: 1,
        read_queue: 4,
        write_policy: WritePolicy::All,
        endurance: None,
        scrub: ScrubPlan { period: None, bytes_per_second_max: 0 },
        write_behind_bytes: 1 << 20,
        write_behind_time: Duration::from_secs(600),
        load_window_bytes: 1 << 16,
        chain_pages_max: 64,
        page_bytes_max: 1 << 16,
        namespaces_max: 8,
    }
}

fn identity(model: &str, page_bytes: u64) -> Identity {
    Identity {
        model: model.into(),
        model_revision: "r1".into(),
        adapter: Declared::None,
        positions: Declared::Is("rope theta=1000000".into()),
        kind: StateKind::Attention,
        dtype: "bf16".into(),
        layout: "NHD".into(),
        layout_version: "1".into(),
        page_tokens: PAGE_TOKENS,
        page_bytes,
        layers: LayerRange { first: 0, count: 1, of: 1 },
        heads: Heads::Replicated,
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}
