//! Reads settings: a file, then the environment, then flags. Each may set any key; the later one wins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use thiserror::Error as ThisError;

use crate::offline::Offline;

use super::settings::{Row, Settings, SettingsFault, distance, nearest};

/// Largest configuration file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Flags of `cairnd`.
#[derive(Parser, Clone, Default, Debug)]
#[command(
    name = "cairnd",
    version,
    about = "The Cairn server: a tiered store for the KV cache of LLM inference.",
    args_conflicts_with_subcommands = true
)]
pub struct Flags {
    /// Configuration file (TOML); every key is explained in docs/CONFIG.md.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address of the gRPC API [server.listen].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Data folder [data.dir].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Size of the page pool, such as 16GiB [dram.bytes].
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<String>,
    /// Size of the SSD file, such as 1TiB [ssd.bytes].
    #[arg(long, value_name = "SIZE")]
    pub ssd: Option<String>,
    /// error, warn, info, debug or trace [log.level].
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Allow addresses that other machines can reach, without authentication [server.insecure_routable].
    #[arg(long)]
    pub insecure_routable: bool,
    /// Set any key; may be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the settings in effect as a configuration file, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Check the settings, and exit.
    #[arg(long)]
    pub check_config: bool,
    /// Print docs/CONFIG.md, and exit.
    #[arg(long, hide = true)]
    pub print_config_doc: bool,
    /// Print docs/METRICS.md, and exit.
    #[arg(long, hide = true)]
    pub print_metrics_doc: bool,
    /// What to do with a data folder instead of serving from it.
    #[command(subcommand)]
    pub offline: Option<Offline>,
}

/// Why no settings could be read.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("read the configuration file path={}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is far too large to be one.
    #[error("the configuration file is too large path={} bytes={bytes} bytes_max={FILE_BYTES_MAX}", path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is not TOML.
    #[error("the configuration file is not TOML path={}", path.display())]
    Toml {
        /// Its path.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A key in the file.
    #[error("in the configuration file {}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// What is wrong.
        source: Box<SettingsFault>,
    },
    /// A variable of the environment.
    #[error("in the environment variable {variable}")]
    Variable {
        /// Its name.
        variable: String,
        /// What is wrong.
        source: Box<SettingsFault>,
    },
    /// A variable that looks like one of ours.
    #[error("unknown environment variable {variable}; did you mean {nearest}?")]
    UnknownVariable {
        /// Its name.
        variable: String,
        /// The one that it looks like.
        nearest: String,
    },
    /// A flag.
    #[error("in the flag {flag}")]
    Flag {
        /// The flag.
        flag: String,
        /// What is wrong.
        source: Box<SettingsFault>,
    },
    /// A `--set` without a value.
    #[error("--set takes section.key=value, not {text:?}")]
    Set {
        /// What was given.
        text: String,
    },
    /// The values together.
    #[error("the settings are refused")]
    Refused(#[from] SettingsFault),
}

/// Reads the file of `flags`, `environment` and `flags`, in this order, and checks the outcome.
///
/// # Errors
/// The first [`ConfigError`].
pub fn load(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    if let Some(path) = &flags.config {
        read_file(&mut settings, path)?;
    }
    read_environment(&mut settings, environment)?;
    read_flags(&mut settings, flags)?;
    settings.validate()?;
    Ok(settings)
}

fn read_file(settings: &mut Settings, path: &Path) -> Result<(), ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), bytes });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let table: toml::Table =
        text.parse().map_err(|source| ConfigError::Toml { path: path.to_owned(), source: Box::new(source) })?;
    for (section, keys) in &table {
        set_section(settings, section, keys)
            .map_err(|source| ConfigError::File { path: path.to_owned(), source: Box::new(source) })?;
    }
    Ok(())
}

