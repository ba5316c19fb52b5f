//! The kill rig: a server is ended with SIGKILL while it is being written to, started again on the same folder, and asked for every page
//! that it had acknowledged as durable.
//!
//! One trial: several tasks put chains and ask for durability `ssd`; after a random number of acknowledgements and a random moment more
//! the server is killed; sometimes it is killed again while it recovers; then it is started, and every chain of the trial and some older
//! ones are read and judged byte by byte, those that were not acknowledged too: they may be missing, but not wrong. At the end all are
//! read. The SSD is large enough that nothing is evicted, so an acknowledged page that is missing was lost.
//!
//! A kill ends the process and not the kernel: what the server had handed to the kernel survives it, barrier or not. That a barrier is
//! where it must be is shown by the same rig on a file system that loses what was not synced, and by rigs that own the device. Kills at
//! chosen points, not moments, are the engine's own (`tiers/engine/tests/kills`).
//!
//! Everything random comes from one seed. Only the moments differ between two runs of a seed, by as much as the machine's timing does.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_core::{Clock, Durability, SystemClock};
use cairn_testkit::dice::Dice;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cairnd::{Cairnd, Recipe, Starting};
use crate::error::{BenchError, Result};
use crate::sizes::Sizes;
use crate::store::Store;

/// Bytes of the rig's pages.
const PAGE_BYTES: u64 = 16 << 10;
/// Tasks that put at once.
const TASKS: usize = 4;
/// Most pages in one chain.
const CHAIN_PAGES_MAX: u64 = 16;
/// Most chains put in one trial.
const CHAINS_MAX: u64 = 64;
/// Most acknowledgements that are waited for before the kill; the rest of the chains keeps the tasks busy until it comes.
const ACKNOWLEDGED_MAX: u64 = 40;
/// Longest moment between the last acknowledgement waited for and the kill: a few barriers of a fast drive.
const MOMENT_US_MAX: u64 = 5_000;
/// Longest wait for the acknowledgements of a trial.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Older chains read after each kill.
const OLDER_CHAINS: u64 = 32;

/// A chain that was put, and how much of it was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutChain {
    ids: Vec<u64>,
    /// Pages from the start acknowledged as durable; 0 if the put did not end well.
    durable_pages: u64,
}

/// What was found of chains after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// Pages acknowledged as durable.
    pub acknowledged: u64,
    /// Of these, pages found.
    pub found: u64,
    /// Bytes that are not those of their page, in pages acknowledged or not.
    pub wrong_bytes: u64,
}

impl Verdict {
    /// Pages acknowledged and not found.
    pub fn lost(&self) -> u64 {
        self.acknowledged - self.found
    }

    /// Whether the promise was kept.
    pub fn is_good(&self) -> bool {
        self.lost() == 0 && self.wrong_bytes == 0
    }

    /// # Errors
    /// [`BenchError::LostPages`] or [`BenchError::WrongBytes`] unless the promise was kept.
    pub fn judge(&self) -> Result<()> {
        match self {
            Self { wrong_bytes: 1.., .. } => Err(BenchError::WrongBytes { wrong_bytes: self.wrong_bytes }),
            _ if self.lost() > 0 => Err(BenchError::LostPages { lost: self.lost(), acknowledged: self.acknowledged }),
            _ => Ok(()),
        }
    }

    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.found += other.found;
        self.wrong_bytes += other.wrong_bytes;
    }
}

/// What a run of the rig did.
#[derive(Clone, PartialEq, Debug)]
pub struct KillRun {
    /// Kills under load.
    pub kills: u64,
    /// Kills during recovery, besides.
    pub kills_in_recovery: u64,
    /// Kills after which the promise was broken.
    pub failures: u64,
    /// What was found of all chains at the end.
    pub verdict: Verdict,
    /// Time it took.
    pub elapsed: Duration,
}

