//! A disk that writes slower than pages come: memory does not grow, reads do not wait, and what is dropped is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_core::metrics::Skipped;
use cairn_core::{Durability, StopReason, Tier};
use cairn_engine::GetEnd;
use cairn_ssd::{Device, DeviceError};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::FaultDevice;
use cairn_testkit::trials;
use parking_lot::{Condvar, Mutex};

use crate::rig::{PAGE_BYTES, Rig, Running, chain};

/// A device whose writes wait for a permit.
#[derive(Debug)]
struct GatedDevice {
    inner: FaultDevice,
    /// Writes that may go on; `None`: any number.
    permits: Mutex<Option<u64>>,
    more: Condvar,
    waiting: std::sync::atomic::AtomicU64,
}

impl GatedDevice {
    fn new(bytes: u64) -> Self {
        let inner = FaultDevice::new(usize::try_from(bytes).expect("a small device"));
        Self { inner, permits: Mutex::new(None), more: Condvar::new(), waiting: 0.into() }
    }

    fn permit(&self, permits: Option<u64>) {
        *self.permits.lock() = permits;
        self.more.notify_all();
    }

    /// Returns when a write waits at the gate.
    async fn write_waits(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Device for GatedDevice {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.inner.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let mut permits = self.permits.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.more.wait_while(&mut permits, |permits| *permits == Some(0));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        *permits = permits.map(|left| left - 1);
        drop(permits);
        self.inner.write_at(at, parts)
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        self.inner.barrier()
    }

    fn describe(&self) -> &str {
        self.inner.describe()
    }
}

#[tokio::test]
async fn a_disk_that_stands_still_neither_grows_memory_nor_delays_reads_and_drops_are_counted() {
    let mut rig = Rig::new(64, 2048);
    rig.settings.write_behind_bytes = 16 * PAGE_BYTES;
    let device = Arc::new(GatedDevice::new(rig.ssd_bytes));
    let cairn = rig.open_on(Arc::clone(&device) as Arc<dyn Device>).await;
    let namespace = cairn.namespace();
    let cold = chain(&namespace, 1, 8);
    assert_eq!(cairn.put(&namespace, &cold, Durability::Ssd).await.durability, Durability::Ssd);
    device.permit(Some(0));
    // Far more than the queue and DRAM hold.
    for name in 10..60 {
        let keys = chain(&namespace, name, 8);
        assert_eq!(cairn.put(&namespace, &keys, Durability::Memory).await.good_pages, 8);
        assert_eq!(cairn.get(&namespace, &keys).await.tiers, vec![Tier::Dram; 8]);
        assert!(cairn.metrics.ssd_write_queue_bytes.get() <= i64::try_from(16 * PAGE_BYTES).expect("a bound"));
    }
    device.write_waits().await;
    let stats = cairn.engine.stats();
    assert!(stats.dram.used_bytes <= 64 * PAGE_BYTES);
    assert!(stats.budget.held_bytes <= 16 * 10 * 4096, "what was dropped is not held: {}", stats.budget.held_bytes);
    let dropped = cairn.metrics.ssd_skipped.of(Skipped::QueueFull).get();
    assert_eq!(dropped, 50 * 8 - 16, "all but what the queue holds");
    // A cold prefix comes from the same disk meanwhile.
    assert_eq!(cairn.get(&namespace, &cold).await.end.good_pages, 8);
    // A put that must be durable gives up at its deadline and says so.
    let soon = cairn.deadline_in(Duration::from_millis(50));
    let report = cairn.put_until(&namespace, &chain(&namespace, 70, 2), Durability::Ssd, soon).await;
    assert_eq!((report.good_pages, report.durability), (2, Durability::Memory));
    device.permit(None);
    cairn.written(&namespace).await;
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 71, 8), Durability::Ssd).await.durability, Durability::Ssd);
}

#[tokio::test]
async fn a_page_that_waited_too_long_is_dropped_unless_somebody_waits_for_it() {
    let mut rig = Rig::new(256, 2048);
    rig.settings.write_behind_time = Duration::ZERO;
    let device = Arc::new(GatedDevice::new(rig.ssd_bytes));
    let cairn = rig.open_on(Arc::clone(&device) as Arc<dyn Device>).await;
    let namespace = cairn.namespace();
    device.permit(Some(0));
    // Holds up the writer, so that what follows waits.
    let first = chain(&namespace, 1, 1);
    let soon = cairn.deadline_in(Duration::from_millis(1));
    cairn.put_until(&namespace, &first, Durability::Ssd, soon).await;
    device.write_waits().await;
    for name in 10..20 {
        cairn.put(&namespace, &chain(&namespace, name, 4), Durability::Memory).await;
    }
    device.permit(None);
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 2, 4), Durability::Ssd).await.durability, Durability::Ssd);
    let skipped = &cairn.metrics.ssd_skipped;
    assert_eq!((skipped.of(Skipped::Late).get(), skipped.of(Skipped::ParentMissing).get()), (10, 30));
    assert_eq!(cairn.engine.stats().ssd.pages, 5);
    assert_eq!(cairn.engine.stats().budget.held_bytes, 0);
}

