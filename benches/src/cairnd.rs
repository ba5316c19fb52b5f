//! A server of one's own: starts `cairnd` as a child process, kills it, starts it again on the same data folder.
//!
//! The child never outlives the value: dropping it kills. It takes a port that the system chooses, and its log, which goes to a file beside
//! the data folder, says which; the end of the log is quoted when it does not start.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use cairn_core::{Clock, SystemClock};
use tempfile::TempDir;
use thiserror::Error as ThisError;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Longest start, recovery included. Touching the page memory alone takes up to 3 s a GiB.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest orderly stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a killed server to be gone.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks into the log of a server that starts.
const LOOK_GAP: Duration = Duration::from_millis(10);

/// Why a server of one's own is not there.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CairndError {
    /// There is no such program.
    #[error("no cairnd beside this program; build it with `cargo build --release -p cairn-server` path={}", path.display())]
    NoBinary {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Its files or its process can not be made.
    #[error("{action} path={}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It ended instead of serving.
    #[error("cairnd ended while it started: {log} status={status}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// It runs and can not be reached.
    #[error("cairnd does not serve in time: {log} waited_s={}", START_TIMEOUT.as_secs())]
    NotServing {
        /// The end of its log.
        log: String,
    },
}

/// A folder for the data of a server that nobody needs afterwards. Removed when dropped.
///
/// # Errors
/// [`CairndError::Io`].
pub fn temporary_folder() -> Result<TempDir, CairndError> {
    temporary_folder_in(&std::env::temp_dir())
}

/// The same, in a folder of one's choice.
///
/// # Errors
/// [`CairndError::Io`].
pub fn temporary_folder_in(folder: &Path) -> Result<TempDir, CairndError> {
    let made = tempfile::Builder::new().prefix("cairn-bench-").tempdir_in(folder);
    made.map_err(io_at("make a temporary folder", folder))
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The program.
    pub binary: PathBuf,
    /// The folder that survives it.
    pub folder: PathBuf,
    /// Settings as `section.key=value`.
    pub settings: Vec<String>,
}

impl Recipe {
    /// The `cairnd` beside the running program, with its data in `folder`.
    ///
    /// # Errors
    /// [`CairndError::NoBinary`] if it has not been built.
    pub fn beside_this_program(folder: &Path, settings: Vec<String>) -> Result<Self, CairndError> {
        let program = std::env::current_exe().unwrap_or_default();
        // Test programs lie one folder deeper than the binaries of their build.
        let folders = program.ancestors().skip(1).take(2);
        let binary = folders.map(|folder| folder.join("cairnd")).find(|path| path.is_file());
        match binary {
            Some(binary) => Ok(Self { binary, folder: folder.to_owned(), settings }),
            None => Err(CairndError::NoBinary { path: program.with_file_name("cairnd") }),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }
}

/// A server that starts, or one that serves: the process and its log.
#[derive(Debug)]
pub struct Starting {
    recipe: Recipe,
    child: Child,
    /// Where in the log this process begins.
    log_from: u64,
}

impl Starting {
    /// Starts a server on a free loopback port and does not wait for it.
    ///
    /// # Errors
    /// [`CairndError::Io`].
    pub fn spawn(recipe: Recipe) -> Result<Self, CairndError> {
        fs::create_dir_all(&recipe.folder).map_err(io_at("make the data folder", &recipe.folder))?;
        let log_path = recipe.log();
        let open_log = || File::options().create(true).append(true).open(&log_path);
        let (log, log_too) =
            open_log().and_then(|log| Ok((log.try_clone()?, log))).map_err(io_at("open the log", &log_path))?;
        let log_from = log.metadata().map_err(io_at("open the log", &log_path))?.len();
        let mut command = Command::new(&recipe.binary);
        // The settings are those of the recipe, whatever the environment says.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CAIRN_")) {
            command.env_remove(name);
        }
        let child = command
            // The log has to say the address, as text.
            .args(["--listen", "127.0.0.1:0", "--log-level", "info", "--set", "log.format=text"])
            .arg("--data-dir")
            .arg(&recipe.folder)
            .args(recipe.settings.iter().flat_map(|setting| ["--set", setting.as_str()]))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            .kill_on_drop(true)
            .spawn()
            .map_err(io_at("start cairnd", &recipe.binary))?;
        Ok(Self { recipe, child, log_from })
    }

