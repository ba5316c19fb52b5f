//! Real files under a [`Recorder`](crate::recorder::Recorder), and a process that ends itself at a point of its own choice.
//!
//! Every change is done on a real file and in a real RocksDB, and told to whoever keeps the journal before it begins. At the point of
//! its [`Ending`] the process sends itself SIGKILL: before the change, after half of a write, or right after the change, so that it
//! ends where no timing would take it. What the kernel has been given survives that; for the rest see a power cut.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_directory::{Change, Directory, DirectoryError, RocksDirectory};
use cairn_ssd::{Device, DeviceError, FileDevice};
use parking_lot::Mutex;
use thiserror::Error as ThisError;

use crate::recorder::{DirectoryState, Point, World};

/// When, of the change at which the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It has not begun.
    Before,
    /// Half of it is written, if it is a write. Other changes know no half: after them.
    Halfway,
    /// It has returned, and nobody has been told.
    After,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 3] = [Self::Before, Self::Halfway, Self::After];

    /// The stage in a word.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Halfway => "halfway",
            Self::After => "after",
        }
    }
}

/// Where the process ends itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Number of the change, from 1. If that number is of something that nobody does, such as rot: the next one.
    pub point: usize,
    /// When, of it.
    pub stage: Stage,
}

/// What happens on the disks, told before it does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Told<'a> {
    /// A change begins.
    Begins(&'a Point),
    /// The process ends now, at this change.
    Ends(Stage, &'a Point),
}

/// Hears of everything, in order. Must not use the disks.
pub type Journal = Box<dyn FnMut(Told<'_>) + Send>;

/// Why the files can not be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum DisksError {
    /// The pages' file.
    #[error("open the pages' file")]
    Device(#[from] DeviceError),
    /// The directory.
    #[error("open the directory")]
    Directory(#[from] DirectoryError),
    /// The system.
    #[error("read the pages' file or make its folder")]
    Io(#[from] io::Error),
}

/// A pages' file and a directory in one folder.
pub struct RealDisks {
    device: FileDevice,
    pages: PathBuf,
    directory: PathBuf,
    lost: AtomicBool,
    barriers: bool,
    /// Opened to see what is in it, and not yet asked for.
    opened: Mutex<Option<Arc<dyn Directory>>>,
    ending: Option<Ending>,
    journal: Mutex<Journal>,
}

impl fmt::Debug for RealDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealDisks").field("pages", &self.pages).field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl RealDisks {
    /// Opens the files in `folder`, or makes them. The directory is opened by [`RealDisks::open_directory`]. Blocks.
    ///
    /// # Errors
    /// [`DisksError`].
    pub fn open(
        folder: &Path,
        device_bytes: u64,
        ending: Option<Ending>,
        journal: Journal,
    ) -> Result<Self, DisksError> {
        fs::create_dir_all(folder)?;
        let (pages, directory) = (folder.join("pages"), folder.join("directory"));
        let device = FileDevice::open_or_create(&pages, device_bytes)?;
        let (lost, opened, journal) = (AtomicBool::new(false), Mutex::default(), Mutex::new(journal));
        Ok(Self { device, pages, directory, lost, barriers: true, opened, ending, journal })
    }

    /// What is in the files. Opens the directory, for whoever asks for it next. Blocks.
    ///
    /// # Errors
    /// [`DisksError`].
    pub fn world(&self) -> Result<World, DisksError> {
        let durable = fs::read(&self.pages)?;
        let directory = self.open_directory()?;
        let mut state = DirectoryState { device: directory.device()?, ..DirectoryState::default() };
        for namespace in directory.namespaces()? {
            state.namespaces.insert(*namespace.id.as_bytes(), namespace);
        }
        let mut changes = Vec::new();
        directory.scan(&mut |record| changes.push(Change::Put(record)))?;
        state.apply(&changes);
        *self.opened.lock() = Some(directory);
        let device_bytes = durable.len();
        Ok(World { durable, unsynced: Vec::new(), directory: state, device_bytes })
    }

    /// Opens the directory. One at a time: the one before it has been dropped. Blocks.
    ///
    /// # Errors
    /// As [`RocksDirectory::open`], and if a lost directory can not be deleted.
    pub fn open_directory(&self) -> Result<Arc<dyn Directory>, DirectoryError> {
        if let Some(opened) = self.opened.lock().take() {
            return Ok(opened);
        }
        if self.lost.swap(false, Ordering::SeqCst) {
            delete(&self.directory).map_err(|source| DirectoryError::Io { action: "delete the directory", source })?;
        }
        Ok(Arc::new(RocksDirectory::open(&self.directory)?))
    }

    /// Deletes the directory before it is opened the next time.
    pub fn lose_directory(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// From now on barriers are reported as done and do nothing: for whoever checks that a missing barrier is noticed.
    pub fn leave_out_barriers(&mut self) {
        self.barriers = false;
    }

    /// The pages' file.
    pub fn device(&self) -> &dyn Device {
        &self.device
    }

    /// Does the change that gets this number, if the process lives so long.
    ///
    /// # Errors
    /// What `change` says.
    pub fn through<E>(
        &self,
        number: usize,
        point: &Point,
        change: impl FnOnce(&FileDevice) -> Result<(), E>,
    ) -> Result<(), E> {
        let ends = self.ending.filter(|ending| ending.point <= number).map(|ending| ending.stage);
        if ends == Some(Stage::Before) {
            self.end(Stage::Before, point);
        }
        (self.journal.lock())(Told::Begins(point));
        if let (Some(Stage::Halfway), Point::Write(write)) = (ends, point) {
            // If even that is refused, the process ends a little earlier.
            let _ = self.device.write_at(write.at as u64, &[&write.bytes[..write.bytes.len() / 2]]);
            self.end(Stage::Halfway, point);
        }
        if self.barriers || !matches!(point, Point::Barrier { .. }) {
            change(&self.device)?;
        }
        if ends.is_some() {
            self.end(Stage::After, point);
        }
        Ok(())
    }

    fn end(&self, stage: Stage, point: &Point) -> ! {
        (self.journal.lock())(Told::Ends(stage, point));
        end_this_process()
    }
}

/// Deletes a folder at once: whoever is killed meanwhile leaves all of it or nothing.
fn delete(folder: &Path) -> io::Result<()> {
    let aside = folder.with_extension("lost");
    let or_not_there = |step: io::Result<()>| match step {
        Err(failed) if failed.kind() != io::ErrorKind::NotFound => Err(failed),
        _ => Ok(()),
    };
    or_not_there(fs::remove_dir_all(&aside))?;
    or_not_there(fs::rename(folder, &aside))?;
    or_not_there(fs::remove_dir_all(&aside))
}

/// Ends this process with SIGKILL: nothing is flushed, nobody is told.
pub fn end_this_process() -> ! {
    // A process may always send itself a signal; if not, it ends all the same.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
