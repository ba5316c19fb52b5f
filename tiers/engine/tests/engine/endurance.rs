//! The write budget: kept to the byte, over restarts too; what is refused is counted, and reads do not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_core::{Clock, Durability, KeptOff, Moment, Thousandths, Tier};
use cairn_policy::{Plan, WritePolicy};
use cairn_ssd::{Device, DeviceError};
use cairn_testkit::fault_device::{Fault, FaultDevice};
use parking_lot::Mutex;

use crate::rig::{JumpClock, PAGE_BYTES, Rig, Running, chain, send};

const DAY: Duration = Duration::from_secs(86_400);
/// What a page of `PAGE_BYTES` may cost at most: slot, record, log, headers.
const PAGE_COST_MAX: u64 = 9 * 4096;
/// And what it costs at least.
const PAGE_COST_MIN: u64 = 5 * 4096;

/// A device that notes when how much was written to it, whether or not it then fails.
#[derive(Debug)]
struct Meter {
    inner: FaultDevice,
    clock: Arc<JumpClock>,
    writes: Mutex<Vec<(Duration, u64)>>,
    refuses: AtomicBool,
}

impl Meter {
    fn new(rig: &Rig, clock: &Arc<JumpClock>) -> Arc<Self> {
        let inner = FaultDevice::new(usize::try_from(rig.ssd_bytes).expect("a small device"));
        Arc::new(Self { inner, clock: Arc::clone(clock), writes: Mutex::default(), refuses: AtomicBool::new(false) })
    }

    fn written_bytes(&self) -> u64 {
        self.writes.lock().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Checks the bound of every span of time.
    fn check_windows(&self, plan: &Plan) {
        let writes = self.writes.lock();
        for (first, (from, _)) in writes.iter().enumerate() {
            let mut sum = 0;
            for (until, bytes) in &writes[first..] {
                sum += u128::from(*bytes);
                let earned = u128::from(plan.day_bytes()) * (*until - *from).as_nanos() / DAY.as_nanos() + 1;
                assert!(sum <= u128::from(plan.bucket_bytes()) + earned, "{sum} bytes from {from:?} to {until:?}");
            }
        }
    }
}

impl Device for Meter {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.inner.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.writes.lock().push((self.clock.now().since(Moment::default()), bytes));
        if self.refuses.load(Ordering::SeqCst) {
            self.inner.inject(Fault::FailWrite);
        }
        self.inner.write_at(at, parts)
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        self.inner.barrier()
    }

    fn describe(&self) -> &str {
        self.inner.describe()
    }
}

/// So many bytes a day, two days of them saved up at most.
fn a_day(day_bytes: u64) -> Plan {
    Plan::of_drive_writes(Thousandths(1000), day_bytes, 5, Thousandths(2000))
}

fn rig(policy: WritePolicy, plan: Plan) -> (Rig, Arc<JumpClock>) {
    let mut rig = Rig::new(64, 4096);
    rig.settings.write_policy = policy;
    rig.settings.endurance = Some(plan);
    let clock = Arc::new(JumpClock::default());
    rig.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    (rig, clock)
}

