//! What one worker counts; the counts of all are added up at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use cairn_client::PutReport;
use cairn_core::PageOutcome;
use hdrhistogram::Histogram;

use crate::store::Got;

/// Longest latency that is told apart, in microseconds: 10 minutes.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Counts of a worker, or of all.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) pages_asked: u64,
    pub(super) hits_dram: u64,
    pub(super) hits_ssd: u64,
    /// Pages not found, by the reason why the prefix of their request ended.
    pub(super) misses: BTreeMap<&'static str, u64>,
    pub(super) wrong_bytes: u64,
    pub(super) get_latency_us: Histogram<u64>,
    pub(super) pages_stored: u64,
    pub(super) pages_present: u64,
    /// Pages not stored, by reason.
    pub(super) not_stored: BTreeMap<&'static str, u64>,
    pub(super) get_time: Duration,
    pub(super) put_time: Duration,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: 0,
            pages_asked: 0,
            hits_dram: 0,
            hits_ssd: 0,
            misses: BTreeMap::new(),
            wrong_bytes: 0,
            get_latency_us: latencies(),
            pages_stored: 0,
            pages_present: 0,
            not_stored: BTreeMap::new(),
            get_time: Duration::ZERO,
            put_time: Duration::ZERO,
        }
    }
}

impl Tally {
    pub(super) fn count_get(&mut self, pages_asked: usize, got: &Got, took: Duration) {
        let missed = pages_asked.saturating_sub(got.good_pages) as u64;
        self.requests += 1;
        self.pages_asked += pages_asked as u64;
        self.hits_dram += got.dram_pages;
        self.hits_ssd += got.ssd_pages;
        self.wrong_bytes += got.wrong_bytes;
        if missed > 0 {
            *self.misses.entry(got.stop).or_default() += missed;
        }
        self.get_latency_us.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.get_time += took;
    }

    pub(super) fn count_put(&mut self, report: &PutReport, took: Duration) {
        for outcome in &report.outcomes {
            match outcome {
                PageOutcome::Stored(_) => self.pages_stored += 1,
                PageOutcome::Present(_) => self.pages_present += 1,
                PageOutcome::NotStored(reason) => *self.not_stored.entry(reason.label()).or_default() += 1,
            }
        }
        self.put_time += took;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.pages_asked += other.pages_asked;
        self.hits_dram += other.hits_dram;
        self.hits_ssd += other.hits_ssd;
        self.wrong_bytes += other.wrong_bytes;
        self.pages_stored += other.pages_stored;
        self.pages_present += other.pages_present;
        self.get_time += other.get_time;
        self.put_time += other.put_time;
        for (sum, counts) in [(&mut self.misses, &other.misses), (&mut self.not_stored, &other.not_stored)] {
            for (reason, count) in counts {
                *sum.entry(reason).or_default() += count;
            }
        }
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.get_latency_us.add(&other.get_latency_us);
    }
}

/// An empty histogram of latencies in microseconds, exact to 0.1 %.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_US_MAX, 3)
        .unwrap_or_else(|_| unreachable!("1 < LATENCY_US_MAX and 3 digits are within bounds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_counted_by_the_reason_why_the_prefix_ended() {
        let mut tally = Tally::default();
        let got = Got { good_pages: 3, dram_pages: 1, ssd_pages: 2, wrong_bytes: 0, stop: "not_stored" };
        tally.count_get(10, &got, Duration::from_micros(50));
        tally.count_get(3, &Got { stop: "end_of_chain", ..got }, Duration::from_micros(50));
        let mut sum = Tally::default();
        sum.add(&tally);
        sum.add(&tally);
        assert_eq!(sum.misses, BTreeMap::from([("not_stored", 14)]));
        assert_eq!((sum.requests, sum.pages_asked, sum.hits_dram, sum.hits_ssd), (4, 26, 4, 8));
        assert_eq!(sum.get_latency_us.len(), 4);
    }
}
