//! The one table of metrics: name, help, unit, labels of closed sets. `docs/METRICS.md` is printed from it.
//!
//! A handle is a field of [`Metrics`], resolved when the process starts; the hot path adds to an atomic and looks nothing up. Label
//! values are enums of this house, never text from a user.

use std::fmt;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

use crate::{KeptOff, NotStored, StopReason, Tier};

/// A closed set of label values.
pub trait Label: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Every value it can have.
    fn all() -> Vec<Self>;
    /// The value's text.
    fn text(self) -> &'static str;
}

macro_rules! labels {
    ($( $(#[$doc:meta])* $type:ident $name:literal { $( $(#[$vdoc:meta])* $variant:ident = $text:literal ),+ $(,)? } )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type { $( $(#[$vdoc])* $variant ),+ }

        impl Label for $type {
            const NAME: &'static str = $name;
            fn all() -> Vec<Self> { vec![$( Self::$variant ),+] }
            fn text(self) -> &'static str { match self { $( Self::$variant => $text ),+ } }
        }
    )+ };
}

labels! {
    /// A call of the API.
    Call "call" {
        /// OpenNamespace.
        OpenNamespace = "open_namespace",
        /// Match.
        Match = "match",
        /// PutPrefix.
        PutPrefix = "put_prefix",
        /// GetPrefix.
        GetPrefix = "get_prefix",
        /// Any call of the Admin service.
        Admin = "admin",
    }
    /// A port of the server.
    Port "port" {
        /// The gRPC API.
        Api = "api",
        /// Metrics and health.
        Metrics = "metrics",
    }
    /// How a call ended.
    Ending "ending" {
        /// With an answer; a miss is one.
        Answered = "answered",
        /// The caller made a mistake.
        Refused = "refused",
        /// The server was at a limit.
        Overloaded = "overloaded",
        /// The server failed.
        Failed = "failed",
        /// The caller went away before the end.
        Abandoned = "abandoned",
    }
    /// What became of a page of a put.
    Put "outcome" {
        /// Bytes taken.
        Stored = "stored",
        /// There already.
        Present = "present",
    }
    /// Why a page was not written to the SSD although admission let it pass.
    Skipped "reason" {
        /// The write-behind queue was full.
        QueueFull = "queue_full",
        /// The page before it is not on the SSD.
        ParentMissing = "parent_missing",
        /// It had been dropped before its turn came.
        Gone = "gone",
        /// No slot could be freed.
        NoSpace = "no_space",
        /// What the SSD holds is being found out from its pages.
        Rebuilding = "rebuilding",
        /// The SSD is quarantined for writes.
        Quarantined = "quarantined",
        /// The write failed.
        WriteFailed = "write_failed",
        /// It waited longer to be written than it may.
        Late = "late",
    }
    /// How a page on the SSD was found damaged.
    Damage "fault" {
        /// No header in the slot.
        HeaderAbsent = "header_absent",
        /// The header's keyed hash does not fit.
        HeaderHash = "header_hash",
        /// The header belongs elsewhere, or its values can not be.
        HeaderForeign = "header_foreign",
        /// A true header of another page or another generation.
        OtherPage = "other_page",
        /// The payload does not match its checksum.
        Payload = "payload",
        /// The device is shorter than it was.
        Truncated = "truncated",
    }
    /// What a transfer to or from the SSD is for. Earlier ones go before later ones.
    IoClass "class" {
        /// A page that somebody waits for.
        Demand = "demand",
        /// A page that somebody will probably want.
        Prefetch = "prefetch",
        /// A page to be written.
        Write = "write",
        /// A page to be verified.
        Scrub = "scrub",
    }
    /// What backs the pool's memory.
    Backing "backing" {
        /// Reserved huge pages.
        Hugetlb = "hugetlb",
        /// Transparent huge pages.
        Thp = "thp",
        /// 4 KiB pages.
        Small = "small",
    }
}

impl Label for Tier {
    const NAME: &'static str = "tier";
    fn all() -> Vec<Self> {
        vec![Self::Dram, Self::Ssd]
    }
    fn text(self) -> &'static str {
        self.label()
    }
}

impl Label for StopReason {
    const NAME: &'static str = "reason";
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
    fn text(self) -> &'static str {
        self.label()
    }
}

impl Label for NotStored {
    const NAME: &'static str = "reason";
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
    fn text(self) -> &'static str {
        self.label()
    }
}

impl Label for KeptOff {
    const NAME: &'static str = "reason";
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
    fn text(self) -> &'static str {
        self.label()
    }
}

/// Handles of one metric, one for each value of its label.
#[derive(Debug)]
pub struct Family<L, H>(Vec<(L, H)>);