/// Waits until nothing is on its way to the SSD: whatever is held has been settled or given back, and what was written can be found.
async fn settled(cairn: &Running) {
    while cairn.engine.stats().budget.held_bytes > 0 || cairn.metrics.ssd_write_queue_bytes.get() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Puts chains that must be durable, from `name` on, until the budget refuses one; pages that are durable.
async fn use_up(cairn: &Running, name: u32) -> u64 {
    let namespace = cairn.namespace();
    let mut pages = 0;
    for name in name..name + 10_000 {
        let report = cairn.put(&namespace, &chain(&namespace, name, 4), Durability::Ssd).await;
        assert_eq!(report.good_pages, 4, "it is in memory in any case");
        if report.durability == Durability::Memory {
            assert_eq!(report.kept_off, Some(KeptOff::BudgetSpent));
            return pages;
        }
        pages += 4;
    }
    panic!("the budget never ends");
}

#[tokio::test]
async fn case_50_a_scan_stays_within_the_budget_keeps_the_hot_set_and_is_counted() {
    let plan = a_day(200 * PAGE_COST_MAX);
    let (rig, clock) = rig(WritePolicy::Auto, plan);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.engine.stats().budget.policy, WritePolicy::Budget);
    // A day: 400 chains of 8 pages that nobody asks for again, and 5 that grow and are asked for all day long.
    for scan in 0..400u32 {
        clock.jump(DAY / 400);
        cairn.put(&namespace, &chain(&namespace, 1000 + scan, 8), Durability::Memory).await;
        let hot = chain(&namespace, scan % 5, 4 + (scan / 50) as usize);
        cairn.get(&namespace, &hot).await;
        cairn.put(&namespace, &hot, Durability::Memory).await;
        settled(&cairn).await;
    }
    let budget = cairn.engine.stats().budget;
    let granted = plan.day_bytes() * 2;
    assert!(budget.written_bytes <= granted, "{budget:?}");
    assert!(cairn.metrics.ssd_written_bytes.get() <= budget.written_bytes, "the ledger counts more than the file");
    for name in 0..5 {
        let hot = chain(&namespace, name, 11);
        assert!(cairn.matched(&namespace, &hot) >= 10, "{name}: {}", cairn.matched(&namespace, &hot));
    }
    let refused: u64 = cairn.metrics.ssd_refused_pages.iter().map(|(_, pages)| pages.get()).sum();
    let refused_bytes: u64 = cairn.metrics.ssd_refused_bytes.iter().map(|(_, bytes)| bytes.get()).sum();
    assert!(refused >= 2500, "of 3,200 pages only what the budget paid for was written: {refused}");
    assert_eq!(refused_bytes, refused * PAGE_BYTES);
}

#[tokio::test]
async fn case_51_what_is_used_a_second_time_is_written_by_the_get_that_shows_it() {
    let (mut rig, _) = rig(WritePolicy::Reused, a_day(1 << 30));
    rig.settings.endurance = None;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    for name in 0..10 {
        cairn.put(&namespace, &chain(&namespace, name, 4), Durability::Memory).await;
    }
    for name in [3, 7] {
        assert_eq!(cairn.get(&namespace, &chain(&namespace, name, 4)).await.end.good_pages, 4);
    }
    settled(&cairn).await;
    assert_eq!(cairn.engine.stats().ssd.pages, 8);
    assert_eq!(cairn.metrics.ssd_refused_pages.of(KeptOff::NotReused).get(), 40);
    // What has left every tier and is put again was wanted again, too.
    for name in 100..130 {
        cairn.put(&namespace, &chain(&namespace, name, 4), Durability::Memory).await;
    }
    assert_eq!(cairn.matched(&namespace, &chain(&namespace, 0, 4)), 0);
    cairn.put(&namespace, &chain(&namespace, 0, 4), Durability::Memory).await;
    settled(&cairn).await;
    assert_eq!(cairn.engine.stats().ssd.pages, 12);
}

#[tokio::test]
async fn case_52_a_spent_budget_stops_writes_and_nothing_else_and_fills_again() {
    let plan = a_day(100 * PAGE_COST_MAX);
    let (rig, clock) = rig(WritePolicy::All, plan);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let pages = use_up(&cairn, 0).await;
    assert!(pages >= 60 && pages * PAGE_COST_MIN <= plan.day_bytes(), "{pages}");
    let written = cairn.metrics.ssd_written_bytes.get();
    let spent = cairn.metrics.put_not_durable.get();
    assert_eq!(spent, 4);
    // Reads from both tiers and puts into memory go on.
    assert_eq!(cairn.get(&namespace, &chain(&namespace, 0, 4)).await.end.good_pages, 4);
    let report = cairn.put(&namespace, &chain(&namespace, 5000, 8), Durability::Memory).await;
    assert_eq!((report.good_pages, report.kept_off), (8, Some(KeptOff::BudgetSpent)));
    assert_eq!(cairn.get(&namespace, &chain(&namespace, 5000, 8)).await.tiers, vec![Tier::Dram; 8]);
    assert_eq!(cairn.metrics.ssd_written_bytes.get(), written, "not a byte more");
    // At refill writes go on.
    clock.jump(DAY / 4);
    let more = use_up(&cairn, 6000).await;
    assert!((24..=44).contains(&more), "a quarter of a day pays for a quarter of the pages: {more}");
    // The gauges show what the snapshot says.
    let level = cairn.engine.stats().budget.level_bytes;
    assert_eq!(cairn.metrics.budget_level_bytes.get(), level);
    assert_eq!(cairn.metrics.budget_bucket_bytes.get(), i64::try_from(plan.bucket_bytes()).expect("a bucket"));
}

