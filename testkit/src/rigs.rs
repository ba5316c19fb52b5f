//! The record of the test rigs: a JSON list of `{rig, trials, failures, seed, seconds}`, one a line, the last run of each rig.
//!
//! Rigs run as separate processes and share the file, so it is changed under a file lock.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a rig did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RigRun {
    /// Name of the rig.
    pub rig: String,
    /// Trials made.
    pub trials: u64,
    /// Trials that broke a promise.
    pub failures: u64,
    /// Seed that repeats the run.
    pub seed: u64,
    /// Time it took, in seconds.
    pub seconds: f64,
}

/// Puts `run` into the list at `path`, in place of an earlier run of the same rig. Makes file and folder if they are not there; a file
/// that is no such list is replaced.
///
/// # Errors
/// What the file system says.
pub fn record(run: &RigRun, path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut runs: Vec<RigRun> = serde_json::from_str(&text).unwrap_or_default();
    runs.retain(|other| other.rig != run.rig);
    runs.push(run.clone());
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(json_lines(&runs)?.as_bytes())
}

/// A JSON list with one item a line.
///
/// # Errors
/// If an item can not be JSON.
pub fn json_lines<T: Serialize>(items: &[T]) -> io::Result<String> {
    let lines = items.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rig: &str, seed: u64) -> RigRun {
        RigRun { rig: rig.to_owned(), trials: 5, failures: 0, seed, seconds: 1.5 }
    }

    #[test]
    fn the_last_run_of_each_rig_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target/rigs.json");
        for run in [run("kill", 1), run("model", 2), run("kill", 3)] {
            record(&run, &path).unwrap();
        }
        let runs: Vec<RigRun> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(runs, [run("model", 2), run("kill", 3)]);
    }
}
