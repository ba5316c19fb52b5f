//! `kvctl completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::outcome::{Code, Failure};
use crate::print::Output;

pub(crate) fn run(shell: Shell, out: &Output) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kvctl", &mut script);
    out.text(&String::from_utf8_lossy(&script))?;
    Ok(Code::Fine)
}
