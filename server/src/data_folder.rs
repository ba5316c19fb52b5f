//! The data folder: who may use it, which format it has, and what lies in it.
//!
//! ```text
//! LOCK        held (flock) while a server uses the folder
//! FORMAT      the version of this layout
//! secret      32 random bytes that tenants' salts come from; mode 0600
//! directory/  durable entries (RocksDB); can be lost, the pages' headers say the same
//! ssd/pages   the SSD tier's file
//! ```
//! The format is read before anything is written, so that a folder of another version stays as it was.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cairn_core::{Entropy, Error, ServerSecret};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error as ThisError;
use tracing::warn;

const FORMAT: &str = "cairn data folder, version 1\n";
const SECRET_BYTES: usize = 32;

/// Why the data folder can not be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum FolderError {
    /// Another server has it.
    #[error("the data folder is in use by another server path={}", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Another version made it.
    #[error("the data folder has a format that this version does not know; it was not touched path={} format={found:?}", path.display())]
    UnknownFormat {
        /// The folder.
        path: PathBuf,
        /// The first bytes of its format file.
        found: String,
    },
    /// There are tiers in it, but nothing says which format they have.
    #[error("the data folder holds {found} but no FORMAT file; it was not touched path={}", path.display())]
    NoFormat {
        /// The folder.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// There is no data folder.
    #[error("there is no data folder path={}", path.display())]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It can not be written.
    #[error("the data folder can not be written path={}", path.display())]
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file in it has another length than it must have.
    #[error("the server's secret has the wrong length; remove it to start with an empty cache path={} bytes={bytes}", path.display())]
    SecretDamaged {
        /// The secret's file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// No randomness for a new secret.
    #[error("make the server's secret")]
    Entropy(#[source] Error),
    /// Anything else that the system said.
    #[error("{action} path={}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// A data folder, taken. Dropping it lets another server have it.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    secret: ServerSecret,
    _lock: File,
}

impl DataFolder {
    /// Takes the folder at `path`; makes it if there is none. Blocks for a few small writes.
    ///
    /// # Errors
    /// [`FolderError`]; a folder of an unknown format, or one in use, is as it was.
    pub fn open(path: &Path, entropy: &dyn Entropy) -> Result<Self, FolderError> {
        make_folder(path)?;
        check_format(path)?;
        let lock = lock(path)?;
        // Again, now that nobody else can write it.
        if !check_format(path)? {
            write_beside_and_rename(&path.join("FORMAT"), FORMAT.as_bytes())?;
        }
        let secret = secret(path, entropy)?;
        make_folder(&path.join("ssd"))?;
        Ok(Self { path: path.to_owned(), secret, _lock: lock })
    }

    /// Where the directory lies.
    pub fn directory(&self) -> PathBuf {
        directory_in(&self.path)
    }

    /// Where the SSD tier's file lies.
    pub fn ssd_file(&self) -> PathBuf {
        ssd_file_in(&self.path)
    }

    /// The server's secret.
    pub fn secret(&self) -> &ServerSecret {
        &self.secret
    }
}

/// A data folder whose server is stopped, held as it is. Dropping it lets a server have it.
#[derive(Debug)]
pub struct StoppedFolder {
    path: PathBuf,
    _lock: Option<File>,
}

impl StoppedFolder {
    /// Takes the folder at `path` without changing anything in it.
    ///
    /// # Errors
    /// [`FolderError::InUse`] while a server uses it, [`FolderError::Absent`], or what else is wrong with it.
    pub fn take(path: &Path) -> Result<Self, FolderError> {
        let absent = || FolderError::Absent { path: path.to_owned() };
        if !path.is_dir() || !check_format(path)? {
            return Err(absent());
        }
        let file = path.join("LOCK");
        let lock = match File::open(&file) {
            Ok(open) => Some(hold(path, open)?),
            // Nobody has ever used it.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed("open the lock file", &file)(error)),
        };
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where the directory lies.
    pub fn directory(&self) -> PathBuf {
        directory_in(&self.path)
    }

    /// Where the SSD tier's file lies.
    pub fn ssd_file(&self) -> PathBuf {
        ssd_file_in(&self.path)
    }
}

fn directory_in(folder: &Path) -> PathBuf {
    folder.join("directory")
}

fn ssd_file_in(folder: &Path) -> PathBuf {
    folder.join("ssd").join("pages")
}

/// The error of `action` on `path`, told apart by what the operator has to do.
fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => FolderError::ReadOnly { path, source },
        _ => FolderError::Io { action, path, source },
    }
}

fn make_folder(path: &Path) -> Result<(), FolderError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make a folder", path))
}

/// Whether there is a format file of this version; false if the folder is new.
fn check_format(path: &Path) -> Result<bool, FolderError> {
    let file = path.join("FORMAT");
    let mut found = Vec::new();
    match File::open(&file) {
        // A few bytes tell; a file of any size may lie there.
        Ok(open) => open.take(64).read_to_end(&mut found).map_err(failed("read the format", &file))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return check_empty(path),
        Err(error) => return Err(failed("read the format", &file)(error)),
    };
    if found == FORMAT.as_bytes() {
        return Ok(true);
    }
    Err(FolderError::UnknownFormat {
        path: path.to_owned(),
        found: String::from_utf8_lossy(&found).trim_end().to_owned(),
    })
}

/// False, for a folder that holds nothing but what a first start that was cut short may have left, or a file system's own.
fn check_empty(path: &Path) -> Result<bool, FolderError> {
    let look = || failed("look into the data folder", path);
    for entry in fs::read_dir(path).map_err(look())? {
        let name = entry.map_err(look())?.file_name();
        if !["LOCK", "FORMAT.new", "lost+found"].iter().any(|ours| name == *ours) {
            return Err(FolderError::NoFormat { path: path.to_owned(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(false)
}

fn lock(path: &Path) -> Result<File, FolderError> {
    let file = path.join("LOCK");
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
    hold(path, open.map_err(failed("open the lock file", &file))?)
}

/// Holds the lock of the folder at `path`.
fn hold(path: &Path, lock: File) -> Result<File, FolderError> {
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(FolderError::InUse { path: path.to_owned() }),
        Err(error) => Err(failed("lock the data folder", path)(error.into())),
    }
}

fn secret(folder: &Path, entropy: &dyn Entropy) -> Result<ServerSecret, FolderError> {
    let path = folder.join("secret");
    let mut bytes = Vec::new();
    match File::open(&path) {
        Ok(open) => {
            open.take(SECRET_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed("read the secret", &path))?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return new_secret(folder, &path, entropy),
        Err(error) => return Err(failed("read the secret", &path)(error)),
    };
    match <[u8; SECRET_BYTES]>::try_from(bytes.as_slice()) {
        Ok(bytes) => Ok(ServerSecret::from_bytes(bytes)),
        Err(_) => Err(FolderError::SecretDamaged { path, bytes: bytes.len() }),
    }
}

fn new_secret(folder: &Path, path: &Path, entropy: &dyn Entropy) -> Result<ServerSecret, FolderError> {
    let has_pages = folder.join("ssd").join("pages").try_exists().map_err(failed("look for pages", folder))?;
    if has_pages {
        warn!(path = %path.display(), "the server's secret is gone; a new one is made, and no page stored before can be found with it");
    }
    let mut bytes = [0; SECRET_BYTES];
    entropy.fill(&mut bytes).map_err(FolderError::Entropy)?;
    write_beside_and_rename(path, &bytes)?;
    Ok(ServerSecret::from_bytes(bytes))
}

/// A crash leaves the whole file or none.
fn write_beside_and_rename(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let beside = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(failed("write a file of the data folder", path))
}
