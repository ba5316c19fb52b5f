//! Which disk a file lies on: its device number, and what sysfs says about that.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use super::Unknown;

/// The disk that `file` lies on, such as `nvme0n1`, if it is a drive that can be asked for its wear. `sys` is where the system shows its
/// devices. Blocks as long as the file's filesystem does.
pub(super) fn under(file: &Path, sys: &Path) -> Result<String, Unknown> {
    let device = fs::metadata(file).map_err(Unknown::NoDevice)?.dev();
    let entry = sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
    let found = match entry.canonicalize() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Unknown::NoDrive),
        Err(error) => return Err(Unknown::NoDevice(error)),
    };
    // A partition lies in the folder of its disk.
    let disk = if found.join("partition").exists() { found.parent() } else { Some(found.as_path()) };
    let name = disk.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.map_or(Err(Unknown::NoDrive), drive)
}

/// A disk by the kind that its name tells. The name goes to another program: only letters and digits pass.
fn drive(disk: String) -> Result<String, Unknown> {
    let begins = |heads: &[&str]| heads.iter().any(|head| disk.starts_with(head));
    let is_plain = disk.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain && begins(&["nvme", "sd"]) {
        Ok(disk)
    } else if begins(&["vd", "xvd"]) {
        Err(Unknown::Virtual { disk })
    } else if begins(&["dm-", "md", "loop"]) {
        Err(Unknown::Made { disk })
    } else {
        Err(Unknown::OtherKind { disk })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// A folder with a file in it, and devices of which the file's is `device`, a path below `devices`.
    fn lies_on(device: &str, is_partition: bool) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (file, shown) = (folder.path().join("pages"), folder.path().join("devices").join(device));
        fs::write(&file, "").unwrap();
        fs::create_dir_all(&shown).unwrap();
        if is_partition {
            fs::write(shown.join("partition"), "1\n").unwrap();
        }
        let number = fs::metadata(&file).unwrap().dev();
        let entries = folder.path().join("dev/block");
        fs::create_dir_all(&entries).unwrap();
        symlink(shown, entries.join(format!("{}:{}", major(number), minor(number)))).unwrap();
        (folder, file)
    }

    #[track_caller]
    fn answer(device: &str, is_partition: bool) -> Result<String, String> {
        let (folder, file) = lies_on(device, is_partition);
        under(&file, folder.path()).map_err(|unknown| unknown.to_string())
    }

    #[test]
    fn a_file_on_a_drive_or_on_a_partition_of_it_names_the_drive() {
        assert_eq!(answer("pci0/nvme/nvme0/nvme0n1", false).unwrap(), "nvme0n1");
        assert_eq!(answer("pci0/nvme/nvme0/nvme0n1/nvme0n1p2", true).unwrap(), "nvme0n1");
        assert_eq!(answer("virtual/nvme-subsystem/nvme-subsys0/nvme1n1", false).unwrap(), "nvme1n1");
        assert_eq!(answer("pci0/ata1/block/sda/sda3", true).unwrap(), "sda");
    }

    #[test]
    fn a_file_on_anything_else_says_on_what() {
        let says = |device: &str, is_partition, words: &str| {
            let said = answer(device, is_partition).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        says("pci0/virtio1/block/vda", false, "lies on vda, a virtual disk");
        says("pci0/virtio1/block/vda/vda1", true, "lies on vda, a virtual disk");
        says("virtual/block/dm-0", false, "lies on dm-0, which is made of other devices");
        says("virtual/block/md127", false, "md127, which is made of other devices");
        says("virtual/block/zram0", false, "zram0, which is no NVMe, SATA or SAS drive");
        says("odd/sd; rm -rf", false, "which is no NVMe, SATA or SAS drive");
    }

    #[test]
    fn a_file_whose_filesystem_has_no_device_says_so() {
        let (folder, file) = lies_on("pci0/nvme/nvme0/nvme0n1", false);
        let nothing = folder.path().join("nothing");
        assert!(matches!(under(&file, &nothing), Err(Unknown::NoDrive)));
        assert!(matches!(under(&nothing, folder.path()), Err(Unknown::NoDevice(_))));
    }
}
