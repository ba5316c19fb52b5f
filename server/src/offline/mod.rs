//! What an operator does with a data folder whose server is stopped: look at it, or have its directory made again. Refuses a folder in use.

mod report;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};

use cairn_core::in_one_line;
use cairn_directory::{DirectoryError, RocksDirectory};
use cairn_ssd::{DeviceError, SsdError};
use clap::Subcommand;
use serde_json::json;
use thiserror::Error as ThisError;

use crate::data_folder::{FolderError, StoppedFolder};

/// All is whole.
const EXIT_CLEAN: u8 = 0;
/// Something is damaged, or missing.
const EXIT_DAMAGE: u8 = 1;
/// The command is wrong, or there is no data folder.
const EXIT_USAGE: u8 = 2;
/// A server uses the folder.
const EXIT_IN_USE: u8 = 3;
/// The folder has a format that this version does not know.
const EXIT_FORMAT: u8 = 4;
/// The folder could not be read, or written.
const EXIT_FAILED: u8 = 5;

/// Commands for a data folder whose server is stopped.
#[derive(Subcommand, Clone, Debug)]
pub enum Offline {
    /// Reads and verifies everything in a data folder whose server is stopped, and changes nothing. Exits with 0 if all is whole, 1 if something
    /// is damaged, 2 if there is no data folder, 3 if it is in use, 4 if its format is not known, 5 if it could not be read.
    Verify {
        /// The data folder.
        dir: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Sets the directory of a data folder aside, so that the next start makes it again from the headers of the pages.
    Rebuild {
        /// The data folder.
        dir: PathBuf,
        /// Do it.
        #[arg(long)]
        yes: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Why a command could not be done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum OfflineError {
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The SSD file could not be opened.
    #[error("open the ssd file")]
    Device(#[from] DeviceError),
    /// The SSD file can not be looked at.
    #[error("look at the ssd file")]
    Ssd(#[from] SsdError),
    /// The directory.
    #[error("open the directory")]
    Directory(#[from] DirectoryError),
    /// No counters.
    #[error("register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// It was not confirmed.
    #[error(
        "this sets the directory aside, and the next start makes it again from the headers of the pages: it takes about as long as reading \
         them; namespaces are opened again by their clients, and a write budget begins empty; say --yes to do it path={}",
        path.display()
    )]
    Unconfirmed {
        /// The folder.
        path: PathBuf,
    },
}

/// Does a command, prints what came of it, and returns the exit code.
pub fn run(command: &Offline) -> u8 {
    let done = match command {
        Offline::Verify { dir, json } => verify::run(dir).map(|report| (report.print(*json), report.exit_code())),
        Offline::Rebuild { dir, yes, json } => {
            rebuild(dir, *yes).map(|aside| (aside_in_words(&aside, *json), EXIT_CLEAN))
        }
    };
    match done {
        Ok((text, code)) => {
            // Whoever reads it may have heard enough.
            let _ = writeln!(std::io::stdout(), "{text}");
            code
        }
        Err(error) => {
            eprintln!("cairnd: {}", in_one_line(&error));
            exit_code(&error)
        }
    }
}

fn rebuild(dir: &Path, confirmed: bool) -> Result<PathBuf, OfflineError> {
    let folder = StoppedFolder::take(dir)?;
    if !confirmed {
        return Err(OfflineError::Unconfirmed { path: dir.to_owned() });
    }
    Ok(RocksDirectory::set_aside(&folder.directory())?)
}

fn aside_in_words(aside: &Path, json: bool) -> String {
    if json {
        return json!({ "set_aside": aside.display().to_string() }).to_string();
    }
    format!(
        "the directory is set aside in {}; start the server, and it makes a new one from the pages' headers",
        aside.display()
    )
}

fn exit_code(error: &OfflineError) -> u8 {
    match error {
        OfflineError::Unconfirmed { .. } | OfflineError::Folder(FolderError::Absent { .. }) => EXIT_USAGE,
        OfflineError::Folder(FolderError::InUse { .. })
        | OfflineError::Device(DeviceError::InUse { .. })
        | OfflineError::Directory(DirectoryError::Locked { .. }) => EXIT_IN_USE,
        OfflineError::Folder(FolderError::UnknownFormat { .. } | FolderError::NoFormat { .. })
        | OfflineError::Ssd(SsdError::ForeignVersion { .. })
        | OfflineError::Directory(DirectoryError::ForeignVersion { .. }) => EXIT_FORMAT,
        _ => EXIT_FAILED,
    }
}
