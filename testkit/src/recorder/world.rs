//! What is on the disks at one moment, what changes it, and what a crash makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_core::PageKey;
use cairn_directory::{Change, DeviceRecord, NamespaceRecord, Record};

use crate::dice::Dice;

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
