//! `cairnd`: reads the configuration, starts the server, stops it on a signal.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use cairn_core::in_one_line;
use cairn_server::config::{Flags, Settings, doc, load};
use cairn_server::data_folder::FolderError;
use cairn_server::{Closed, Running, Server, StartError, StorageError, log, offline, process};
use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The configuration is refused.
const EXIT_CONFIG: u8 = 2;
/// The data folder is in use by another server.
const EXIT_IN_USE: u8 = 3;
/// The data folder has a format that this version does not know.
const EXIT_FORMAT: u8 = 4;
/// The stop was cut short, by a second signal or because the storage did not close in time.
const EXIT_CUT_SHORT: u8 = 5;

fn main() -> ExitCode {
    let flags = Flags::parse();
    if let Some(command) = &flags.offline {
        return ExitCode::from(offline::run(command));
    }
    if flags.print_config_doc {
        print!("{}", doc::config_doc());
        return ExitCode::SUCCESS;
    }
    if flags.print_metrics_doc {
        print!("{}", doc::metrics_doc());
        return ExitCode::SUCCESS;
    }
    let settings = match load(&flags, std::env::vars_os()) {
        Ok(settings) => settings,
        Err(error) => return fail(&error, EXIT_CONFIG),
    };
    if flags.print_config {
        print!("{}", settings.to_toml());
    }
    if flags.print_config || flags.check_config {
        return ExitCode::SUCCESS;
    }
    log::start(&settings.log);
    process::raise_open_files_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    let code = runtime.block_on(run(settings));
    // What still runs has had its grace.
    runtime.shutdown_background();
    code
}

async fn run(settings: Settings) -> ExitCode {
    let grace = settings.server.stop_grace.0;
    let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    let (mut term, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => return fail(&error, 1),
    };
    let mut running = match Server::start(settings).await {
        Ok(running) => running,
        Err(error) => return fail(&error, exit_code(&error)),
    };
    tokio::select! {
        () = either(&mut term, &mut interrupt) => {}
        () = running.ended() => return ExitCode::FAILURE,
    }
    stop(running, grace, &mut term, &mut interrupt).await
}

async fn stop(running: Running, grace: std::time::Duration, term: &mut Signal, interrupt: &mut Signal) -> ExitCode {
    tokio::select! {
        closed = running.stop(grace) => match closed {
            Closed::Orderly => ExitCode::SUCCESS,
            Closed::Abandoned => ExitCode::from(EXIT_CUT_SHORT),
        },
        () = either(term, interrupt) => {
            tracing::warn!("a second signal: stopping at once");
            ExitCode::from(EXIT_CUT_SHORT)
        }
    }
}

async fn either(term: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn exit_code(error: &StartError) -> u8 {
    match error {
        StartError::Settings(_) => EXIT_CONFIG,
        StartError::Storage(StorageError::Folder(FolderError::InUse { .. })) => EXIT_IN_USE,
        StartError::Storage(StorageError::Folder(FolderError::UnknownFormat { .. } | FolderError::NoFormat { .. })) => {
            EXIT_FORMAT
        }
        _ => 1,
    }
}

/// Says what is wrong, with every cause, in one line.
fn fail(error: &dyn Error, code: u8) -> ExitCode {
    eprintln!("cairnd: {}", in_one_line(error));
    ExitCode::from(code)
}
