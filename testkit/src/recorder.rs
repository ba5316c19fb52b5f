//! Disks that remember: a device and a directory that share one history, so that a crash can be tried at every point of it.
//!
//! Every write, barrier and commit becomes a [`Point`] of the [`History`], in the order in which it was begun. [`Cursor::crash`] gives
//! the [`World`] that a crash between two points leaves, with the last point returned or in flight: a commit in flight is there or not,
//! a barrier in flight orders nothing. A crash of the process alone leaves the writes in the page cache, unsynced; [`World::cut_power`]
//! then decides the fate of each: kept, lost or torn at sectors, in any order, with a flipped bit if asked for.
//!
//! A [hold](Recorder::hold) stops the next change before it begins, so that a test can fill a queue while its consumer stands still; that
//! is what makes two runs of a script the same to the last byte. Everything is in memory and belongs to the recorder, unless it was
//! begun [on real disks](Recorder::on_disks): every change is then made there too, and every read comes from there.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use cairn_core::{NamespaceId, PageKey};
use cairn_directory::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};
use cairn_policy::{Ledger, ScrubMark};
use cairn_ssd::{Device, DeviceError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::dice::Dice;
use crate::fault_device::fill;
use crate::real_disks::{DisksError, RealDisks};

const SECTOR_BYTES: usize = 512;
/// A flipped bit is injected into one of so many crashes.
const FLIP_ONE_IN: usize = 4;

/// Bytes at a place of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where.
    pub at: usize,
    /// What.
    pub bytes: Arc<[u8]>,
}

/// What a directory holds.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct DirectoryState {
    /// Page records, by namespace and key.
    pub records: BTreeMap<([u8; 32], [u8; 32]), Record>,
    /// Namespaces, by id.
    pub namespaces: BTreeMap<[u8; 32], NamespaceRecord>,
    /// The device that the records are about.
    pub device: Option<DeviceRecord>,
}

/// What is on the disks at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct World {
    /// What a power cut can not take back. A device that was cut short has fewer bytes than it claims.
    pub durable: Vec<u8>,
    /// Writes that no good barrier followed, oldest first.
    pub unsynced: Vec<Write>,
    /// The directory; all of it is durable.
    pub directory: DirectoryState,
    /// Size that the device claims.
    pub device_bytes: usize,
}

/// One change of the world.
#[derive(Clone, PartialEq, Debug)]
pub enum Point {
    /// A write of the device.
    Write(Write),
    /// A barrier; if it lied, it made nothing durable.
    Barrier {
        /// Whether it was reported as done and did nothing.
        lied: bool,
    },
    /// A barrier that was refused: what was written before it never becomes durable.
    FailedBarrier,
    /// A commit of page records.
    Commit(Arc<[Change]>),
    /// A namespace was remembered.
    Namespace(Box<NamespaceRecord>),
    /// The device was named.
    Device(DeviceRecord),
    /// Bytes changed on the medium, by nobody's wish. Durable at once.
    Rot(Write),
    /// Somebody deleted the directory.
    LostDirectory,
}

/// What a power cut does with writes that no barrier followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Power {
    /// Keeps them all.
    Kept,
    /// Loses them all.
    Lost,
    /// Tears each one: some of its sectors stay.
    Torn,
    /// Keeps, loses or tears each one.
    Dice,
}

/// What became of the unsynced writes at a power cut.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Writes kept whole.
    pub kept: u64,
    /// Writes lost whole.
    pub lost: u64,
    /// Writes of which some sectors were kept and some lost.
    pub torn: u64,
    /// Bits flipped.
    pub flipped: u64,
}

impl Point {
    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Write(write) => match write.bytes.get(..8) {
                Some(b"CAIRNSSD") => "superblock",
                Some(b"CAIRNREG") => "region header",
                Some(b"CAIRNPG1") => "page",
                _ => "wipe",
            },
            Self::Barrier { .. } | Self::FailedBarrier => "barrier",
            Self::Commit(changes) => match changes.first() {
                Some(Change::Put(_)) | None => "commit",
                Some(Change::Remove { .. }) => "eviction",
                Some(Change::RemoveNamespace(_)) => "clear",
            },
            Self::Namespace(_) => "namespace",
            Self::Device(_) => "device",
            Self::Rot(_) => "rot",
            Self::LostDirectory => "lost directory",
        }
    }
}

