//! Both directories pass the one suite.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use cairn_directory::conformance::Rig;
use cairn_directory::{MemoryDirectory, RocksDirectory};

struct Folder(tempfile::TempDir);

impl Rig for Folder {
    type Directory = RocksDirectory;

    fn open(&self) -> RocksDirectory {
        RocksDirectory::open(&self.0.path().join("directory")).unwrap()
    }
}

#[derive(Default)]
struct Memory(MemoryDirectory);

impl Rig for Memory {
    type Directory = MemoryDirectory;

    fn open(&self) -> MemoryDirectory {
        self.0.reopen()
    }
}

mod rocks {
    cairn_directory::conformance_tests!(super::Folder(tempfile::tempdir().unwrap()));
}

mod memory {
    cairn_directory::conformance_tests!(super::Memory::default());
}