#[tokio::test]
async fn crashes_gain_no_budget_however_many_there_are() {
    let plan = a_day(300 * PAGE_COST_MAX);
    let (rig, _) = rig(WritePolicy::All, plan);
    let (mut pages, mut written) = (0, 0);
    for run in 0..6 {
        let cairn = rig.open().await;
        let namespace = cairn.namespace();
        for name in 0..8 {
            let report = cairn.put(&namespace, &chain(&namespace, run * 100 + name, 4), Durability::Ssd).await;
            pages += if report.durability == Durability::Ssd { 4 } else { 0 };
        }
        written += cairn.metrics.ssd_written_bytes.get();
        // No time passes; dropping without closing is what a crash leaves behind.
        drop(cairn);
    }
    assert!(pages >= 32, "{pages}");
    assert!(written <= plan.day_bytes(), "{written} bytes on the strength of {}", plan.day_bytes());
    let cairn = rig.open().await;
    assert!(use_up(&cairn, 1000).await + pages <= plan.day_bytes() / PAGE_COST_MIN);
    assert!(cairn.engine.stats().budget.written_bytes >= written, "the ledger never says less than was written");
}

#[tokio::test]
async fn an_orderly_restart_keeps_the_budget_and_the_account_to_the_byte() {
    let (rig, clock) = rig(WritePolicy::All, a_day(1 << 30));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 40), Durability::Ssd).await;
    clock.jump(Duration::from_secs(3600));
    let before = cairn.engine.stats().budget;
    cairn.engine.close(Duration::from_secs(60)).await;
    drop(cairn);
    let after = rig.open().await.engine.stats().budget;
    // The ledger's own record, and who the device is and in which run, written at the close and at the start.
    let records = after.written_bytes - before.written_bytes;
    assert!(records <= 12 * 4096, "{records}");
    assert_eq!(i64::try_from(records), Ok(before.level_bytes - after.level_bytes));
    assert_eq!(after.running_seconds, 3600);
}

#[tokio::test]
async fn a_lost_directory_takes_the_budget_with_it() {
    let (rig, _) = rig(WritePolicy::All, a_day(1 << 30));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 1, 4), Durability::Ssd).await.durability, Durability::Ssd);
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let report = cairn.put(&namespace, &chain(&namespace, 2, 4), Durability::Ssd).await;
    assert_eq!((report.durability, report.kept_off), (Durability::Memory, Some(KeptOff::BudgetSpent)));
    assert_eq!(cairn.get(&namespace, &chain(&namespace, 1, 4)).await.end.good_pages, 4, "reads are unaffected");
}

#[tokio::test]
async fn a_chain_that_the_budget_does_not_cover_is_not_written_in_part() {
    let (rig, _) = rig(WritePolicy::All, a_day(40 * PAGE_COST_MAX));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let report = cairn.put(&namespace, &chain(&namespace, 1, 60), Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (60, Durability::Memory));
    assert_eq!(cairn.engine.stats().ssd.pages, 0);
    assert_eq!(cairn.metrics.ssd_refused_pages.of(KeptOff::BudgetSpent).get(), 60);
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 2, 10), Durability::Ssd).await.durability, Durability::Ssd);
}

