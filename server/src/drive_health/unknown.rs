//! Why the drive's wear is not known, in words for an operator.

use std::io;

use thiserror::Error;

/// Why the drive's wear is not known. A normal outcome: most machines have a reason.
#[derive(Debug, Error)]
pub(crate) enum Unknown {
    /// Nothing is asked.
    #[error("ssd.health_program is empty")]
    Off,
    /// The first question is under way.
    #[error("the drive is being asked for the first time")]
    NotYet,
    /// The file's device can not be looked up.
    #[error("the device of the ssd file can not be looked up: {0}")]
    NoDevice(#[source] io::Error),
    /// The filesystem has no block device of its own.
    #[error(
        "the ssd file does not lie on a drive of its own, but on overlay, tmpfs, btrfs, a network filesystem or the like"
    )]
    NoDrive,
    /// A disk of a virtual machine.
    #[error("the ssd file lies on {disk}, a virtual disk; only its host knows the drive")]
    Virtual {
        /// The disk.
        disk: String,
    },
    /// A device that is made of others.
    #[error("the ssd file lies on {disk}, which is made of other devices (lvm, encryption, raid, loop)")]
    Made {
        /// The device.
        disk: String,
    },
    /// Neither NVMe nor SATA nor SAS.
    #[error("the ssd file lies on {disk}, which is no NVMe, SATA or SAS drive")]
    OtherKind {
        /// The device.
        disk: String,
    },
    /// There is no such program.
    #[error(
        "{program} is not installed, or not where programs are looked for; install smartmontools, or set ssd.health_program to its path"
    )]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// The program can not be started.
    #[error("{program} can not be started: {source}")]
    NotStarted {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("{program} did not answer within {seconds} s and was killed")]
    TooSlow {
        /// The program.
        program: String,
        /// How long it had.
        seconds: u64,
    },
    /// It printed too much.
    #[error("{program} answered with more than {bytes_max} bytes")]
    TooLong {
        /// The program.
        program: String,
        /// Most that is read.
        bytes_max: usize,
    },
    /// What it prints can not be read.
    #[error("the answer of {program} can not be read: {source}")]
    Cut {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// What it printed is no JSON.
    #[error("the answer of ssd.health_program is no JSON; smartmontools 7.0 or later is needed")]
    NotJson,
    /// It says itself why it has no answer.
    #[error("{said}{}", if *unopened { "; ssd.health_program needs root's rights, and a container the device" } else { "" })]
    Refused {
        /// Its words.
        said: String,
        /// It could not open the drive.
        unopened: bool,
    },
    /// The drive does not say.
    #[error("the drive does not tell how much of its life is used")]
    NotTold,
}
