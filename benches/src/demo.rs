//! The demonstration: an hour of chat against a small server, then a crash.
//!
//! Replays a trace (or the generator's chat) with tiers so small that both matter, prints the table, then kills the server in the middle of
//! durable puts, starts it again on the same folder, and reads everything that it still has: what was acknowledged must be there, and
//! every byte must be right.

use std::path::{Path, PathBuf};

use cairn_client::{Client, ClientOptions};
use cairn_core::Durability;
use cairn_testkit::dice::Dice;

use crate::cairnd::{Cairnd, Recipe, temporary_folder};
use crate::error::Result;
use crate::kill::{BusyLoad, PutChain, Verdict, verify};
use crate::load::{Load, Source};
use crate::progress;
use crate::replay::{Plan, replay};
use crate::sizes::Sizes;
use crate::store::Store;
use crate::sweep::{Found, sweep};

/// Where a trace is looked for if none is named.
const TRACE_DEFAULT: &str = "../shared/traces/mooncake_fast25_conversation.jsonl.zst";
/// Requests of the generator: as many as the trace has, which is an hour.
const GENERATED_REQUESTS: u64 = 12_031;
/// Chains put, and acknowledged before the kill.
const CRASH_CHAINS: u64 = 400;
const CRASH_ACKNOWLEDGED: u64 = 300;
/// Bytes of a 512-token page of Qwen3-8B in BF16.
const REAL_PAGE_BYTES: u64 = 72 << 20;

/// What the demonstration runs on.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The trace asked for; `None`: the default one if it is there, else the generator.
    pub trace: Option<PathBuf>,
    /// Most requests.
    pub requests_max: u64,
    /// Requests at once.
    pub concurrency: usize,
    /// How large the tiers are.
    pub sizes: Sizes,
    /// Seed of the generator and of the kill.
    pub seed: u64,
}

/// Runs the demonstration and prints it to standard output.
///
/// # Errors
/// Anything that goes wrong, and any promise that is broken.
pub async fn run(demo: &Demo) -> Result<()> {
    let load = announce(demo)?;
    let folder = temporary_folder()?;
    let recipe = Recipe::beside_this_program(&folder.path().join("data"), demo.sizes.settings())?;
    let cairnd = Cairnd::start(recipe).await?;
    let plan = Plan {
        concurrency: demo.concurrency,
        page_bytes: demo.sizes.page_bytes,
        durability: Durability::Memory,
        salt: 0,
    };
    let bar = progress::bar(load.len(), true);
    let report = replay(&load, cairnd.endpoint(), &plan, &bar).await?;
    bar.finish_and_clear();
    println!("{report}");
    report.judge()?;
    let (recipe, chains) = crash(demo, cairnd).await?;
    recover(demo, recipe, &load, &chains).await
}

/// Says what will run. The first line names the trace.
fn announce(demo: &Demo) -> Result<Load> {
    let default = Path::new(TRACE_DEFAULT);
    let trace = demo.trace.clone().or_else(|| default.is_file().then(|| default.to_owned()));
    let load = match &trace {
        Some(path) => {
            let load = Load::plan(Source::Trace(path.clone()), demo.requests_max)?;
            println!("trace: {}, {} requests", path.display(), load.len());
            load
        }
        None => {
            let requests = demo.requests_max.min(GENERATED_REQUESTS);
            let seed = demo.seed;
            println!(
                "no trace folder here: using the built-in generator of turn-taking chat, {requests} requests, seed {seed}"
            );
            Load::plan(Source::Generated { seed }, requests)?
        }
    };
    let Sizes { page_bytes, dram_pages, ssd_pages } = demo.sizes;
    println!(
        "scale: page = 512 tokens; real 72 MiB for Qwen3-8B, here {} KiB: 1/{}",
        page_bytes / 1024,
        REAL_PAGE_BYTES / page_bytes.max(1)
    );
    println!("tiers: DRAM {dram_pages} pages, SSD {ssd_pages} pages; {} requests at once\n", demo.concurrency);
    Ok(load)
}

/// Kills the server while durable puts are under way.
async fn crash(demo: &Demo, cairnd: Cairnd) -> Result<(Recipe, Vec<PutChain>)> {
    let load =
        BusyLoad { page_bytes: demo.sizes.page_bytes, salt: crash_salt(demo), first_chain: 0, chains: CRASH_CHAINS };
    let (recipe, chains) = load.put_until_killed(cairnd, CRASH_ACKNOWLEDGED, &mut Dice::new(demo.seed)).await?;
    println!("crash: cairnd killed with SIGKILL in the middle of puts that ask for durability ssd");
    Ok((recipe, chains))
}

/// Starts the server again and reads everything that it still has.
async fn recover(demo: &Demo, recipe: Recipe, load: &Load, chains: &[PutChain]) -> Result<()> {
    let cairnd = Cairnd::start(recipe).await?;
    say_how_it_opened(cairnd.endpoint()).await?;
    let page_bytes = demo.sizes.page_bytes;
    let verdict = verify(&Store::open(cairnd.endpoint(), page_bytes, crash_salt(demo)).await?, chains).await?;
    let bar = progress::bar(load.len(), true);
    let swept = sweep(load, cairnd.endpoint(), page_bytes, demo.concurrency, &bar).await?;
    bar.finish_and_clear();
    say_what_was_found(verdict, swept);
    cairnd.stop().await?;
    verdict.judge()?;
    swept.judge()
}

async fn say_how_it_opened(endpoint: &str) -> Result<()> {
    let stats = Client::connect(ClientOptions::new(endpoint)).await?.stats().await?;
    if let Some(recovery) = stats.recovery {
        println!(
            "restart: opened by {} in {} ms, {} durable pages, {} dropped",
            recovery.mode, recovery.millis, recovery.pages, recovery.dropped
        );
    }
    Ok(())
}

fn say_what_was_found(verdict: Verdict, swept: Found) {
    let Verdict { acknowledged, found, wrong_bytes } = verdict;
    println!("{found} of {acknowledged} acknowledged pages found, {wrong_bytes} wrong bytes");
    println!("{} pages of the replay found and read again, {} wrong bytes", swept.pages, swept.wrong_bytes);
}

/// The pages of the crash are none of the replay's.
fn crash_salt(demo: &Demo) -> u64 {
    demo.seed.max(1)
}