/// A device some of whose operations take longer than anybody waits: they end when the slow time is over.
#[derive(Debug)]
struct SlowDevice {
    inner: FaultDevice,
    slow: Mutex<Option<Slow>>,
    over: Condvar,
}

/// What is slow.
#[derive(Clone, Copy, Debug)]
struct Slow {
    seed: u64,
    /// Of 16 places, so many are slow to read.
    places: u64,
    writes: bool,
    barriers: bool,
}

impl SlowDevice {
    fn set(&self, slow: Option<Slow>) {
        *self.slow.lock() = slow;
        self.over.notify_all();
    }

    fn wait(&self, is_slow: impl Fn(&Slow) -> bool) {
        self.over.wait_while(&mut self.slow.lock(), |slow| slow.as_ref().is_some_and(&is_slow));
    }
}

impl Device for SlowDevice {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.wait(|slow| Dice::new(slow.seed ^ at).below(16) < slow.places);
        self.inner.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.wait(|slow| slow.writes);
        self.inner.write_at(at, parts)
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        self.wait(|slow| slow.barriers);
        self.inner.barrier()
    }

    fn describe(&self) -> &str {
        self.inner.describe()
    }
}

/// An engine on a slow device, for one trial after the other.
struct Patient {
    runtime: tokio::runtime::Runtime,
    device: Arc<SlowDevice>,
    cairn: Running,
    _rig: Rig,
}

impl Patient {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let rig = Rig::new(64, 1024);
        let inner = FaultDevice::new(usize::try_from(rig.ssd_bytes).expect("a small device"));
        let device = Arc::new(SlowDevice { inner, slow: Mutex::new(None), over: Condvar::new() });
        let cairn = runtime.block_on(rig.open_on(device.clone()));
        Self { runtime, device, cairn, _rig: rig }
    }

    /// What happens to a chain on the SSD, one in DRAM, and puts, while the disk is slow and when it is not any more.
    async fn live(&self, names: u32, slow: Slow) -> Result<(), String> {
        let cairn = &self.cairn;
        let namespace = cairn.namespace();
        let [cold, hot, new, durable] = [0, 1, 2, 3].map(|name| chain(&namespace, names + name, 12));
        cairn.put(&namespace, &cold, Durability::Ssd).await;
        for name in 10..15 {
            // Takes the place of the first in DRAM.
            cairn.put(&namespace, &chain(&namespace, names + name, 12), Durability::Memory).await;
        }
        cairn.put(&namespace, &hot, Durability::Memory).await;
        cairn.written(&namespace).await;
        self.device.set(Some(slow));
        let soon = || cairn.deadline_in(Duration::from_millis(20));
        let GetEnd { good_pages, stop } = cairn.get_with(&namespace, &cold, 0, u64::MAX, soon()).await.end;
        if good_pages < cold.len() && !matches!(stop, StopReason::Deadline | StopReason::NoSpace) {
            return Err(format!("a get on a slow disk ended otherwise: {stop:?}"));
        }
        if cairn.get(&namespace, &hot).await.tiers != [Tier::Dram; 12] {
            return Err("what is in DRAM is not served while the disk is slow".to_owned());
        }
        let stored = cairn.put(&namespace, &new, Durability::Memory).await.good_pages;
        let report = cairn.put_until(&namespace, &durable, Durability::Ssd, soon()).await;
        self.device.set(None);
        if (stored, report.good_pages) != (12, 12) {
            return Err(format!("puts into memory are refused while the disk is slow: {stored}, {report:?}"));
        }
        if (slow.writes || slow.barriers) && report.durability == Durability::Ssd {
            return Err("a put is called durable that the disk has not answered for".to_owned());
        }
        let after = cairn.get(&namespace, &cold).await.end;
        if (after.good_pages, after.stop) != (12, StopReason::EndOfChain) {
            return Err(format!("what is on the SSD is not served after the slow time: {after:?}"));
        }
        let durability = cairn.put(&namespace, &durable, Durability::Ssd).await.durability;
        if durability == Durability::Ssd { Ok(()) } else { Err("nothing is durable after the slow time".to_owned()) }
    }
}

#[test]
fn f12_a_slow_disk_is_a_miss_by_the_deadline_and_does_not_touch_what_is_in_memory() {
    let rig = trials::Rig {
        name: "F12 slow disk",
        target: "-p cairn-engine --test engine -- --nocapture f12_",
        trials: 200,
        nightly: 5_000,
        each: 1,
    };
    rig.run(Patient::new, |patient, trial, dice| {
        let places = [0, 1, 4, 16][dice.place(4)];
        let slow = Slow { seed: dice.roll(), places, writes: dice.chance(0.5), barriers: dice.chance(0.3) };
        let names = 100 * (1 + u32::try_from(trial).expect("few trials"));
        let lived = patient.runtime.block_on(patient.live(names, slow));
        patient.device.set(None);
        lived.map_err(|failed| format!("{slow:?}: {failed}"))
    });
}