impl DirectoryState {
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(record) => {
                    self.records.insert((*record.namespace.as_bytes(), *record.key.as_bytes()), *record);
                }
                Change::Remove { namespace, key } => {
                    self.records.remove(&(*namespace.as_bytes(), *key.as_bytes()));
                }
                Change::RemoveNamespace(namespace) => self.records.retain(|(of, _), _| of != namespace.as_bytes()),
            }
        }
    }
}

impl World {
    /// A blank device and an empty directory.
    pub fn blank(device_bytes: usize) -> Self {
        Self {
            durable: vec![0; device_bytes],
            unsynced: Vec::new(),
            directory: DirectoryState::default(),
            device_bytes,
        }
    }

    /// The device as a reader sees it while the power is on.
    pub fn seen(&self) -> Vec<u8> {
        let mut seen = self.durable.clone();
        for write in &self.unsynced {
            seen[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        seen
    }

    /// Applies a change that has returned.
    pub fn apply(&mut self, point: &Point) {
        match point {
            Point::Write(write) => self.unsynced.push(write.clone()),
            Point::Barrier { lied: false } => self.sync(),
            Point::Barrier { lied: true } => {}
            Point::FailedBarrier => self.unsynced.clear(),
            Point::Commit(changes) => self.directory.apply(changes),
            Point::Namespace(record) => {
                self.directory.namespaces.insert(*record.id.as_bytes(), (**record).clone());
            }
            Point::Device(device) => self.directory.device = Some(*device),
            Point::Rot(write) => {
                self.durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
            Point::LostDirectory => self.directory = DirectoryState::default(),
        }
    }

    fn sync(&mut self) {
        for write in self.unsynced.drain(..) {
            self.durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    /// Cuts the power: each unsynced write meets its fate, in an order of its own.
    pub fn cut_power(&mut self, power: Power, dice: &mut Dice) -> Tally {
        let mut tally = Tally::default();
        let mut writes = std::mem::take(&mut self.unsynced);
        if power != Power::Kept {
            shuffle(&mut writes, dice);
        }
        let flipped = writes.get(dice.place(writes.len())).cloned();
        for write in &writes {
            let fate = match power {
                Power::Kept => 0,
                Power::Lost => 1,
                Power::Torn => 2,
                Power::Dice => dice.place(3),
            };
            self.land(write, fate, dice, &mut tally);
        }
        if let (Some(write), Power::Dice, 0) = (flipped, power, dice.place(FLIP_ONE_IN)) {
            let at = write.at + dice.place(write.bytes.len());
            self.durable[at] ^= 1 << dice.place(8);
            tally.flipped += 1;
        }
        tally
    }

    fn land(&mut self, write: &Write, fate: usize, dice: &mut Dice, tally: &mut Tally) {
        let (mut kept, mut lost) = (0, 0);
        let mut from = 0;
        // Sectors of the device, not of the write: a write may begin inside one.
        while from < write.bytes.len() {
            let to = (from + SECTOR_BYTES - (write.at + from) % SECTOR_BYTES).min(write.bytes.len());
            if fate == 0 || (fate == 2 && dice.place(2) == 0) {
                self.durable[write.at + from..write.at + to].copy_from_slice(&write.bytes[from..to]);
                kept += 1;
            } else {
                lost += 1;
            }
            from = to;
        }
        match (kept, lost) {
            (_, 0) => tally.kept += 1,
            (0, _) => tally.lost += 1,
            _ => tally.torn += 1,
        }
    }
}

fn shuffle<T>(items: &mut [T], dice: &mut Dice) {
    for last in (1..items.len()).rev() {
        items.swap(last, dice.place(last + 1));
    }
}

/// Everything that changed, from a world on.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    /// Where it began.
    pub start: World,
    /// What changed, in order.
    pub points: Vec<Point>,
}

impl History {
    /// A cursor before the first point.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { history: self, at: 0, world: self.start.clone() }
    }
}

/// Walks through a history.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    history: &'a History,
    at: usize,
    /// With all of `history.points[..at]` returned.
    world: World,
}

impl Cursor<'_> {
    /// The world that a crash leaves when the first `points` points have begun. `returned`: the last of them has returned too; if not,
    /// and it is a change of the directory, `landed` says whether it is there.
    pub fn crash(&mut self, points: usize, returned: bool, landed: bool) -> World {
        let sure = points.saturating_sub(usize::from(!returned));
        if sure < self.at {
            (self.at, self.world) = (0, self.history.start.clone());
        }
        for point in &self.history.points[self.at..sure] {
            self.world.apply(point);
        }
        self.at = sure;
        let mut world = self.world.clone();
        match self.history.points[sure..points].first() {
            Some(Point::Barrier { .. }) | None => {}
            Some(Point::Commit(_) | Point::Namespace(_) | Point::Device(_)) if !landed => {}
            Some(point) => world.apply(point),
        }
        world
    }
}

/// What is about to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A read of the device.
    Read,
    /// A write of the device.
    Write,
    /// A barrier.
    Barrier,
    /// A change of the directory.
    Commit,
}

