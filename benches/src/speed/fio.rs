//! `fio`, the measure of what a disk can do: direct I/O through `io_uring`, a file of its own or one that is there.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::error::{BenchError, Result};

/// A file that `fio` works on.
#[derive(Debug)]
pub(super) struct Fio {
    path: PathBuf,
    bytes: u64,
}

/// What one run does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) way: Way,
    /// Bytes of one transfer.
    pub(super) bytes: u64,
    /// Transfers under way at once.
    pub(super) depth: u32,
    /// Into huge pages, which direct I/O is faster with.
    pub(super) huge_pages: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Reads one after the other, for so long.
    Read(Duration),
    /// Writes one after the other, for so long, with a barrier after each so many.
    Write(Duration, u64),
    /// Reads the first bytes of each so many, once over the file.
    ReadOfEach(u64),
}

impl Fio {
    /// Whether there is a `fio` to run.
    pub(super) async fn is_installed() -> bool {
        let asked = Command::new("fio").arg("--version").stdout(Stdio::null()).status().await;
        asked.is_ok_and(|status| status.success())
    }

    /// Works on a file that is there. It is only read, if jobs only read.
    pub(super) fn on(path: &Path, bytes: u64) -> Self {
        Self { path: path.to_owned(), bytes }
    }

    /// Writes a file at `path`, all of it.
    pub(super) async fn lay_out(path: &Path, bytes: u64) -> Result<Self> {
        let fio = Self::on(path, bytes);
        let mut command = fio.command(4 << 20, 4, true);
        run(command.args(["--rw=write", "--end_fsync=1"])).await?;
        Ok(fio)
    }

    /// Does the job; bytes a second.
    pub(super) async fn run(&self, job: Job) -> Result<f64> {
        let mut command = self.command(job.bytes, job.depth, job.huge_pages);
        let timed = |time: Duration| ["--time_based".to_owned(), format!("--runtime={}ms", time.as_millis())];
        let side = match job.way {
            Way::Read(time) => {
                command.arg("--rw=read").args(timed(time));
                "read"
            }
            Way::Write(time, pages) => {
                command.arg("--rw=write").args(timed(time)).arg(format!("--fdatasync={pages}"));
                "write"
            }
            Way::ReadOfEach(each) => {
                command.args([
                    format!("--rw=read:{}", each - job.bytes),
                    format!("--io_size={}", self.bytes / each * job.bytes),
                ]);
                "read"
            }
        };
        let said: Value = serde_json::from_slice(&run(&mut command).await?.stdout).map_err(|e| failed(e.into()))?;
        let rate = said.pointer(&format!("/jobs/0/{side}/bw_bytes")).and_then(Value::as_f64);
        rate.ok_or_else(|| failed(std::io::Error::other("fio reports no rate")))
    }

    fn command(&self, bytes: u64, depth: u32, huge_pages: bool) -> Command {
        let mut fio = Command::new("fio");
        if huge_pages {
            // Its allocator then asks for transparent huge pages.
            fio.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        fio.args(["--name=cairn", "--ioengine=io_uring", "--direct=1", "--mem=malloc", "--output-format=json"])
            .arg(format!("--filename={}", self.path.display()))
            .args([format!("--size={}", self.bytes), format!("--bs={bytes}"), format!("--iodepth={depth}")])
            .kill_on_drop(true);
        fio
    }
}

async fn run(command: &mut Command) -> Result<Output> {
    let done = command.output().await.map_err(failed)?;
    if done.status.success() {
        return Ok(done);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let why = said.lines().next().unwrap_or("it does not say why").to_owned();
    Err(failed(std::io::Error::other(why)))
}

fn failed(source: std::io::Error) -> BenchError {
    BenchError::Measure { what: "the disk with fio", source }
}
