//! Asks a drive through another program, which knows how to talk to drives of every kind and may have rights that this one lacks.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::Unknown;

/// Most that is read of an answer; a few kilobytes are usual.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What `program` prints about `disk`. It has `deadline`, and is killed then, or when this is dropped.
pub(super) async fn ask(program: &Path, disk: &str, deadline: Duration) -> Result<Vec<u8>, Unknown> {
    let name = || program.display().to_string();
    match tokio::time::timeout(deadline, answer(program, disk)).await {
        Ok(answered) => answered,
        Err(_) => Err(Unknown::TooSlow { program: name(), seconds: deadline.as_secs() }),
    }
}

async fn answer(program: &Path, disk: &str) -> Result<Vec<u8>, Unknown> {
    let name = || program.display().to_string();
    let mut child = start(program, disk).await.map_err(|source| match source.kind() {
        ErrorKind::NotFound => Unknown::NotInstalled { program: name() },
        _ => Unknown::NotStarted { program: name(), source },
    })?;
    let mut answer = Vec::new();
    if let Some(out) = child.stdout.take() {
        let mut bounded = out.take(ANSWER_BYTES_MAX as u64 + 1);
        bounded.read_to_end(&mut answer).await.map_err(|source| Unknown::Cut { program: name(), source })?;
    }
    if answer.len() > ANSWER_BYTES_MAX {
        return Err(Unknown::TooLong { program: name(), bytes_max: ANSWER_BYTES_MAX });
    }
    // Only to see it off: the answer says all that its status could.
    child.wait().await.ok();
    Ok(answer)
}

/// Starts it on a thread that may block: the program may lie on a filesystem that does not answer.
async fn start(program: &Path, disk: &str) -> Result<Child, Error> {
    let mut command = Command::new(program);
    command.args(["--json=c", "-A"]).arg(format!("/dev/{disk}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    tokio::task::spawn_blocking(move || command.spawn()).await.map_err(Error::other)?
}
