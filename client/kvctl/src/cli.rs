//! The command line.

use std::path::PathBuf;

use cairn_core::{ByteSize, Span};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well, and all that was asked for is there
  1  miss: the prefix is shorter than asked for, pages were not stored, or a verification found damage
  2  the command, a file or the call is wrong
  3  the server can not be reached, is overloaded or takes no calls
  4  the time was up first
  5  the server failed, or gave bytes that are not right

Examples:
  kvctl identity template > llama.json
  kvctl put --identity llama.json --tokens 0..4096 --random --durability ssd
  kvctl match --identity llama.json --tokens 0..4096
  kvctl get --identity llama.json --tokens 0..4096 --verify
  kvctl identity diff llama-bf16.json llama-fp8.json";

/// Asks and tells a Cairn server: what it holds, whether a prefix is there, and why not.
#[derive(Debug, Parser)]
#[command(name = "kvctl", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    /// Where the server is
    #[arg(long, global = true, env = "CAIRN_SERVER", default_value = "http://127.0.0.1:7420", value_name = "URL")]
    pub(crate) server: String,
    /// Longest time of a call, such as 500ms or 10s
    #[arg(long, global = true, default_value = "10s", value_name = "TIME")]
    pub(crate) timeout: Span,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Is the server there, does it take calls, and how fast does it answer?
    Ping {
        /// How many calls to time
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        count: u32,
    },
    /// What the server is, holds and has done
    Stats {
        /// Print a line of rates again and again
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_name = "EVERY")]
        watch: Option<Span>,
    },
    /// What may be written to the SSD, what was, how long the drive will last, and what was kept off it and why
    Budget,
    /// The namespaces that the server knows, and their pages by tier
    Namespaces,
    /// How much of a prefix is there, in which tier, and why it ends
    Match {
        #[command(flatten)]
        chain: ChainArgs,
        /// Tokens of the request that would use it
        #[arg(long, value_name = "N")]
        request_tokens: Option<u64>,
    },
    /// Stores the pages of a prefix
    Put {
        #[command(flatten)]
        chain: ChainArgs,
        #[command(flatten)]
        source: SourceArgs,
        /// What the pages are meant to survive
        #[arg(long, value_enum, default_value_t = DurabilityArg::Memory)]
        durability: DurabilityArg,
    },
    /// Reads the pages of a prefix and checks them
    Get {
        #[command(flatten)]
        chain: ChainArgs,
        /// Write the pages here, one after the other
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Check that they are the test pages that `put --random` stores
        #[arg(long)]
        verify: bool,
        /// Pages at the start that need not be read
        #[arg(long, default_value_t = 0, value_name = "N")]
        first_page: usize,
        /// Tokens of the request that would use them; pages of no use to it are not read
        #[arg(long, value_name = "N")]
        request_tokens: Option<u64>,
    },
    /// Drops every page of a namespace from every tier
    Clear {
        /// Its id, or the start of it (at least 8 digits)
        namespace: String,
    },
    /// Reads and verifies every page on the SSD now; exits with 1 if one is damaged or unreadable
    Verify {
        /// Only this namespace: its id, or the start of it (at least 8 digits)
        #[arg(long, value_name = "ID")]
        namespace: Option<String>,
        /// Bytes a second, such as 200MiB; without it, as fast as the SSD can
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
        /// A data folder whose server is stopped; nothing in it is changed
        #[arg(long, value_name = "DIR", conflicts_with_all = ["namespace", "rate"])]
        data_folder: Option<PathBuf>,
    },
    /// What the scrub of the SSD has done, and how far it is
    Scrub {
        /// Begin a pass over everything now
        #[arg(long)]
        now: bool,
        /// Bytes a second of that pass, such as 200MiB, 0 for as fast as the SSD can; without it, the limit of the settings
        #[arg(long, value_name = "SIZE", requires = "now")]
        rate: Option<ByteSize>,
    },
    /// What is out of use after an error: writes to the SSD, and slots of damaged pages
    Quarantine {
        #[command(subcommand)]
        what: QuarantineCommand,
    },
    /// Has the directory made again from the headers of the pages, by the next start of the server
    Rebuild {
        /// The data folder; its server must be stopped
        #[arg(long, value_name = "DIR")]
        data_folder: Option<PathBuf>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Identity files: check, compare, make
    Identity {
        #[command(subcommand)]
        what: IdentityCommand,
    },
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// Whether the SSD takes writes, why not and since when; and each slot
    List,
    /// Puts it in use again
    Release(ReleaseArgs),
}

/// What to put in use again.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct ReleaseArgs {
    /// The slots of damaged pages
    #[arg(long)]
    pub(crate) slots: bool,
    /// Writes, after one failed; look at the disk first
    #[arg(long)]
    pub(crate) writes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Says what is missing or wrong; prints the digest of a complete identity
    Check {
        /// JSON file; - reads standard input
        file: String,
    },
    /// Says in which fields two identities differ: why one finds no pages of the other
    Diff {
        /// JSON file; - reads standard input
        a: String,
        /// JSON file; - reads standard input
        b: String,
    },
    /// Prints an identity to start from
    Template,
}

/// Which pages.
#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    /// JSON file with the identity; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: String,
    #[command(flatten)]
    pub(crate) names: Names,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Names {
    /// Tokens from position 0: 1,2,3 or 0..4096 (end not included) or both; @FILE or @- reads them, as text or a JSON list
    #[arg(long, value_name = "TOKENS")]
    pub(crate) tokens: Option<String>,
    /// The engine's page hashes as hex, one a line; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) hashes: Option<String>,
}

/// Where the pages of a put come from.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SourceArgs {
    /// A file that holds the pages one after the other
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Test pages: random-looking bytes that follow from each page's key
    #[arg(long)]
    pub(crate) random: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// In DRAM; may vanish at any crash
    Memory,
    /// On the SSD; survives any crash
    Ssd,
}