/// What becomes of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is done.
    Good,
    /// It is refused. Of a write, some may have happened.
    Refused,
    /// It is refused because the disk is full; nothing has happened.
    Full,
    /// It is reported as done, and is not.
    Lied,
}

/// Decides the verdict of every step.
pub type Plan = Box<dyn FnMut(Step) -> Verdict + Send>;

/// A device and, through [`Recorder::directory`], a directory that remember.
pub struct Recorder {
    start: World,
    disks: Option<RealDisks>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    seen: Vec<u8>,
    directory: DirectoryState,
    /// No part of the history, because the time is in it: a crash loses it, as if there had never been one.
    ledger: Option<Ledger>,
    /// Likewise.
    scrub: Option<ScrubMark>,
    points: Vec<Point>,
    plan: Plan,
    hold: bool,
    held: bool,
    directory_failed: bool,
    /// For want of space.
    directory_full: bool,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("points", &self.len()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts at `world`; every step is good.
    pub fn new(world: World) -> Arc<Self> {
        Self::with_plan(world, Box::new(|_| Verdict::Good))
    }

    /// Starts at `world`; `plan` decides.
    pub fn with_plan(world: World, plan: Plan) -> Arc<Self> {
        Self::start(world, plan, None)
    }

    /// Starts with what is on real disks; every step is good, as far as they allow it. Blocks.
    ///
    /// # Errors
    /// [`DisksError`].
    pub fn on_disks(disks: RealDisks) -> Result<Arc<Self>, DisksError> {
        Ok(Self::start(disks.world()?, Box::new(|_| Verdict::Good), Some(disks)))
    }

    fn start(world: World, plan: Plan, disks: Option<RealDisks>) -> Arc<Self> {
        let state = State {
            seen: world.seen(),
            directory: world.directory.clone(),
            ledger: None,
            scrub: None,
            points: Vec::new(),
            plan,
            hold: false,
            held: false,
            directory_failed: false,
            directory_full: false,
        };
        Arc::new(Self { start: world, disks, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// The directory that shares this history. Opened anew: a failure of an earlier one is forgotten.
    ///
    /// # Errors
    /// What a real directory says when it is opened.
    pub fn directory(self: &Arc<Self>) -> Result<Arc<dyn Directory>, DirectoryError> {
        self.state.lock().directory_failed = false;
        let real = self.disks.as_ref().map(RealDisks::open_directory).transpose()?;
        Ok(Arc::new(RecordedDirectory { recorder: Arc::clone(self), real }))
    }

    /// Points so far.
    pub fn len(&self) -> usize {
        self.state.lock().points.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened so far.
    pub fn history(&self) -> History {
        History { start: self.start.clone(), points: self.state.lock().points.clone() }
    }

    /// What the directory holds now.
    pub fn directory_state(&self) -> DirectoryState {
        self.state.lock().directory.clone()
    }

    /// Whether the directory names the page.
    pub fn names(&self, namespace: &NamespaceId, key: &PageKey) -> bool {
        self.state.lock().directory.records.contains_key(&(*namespace.as_bytes(), *key.as_bytes()))
    }

    /// Whether a change of the directory was refused since it was opened.
    pub fn has_failed(&self) -> bool {
        self.state.lock().directory_failed
    }

    /// Stops the next change before it begins.
    pub fn hold(&self) {
        self.state.lock().hold = true;
    }

    /// Whether a change stands still.
    pub fn is_held(&self) -> bool {
        self.state.lock().held
    }

    /// Lets changes go on.
    pub fn release(&self) {
        self.state.lock().hold = false;
        self.changed.notify_all();
    }

    /// Changes who decides.
    pub fn set_plan(&self, plan: Plan) {
        self.state.lock().plan = plan;
    }

    /// Bytes of the device, as a reader sees them.
    pub fn peek(&self, at: usize, bytes: usize) -> Vec<u8> {
        self.state.lock().seen[at..at + bytes].to_vec()
    }

    /// Changes bytes on the medium, durable.
    pub fn rot(&self, at: usize, bytes: &[u8]) {
        let mut state = self.state.lock();
        if let Some(disks) = &self.disks {
            // Whether it worked shows when the page is read.
            let _ = disks.device().write_at(at as u64, &[bytes]).and_then(|()| disks.device().barrier());
        }
        state.seen[at..at + bytes.len()].copy_from_slice(bytes);
        state.points.push(Point::Rot(Write { at, bytes: bytes.into() }));
    }

    /// Deletes the directory. For the next one that is opened.
    pub fn lose_directory(&self) {
        if let Some(disks) = &self.disks {
            disks.lose_directory();
        }
        let mut state = self.state.lock();
        state.directory = DirectoryState::default();
        state.points.push(Point::LostDirectory);
    }

    /// Waits while changes are held, then asks for the verdict.
    fn begin(&self, step: Step) -> (MutexGuard<'_, State>, Verdict) {
        let mut state = self.state.lock();
        while state.hold {
            state.held = true;
            self.changed.wait(&mut state);
        }
        state.held = false;
        let verdict = (state.plan)(step);
        (state, verdict)
    }

    fn change_directory(&self, point: Point, real: Option<&dyn Directory>) -> Result<(), DirectoryError> {
        let mut state = self.begin_change()?;
        if let (Some(disks), Some(real)) = (&self.disks, real) {
            disks.through(state.points.len() + 1, &point, |_| change(real, &point))?;
        }
        match &point {
            Point::Commit(changes) => state.directory.apply(changes),
            Point::Namespace(record) => {
                state.directory.namespaces.insert(*record.id.as_bytes(), (**record).clone());
            }
            Point::Device(device) => state.directory.device = Some(*device),
            _ => {}
        }
        state.points.push(point);
        Ok(())
    }

    fn begin_change(&self) -> Result<MutexGuard<'_, State>, DirectoryError> {
        let (mut state, verdict) = self.begin(Step::Commit);
        if verdict != Verdict::Good && !state.directory_failed {
            state.directory_failed = true;
            state.directory_full = verdict == Verdict::Full;
            let (action, source) = ("write a batch", cause(verdict));
            return Err(match verdict {
                Verdict::Full => DirectoryError::Full { action, source },
                _ => DirectoryError::Io { action, source },
            });
        }
        match (state.directory_failed, state.directory_full) {
            (false, _) => Ok(state),
            (true, false) => Err(DirectoryError::Quarantined),
            (true, true) => Err(DirectoryError::Full { action: "write a batch", source: cause(Verdict::Full) }),
        }
    }
}

impl Device for Recorder {
    fn bytes(&self) -> u64 {
        self.start.device_bytes as u64
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let wanted_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut state = self.state.lock();
        if (state.plan)(Step::Read) != Verdict::Good {
            return Err(refused("read", at, wanted_bytes, Verdict::Refused));
        }
        if let Some(disks) = &self.disks {
            return disks.device().read_at(at, parts);
        }
        fill(&state.seen, at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let mut all = parts.concat();
        let bytes = all.len() as u64;
        if at + bytes > self.bytes() {
            return Err(DeviceError::OutOfRange { at, bytes, device_bytes: self.bytes() });
        }
        let (mut state, verdict) = self.begin(Step::Write);
        if verdict == Verdict::Refused {
            all.truncate(all.len() / 2);
        }
        if matches!(verdict, Verdict::Good | Verdict::Refused) {
            let to = index(at);
            if state.seen.len() < to + all.len() {
                state.seen.resize(to + all.len(), 0);
            }
            state.seen[to..to + all.len()].copy_from_slice(&all);
            let point = Point::Write(Write { at: to, bytes: all.into() });
            if let Some(disks) = &self.disks {
                disks.through(state.points.len() + 1, &point, |device| device.write_at(at, parts))?;
            }
            state.points.push(point);
        }
        if matches!(verdict, Verdict::Good | Verdict::Lied) {
            Ok(())
        } else {
            Err(refused("write", at, bytes, verdict))
        }
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        let (mut state, verdict) = self.begin(Step::Barrier);
        let (point, outcome) = match verdict {
            Verdict::Good => (Point::Barrier { lied: false }, Ok(())),
            Verdict::Lied => (Point::Barrier { lied: true }, Ok(())),
            Verdict::Refused | Verdict::Full => (Point::FailedBarrier, Err(refused("barrier", 0, 0, verdict))),
        };
        if let Some(disks) = &self.disks {
            disks.through(state.points.len() + 1, &point, Device::barrier)?;
        }
        state.points.push(point);
        outcome
    }

    /// Zeros that no barrier followed yet, as everything else that is written.
    fn trim(&self, at: u64, bytes: u64) -> Result<bool, DeviceError> {
        self.write_at(at, &[&vec![0; index(bytes)]]).map(|()| true)
    }

    fn describe(&self) -> &str {
        "memory that remembers"
    }
}

fn refused(operation: &'static str, at: u64, bytes: u64, verdict: Verdict) -> DeviceError {
    DeviceError::Io { operation, at, bytes, source: cause(verdict) }
}

fn cause(verdict: Verdict) -> io::Error {
    match verdict {
        Verdict::Full => io::Error::from(io::ErrorKind::StorageFull),
        _ => io::Error::other("a fault was injected"),
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[derive(Debug)]
struct RecordedDirectory {
    recorder: Arc<Recorder>,
    real: Option<Arc<dyn Directory>>,
}

/// Makes the same change in a real directory.
fn change(real: &dyn Directory, point: &Point) -> Result<(), DirectoryError> {
    match point {
        Point::Commit(changes) => real.commit(changes),
        Point::Namespace(record) => real.save_namespace(record),
        Point::Device(device) => real.set_device(*device),
        _ => Ok(()),
    }
}

impl Directory for RecordedDirectory {
    fn commit(&self, changes: &[Change]) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Commit(changes.into()), self.real.as_deref())
    }

    fn scan(&self, visit: &mut dyn FnMut(Record)) -> Result<ScanReport, DirectoryError> {
        if let Some(real) = &self.real {
            return real.scan(visit);
        }
        let records = self.recorder.directory_state().records;
        let report = ScanReport { records: records.len() as u64, ..ScanReport::default() };
        records.into_values().for_each(visit);
        Ok(report)
    }

    fn save_namespace(&self, namespace: &NamespaceRecord) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Namespace(Box::new(namespace.clone())), self.real.as_deref())
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>, DirectoryError> {
        if let Some(real) = &self.real {
            return real.namespaces();
        }
        Ok(self.recorder.directory_state().namespaces.into_values().collect())
    }

    fn device(&self) -> Result<Option<DeviceRecord>, DirectoryError> {
        if let Some(real) = &self.real {
            return real.device();
        }
        Ok(self.recorder.directory_state().device)
    }

    fn set_device(&self, device: DeviceRecord) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Device(device), self.real.as_deref())
    }

    fn ledger(&self) -> Result<Option<Ledger>, DirectoryError> {
        self.real.as_ref().map_or_else(|| Ok(self.recorder.state.lock().ledger), |real| real.ledger())
    }

    fn save_ledger(&self, ledger: &Ledger) -> Result<(), DirectoryError> {
        self.recorder.begin_change()?.ledger = Some(*ledger);
        self.real.as_ref().map_or(Ok(()), |real| real.save_ledger(ledger))
    }

    fn scrub(&self) -> Result<Option<ScrubMark>, DirectoryError> {
        self.real.as_ref().map_or_else(|| Ok(self.recorder.state.lock().scrub), |real| real.scrub())
    }

    fn save_scrub(&self, mark: &ScrubMark) -> Result<(), DirectoryError> {
        self.recorder.begin_change()?.scrub = Some(*mark);
        self.real.as_ref().map_or(Ok(()), |real| real.save_scrub(mark))
    }

    fn release(&self) -> Result<(), DirectoryError> {
        self.recorder.state.lock().directory_failed = false;
        self.real.as_ref().map_or(Ok(()), |real| real.release())
    }

    fn close(&self) -> Result<(), DirectoryError> {
        self.real.as_ref().map_or(Ok(()), |real| real.close())
    }
}

/// Key and generation of each page in a write: of whatever begins like a page in it, and has more than a header.
pub fn pages_in(write: &Write) -> Vec<(PageKey, u64)> {
    let blocks = write.bytes.chunks_exact(cairn_core::HEADER_BYTES);
    if blocks.len() < 2 {
        return Vec::new();
    }
    blocks.filter_map(page_of).collect()
}

fn page_of(block: &[u8]) -> Option<(PageKey, u64)> {
    let key: [u8; 32] = block.strip_prefix(b"CAIRNPG1")?.get(56..88)?.try_into().ok()?;
    let generation: [u8; 8] = block.get(136..144)?.try_into().ok()?;
    Some((PageKey::from_bytes(key), u64::from_le_bytes(generation)))
}
