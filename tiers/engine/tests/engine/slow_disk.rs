//! A disk that writes slower than pages come: memory does not grow, reads do not wait, and what is dropped is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_core::metrics::Skipped;
use cairn_core::{Durability, Tier};
use cairn_ssd::{Device, DeviceError};
use cairn_testkit::fault_device::FaultDevice;
use parking_lot::{Condvar, Mutex};

use crate::rig::{PAGE_BYTES, Rig, chain};

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
