//! What the system says about this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a server opens besides those of its arenas and connections, the directory's above all. The directory does not survive being
/// refused one: it takes no more changes until the next start.
const OWN_FILES: u64 = 256;

/// Lets this process open as many files as it may: shells and supervisors set the soft limit for programs that count them with `select`.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, the limit stays what it was, and connections are counted against that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Connections for which there are files enough, beside `others` that are taken; at least one.
pub(crate) fn connections_possible(others: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    limit.saturating_sub(OWN_FILES).saturating_sub(others).max(1)
}

/// Resident memory in bytes; 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
