//! The device that is a file: preallocated once, locked while in use, read and written by position.
//!
//! What is whole blocks, in memory too, goes past the page cache where the filesystem lets it (direct I/O), because pages have a cache of
//! their own; the rest goes through it. The kernel keeps both views of the file the same.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use crate::block::{self, Block};
use crate::device::{Device, DeviceError, total};

/// A preallocated file. The file is locked against other processes until this is dropped.
#[derive(Debug)]
pub struct FileDevice {
    /// Carries the lock.
    file: Arc<File>,
    /// The same file for direct I/O.
    direct: Option<Arc<File>>,
    bytes: u64,
    words: String,
}

impl FileDevice {
    /// Opens the file at `path` for reading alone: nothing of it changes, and what is written to the device is refused.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] or [`DeviceError::Open`].
    pub fn open_read_only(path: &Path) -> Result<Self, DeviceError> {
        let file = File::open(path).map_err(|source| open_error(path, source))?;
        lock(path, &file)?;
        let bytes = file.metadata().map_err(|source| open_error(path, source))?.len();
        let words = format!("file, read only, path={}", path.display());
        Ok(Self { file: Arc::new(file), direct: None, bytes, words })
    }

    /// Opens the file at `path`, made or grown so that it has at least `bytes`, all of them allocated. Never shrinks a file, never writes into
    /// one. The folder must exist.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`], [`DeviceError::InUse`], [`DeviceError::NoSpace`] or [`DeviceError::Open`]; a file that was there is
    /// then as it was, and none is left that was not.
    pub fn open_or_create(path: &Path, bytes: u64) -> Result<Self, DeviceError> {
        let is_new = !path.try_exists().map_err(|source| open_error(path, source))?;
        let file = open(path)?;
        lock(path, &file)?;
        if let Err(error) = reach(path, &file, bytes) {
            if is_new {
                // The file holds nothing; if it can not be removed either, it is found as an empty one next time.
                std::fs::remove_file(path).ok();
            }
            return Err(error);
        }
        let (direct, way) = match open_direct(&file) {
            Ok(direct) => (Some(Arc::new(direct)), "direct I/O".to_owned()),
            Err(error) => (None, format!("through the page cache because direct I/O is refused ({error})")),
        };
        let words = format!("file, {way}, path={}", path.display());
        Ok(Self { file: Arc::new(file), direct, bytes, words })
    }
}

fn open(path: &Path) -> Result<File, DeviceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|source| open_error(path, source))
}

fn open_error(path: &Path, source: io::Error) -> DeviceError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => DeviceError::ReadOnly { path, source },
        _ => DeviceError::Open { path, source },
    }
}

fn lock(path: &Path, file: &File) -> Result<(), DeviceError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(DeviceError::InUse { path: path.to_owned() }),
        Err(errno) => Err(open_error(path, errno.into())),
    }
}

/// Opens the file once more, for direct I/O, and tries whether it works: some filesystems refuse only the first read.
fn open_direct(file: &File) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(|_| ErrorKind::Unsupported)?;
    // By its descriptor: the name may be another file's by now.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let direct = OpenOptions::new().read(true).write(true).custom_flags(flags).open(name)?;
    let mut block = Block::empty();
    rustix::io::retry_on_intr(|| rustix::io::pread(&direct, &mut block[..], 0))?;
    Ok(direct)
}

/// Allocates the file up to `bytes` and makes its size and its name durable.
fn reach(path: &Path, file: &File, bytes: u64) -> Result<(), DeviceError> {
    let fail = |source: io::Error| open_error(path, source);
    let found_bytes = file.metadata().map_err(fail)?.len();
    if found_bytes < bytes {
        grow(path, file, found_bytes, bytes)?;
    }
    file.sync_all().map_err(fail)?;
    sync_folder(path).map_err(fail)
}