impl KillRun {
    /// # Errors
    /// As [`Verdict::judge`], and [`BenchError::Kills`] if a promise was broken on the way and not at the end.
    pub fn judge(&self) -> Result<()> {
        self.verdict.judge()?;
        if self.failures > 0 { Err(BenchError::Kills { failures: self.failures, kills: self.kills }) } else { Ok(()) }
    }
}

/// What else happens to the data folder after each kill, while no server uses it.
pub type WhileDown<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Kills a server `kills` times; its data is in `folder`, which should be empty, and takes 20 MiB of disk a kill.
///
/// # Errors
/// Whatever keeps the rig from going on. A broken promise is counted, not an error.
pub async fn run(folder: &Path, kills: u64, seed: u64) -> Result<KillRun> {
    run_with(folder, kills, seed, &mut || Ok(())).await
}

/// The same, with more than a kill.
///
/// # Errors
/// As [`run`], and what `while_down` says.
pub async fn run_with(folder: &Path, kills: u64, seed: u64, while_down: WhileDown<'_>) -> Result<KillRun> {
    let clock = SystemClock::start();
    let mut dice = Dice::new(seed);
    let ssd_pages = (kills + 1) * CHAINS_MAX * CHAIN_PAGES_MAX;
    let sizes = Sizes { page_bytes: PAGE_BYTES, dram_pages: 1024, ssd_pages };
    let mut cairnd = Cairnd::start(Recipe::beside_this_program(folder, sizes.settings())?).await?;
    let mut chains: Vec<PutChain> = Vec::new();
    let mut run =
        KillRun { kills: 0, kills_in_recovery: 0, failures: 0, verdict: Verdict::default(), elapsed: Duration::ZERO };
    while run.kills < kills {
        let load =
            BusyLoad { page_bytes: PAGE_BYTES, salt: seed, first_chain: run.kills * CHAINS_MAX, chains: CHAINS_MAX };
        let acknowledged = dice.below(ACKNOWLEDGED_MAX + 1);
        let (mut recipe, put) = load.put_until_killed(cairnd, acknowledged, &mut dice).await?;
        run.kills += 1;
        strike(folder, while_down)?;
        if dice.chance(0.25) {
            recipe = kill_in_recovery(recipe, &mut dice).await?;
            run.kills_in_recovery += 1;
            strike(folder, while_down)?;
        }
        cairnd = Cairnd::start(recipe).await?;
        let store = Store::open(cairnd.endpoint(), PAGE_BYTES, seed).await?;
        store.recovered().await?;
        // Allowed, and worth knowing: it costs a scan of the device.
        for line in cairnd.log().lines().filter(|line| line.contains("set aside")) {
            println!("after kill {}: {line}", run.kills);
        }
        let older = (0..OLDER_CHAINS).filter_map(|_| chains.get(dice.place(chains.len())));
        let verdict = verify(&store, put.iter().chain(older)).await?;
        if !verdict.is_good() {
            run.failures += 1;
            eprintln!("after kill {}: {verdict:?}; its server says:\n{}", run.kills, cairnd.log());
        }
        chains.extend(put);
    }
    let store = Store::open(cairnd.endpoint(), PAGE_BYTES, seed).await?;
    run.verdict = verify(&store, &chains).await?;
    run.failures += u64::from(run.failures == 0 && !run.verdict.is_good());
    run.elapsed = clock.now().since_start();
    cairnd.stop().await?;
    Ok(run)
}

fn strike(folder: &Path, while_down: WhileDown<'_>) -> Result<()> {
    let failed = |source| BenchError::File { action: "do more than a kill", path: folder.to_owned(), source };
    while_down().map_err(failed)
}

/// Kills the server at a random moment of its start.
async fn kill_in_recovery(recipe: Recipe, dice: &mut Dice) -> Result<Recipe> {
    let cairnd = Starting::spawn(recipe)?;
    sleep(Duration::from_micros(dice.below(100_000))).await;
    Ok(cairnd.kill().await?)
}

/// Chains that several tasks put at once.
#[derive(Clone, Copy, Debug)]
pub struct BusyLoad {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Salt of the page names.
    pub salt: u64,
    /// Number of the first chain; no number is used twice.
    pub first_chain: u64,
    /// Most chains.
    pub chains: u64,
}