    /// Waits until the server says that it serves, and where; or ends.
    async fn serving(&mut self) -> Result<SocketAddr, CairndError> {
        let log_path = self.recipe.log();
        loop {
            let status = self.child.try_wait().ok().flatten();
            let log = fs::read(&log_path).map_err(io_at("read the log", &log_path))?;
            let said = log.get(usize::try_from(self.log_from).unwrap_or(usize::MAX)..).unwrap_or_default();
            match (address_said_in(&String::from_utf8_lossy(said)), status) {
                (Some(address), None) => return Ok(address),
                (_, Some(status)) => return Err(CairndError::Ended { status, log: end_of(&log_path) }),
                (None, None) => sleep(LOOK_GAP).await,
            }
        }
    }

    /// Ends it with SIGKILL, as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// [`CairndError::Io`] if the kernel refuses.
    pub async fn kill(mut self) -> Result<Recipe, CairndError> {
        self.child.kill().await.map_err(io_at("kill cairnd", &self.recipe.binary))?;
        Ok(self.recipe.clone())
    }
}

/// A running server.
#[derive(Debug)]
pub struct Cairnd {
    process: Starting,
    endpoint: String,
}

impl Cairnd {
    /// Starts a server on a free loopback port and waits until it serves.
    ///
    /// # Errors
    /// Any [`CairndError`]; the child is gone then.
    pub async fn start(recipe: Recipe) -> Result<Self, CairndError> {
        let mut process = Starting::spawn(recipe)?;
        match timeout(START_TIMEOUT, process.serving()).await {
            Ok(serving) => serving.map(|address| Self { process, endpoint: address.to_string() }),
            Err(_) => Err(CairndError::NotServing { log: end_of(&process.recipe.log()) }),
        }
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        let log = fs::read(self.process.recipe.log()).unwrap_or_default();
        let from = usize::try_from(self.process.log_from).unwrap_or(usize::MAX);
        String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.child.id()
    }

    /// Ends it with SIGKILL, as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// [`CairndError::Io`] if the kernel refuses.
    pub async fn kill(self) -> Result<Recipe, CairndError> {
        self.process.kill().await
    }

    /// Asks it to stop with SIGTERM and waits until it has.
    ///
    /// # Errors
    /// [`CairndError::Io`] if it does not stop in time; it is killed then.
    pub async fn stop(self) -> Result<ExitStatus, CairndError> {
        let mut process = self.process;
        let child = &mut process.child;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let sent = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            sent.map_err(|e| io_at("stop cairnd", &process.recipe.binary)(e.into()))?;
        }
        let ended = timeout(STOP_TIMEOUT, child.wait()).await;
        ended
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(io_at("stop cairnd", &process.recipe.binary))
    }
}

impl Drop for Starting {
    /// Kills, and waits until it is gone, so that whoever removes the folder next finds nobody writing there.
    fn drop(&mut self) {
        let clock = SystemClock::start();
        // It may have ended already.
        let _ = self.child.start_kill();
        while matches!(self.child.try_wait(), Ok(None)) && clock.now().since_start() < DROP_TIMEOUT {
            std::thread::yield_now();
        }
    }
}

fn io_at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CairndError {
    let path = path.to_owned();
    move |source| CairndError::Io { action, path, source }
}

/// The address that a log says the server serves on. A line is not looked at before it is whole.
fn address_said_in(log: &str) -> Option<SocketAddr> {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let line = whole.lines().find(|line| line.contains(": serving "))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("address="))?.parse().ok()
}

/// The last lines of a log, on one line.
fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    if lines.is_empty() {
        "it said nothing".to_owned()
    } else {
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_taken_from_a_line_that_is_whole() {
        let line = "2026-01-01T00:00:00Z  INFO cairn_server::server: serving address=127.0.0.1:7420 metrics_address=127.0.0.1:1 data=x";
        assert_eq!(address_said_in(line), None);
        assert_eq!(address_said_in(&format!("something\n{line}\n")), Some(SocketAddr::from(([127, 0, 0, 1], 7420))));
        assert_eq!(address_said_in("cairnd: the settings are refused\n"), None);
    }
}
