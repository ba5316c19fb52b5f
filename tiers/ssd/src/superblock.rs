//! The two superblocks: who the device is, and below which limit generations are handed out.
//!
//! Both copies are written at every change, the worse one first, with a barrier after each. So one is whole at any moment, and a limit is
//! used only when both have it: whichever copy is lost, the other starts no lower than anything that was handed out.

use cairn_core::{DeviceId, Generation, HeaderKey};

use crate::block::{Block, EMPTY};
use crate::device::DeviceError;
use crate::disk::Disk;
use crate::error::SsdError;
use crate::layout::{BLOCK_BYTES, FRONT_BYTES, Layout, SUPERBLOCKS_AT};
use crate::sector::{self, Sector, VERSION};
use crate::sync::Mutex;

const MAGIC: [u8; 8] = *b"CAIRNSSD";
/// How far the generation limit is raised at a time: two small writes for so many pages, and so many numbers lost by a crash, of 2^64.
/// Each opening of a device begins with a new span: 1 to this, this + 1 to twice this, and so on.
pub const GENERATION_SPAN: u64 = 65_536;

/// What a superblock says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Superblock {
    pub(crate) sequence: u64,
    pub(crate) device: DeviceId,
    pub(crate) header_key: HeaderKey,
    pub(crate) device_bytes: u64,
    pub(crate) region_bytes: u64,
    pub(crate) generation_limit: u64,
    pub(crate) run: Run,
}

/// A run of a device: what happens between an opening of it and the next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Run {
    /// Counts up from 1; 0 for a device that has had none.
    pub number: u64,
    /// It was ended in order, and without an error in it.
    pub clean: bool,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Block {
        let mut block = sector::start(&MAGIC);
        sector::put(&mut block, 16, &self.sequence.to_le_bytes());
        sector::put(&mut block, 24, self.device.as_bytes());
        sector::put(&mut block, 40, self.header_key.as_bytes());
        sector::put(&mut block, 72, &self.device_bytes.to_le_bytes());
        sector::put(&mut block, 80, &self.region_bytes.to_le_bytes());
        sector::put(&mut block, 88, &self.generation_limit.to_le_bytes());
        sector::put(&mut block, 96, &self.run.number.to_le_bytes());
        sector::put(&mut block, 104, &u64::from(self.run.clean).to_le_bytes());
        sector::seal(block)
    }

    pub(crate) fn decode(block: &Block) -> Half {
        match sector::look(block, &MAGIC) {
            Sector::Whole => {}
            Sector::Blank => return Half::Blank,
            Sector::Damaged => return Half::Damaged,
            Sector::Foreign { version, sealed } => return Half::Foreign { version, sealed },
        }
        let found = Self {
            sequence: u64::from_le_bytes(sector::take(block, 16)),
            device: DeviceId::from_bytes(sector::take(block, 24)),
            header_key: HeaderKey::from_bytes(sector::take(block, 40)),
            device_bytes: u64::from_le_bytes(sector::take(block, 72)),
            region_bytes: u64::from_le_bytes(sector::take(block, 80)),
            generation_limit: u64::from_le_bytes(sector::take(block, 88)),
            run: Run {
                number: u64::from_le_bytes(sector::take(block, 96)),
                clean: u64::from_le_bytes(sector::take(block, 104)) == 1,
            },
        };
        if found.can_be() { Half::Whole(found) } else { Half::Damaged }
    }

    /// Numbers that leave room to count on.
    fn can_be(&self) -> bool {
        let room = u64::MAX / 2;
        Layout::is_region_size(self.region_bytes)
            && self.sequence < room
            && self.generation_limit < room
            && self.run.number < room
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::of(self.device_bytes, self.region_bytes)
    }
}

/// One of the two copies, as found.
#[derive(Debug)]
pub(crate) enum Half {
    Whole(Superblock),
    Blank,
    Damaged,
    Foreign { version: u32, sealed: bool },
    Unreadable(DeviceError),
}

/// What the device holds, from both copies.
struct Found {
    newest: Superblock,
    /// The copy to write first.
    worse: usize,
    /// Whether both copies are whole and the same.
    both: bool,
}

/// The superblocks of an open device.
#[derive(Debug)]
pub(crate) struct Superblocks {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Superblock,
    worse: usize,
    next_generation: u64,
}

impl Superblocks {
    /// Reads both copies, refuses what must not be touched, repairs a copy that is damaged or behind, and takes in a grown device.
    pub(crate) fn open(disk: &Disk) -> Result<Self, SsdError> {
        let Found { newest, worse, both } = find(disk)?;
        let (device_bytes, formatted_bytes) = (disk.device.bytes(), newest.device_bytes);
        if device_bytes < formatted_bytes {
            return Err(SsdError::Smaller { device_bytes, formatted_bytes });
        }
        let mut state = State { current: newest, worse, next_generation: newest.generation_limit };
        if !both || device_bytes > formatted_bytes {
            state.write(disk, Superblock { device_bytes, ..newest })?;
        }
        Ok(Self { state: Mutex::new(state) })
    }

