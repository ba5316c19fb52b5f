//! How fast the SSD tier has been reading lately.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Weight of the newest page in the moving average: 1 / 8.
const NEWEST_SHARE: u64 = 8;

/// Moving average of the time that loading a mebibyte takes, from the wish to the verified page.
#[derive(Debug, Default)]
pub(crate) struct ReadPace {
    ns_per_mib: AtomicU64,
}

impl ReadPace {
    /// A load of `bytes` took `took`.
    pub(crate) fn observe(&self, bytes: u64, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let newest = u64::try_from((u128::from(ns) << 20) / u128::from(bytes.max(1))).unwrap_or(u64::MAX);
        // Two loads that end at once may lose one of their observations: it is an average.
        let before = self.ns_per_mib.load(Ordering::Relaxed);
        let after = if before == 0 { newest } else { before - before / NEWEST_SHARE + newest / NEWEST_SHARE };
        self.ns_per_mib.store(after, Ordering::Relaxed);
    }

    /// Estimated time to load `bytes`; zero before the first load.
    pub(crate) fn estimate(&self, bytes: u64) -> Duration {
        let ns = (u128::from(self.ns_per_mib.load(Ordering::Relaxed)) * u128::from(bytes)) >> 20;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}