fn set_section(settings: &mut Settings, section: &str, keys: &toml::Value) -> Result<(), SettingsFault> {
    let sections: Vec<String> = Settings::table().iter().map(|row| row.section.to_owned()).collect();
    if !sections.iter().any(|known| known == section) {
        return Err(SettingsFault::Unknown { name: section.to_owned(), nearest: nearest(section, &sections).cloned() });
    }
    let toml::Value::Table(keys) = keys else {
        return Err(SettingsFault::Unreadable { name: section.to_owned(), what: "a section, not a value".to_owned() });
    };
    for (key, value) in keys {
        let name = format!("{section}.{key}");
        match value {
            toml::Value::String(text) => settings.set(&name, text)?,
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                settings.set(&name, &value.to_string())?;
            }
            _ => {
                return Err(SettingsFault::Unreadable {
                    name,
                    what: "a list, a table or a date is no value here".to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn variable(row: &Row) -> String {
    format!("CAIRN_{}_{}", row.section, row.key).to_ascii_uppercase()
}

/// Takes `CAIRN_<SECTION>_<KEY>`. A variable that starts with `CAIRN_` and a section but names none of its keys is refused, and so is one
/// that is a slip of the pen away from a known one; others that start with `CAIRN_` belong to other programs.
fn read_environment(
    settings: &mut Settings,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), ConfigError> {
    let table = Settings::table();
    let known: Vec<String> = table.iter().map(variable).collect();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("CAIRN_")) else { continue };
        match known.iter().position(|variable| variable == name) {
            Some(row) => settings
                .set(&table[row].name(), &value.to_string_lossy())
                .map_err(|source| ConfigError::Variable { variable: name.to_owned(), source: Box::new(source) })?,
            None if is_service_link(name) => {}
            None => refuse_if_meant_for_us(name, &table, &known)?,
        }
    }
    Ok(())
}

fn refuse_if_meant_for_us(name: &str, table: &[Row], known: &[String]) -> Result<(), ConfigError> {
    let in_section = table.iter().find(|row| name.starts_with(&format!("CAIRN_{}_", row.section.to_ascii_uppercase())));
    if let Some(row) = in_section {
        let key = name.splitn(3, '_').nth(2).unwrap_or_default().to_ascii_lowercase();
        let mut scratch = Settings::default();
        let fault = scratch.set(&format!("{}.{key}", row.section), "").err();
        return fault.map_or(Ok(()), |source| {
            Err(ConfigError::Variable { variable: name.to_owned(), source: Box::new(source) })
        });
    }
    match known.iter().find(|variable| distance(name, variable) <= 2) {
        Some(near) => Err(ConfigError::UnknownVariable { variable: name.to_owned(), nearest: near.clone() }),
        None => Ok(()),
    }
}

/// Kubernetes puts the addresses of services into the environment: a service `cairn-server` becomes `CAIRN_SERVER_PORT` and more.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

fn read_flags(settings: &mut Settings, flags: &Flags) -> Result<(), ConfigError> {
    let named = [
        ("--listen", "server.listen", &flags.listen),
        ("--data-dir", "data.dir", &flags.data_dir),
        ("--dram", "dram.bytes", &flags.dram),
        ("--ssd", "ssd.bytes", &flags.ssd),
        ("--log-level", "log.level", &flags.log_level),
    ];
    for text in &flags.set {
        let (name, value) = text.split_once('=').ok_or_else(|| ConfigError::Set { text: text.clone() })?;
        set_by_flag(settings, "--set", name.trim(), value.trim())?;
    }
    for (flag, name, value) in named {
        if let Some(value) = value {
            set_by_flag(settings, flag, name, value)?;
        }
    }
    if flags.insecure_routable {
        settings.server.insecure_routable = true;
    }
    Ok(())
}

fn set_by_flag(settings: &mut Settings, flag: &str, name: &str, value: &str) -> Result<(), ConfigError> {
    settings.set(name, value).map_err(|source| ConfigError::Flag { flag: flag.to_owned(), source: Box::new(source) })
}
