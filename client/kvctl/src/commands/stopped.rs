//! What is done to a data folder whose server is stopped. `cairnd` knows what lies in one, so it does the work: the one beside this program, or
//! else the one in the PATH. What it prints is printed, and its exit code is this program's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Code, Failure};
use crate::print::Output;

/// `kvctl verify --data-folder`.
pub(crate) fn verify(folder: &Path, out: &Output) -> Result<Code, Failure> {
    cairnd("verify", folder, &[], out)
}

/// `kvctl rebuild`.
pub(crate) fn rebuild(folder: Option<&Path>, confirmed: bool, out: &Output) -> Result<Code, Failure> {
    let Some(folder) = folder else {
        return Err(Failure::usage("a server makes its directory again when it starts: say which data folder").hint(
            "stop the server, `kvctl rebuild --data-folder DIR --yes`, and start it; `kvctl stats` then says \"rebuilt from headers\"",
        ));
    };
    let confirmed: &[&str] = if confirmed { &["--yes"] } else { &[] };
    cairnd("rebuild", folder, confirmed, out)
}

fn cairnd(command: &str, folder: &Path, more: &[&str], out: &Output) -> Result<Code, Failure> {
    let program = program();
    let mut cairnd = Command::new(&program);
    cairnd.arg(command).arg(folder).args(more);
    if out.json {
        cairnd.arg("--json");
    }
    let ended = cairnd.status().map_err(|e| {
        Failure::usage(format!("can not run {}: {e}", program.display()))
            .hint("put cairnd beside kvctl or into the PATH, or run `cairnd verify DIR` where it is")
    })?;
    Ok(match ended.code() {
        Some(0) => Code::Fine,
        Some(1) => Code::Short,
        // Of the command, or of a folder that this version does not know.
        Some(2 | 4) => Code::Usage,
        // It is in use.
        Some(3) => Code::Unreachable,
        _ => Code::Server,
    })
}

fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|here| here.with_file_name("cairnd"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(OsStr::new("cairnd")))
}