    /// Reads both copies and changes nothing. The device may be smaller than they say.
    pub(crate) fn look(disk: &Disk) -> Result<Self, SsdError> {
        let Found { newest, worse, .. } = find(disk)?;
        let state = State { current: newest, worse, next_generation: newest.generation_limit };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Writes the first superblocks of a blank device.
    pub(crate) fn format(disk: &Disk, first: Superblock) -> Result<Self, SsdError> {
        for copy in read_copies(disk) {
            match copy {
                Half::Blank => {}
                Half::Unreadable(error) => return Err(error.into()),
                Half::Whole(_) | Half::Damaged | Half::Foreign { .. } => return Err(SsdError::NotBlank),
            }
        }
        let mut state = State { current: first, worse: 0, next_generation: first.generation_limit };
        state.write(disk, first)?;
        Ok(Self { state: Mutex::new(state) })
    }

    /// What the superblocks say now.
    pub(crate) fn current(&self) -> Superblock {
        self.state.lock().current
    }

    /// Writes down that a run begins, or has ended.
    pub(crate) fn set_run(&self, disk: &Disk, run: Run) -> Result<(), SsdError> {
        let mut state = self.state.lock();
        let changed = Superblock { run, ..state.current };
        state.write(disk, changed)
    }

    /// No generation from this one on was handed out before.
    pub(crate) fn upcoming_generation(&self) -> Generation {
        Generation::from_u64(self.state.lock().next_generation)
    }

    /// A generation that was never handed out before. Once in many calls it writes and waits for the disk.
    pub(crate) fn next_generation(&self, disk: &Disk) -> Result<Generation, SsdError> {
        let mut state = self.state.lock();
        if state.next_generation >= state.current.generation_limit {
            state.raise_limit(disk)?;
        }
        let generation = state.next_generation;
        state.next_generation += 1;
        Ok(Generation::from_u64(generation))
    }
}

impl Superblocks {
    /// Leaves out the generations of this span that were not handed out: the next one is the first of a new span.
    pub(crate) fn begin_span(&self, disk: &Disk) -> Result<(), SsdError> {
        let mut state = self.state.lock();
        let next = state.current.generation_limit;
        state.raise_limit(disk)?;
        state.next_generation = next;
        Ok(())
    }
}

impl State {
    fn raise_limit(&mut self, disk: &Disk) -> Result<(), SsdError> {
        let generation_limit = self.current.generation_limit + GENERATION_SPAN;
        self.write(disk, Superblock { generation_limit, ..self.current })
    }

    fn write(&mut self, disk: &Disk, change: Superblock) -> Result<(), SsdError> {
        let next = Superblock { sequence: self.current.sequence + 1, ..change };
        let block = next.encode();
        for copy in [self.worse, 1 - self.worse] {
            disk.write(SUPERBLOCKS_AT[copy], &[&block])?;
            disk.barrier()?;
            // Should the other copy's write fail, that one is unknown, and is the one to begin with next time.
            self.worse = 1 - copy;
        }
        self.current = next;
        Ok(())
    }
}

fn find(disk: &Disk) -> Result<Found, SsdError> {
    match choose(read_copies(disk)) {
        Err(SsdError::Blank) if !is_blank_behind(disk)? => Err(SsdError::SuperblocksDamaged),
        found => found,
    }
}

/// What each of the two copies is.
pub(crate) fn read_copies(disk: &Disk) -> [Half; 2] {
    SUPERBLOCKS_AT.map(|at| {
        let mut block = Block::empty();
        match disk.read(at, &mut [&mut block]) {
            Ok(()) => Superblock::decode(&block),
            Err(error) => Half::Unreadable(error),
        }
    })
}

/// Whether the first region was never used either: then the device is new, and not one that has lost its superblocks.
fn is_blank_behind(disk: &Disk) -> Result<bool, SsdError> {
    let mut block = Block::empty();
    if disk.device.bytes() < FRONT_BYTES + BLOCK_BYTES {
        return Ok(true);
    }
    disk.read(FRONT_BYTES, &mut [&mut block])?;
    Ok(block[..] == EMPTY[..])
}

fn choose(copies: [Half; 2]) -> Result<Found, SsdError> {
    // A later version seals its sectors alike: then it is there, whatever the other copy says.
    for copy in &copies {
        if let Half::Foreign { version, sealed: true } = copy {
            return Err(SsdError::ForeignVersion { version: *version, known: VERSION });
        }
    }
    match copies {
        [Half::Whole(a), Half::Whole(b)] => {
            let worse = usize::from(b.sequence < a.sequence);
            let newest = if worse == 1 { a } else { b };
            Ok(Found { newest, worse, both: a.sequence == b.sequence })
        }
        [Half::Whole(newest), _] => Ok(Found { newest, worse: 1, both: false }),
        [_, Half::Whole(newest)] => Ok(Found { newest, worse: 0, both: false }),
        [Half::Blank, Half::Blank] => Err(SsdError::Blank),
        [Half::Foreign { version, .. }, _] | [_, Half::Foreign { version, .. }] => {
            Err(SsdError::ForeignVersion { version, known: VERSION })
        }
        [Half::Unreadable(error), _] | [_, Half::Unreadable(error)] => Err(error.into()),
        [Half::Damaged, _] | [_, Half::Damaged] => Err(SsdError::SuperblocksDamaged),
    }
}
