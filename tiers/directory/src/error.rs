//! What can go wrong with the directory, by cause.

use std::io;
use std::path::{Path, PathBuf};

use cairn_core::{Error, ErrorKind};
use thiserror::Error as ThisError;

use crate::RecordFault;

/// Why the directory can not do what it was asked for.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Someone else has the folder open.
    #[error("the directory is open already, here or in another process path={}", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The folder can not be written: a read-only file system, or no permission.
    #[error("the directory can not be written path={}", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another version of this program wrote the folder. It has not been touched.
    #[error("the directory has a format that this version can not read path={} found={found} known={known}", path.display())]
    ForeignVersion {
        /// The folder.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// The folder's content can not be trusted. It has not been repaired: set it aside and rebuild from the device.
    #[error("the directory is damaged part={part} found={found}")]
    Damaged {
        /// The part that was being read.
        part: &'static str,
        /// What was found there.
        found: String,
    },
    /// The storage failed.
    #[error("the directory's storage failed action={action}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// What the storage said.
        source: io::Error,
    },
    /// The filesystem has no room. It passes: [`Directory::release`](crate::Directory::release) succeeds when there is some again.
    #[error("the filesystem has no room for the directory; make room action={action}")]
    Full {
        /// What was being done.
        action: &'static str,
        /// What the storage said.
        source: io::Error,
    },
    /// A write has failed before; nothing is written until the directory has been opened again.
    #[error("the directory takes no writes since one failed; restart to open it again")]
    Quarantined,
    /// It has been closed.
    #[error("the directory is closed")]
    Closed,
    /// A record with values that can not be.
    #[error("a record can not be stored name={name}")]
    Unfit {
        /// Key of the page, or id of the namespace.
        name: String,
        /// What is wrong with it.
        #[source]
        fault: RecordFault,
    },
}

impl DirectoryError {
    /// An I/O error on `path`, told apart by what the operator has to do.
    pub(crate) fn of_path(path: &Path, action: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path: path.to_owned(), source }
            }
            _ => Self::Io { action, source },
        }
    }

    pub(crate) fn unfit(name: impl ToString) -> impl FnOnce(RecordFault) -> Self {
        move |fault| Self::Unfit { name: name.to_string(), fault }
    }

    pub(crate) fn damaged(part: &'static str, found: impl Into<String>) -> Self {
        Self::Damaged { part, found: found.into() }
    }
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Self {
        let kind = match error {
            DirectoryError::Locked { .. }
            | DirectoryError::Io { .. }
            | DirectoryError::Quarantined
            | DirectoryError::Closed => ErrorKind::Unavailable,
            DirectoryError::Full { .. } => ErrorKind::NoSpace,
            DirectoryError::ReadOnly { .. } => ErrorKind::Denied,
            DirectoryError::ForeignVersion { .. } => ErrorKind::Invalid,
            DirectoryError::Damaged { .. } | DirectoryError::Unfit { .. } => ErrorKind::Internal,
        };
        Error::new(kind, "use the directory").caused_by(error)
    }
}
