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

use std::fmt;
use std::io;
use std::sync::Arc;

use cairn_core::{NamespaceId, PageKey};
use cairn_directory::{Directory, DirectoryError};
use cairn_policy::{Ledger, ScrubMark};
use cairn_ssd::{Device, DeviceError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::directory::{RecordedDirectory, change};
pub use self::world::{Cursor, DirectoryState, History, Point, Power, Tally, World, Write, pages_in};
use crate::fault_device::fill;
use crate::real_disks::{DisksError, RealDisks};

mod directory;
mod world;

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
