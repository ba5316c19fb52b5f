//! The server: `cairnd` as a library.
//!
//! A call comes in through [the connections](connections) (bounded), passes [the door](door) before its bytes are decoded (bounded in
//! number and bytes; who, until when, counted), and is served by one file of [`calls`], which speaks to the engine and answers. [`config`] is read once, before
//! anything starts; [the data folder](data_folder) is taken by one server at a time; [`http`] shows metrics and health;
//! [the drive's health](drive_health) is asked for on the side.
#![forbid(unsafe_code)]

mod calls;
pub mod config;
mod connections;
pub mod data_folder;
mod door;
mod doorway;
mod drive_health;
mod http;
pub mod log;
pub mod offline;
mod outlet;
pub mod process;
mod server;
mod storage;

pub use cairn_engine::Closed;
pub use server::{Running, Server, StartError};
pub use storage::StorageError;
