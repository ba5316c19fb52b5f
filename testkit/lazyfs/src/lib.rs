//! A file system in user space (FUSE) that passes everything on to a folder, but keeps written bytes in memory until their file is
//! synced, and loses them on command: what a power cut does to files, below any process and its kernel's page cache.
//!
//! Names are not held back: a file that was made, renamed, cut or deleted is so at once, as on a journalling file system that orders names
//! before data. Nothing is cached by the kernel, so what was lost is not seen any more. One thread serves all calls, one after the other.
//! The memory of held writes is not bounded: a test writes some megabytes.
//!
//! Needs `/dev/fuse` and the right to mount; [`LazyFs::is_possible`] asks.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod held;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_testkit::dice::Dice;
use fuser::{BackgroundSession, Config, MountOption};
use parking_lot::Mutex;
use rustix::mount::UnmountFlags;

use crate::tree::{Shared, Tree};

/// What a power cut does with what was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynced {
    /// All of it is lost.
    Lost,
    /// Each write is kept, lost, or torn into any subset of its 512-byte sectors, in any order.
    Dice,
}

/// What a power cut did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Writes kept whole.
    pub kept: u64,
    /// Writes of which nothing is left.
    pub lost: u64,
    /// Writes of which a part is left.
    pub torn: u64,
}

/// A mounted file system. Dropping it unmounts it; what is held then is lost.
#[derive(Debug)]
pub struct LazyFs {
    tree: Arc<Mutex<Tree>>,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl LazyFs {
    /// Whether this machine can mount one; if not, why.
    ///
    /// # Errors
    /// What the system says of `/dev/fuse` or of the user.
    pub fn is_possible() -> io::Result<()> {
        std::fs::File::options().read(true).write(true).open("/dev/fuse")?;
        match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "only root may mount")),
        }
    }

    /// Mounts a file system at the folder `at` that keeps synced bytes in the folder `below`.
    ///
    /// # Errors
    /// What the system says.
    pub fn mount(below: &Path, at: &Path) -> io::Result<Self> {
        let tree = Arc::new(Mutex::new(Tree::of(below)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("cairn-lazyfs".to_owned())];
        let session = fuser::spawn_mount(Shared(Arc::clone(&tree)), at, &config)?;
        Ok(Self { tree, at: at.to_owned(), session: Some(session) })
    }

    /// Cuts the power: everything that was not synced meets its fate. Whoever wrote it must be gone.
    ///
    /// # Errors
    /// If a write that is kept can not be made below.
    pub fn cut_power(&self, unsynced: Unsynced, dice: &mut Dice) -> io::Result<Cut> {
        self.tree.lock().cut_power(unsynced, dice)
    }
}

impl Drop for LazyFs {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Out of the folder at once, even if somebody still has a file open: it then ends when that is closed.
            let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
            let _ = session.umount_and_join();
        }
    }
}
