//! `kvctl`: what an operator asks a Cairn server, and tells it.
//!
//! `cli` is the command line, one file in `commands` does each command, `outcome` decides the exit code, `print` the looks. All bytes
//! go through the client library, and so does every promise about them.
#![forbid(unsafe_code)]

mod chain;
mod cli;
mod commands;
mod identity;
mod outcome;
mod pages;
mod print;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::outcome::{Code, Failure};
use crate::print::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Output { json: cli.json };
    let code = run(&cli, &out).unwrap_or_else(|failure| out.explain(&failure));
    ExitCode::from(code as u8)
}

/// Commands that need no server run without a runtime; the others in one.
fn run(cli: &Cli, out: &Output) -> Result<Code, Failure> {
    match &cli.command {
        Command::Identity { what } => commands::identity::run(what, out),
        Command::Completions { shell } => commands::completions::run(*shell, out),
        Command::Verify { data_folder: Some(folder), .. } => commands::stopped::verify(folder, out),
        Command::Rebuild { data_folder, yes } => commands::stopped::rebuild(data_folder.as_deref(), *yes, out),
        command => {
            let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = threads.map_err(|e| Failure::usage(format!("can not start threads: {e}")))?;
            runtime.block_on(commands::online(cli, command, out))
        }
    }
}
