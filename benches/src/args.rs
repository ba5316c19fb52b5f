//! The arguments of `cairn-bench`.

use std::path::PathBuf;

use cairn_bench::sizes::Sizes;
use cairn_bench::speed::{Part, Plan};
use cairn_core::{ByteSize, Durability};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Load tests for Cairn. Every byte that a server returns is checked: a load test is a correctness test.
#[derive(Parser, Debug)]
#[command(name = "cairn-bench", version, max_term_width = 110)]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Replay a trace: get the prefix of each request, check it, put the rest
    Replay(ReplayArgs),
    /// An hour of chat against a small server, then a crash and what survives it
    Demo(DemoArgs),
    /// How fast it is, as a share of what this machine can do
    Speed(SpeedArgs),
    /// Kill a server under load again and again, and look for what it had acknowledged
    Kill(KillArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cairn-bench replay --generate 2000
  cairn-bench replay --trace chat.jsonl.zst --concurrency 1 --dram-pages 1820 --ssd-pages 132450 --json
  cairn-bench replay --trace chat.jsonl --server 127.0.0.1:7420 --concurrency 16 --durability ssd

The fields of the JSON report are described in benches/README.md.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) origin: Origin,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Use the server at this address instead of starting one; the sizes are its own then
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["dram_pages", "ssd_pages", "data_dir", "set"])]
    pub(crate) server: Option<String>,
    /// Data folder of the server that is started; a temporary one otherwise
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Further settings of the server that is started; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// What puts ask for
    #[arg(long, value_enum, default_value_t = Asked::Memory)]
    pub(crate) durability: Asked,
    /// Salt of the page names: another salt, other pages
    #[arg(long, default_value_t = 0)]
    pub(crate) salt: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much is replayed, how fast, and against tiers of which size.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Seed of what is made up and of what goes wrong on purpose
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Stop after so many requests
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// Requests at once; 1 replays strictly in the order of the trace
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = concurrency)]
    pub(crate) concurrency: usize,
    /// Bytes of one page
    #[arg(long, value_name = "SIZE", default_value = "16KiB")]
    pub(crate) page_bytes: ByteSize,
    /// Pages that fit in DRAM
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) dram_pages: u64,
    /// Pages that fit on the SSD
    #[arg(long, value_name = "N", default_value_t = 132_450, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ssd_pages: u64,
}

impl RunArgs {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { page_bytes: self.page_bytes.0, dram_pages: self.dram_pages, ssd_pages: self.ssd_pages }
    }
}

/// Where the requests come from: exactly one of these.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Origin {
    /// Trace in Mooncake's format: JSON lines, plain or zstd-compressed
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Make up so many requests of turn-taking chat instead
    #[arg(long, value_name = "N")]
    pub(crate) generate: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cairn-bench demo
  cairn-bench demo --trace chat.jsonl.zst --requests 3000

The trace is the one of --trace or of the variable CAIRN_TRACE; without either, the conversation trace in the folder
beside this clone if it is there, else made-up chat.")]
pub(crate) struct DemoArgs {
    /// Trace in Mooncake's format: JSON lines, plain or zstd-compressed
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cairn-bench speed
  cairn-bench speed --json target/bench.json
  cairn-bench speed --only disk --rounds 21 --folder /mnt/nvme

What the disk can do is measured with fio; without it, the disk is left out. Exits with 1 if a figure misses its
budget.")]
pub(crate) struct SpeedArgs {
    /// Measure these parts only
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub(crate) only: Vec<Measured>,
    /// Rounds; a figure is the median over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = rounds)]
    pub(crate) rounds: usize,
    /// Entries of the index in which chains are matched
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(..=100_000_000))]
    pub(crate) match_entries: u32,
    /// Entries that a restart finds
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    pub(crate) restart_entries: u32,
    /// Measure the disk that this folder is on; the one of temporary files otherwise
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Write the figures to this file as a JSON list
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "target/bench.json")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cairn-bench kill
  cairn-bench kill --kills 1000 --seed 7")]
pub(crate) struct KillArgs {
    /// Kills under load
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) kills: u64,
    /// Seed; a run prints the one that it uses
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

impl SpeedArgs {
    pub(crate) fn plan(&self) -> Plan {
        let only = self.only.iter().map(|part| Part::from(*part));
        Plan {
            parts: if self.only.is_empty() { Part::ALL.to_vec() } else { only.collect() },
            rounds: self.rounds,
            match_entries: self.match_entries,
            restart_entries: self.restart_entries,
            folder: self.folder.clone().unwrap_or_else(std::env::temp_dir),
        }
    }
}

/// A part of `speed`, as a word on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Measured {
    /// Match in an index of many entries, and the memory that they take
    Match,
    /// Start after a clean stop
    Restart,
    /// Cold gets, write-behind, durable puts and a rebuild, beside fio
    Disk,
    /// Checksums of pages
    Checksum,
    /// The gRPC path, and a server at rest
    Wire,
}

impl From<Measured> for Part {
    fn from(measured: Measured) -> Self {
        match measured {
            Measured::Match => Self::Match,
            Measured::Restart => Self::Restart,
            Measured::Disk => Self::Disk,
            Measured::Checksum => Self::Checksum,
            Measured::Wire => Self::Wire,
        }
    }
}

/// Durability asked for, as a word on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Asked {
    /// In DRAM; written to the SSD behind the put
    Memory,
    /// Acknowledged once it survives any crash
    Ssd,
}

impl From<Asked> for Durability {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Memory => Self::Memory,
            Asked::Ssd => Self::Ssd,
        }
    }
}

/// Each worker has a connection and a page of memory; a thousand are more than any server here takes.
fn concurrency(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers @ 1..=1000) => Ok(workers),
        _ => Err("a number from 1 to 1000".to_owned()),
    }
}

/// Without a round there is no figure.
fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err("a number from 1 to 1000".to_owned()),
    }
}