impl<L: Label, H> Family<L, H> {
    /// The handle for `value`.
    ///
    /// # Panics
    /// Never: the family has a handle for every value of the closed set.
    pub fn of(&self, value: L) -> &H {
        #[expect(clippy::expect_used, reason = "built from L::all")]
        let (_, handle) = self.0.iter().find(|(label, _)| *label == value).expect("a closed set");
        handle
    }

    /// Every value with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (L, &H)> {
        self.0.iter().map(|(label, handle)| (*label, handle))
    }
}

/// One row of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Full name, as exported.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Label name and its values, if there is one.
    pub label: Option<(&'static str, Vec<&'static str>)>,
}

/// Seconds: 10 us to 10 s, three steps a decade.
const SECONDS: [f64; 19] =
    [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

trait Handle: Sized {
    const KIND: &'static str;
    fn register(registry: &Registry, name: &str, help: &str, label: Option<(&str, &str)>) -> prometheus::Result<Self>;
}

fn opts(name: &str, help: &str, label: Option<(&str, &str)>) -> Opts {
    let opts = Opts::new(name, help);
    match label {
        Some((label, value)) => opts.const_label(label, value),
        None => opts,
    }
}

macro_rules! handle {
    ($type:ty, $kind:literal, |$opts:ident| $make:expr) => {
        impl Handle for $type {
            const KIND: &'static str = $kind;
            fn register(
                registry: &Registry,
                name: &str,
                help: &str,
                label: Option<(&str, &str)>,
            ) -> prometheus::Result<Self> {
                let $opts = opts(name, help, label);
                let handle = $make?;
                registry.register(Box::new(handle.clone()))?;
                Ok(handle)
            }
        }
    };
}

handle!(IntCounter, "counter", |opts| IntCounter::with_opts(opts));
handle!(IntGauge, "gauge", |opts| IntGauge::with_opts(opts));
handle!(Histogram, "histogram", |opts| Histogram::with_opts(HistogramOpts::from(opts).buckets(SECONDS.to_vec())));

macro_rules! metrics {
    (@type $handle:ident) => { $handle };
    (@type $handle:ident $label:ident) => { Family<$label, $handle> };
    (@make $registry:ident $name:literal $help:literal $handle:ident) => {
        $handle::register($registry, $name, $help, None)?
    };
    (@make $registry:ident $name:literal $help:literal $handle:ident $label:ident) => {
        Family($label::all().into_iter().map(|value| {
            $handle::register($registry, $name, $help, Some(($label::NAME, value.text()))).map(|handle| (value, handle))
        }).collect::<prometheus::Result<Vec<_>>>()?)
    };
    (@label) => { None };
    (@label $label:ident) => { Some(($label::NAME, $label::all().into_iter().map(Label::text).collect())) };
    ($( $field:ident: $handle:ident $([$label:ident])?, $name:literal, $unit:literal, $help:literal; )+) => {
        /// Every metric's handle. Made once, shared by reference.
        #[derive(Debug)]
        pub struct Metrics { $(
            #[doc = $help]
            pub $field: metrics!(@type $handle $($label)?),
        )+ }

        impl Metrics {
            /// Registers every metric of the table in `registry`.
            ///
            /// # Errors
            /// If one of the names is registered there already.
            pub fn new(registry: &Registry) -> prometheus::Result<Self> {
                Ok(Self { $( $field: metrics!(@make registry $name $help $handle $($label)?), )+ })
            }

            /// The table.
            pub fn table() -> Vec<Row> {
                vec![ $( Row {
                    name: $name,
                    help: $help,
                    kind: <$handle as Handle>::KIND,
                    unit: $unit,
                    label: metrics!(@label $($label)?),
                }, )+ ]
            }
        }
    };
}

metrics! {
    calls_answered: IntCounter[Call], "cairn_calls_total", "calls", "Calls that ended, by call.";
    call_endings: IntCounter[Ending], "cairn_call_endings_total", "calls", "Calls that ended, by how they ended.";
    calls_in_flight: IntGauge, "cairn_calls_in_flight", "calls", "Calls being served now.";
    connections: IntGauge[Port], "cairn_connections", "connections", "Open connections, by port.";
    connections_refused: IntCounter[Port], "cairn_connections_refused_total", "connections", "Connections closed at once because the port was at its limit.";
    match_seconds: Histogram, "cairn_match_seconds", "seconds", "Time to match a chain, inside the server.";
    get_seconds: Histogram, "cairn_get_seconds", "seconds", "Time of a GetPrefix call, to its last byte handed over.";
    get_pages: IntCounter[Tier], "cairn_get_pages_total", "pages", "Pages served by GetPrefix, by the tier they were found in.";
    get_bytes: IntCounter, "cairn_get_bytes_total", "bytes", "Page bytes served by GetPrefix.";
    get_stops: IntCounter[StopReason], "cairn_get_stops_total", "calls", "GetPrefix calls, by the reason their prefix ended.";
    put_seconds: Histogram, "cairn_put_seconds", "seconds", "Time of a PutPrefix call.";
    put_pages: IntCounter[Put], "cairn_put_pages_total", "pages", "Pages of PutPrefix calls that are there at the end.";
    put_bytes: IntCounter, "cairn_put_bytes_total", "bytes", "Page bytes taken by PutPrefix.";
    put_not_stored: IntCounter[NotStored], "cairn_put_not_stored_total", "pages", "Pages of PutPrefix calls that were not stored, by reason.";
    namespaces: IntGauge, "cairn_namespaces", "namespaces", "Namespaces known.";
    entries: IntGauge, "cairn_entries", "entries", "Directory entries resident in memory.";
    dram_capacity_bytes: IntGauge, "cairn_dram_capacity_bytes", "bytes", "Size of the page pool.";
    dram_used_bytes: IntGauge, "cairn_dram_used_bytes", "bytes", "Page memory in use, slots counted whole.";
    dram_pages: IntGauge, "cairn_dram_pages", "pages", "Pages in DRAM.";
    dram_evicted: IntCounter, "cairn_dram_evicted_pages_total", "pages", "Pages evicted from DRAM.";
    dram_damaged: IntCounter, "cairn_dram_damaged_pages_total", "pages", "Pages in DRAM whose bytes no longer matched their checksum.";
    dram_backing_bytes: IntGauge[Backing], "cairn_dram_backing_bytes", "bytes", "Page memory that is ready, by what backs it.";
    ssd_capacity_bytes: IntGauge, "cairn_ssd_capacity_bytes", "bytes", "Size of the SSD tier.";
    ssd_used_bytes: IntGauge, "cairn_ssd_used_bytes", "bytes", "SSD bytes in use, slots counted whole.";
    ssd_dead_bytes: IntGauge, "cairn_ssd_dead_bytes", "bytes", "SSD bytes of freed slots that are filled again when their region has been emptied.";
    ssd_quarantined_bytes: IntGauge, "cairn_ssd_quarantined_bytes", "bytes", "SSD bytes that nothing is written to because a page there was found damaged.";
    ssd_trimmed_bytes: IntCounter, "cairn_ssd_trimmed_bytes_total", "bytes", "Bytes of emptied regions that the device was told to forget.";
    ssd_reclaimed_regions: IntCounter, "cairn_ssd_reclaimed_regions_total", "regions", "Regions emptied to be filled again.";
    ssd_page_bytes: IntCounter, "cairn_ssd_page_bytes_total", "bytes", "Page bytes written to the SSD for the first time; what was written beyond them is amplification.";
    ssd_reinserted_bytes: IntCounter, "cairn_ssd_reinserted_bytes_total", "bytes", "Page bytes written again because their region was emptied and they were still in use.";
    ssd_pages: IntGauge, "cairn_ssd_pages", "pages", "Pages on the SSD.";
    ssd_evicted: IntCounter, "cairn_ssd_evicted_pages_total", "pages", "Pages evicted from the SSD.";
    ssd_written_bytes: IntCounter, "cairn_ssd_written_bytes_total", "bytes", "Bytes written to the SSD file, headers, padding and failed writes included.";
    ssd_read_bytes: IntCounter, "cairn_ssd_read_bytes_total", "bytes", "Bytes read from the SSD file.";
    ssd_read_seconds: Histogram, "cairn_ssd_read_seconds", "seconds", "Time to read one page, waiting in the queue included.";
    ssd_write_seconds: Histogram, "cairn_ssd_write_seconds", "seconds", "Time to write one batch of pages and make it durable.";
    ssd_barrier_seconds: Histogram, "cairn_ssd_barrier_seconds", "seconds", "Time of a write barrier.";
    ssd_skipped: IntCounter[Skipped], "cairn_ssd_skipped_pages_total", "pages", "Pages not written to the SSD, by reason.";
    ssd_admitted_pages: IntCounter, "cairn_ssd_admitted_pages_total", "pages", "Pages that admission let pass to the SSD.";
    ssd_refused_pages: IntCounter[KeptOff], "cairn_ssd_refused_pages_total", "pages", "Pages of puts that admission kept off the SSD, by reason.";
    ssd_refused_bytes: IntCounter[KeptOff], "cairn_ssd_refused_bytes_total", "bytes", "Page bytes of puts that admission kept off the SSD, by reason.";
    put_not_durable: IntCounter, "cairn_put_not_durable_pages_total", "pages", "Pages whose put asked for the SSD and that stayed in memory because the write budget was spent.";
    budget_level_bytes: IntGauge, "cairn_write_budget_level_bytes", "bytes", "Bytes that may be written at once; below 0 if more was written than there was. 0 without a budget.";
    budget_bucket_bytes: IntGauge, "cairn_write_budget_bucket_bytes", "bytes", "Most bytes that the write budget saves up. 0 without a budget.";
    budget_day_bytes: IntGauge, "cairn_write_budget_day_bytes", "bytes", "Bytes that may be written a day in the long run. 0 without a budget.";
    wear_day_bytes: IntGauge, "cairn_ssd_wear_day_bytes", "bytes", "Physical bytes written in the last 24 hours of running.";
    wear_bytes: IntGauge, "cairn_ssd_wear_bytes", "bytes", "Physical bytes written since the ledger was begun, over all runs.";
    drive_known: IntGauge, "cairn_ssd_drive_known", "flag", "1 if the drive that the SSD file lies on has told its wear; while it is 0, so are the other cairn_ssd_drive metrics, and say nothing. `kvctl budget` says why.";
    drive_wear_percent: IntGauge, "cairn_ssd_drive_wear_percent", "per cent", "Part of the drive's rated life that is used up, by its own count; more than 100 when it has outlived that.";
    drive_written_bytes: IntGauge, "cairn_ssd_drive_written_bytes", "bytes", "Bytes ever written to the drive, by anyone, by its own count; 0 if it does not count them.";
    drive_spare_percent: IntGauge, "cairn_ssd_drive_spare_percent", "per cent", "Spare blocks that the drive has left; 0 as well if it does not tell.";
    drive_warning: IntGauge, "cairn_ssd_drive_warning_bits", "bits", "The NVMe drive's critical warning: 1 spare is low, 2 temperature, 4 not reliable, 8 read-only, 16 backup of its memory, 32 its persistent memory; 0: nothing.";
    drive_age_seconds: IntGauge, "cairn_ssd_drive_age_seconds", "seconds", "Time since the drive told that.";
    ssd_damaged: IntCounter[Damage], "cairn_ssd_damaged_pages_total", "pages", "Pages found damaged on the SSD, by how; each was dropped.";
    ssd_scrubbed_pages: IntCounter, "cairn_ssd_scrubbed_pages_total", "pages", "Pages that the scrub, or a verification, has read and found whole.";
    ssd_scrubbed_bytes: IntCounter, "cairn_ssd_scrubbed_bytes_total", "bytes", "Page bytes that the scrub, or a verification, has read.";
    ssd_scrub_damaged: IntCounter, "cairn_ssd_scrub_damaged_pages_total", "pages", "Pages that the scrub, or a verification, was the first to find damaged; among cairn_ssd_damaged_pages_total.";
    ssd_scrub_passes: IntCounter, "cairn_ssd_scrub_passes_total", "passes", "Passes of the scrub that were completed in this run.";
    ssd_scrub_progress_ppm: IntGauge, "cairn_ssd_scrub_progress_ppm", "ppm", "How far the scrub's pass is, in millionths.";
    ssd_scrub_age_seconds: IntGauge, "cairn_ssd_scrub_age_seconds", "seconds", "Time of running since the page on the SSD that waits longest was written or verified, to the region. More than ssd.scrub_period: the scrub does not keep up.";
    ssd_read_failed: IntCounter, "cairn_ssd_read_failed_total", "reads", "Reads that the device refused.";
    ssd_write_queue_pages: IntGauge, "cairn_ssd_write_queue_pages", "pages", "Pages waiting to be written to the SSD.";
    ssd_write_queue_bytes: IntGauge, "cairn_ssd_write_queue_bytes", "bytes", "Bytes waiting to be written to the SSD.";
    ssd_queue: IntGauge[IoClass], "cairn_ssd_queue_transfers", "transfers", "Transfers waiting for the SSD, by what they are for.";
    ssd_in_flight: IntGauge, "cairn_ssd_in_flight_transfers", "transfers", "Transfers that the SSD works on now.";
    ssd_depth: IntGauge, "cairn_ssd_depth_transfers", "transfers", "Most transfers that the SSD works on at once.";
    ssd_write_quarantined: IntGauge, "cairn_ssd_write_quarantined", "flag", "1 while the SSD takes no writes because a write or a barrier failed.";
    rebuilding: IntGauge, "cairn_rebuilding", "flag", "1 while what the SSD holds is found out from the headers of its pages; what has not been found yet is a miss.";
    recovered_pages: IntGauge, "cairn_recovered_pages", "pages", "Pages found on the SSD when the process started.";
    recovery_seconds: Histogram, "cairn_recovery_seconds", "seconds", "Time to open the data folder.";
    insecure: IntGauge, "cairn_insecure", "flag", "1 if the server listens on a routable address without authentication.";
    resident_bytes: IntGauge, "cairn_resident_bytes", "bytes", "Resident memory of the process, the pool included.";
}
