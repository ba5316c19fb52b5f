//! Opens what the server stores in: data folder, SSD file, directory, engine. Everything here blocks.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;

use cairn_core::metrics::Metrics;
use cairn_core::{Clock, Entropy, Error, in_one_line};
use cairn_directory::{DirectoryError, RocksDirectory};
use cairn_engine::{Components, Engine, EngineSettings};
use cairn_pool::PoolSettings;
use cairn_ssd::{DeviceError, FileDevice};
use thiserror::Error as ThisError;
use tracing::warn;

use crate::config::Settings;
use crate::data_folder::{DataFolder, FolderError};

/// Why the storage could not be opened.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StorageError {
    /// The data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The SSD tier's file.
    #[error("open the ssd file")]
    Device(#[from] DeviceError),
    /// The directory.
    #[error("open the directory")]
    Directory(#[from] DirectoryError),
    /// The engine.
    #[error("open the engine")]
    Engine(#[source] Error),
}

/// An open engine and the folder it lives in; the folder is let go of after the engine.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) engine: Arc<Engine>,
    pub(crate) folder: DataFolder,
}

/// The seams and the counters that the engine shares with the server.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Opens the storage. A damaged directory is set aside, and the engine makes it again from the pages' headers.
pub(crate) fn open(settings: &Settings, shared: &Shared) -> Result<Storage, StorageError> {
    let folder = DataFolder::open(&settings.data.dir, &*shared.entropy)?;
    let opened = match open_engine(settings, &folder, shared) {
        Err(error) if is_damaged_directory(&error) => {
            set_aside(&folder.directory(), &error)?;
            open_engine(settings, &folder, shared)
        }
        opened => opened,
    };
    Ok(Storage { engine: opened?, folder })
}

fn open_engine(settings: &Settings, folder: &DataFolder, shared: &Shared) -> Result<Arc<Engine>, StorageError> {
    let directory = RocksDirectory::open(&folder.directory())?;
    let device = FileDevice::open_or_create(&folder.ssd_file(), settings.ssd.bytes.0)?;
    let components = Components {
        clock: Arc::clone(&shared.clock),
        entropy: Arc::clone(&shared.entropy),
        secret: folder.secret().clone(),
        directory: Arc::new(directory),
        device: Arc::new(device),
        metrics: Arc::clone(&shared.metrics),
    };
    Engine::open(engine_settings(settings), components).map_err(StorageError::Engine)
}

/// Damage may show when the directory is opened, or later, when the engine reads it.
fn is_damaged_directory(error: &StorageError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(DirectoryError::Damaged { .. })) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn set_aside(path: &Path, error: &StorageError) -> Result<(), StorageError> {
    let aside = RocksDirectory::set_aside(path)?;
    let error = in_one_line(error);
    warn!(error, aside = %aside.display(), "the directory is damaged; it is set aside and made again from the pages' headers");
    Ok(())
}

fn engine_settings(settings: &Settings) -> EngineSettings {
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let Settings { dram, ssd, limits, .. } = settings;
    EngineSettings {
        dram: PoolSettings { bytes: dram.bytes.0, arena_bytes: dram.arena_bytes.0, huge_pages: dram.huge_pages },
        region_bytes: ssd.region_bytes.0,
        ssd_device: ssd.device,
        read_threads: count(ssd.read_threads),
        read_queue: count(ssd.read_queue),
        write_policy: ssd.write,
        endurance: settings.endurance_plan(),
        scrub: settings.scrub_plan(),
        write_behind_bytes: ssd.write_behind_bytes.0,
        write_behind_time: ssd.write_behind_time.0,
        load_window_bytes: ssd.load_window_bytes.0,
        chain_pages_max: count(limits.chain_pages_max),
        page_bytes_max: limits.page_bytes_max.0,
        namespaces_max: count(limits.namespaces_max),
    }
}
