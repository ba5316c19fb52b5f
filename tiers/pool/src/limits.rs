//! How much memory a pool may have: what the machine has left, and what the control groups of the process allow.

use std::fs;
use std::path::Path;

use crate::PoolError;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Refuses a pool that the kernel would have to kill for.
pub(crate) fn check(bytes: u64) -> Result<(), PoolError> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    let machine = machine.map(|limit_bytes| (limit_bytes, "available memory of /proc/meminfo".to_owned()));
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match machine.into_iter().chain(group_limits(&group, Path::new(CGROUPS))).min() {
        Some((limit_bytes, limit)) if bytes > limit_bytes => {
            Err(PoolError::LargerThanMemory { bytes, limit_bytes, limit })
        }
        _ => Ok(()),
    }
}

/// Memory that can be had without swapping; reserved huge pages are not part of `MemAvailable`.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let number = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let huge_kib = number("HugePages_Free").unwrap_or(0).saturating_mul(number("Hugepagesize").unwrap_or(0));
    Some(number("MemAvailable")?.saturating_add(huge_kib).saturating_mul(1024))
}

/// The limits of the group and of every group above it, as version 2 and version 1 of control groups have them. A group without a
/// limit says `max`, or has no such file.
fn group_limits(own: &str, root: &Path) -> Vec<(u64, String)> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            listed if listed.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let group = top.join(path.trim_start_matches('/'));
        for above in group.ancestors().take_while(|above| above.starts_with(&top)) {
            let limit = above.join(file);
            let bytes = fs::read_to_string(&limit).ok().and_then(|text| text.trim().parse().ok());
            limits.extend(bytes.map(|bytes| (bytes, limit.display().to_string())));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_counts_reserved_huge_pages() {
        let meminfo =
            "MemTotal:  9000 kB\nMemAvailable:    4000 kB\nHugePages_Free:       2\nHugepagesize:       2048 kB\n";
        assert_eq!(available_bytes(meminfo), Some((4000 + 2 * 2048) * 1024));
        assert_eq!(available_bytes("MemAvailable: 7 kB\n"), Some(7 * 1024));
        assert_eq!(available_bytes("MemTotal: 9000 kB\n"), None);
    }

    #[test]
    fn the_limits_of_every_group_above_count() {
        let root = std::env::temp_dir().join(format!("cairn-pool-limits-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.join("memory/c/memory.limit_in_bytes"), "8192\n").unwrap();
        let bytes = |own: &str| group_limits(own, &root).into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>();
        assert_eq!(bytes("0::/a/b\n"), [4096]);
        assert_eq!(bytes("5:cpu,memory:/c\n4:pids:/c\n"), [8192]);
        assert_eq!(bytes("0::/\nnonsense\n"), [0; 0]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_pool_larger_than_the_machine_is_refused_by_name() {
        let refused = check(u64::MAX).unwrap_err().to_string();
        assert!(refused.starts_with("pool is larger than the memory there is for it"), "{refused}");
    }
}
