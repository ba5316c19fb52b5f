//! The result of a replay, for people and as JSON.
//!
//! The JSON is one object with the fields of [`Report`], names and units as they are there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::resident::Memory;
use super::tally::Tally;
use crate::error::{BenchError, Result};

/// What a replay did and found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it was replayed.
    #[serde(flatten)]
    pub plan: Plan,
    /// Requests replayed.
    pub requests: u64,
    /// Pages that the requests consist of.
    pub pages_asked: u64,
    /// Pages found from the start of their request without a gap, over pages asked.
    pub prefix_hit_rate: f64,
    /// Pages read from DRAM.
    pub hits_dram_pages: u64,
    /// Pages read from the SSD.
    pub hits_ssd_pages: u64,
    /// Pages not found, by the reason why the prefix of their request ended.
    pub misses_pages: BTreeMap<&'static str, u64>,
    /// Pages stored.
    pub stored_pages: u64,
    /// Pages that turned out to be there when they were to be stored.
    pub present_pages: u64,
    /// Pages not stored, by reason.
    pub not_stored_pages: BTreeMap<&'static str, u64>,
    /// Bytes that are not those of the page asked for. Anything but 0 is a defect of the server.
    pub wrong_bytes: u64,
    /// Bytes that the server wrote to the SSD, headers included.
    pub ssd_written_bytes: u64,
    /// Time of a get from the call to its last page, in microseconds: half of the gets were faster.
    pub get_p50_us: u64,
    /// 99 of 100 gets were faster.
    pub get_p99_us: u64,
    /// The slowest get.
    pub get_max_us: u64,
    /// Bytes got, over the time of all gets of one worker on average.
    pub get_bytes_per_s: f64,
    /// Bytes stored, over the time of all puts of one worker on average.
    pub put_bytes_per_s: f64,
    /// Most memory that the server had in use, in bytes.
    pub resident_bytes_max: u64,
    /// What it may have: configured page memory, 5 % of it and 256 MiB.
    pub resident_limit_bytes: u64,
    /// Time from the first request to the last, in seconds.
    pub seconds: f64,
}

impl Report {
    pub(super) fn new(plan: &Plan, tally: Tally, elapsed: Duration, ssd_written_bytes: u64, memory: Memory) -> Self {
        let hits = tally.hits_dram + tally.hits_ssd;
        // Workers are busy side by side: what they move in a second is the sum over them.
        let rate = |pages: u64, time: Duration| {
            ratio(pages * plan.page_bytes, time.as_secs_f64() / plan.concurrency.max(1) as f64)
        };
        Self {
            plan: plan.clone(),
            requests: tally.requests,
            pages_asked: tally.pages_asked,
            prefix_hit_rate: ratio(hits, tally.pages_asked as f64),
            hits_dram_pages: tally.hits_dram,
            hits_ssd_pages: tally.hits_ssd,
            get_bytes_per_s: rate(hits, tally.get_time),
            put_bytes_per_s: rate(tally.pages_stored, tally.put_time),
            misses_pages: tally.misses,
            stored_pages: tally.pages_stored,
            present_pages: tally.pages_present,
            not_stored_pages: tally.not_stored,
            wrong_bytes: tally.wrong_bytes,
            ssd_written_bytes,
            get_p50_us: tally.get_latency_us.value_at_quantile(0.50),
            get_p99_us: tally.get_latency_us.value_at_quantile(0.99),
            get_max_us: tally.get_latency_us.max(),
            resident_bytes_max: memory.bytes_max,
            resident_limit_bytes: memory.limit_bytes,
            seconds: elapsed.as_secs_f64(),
        }
    }

    /// Whether the server kept its promises: right bytes, and memory within the limit.
    ///
    /// # Errors
    /// [`BenchError::WrongBytes`] or [`BenchError::TooLarge`].
    pub fn judge(&self) -> Result<()> {
        if self.wrong_bytes > 0 {
            return Err(BenchError::WrongBytes { wrong_bytes: self.wrong_bytes });
        }
        if self.resident_bytes_max > self.resident_limit_bytes {
            let (resident_bytes, limit_bytes) = (self.resident_bytes_max, self.resident_limit_bytes);
            return Err(BenchError::TooLarge { resident_bytes, limit_bytes });
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |pages: u64| 100.0 * ratio(pages, self.pages_asked as f64);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut row = |name: &str, value: String| writeln!(f, "  {name:<28} {value}");
        row("requests", self.requests.to_string())?;
        row("pages asked for", self.pages_asked.to_string())?;
        row("prefix hit rate", format!("{:.2} %", 100.0 * self.prefix_hit_rate))?;
        row("  from DRAM", format!("{} pages, {:.2} %", self.hits_dram_pages, percent(self.hits_dram_pages)))?;
        row("  from SSD", format!("{} pages, {:.2} %", self.hits_ssd_pages, percent(self.hits_ssd_pages)))?;
        for (reason, pages) in &self.misses_pages {
            row(&format!("miss: {reason}"), format!("{pages} pages, {:.2} %", percent(*pages)))?;
        }
        row("pages stored", self.stored_pages.to_string())?;
        for (reason, pages) in &self.not_stored_pages {
            row(&format!("not stored: {reason}"), format!("{pages} pages"))?;
        }
        row("written to SSD", format!("{:.0} MiB", mib(self.ssd_written_bytes)))?;
        row("get latency", format!("p50 {} us, p99 {} us", self.get_p50_us, self.get_p99_us))?;
        let (get, put) = (self.get_bytes_per_s / 1e6, self.put_bytes_per_s / 1e6);
        row("throughput", format!("get {get:.0} MB/s, put {put:.0} MB/s"))?;
        let (resident, limit) = (mib(self.resident_bytes_max), mib(self.resident_limit_bytes));
        row("resident memory", format!("{resident:.0} MiB of {limit:.0} MiB allowed"))?;
        row("wrong bytes", self.wrong_bytes.to_string())?;
        row("time", format!("{:.1} s, {} at once", self.seconds, self.plan.concurrency))
    }
}

/// `part / whole`, 0 of nothing.
fn ratio(part: u64, whole: f64) -> f64 {
    if whole > 0.0 { part as f64 / whole } else { 0.0 }
}