impl BusyLoad {
    /// Puts until `acknowledged` chains have been acknowledged as durable, then kills the server at a random moment soon after, with puts
    /// under way, and returns what was put.
    ///
    /// # Errors
    /// If the server does not acknowledge so many in time, or can not be killed.
    pub async fn put_until_killed(
        self,
        cairnd: Cairnd,
        acknowledged: u64,
        dice: &mut Dice,
    ) -> Result<(Recipe, Vec<PutChain>)> {
        let next_chain = Arc::new(AtomicU64::new(0));
        let done = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let store = Store::open(cairnd.endpoint(), self.page_bytes, self.salt).await?;
            tasks.spawn(self.put_chains(store, next_chain.clone(), done.clone()));
        }
        let wanted = u32::try_from(acknowledged.min(self.chains)).unwrap_or(u32::MAX);
        let reached = timeout(LOAD_TIMEOUT, done.acquire_many(wanted)).await.is_ok();
        sleep(Duration::from_micros(dice.below(MOMENT_US_MAX))).await;
        let recipe = cairnd.kill().await?;
        let mut chains = Vec::new();
        while let Some(put) = tasks.join_next().await {
            chains.extend(put??);
        }
        if !reached {
            return Err(BenchError::Settings(format!("the server does not acknowledge puts in time wanted={wanted}")));
        }
        Ok((recipe, chains))
    }

    /// Puts one chain after the other until a put fails, which the kill sees to, or there are no more.
    async fn put_chains(self, store: Store, next_chain: Arc<AtomicU64>, done: Arc<Semaphore>) -> Result<Vec<PutChain>> {
        let mut put = Vec::new();
        loop {
            let number = next_chain.fetch_add(1, Ordering::Relaxed);
            if number >= self.chains {
                return Ok(put);
            }
            let ids = ids(self.salt, self.first_chain + number);
            let ended = store.put(&store.chain(&ids)?, Durability::Ssd).await;
            let durable_pages = match &ended {
                Ok(report) if report.durability == Some(Durability::Ssd) => report.good_pages as u64,
                _ => 0,
            };
            put.push(PutChain { ids, durable_pages });
            if ended.is_err() {
                return Ok(put);
            }
            done.add_permits(1);
        }
    }
}

/// The pages of chain `number`: between 1 and [`CHAIN_PAGES_MAX`].
fn ids(salt: u64, number: u64) -> Vec<u64> {
    let pages = 1 + Dice::new(salt ^ number.rotate_left(32)).below(CHAIN_PAGES_MAX);
    (0..pages).map(|page| number * CHAIN_PAGES_MAX + page).collect()
}

/// Reads chains and judges what is there.
///
/// # Errors
/// The first call that fails.
pub async fn verify<'a>(store: &Store, chains: impl IntoIterator<Item = &'a PutChain>) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    for chain in chains {
        let got = store.get(&store.chain(&chain.ids)?).await?;
        verdict.add(Verdict {
            acknowledged: chain.durable_pages,
            found: chain.durable_pages.min(got.good_pages as u64),
            wrong_bytes: got.wrong_bytes,
        });
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_page_belongs_to_two_chains() {
        let mut seen = HashSet::new();
        assert!((0..1000).flat_map(|number| ids(3, number)).all(|id| seen.insert(id)));
    }

    #[test]
    fn a_lost_page_and_a_wrong_byte_break_the_promise() {
        let good = Verdict { acknowledged: 5, found: 5, wrong_bytes: 0 };
        assert!(good.judge().is_ok());
        assert!(matches!(
            Verdict { found: 4, ..good }.judge(),
            Err(BenchError::LostPages { lost: 1, acknowledged: 5 })
        ));
        assert!(matches!(Verdict { wrong_bytes: 1, ..good }.judge(), Err(BenchError::WrongBytes { wrong_bytes: 1 })));
    }
}
