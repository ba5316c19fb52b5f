//! Names, files and calls: the kernel asks by number, the folder below knows names.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_testkit::dice::Dice;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;

use crate::held::Held;
use crate::{Cut, Unsynced};

/// The kernel asks every time.
const NEVER: Duration = Duration::ZERO;
const ROOT: u64 = 1;

/// A file or folder that the kernel has asked for.
#[derive(Debug)]
struct Node {
    /// Below; `None` once it is deleted.
    path: Option<PathBuf>,
    /// Open while the kernel has it open, or writes are held.
    file: Option<Arc<File>>,
    opens: u64,
    held: Held,
}

/// Everything that the kernel has asked for.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<PathBuf, u64>,
    last: u64,
}

fn gone() -> io::Error {
    rustix::io::Errno::NOENT.into()
}

impl Tree {
    pub(crate) fn of(below: &Path) -> Self {
        let mut tree = Self { nodes: HashMap::new(), numbers: HashMap::new(), last: 0 };
        tree.number(below);
        tree
    }

    pub(crate) fn cut_power(&mut self, unsynced: Unsynced, dice: &mut Dice) -> io::Result<Cut> {
        let mut cut = Cut::default();
        // In the order in which the files were met, so that the dice fall the same way again.
        let mut numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let node = self.nodes.get_mut(&number).ok_or_else(gone)?;
            if let Some(file) = node.file.clone() {
                node.held.cut_power(&file, unsynced, dice, &mut cut)?;
            }
            node.let_go();
        }
        Ok(cut)
    }

    /// The number of what is at `path`.
    fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        self.last += 1;
        self.numbers.insert(path.to_owned(), self.last);
        let node = Node { path: Some(path.to_owned()), file: None, opens: 0, held: Held::default() };
        self.nodes.insert(self.last, node);
        self.last
    }

    fn node(&mut self, number: INodeNo) -> io::Result<&mut Node> {
        self.nodes.get_mut(&number.0).ok_or_else(gone)
    }

    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        self.nodes.get(&number.0).and_then(|node| node.path.clone()).ok_or_else(gone)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn look(&mut self, path: &Path) -> io::Result<FileAttr> {
        fs::symlink_metadata(path)?;
        let number = self.number(path);
        self.attributes(INodeNo(number))
    }

    fn attributes(&mut self, number: INodeNo) -> io::Result<FileAttr> {
        let node = self.node(number)?;
        let found = match (&node.file, &node.path) {
            (Some(file), _) => file.metadata()?,
            (None, Some(path)) => fs::symlink_metadata(path)?,
            (None, None) => return Err(gone()),
        };
        let kind = if found.is_dir() { FileType::Directory } else { FileType::RegularFile };
        let modified = found.modified().unwrap_or(UNIX_EPOCH);
        Ok(FileAttr {
            ino: number,
            size: found.len().max(node.held.end()),
            blocks: found.blocks(),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm: u16::try_from(found.mode() & 0o7777).unwrap_or(0o600),
            nlink: u32::try_from(found.nlink()).unwrap_or(1),
            uid: found.uid(),
            gid: found.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn open(&mut self, number: INodeNo) -> io::Result<()> {
        let node = self.node(number)?;
        node.file()?;
        node.opens += 1;
        Ok(())
    }

    fn create(&mut self, path: &Path, mode: u32) -> io::Result<FileAttr> {
        File::options().read(true).write(true).create(true).truncate(false).mode(mode).open(path)?;
        let found = self.look(path)?;
        self.open(found.ino)?;
        Ok(found)
    }

    fn read(&mut self, number: INodeNo, at: u64, bytes: u32) -> io::Result<Vec<u8>> {
        let length = self.attributes(number)?.size;
        let node = self.node(number)?;
        let wanted = length.saturating_sub(at).min(u64::from(bytes));
        let mut out = vec![0; usize::try_from(wanted).unwrap_or(0)];
        let file = node.file()?;
        let mut filled = 0;
        // What is held may end after what is below; in between are zeros.
        while let 1.. = file.read_at(&mut out[filled..], at + filled as u64).inspect(|read| filled += read)? {}
        node.held.show(at, &mut out);
        Ok(out)
    }

    fn truncate(&mut self, number: INodeNo, bytes: u64) -> io::Result<()> {
        let node = self.node(number)?;
        node.held.truncate(bytes);
        node.file()?.set_len(bytes)?;
        node.let_go();
        Ok(())
    }

    fn sync(&mut self, number: INodeNo) -> io::Result<()> {
        let node = self.node(number)?;
        let file = node.file()?;
        node.held.sync(&file)?;
        node.let_go();
        Ok(())
    }

    fn allocate(&mut self, number: INodeNo, at: u64, bytes: u64, mode: i32) -> io::Result<()> {
        let known = [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE];
        let flags = known.into_iter().find(|flags| i64::from(flags.bits()) == i64::from(mode));
        let flags = flags.ok_or(rustix::io::Errno::OPNOTSUPP)?;
        let node = self.node(number)?;
        rustix::fs::fallocate(node.file()?, flags, at, bytes)?;
        node.let_go();
        Ok(())
    }

    fn forget_name(&mut self, path: &Path) {
        if let Some(node) = self.numbers.remove(path).and_then(|number| self.nodes.get_mut(&number)) {
            node.path = None;
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        self.forget_name(to);
        // What is below a folder moves with it.
        let moved: Vec<PathBuf> = self.numbers.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
            let now = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            if let Some(number) = self.numbers.remove(&path) {
                self.numbers.insert(now.clone(), number);
                self.nodes.get_mut(&number).ok_or_else(gone)?.path = Some(now);
            }
        }
        Ok(())
    }

    /// Number, kind and name of everything in a folder.
    fn list(&mut self, number: INodeNo) -> io::Result<Vec<(u64, FileType, std::ffi::OsString)>> {
        let path = self.path(number)?;
        let dots = [".", ".."].map(|name| (number.0, FileType::Directory, name.into()));
        let mut all = Vec::from(dots);
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let kind = if entry.file_type()?.is_dir() { FileType::Directory } else { FileType::RegularFile };
            all.push((self.number(&entry.path()), kind, entry.file_name()));
        }
        Ok(all)
    }
}

impl Node {
    fn file(&mut self) -> io::Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let path = self.path.as_ref().ok_or_else(gone)?;
        let file = Arc::new(File::options().read(true).write(true).open(path)?);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes the file below if nobody needs it.
    fn let_go(&mut self) {
        if self.opens == 0 && self.held.is_empty() {
            self.file = None;
        }
    }
}

/// The tree, as the kernel calls it.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<Tree>>);

/// Answers with what came out, or with the error.
macro_rules! answer {
    ($reply:ident, $outcome:expr, $found:pat => $answer:expr) => {
        match $outcome {
            Ok($found) => $answer,
            Err(failed) => $reply.error(Errno::from(failed)),
        }
    };
}

impl Filesystem for Shared {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut tree = self.0.lock();
        let found = tree.child(parent, name).and_then(|path| tree.look(&path));
        answer!(reply, found, found => reply.entry(&NEVER, &found, Generation(0)));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.0.lock().attributes(number), found => reply.attr(&NEVER, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        bytes: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.0.lock();
        let mut change = || {
            if let Some(mode) = mode {
                fs::set_permissions(tree.path(number)?, fs::Permissions::from_mode(mode))?;
            }
            if let Some(bytes) = bytes {
                tree.truncate(number, bytes)?;
            }
            tree.attributes(number)
        };
        answer!(reply, change(), found => reply.attr(&NEVER, &found));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let mut tree = self.0.lock();
        let made = tree.child(parent, name).and_then(|path| {
            fs::DirBuilder::new().mode(mode).create(&path)?;
            tree.look(&path)
        });
        answer!(reply, made, found => reply.entry(&NEVER, &found, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.0.lock();
        let gone = tree.child(parent, name).and_then(|path| fs::remove_file(&path).map(|()| tree.forget_name(&path)));
        answer!(reply, gone, () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.0.lock();
        let gone = tree.child(parent, name).and_then(|path| fs::remove_dir(&path).map(|()| tree.forget_name(&path)));
        answer!(reply, gone, () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let mut tree = self.0.lock();
        let paths = tree.child(parent, name).and_then(|from| Ok((from, tree.child(new_parent, new_name)?)));
        answer!(reply, paths.and_then(|(from, to)| tree.rename(&from, &to)), () => reply.ok());
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut tree = self.0.lock();
        let made = tree.child(parent, name).and_then(|path| tree.create(&path, mode));
        answer!(reply, made, found => {
            reply.created(&NEVER, &found, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.0.lock().open(number), () => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        answer!(reply, self.0.lock().read(number, at, bytes), found => reply.data(&found));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.0.lock();
        let written = tree.node(number).map(|node| node.held.write(at, bytes));
        answer!(reply, written, () => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Ok(node) = self.0.lock().node(number) {
            node.opens = node.opens.saturating_sub(1);
            node.let_go();
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.0.lock().sync(number), () => reply.ok());
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectory) {
        answer!(reply, self.0.lock().list(number), found => {
            let rest = found.into_iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX));
            for (place, (number, kind, name)) in rest {
                if reply.add(INodeNo(number), place as u64 + 1, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let below = self.0.lock().path(INodeNo(ROOT)).and_then(|path| Ok(rustix::fs::statfs(&path)?));
        answer!(reply, below, found => {
            reply.statfs(found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree, 4096, 255, 4096);
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.lock().allocate(number, at, bytes, mode), () => reply.ok());
    }
}
