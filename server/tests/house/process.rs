//! `cairnd` as a process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A small server on ports of the system's choice.
pub fn cairnd(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairnd"));
    command.env_clear().arg("--data-dir").arg(folder).args(["--listen", "127.0.0.1:0", "--dram", "8MiB"]);
    let small = [
        "ssd.bytes=8MiB",
        "server.metrics_listen=127.0.0.1:0",
        "dram.arena_bytes=4MiB",
        "ssd.region_bytes=4MiB",
        "limits.page_bytes_max=1MiB",
    ];
    for set in small {
        command.arg("--set").arg(set);
    }
    command
}

/// A child that does not outlive its test.
pub struct Serving(pub Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts a server and reads its log until it serves; also returns the line that says so.
pub fn serving(command: &mut Command) -> (Serving, BufReader<ChildStderr>, String) {
    let mut child = Serving(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(child.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("serving") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it served");
    }
    (child, log, line)
}