#[tokio::test]
async fn a_put_that_goes_away_gives_back_what_it_had_not_used() {
    let (rig, _) = rig(WritePolicy::All, a_day(40 * PAGE_COST_MAX));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let before = cairn.engine.stats().budget.level_bytes;
    let keys = chain(&namespace, 1, 20);
    let mut put = cairn.begin(&namespace, &keys, Durability::Memory);
    assert_eq!(cairn.engine.stats().budget.held_bytes, 20 * PAGE_COST_MAX);
    send(&mut put, 0, &keys[0]).await;
    drop(put);
    settled(&cairn).await;
    let spent = before - cairn.engine.stats().budget.level_bytes;
    let spent = u64::try_from(spent).expect("something was spent");
    // One page, a region's header, the superblocks, and the ledger's own record.
    assert!((PAGE_COST_MIN..=PAGE_COST_MAX + 3 * 4096).contains(&spent), "{spent}");
}

#[tokio::test]
async fn over_any_window_the_device_takes_no_more_than_the_bucket_and_what_the_window_earned_clears_and_crashes_included()
 {
    let plan = a_day(150 * PAGE_COST_MAX);
    let (rig, clock) = rig(WritePolicy::All, plan);
    let device = Meter::new(&rig, &clock);
    for run in 0..4u32 {
        let cairn = rig.open_on(Arc::clone(&device) as Arc<dyn Device>).await;
        let namespace = cairn.namespace();
        for step in 0..60u32 {
            // Now and then it is quiet for days, so that the bucket is full when the next burst comes.
            clock.jump(if step % 30 == 29 { DAY * 3 } else { DAY / 200 });
            cairn.put(&namespace, &chain(&namespace, run * 100 + step, 8), Durability::Ssd).await;
            if step % 20 == 10 {
                cairn.engine.clear(&namespace).await.expect("it clears");
            }
            let ledger = cairn.engine.stats().budget.written_bytes;
            assert!(ledger >= device.written_bytes(), "{ledger} on the account of {}", device.written_bytes());
        }
        // Dropping without closing is what a crash leaves behind.
        drop(cairn);
    }
    assert!(device.written_bytes() > 4 * plan.day_bytes(), "{}", device.written_bytes());
    device.check_windows(&plan);
}

#[tokio::test]
async fn a_write_that_the_disk_refused_is_on_the_account_and_nothing_stays_held() {
    let (rig, clock) = rig(WritePolicy::All, a_day(200 * PAGE_COST_MAX));
    let device = Meter::new(&rig, &clock);
    let cairn = rig.open_on(Arc::clone(&device) as Arc<dyn Device>).await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 1, 4), Durability::Ssd).await.durability, Durability::Ssd);
    let (before, before_device) = (cairn.engine.stats().budget, device.written_bytes());
    device.refuses.store(true, Ordering::SeqCst);
    let report = cairn.put(&namespace, &chain(&namespace, 2, 20), Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (20, Durability::Memory));
    settled(&cairn).await;
    let after = cairn.engine.stats().budget;
    let refused = device.written_bytes() - before_device;
    assert!(refused > 0 && after.written_bytes - before.written_bytes >= refused, "{refused} of {after:?}");
    assert_eq!(i64::try_from(after.written_bytes - before.written_bytes), Ok(before.level_bytes - after.level_bytes));
}

#[tokio::test]
async fn a_clear_pays_for_what_it_wipes_when_it_does_and_is_never_refused() {
    let (rig, _) = rig(WritePolicy::All, a_day(100 * PAGE_COST_MAX));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let pages = use_up(&cairn, 0).await;
    settled(&cairn).await;
    let (before, before_device) = (cairn.engine.stats().budget, cairn.metrics.ssd_written_bytes.get());
    cairn.engine.clear(&namespace).await.expect("a spent budget is no reason");
    let (after, wiped) = (cairn.engine.stats().budget, cairn.metrics.ssd_written_bytes.get() - before_device);
    assert!(wiped >= pages * 4096, "{wiped} bytes for {pages} pages");
    let paid = after.written_bytes - before.written_bytes;
    assert!((wiped..=wiped + 6 * 4096).contains(&paid), "{paid} for {wiped}");
    assert!(before.level_bytes > 0, "a reserve was kept for it: {before:?}");
    // What pages so small need beyond the reserve is owed.
    assert_eq!(i64::try_from(paid), Ok(before.level_bytes - after.level_bytes));
}
