//! Logging, to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::settings::LogSettings;
use crate::config::value::{LogFormat, LogLevel};

/// Starts logging for the whole process. Called once, by the binary; a second call changes nothing.
pub fn start(settings: &LogSettings) {
    let filter = match settings.level {
        LogLevel::Error => "error".to_owned(),
        LogLevel::Trace => "trace".to_owned(),
        // Below trace, libraries speak up only if something is wrong; targets that start with `cairn` are ours.
        level => format!("warn,cairn={level}"),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let started = match settings.format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    // Another log is running already, that of a test.
    started.ok();
}