fn grow(path: &Path, file: &File, found_bytes: u64, bytes: u64) -> Result<(), DeviceError> {
    let fail = |source: io::Error| open_error(path, source);
    let wanted_bytes = bytes - found_bytes;
    let no_space = |free_bytes| DeviceError::NoSpace { path: path.to_owned(), wanted_bytes, free_bytes };
    let filesystem = rustix::fs::fstatvfs(file).map_err(|errno| fail(errno.into()))?;
    let free_bytes = filesystem.f_bavail.saturating_mul(filesystem.f_frsize);
    // Asked first: an allocation that fails halfway fills the disk for everyone for a moment.
    if free_bytes < wanted_bytes {
        return Err(no_space(free_bytes));
    }
    if let Err(errno) = allocate(file, found_bytes, bytes) {
        // Gives back what was allocated before it failed.
        file.set_len(found_bytes).map_err(fail)?;
        return Err(if is_full(errno) { no_space(free_bytes) } else { fail(errno.into()) });
    }
    Ok(())
}

fn allocate(file: &File, from: u64, to: u64) -> Result<(), Errno> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from)) {
        // The filesystem can not preallocate: the file is sparse, and a full disk shows as a failed write.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, to)),
        other => other,
    }
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::FBIG | Errno::DQUOT)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    File::open(folder)?.sync_all()
}

impl Device for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let wanted_bytes = total(parts);
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let mut slices = &mut slices[..];
        let mut got_bytes = 0;
        // One call moves at most 2 GiB and may move less; only 0 means that the file has ended.
        while got_bytes < wanted_bytes {
            let file = self.file_for(at + got_bytes, slices);
            let moved = rustix::io::retry_on_intr(|| rustix::io::preadv(file, slices, at + got_bytes))
                .map_err(|errno| io_error("read", at, wanted_bytes, errno))?;
            if moved == 0 {
                return Err(DeviceError::Short { at, wanted_bytes, got_bytes });
            }
            got_bytes += moved as u64;
            IoSliceMut::advance_slices(&mut slices, moved);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let bytes = total(parts);
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(DeviceError::OutOfRange { at, bytes, device_bytes: self.bytes });
        }
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut slices = &mut slices[..];
        let mut done_bytes = 0;
        while done_bytes < bytes {
            let file = self.file_for(at + done_bytes, slices);
            let moved = rustix::io::retry_on_intr(|| rustix::io::pwritev(file, slices, at + done_bytes))
                .map_err(|errno| io_error("write", at, bytes, errno))?;
            if moved == 0 {
                return Err(io_error("write", at, bytes, Errno::IO));
            }
            done_bytes += moved as u64;
            IoSlice::advance_slices(&mut slices, moved);
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        // A failed sync is not repeated, not even for an interrupt: the kernel may have dropped what it could not write.
        rustix::fs::fdatasync(&self.file).map_err(|errno| io_error("barrier", 0, 0, errno))
    }

    fn allocate(&self, at: u64, bytes: u64) -> Result<(), DeviceError> {
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at, bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) if is_full(errno) => Err(DeviceError::Full { at, bytes }),
            Err(errno) => Err(io_error("allocate", at, bytes, errno)),
        }
    }

    fn trim(&self, at: u64, bytes: u64) -> Result<bool, DeviceError> {
        let hole = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, hole, at, bytes)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(io_error("trim", at, bytes, errno)),
        }
    }

    fn describe(&self) -> &str {
        &self.words
    }

    fn ring_file(&self) -> Option<Arc<File>> {
        Some(Arc::clone(self.direct.as_ref().unwrap_or(&self.file)))
    }
}

impl FileDevice {
    /// The way that bytes at this place, in this memory, can take.
    fn file_for<T: Deref<Target = [u8]>>(&self, at: u64, parts: &[T]) -> &File {
        match &self.direct {
            Some(direct) if block::is_whole(at, parts) => direct,
            _ => &self.file,
        }
    }
}

fn io_error(operation: &'static str, at: u64, bytes: u64, errno: Errno) -> DeviceError {
    DeviceError::Io { operation, at, bytes, source: errno.into() }
}
