//! The table of settings. `docs/CONFIG.md` is printed from it.

use std::net::SocketAddr;
use std::path::PathBuf;

use cairn_core::{ByteSize, Span, Thousandths};
use cairn_policy::{Plan, ScrubPlan, WritePolicy};
use cairn_pool::HugePages;
use cairn_ssd::DeviceKind;
use thiserror::Error as ThisError;

use super::value::{LogFormat, LogLevel, Program, Value};

/// Bytes of an SSD file before its first region.
const SSD_FRONT_BYTES: u64 = 64 << 10;
/// Bytes of a message around a part or a chain.
const MESSAGE_EXTRA_BYTES: u64 = 4 << 10;
/// Longest key on the wire.
const KEY_BYTES_MAX: u64 = 64;

/// One key, as the documentation shows it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Section.
    pub section: &'static str,
    /// Key within the section.
    pub key: &'static str,
    /// Kind of value.
    pub kind: &'static str,
    /// Default, in text form.
    pub default: &'static str,
    /// Least and most, where they are bounded.
    pub range: Option<(&'static str, &'static str)>,
    /// What it sets.
    pub what: &'static str,
    /// Why the default is what it is.
    pub why: &'static str,
}

impl Row {
    /// `section.key`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

/// Why settings are refused.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum SettingsFault {
    /// There is no such key.
    #[error("unknown key {name}{}", nearest.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    Unknown {
        /// The name given.
        name: String,
        /// The key that looks most like it.
        nearest: Option<String>,
    },
    /// The text is not a value of this key.
    #[error("{name}: {what}")]
    Unreadable {
        /// The key.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The value is outside the range.
    #[error("{name} = {value} is out of range; it is from {min} to {max}")]
    OutOfRange {
        /// The key.
        name: &'static str,
        /// The value.
        value: String,
        /// The least allowed.
        min: &'static str,
        /// The most allowed.
        max: &'static str,
    },
    /// Two values do not go together.
    #[error("{name} = {value} does not fit: it must be {rule} {other} = {other_value}")]
    Conflict {
        /// The key.
        name: &'static str,
        /// Its value.
        value: String,
        /// At most, at least.
        rule: &'static str,
        /// The key it is compared with.
        other: &'static str,
        /// The value of that.
        other_value: String,
    },
    /// A size that does not hold what it must.
    #[error("{name} = {value} is too small: it must hold {holds}, at least {needed}")]
    TooSmall {
        /// The key.
        name: &'static str,
        /// Its value.
        value: ByteSize,
        /// The least that would do.
        needed: ByteSize,
        /// What it must hold.
        holds: &'static str,
    },
    /// A size that does not end on a boundary.
    #[error("{name} = {value} is not a multiple of {unit}")]
    Uneven {
        /// The key.
        name: &'static str,
        /// Its value.
        value: ByteSize,
        /// What it must be a multiple of.
        unit: ByteSize,
    },
    /// A routable address without the flag that allows it.
    #[error(
        "{name} = {address} can be reached from other machines, and this server does not authenticate anyone; \
         listen on 127.0.0.1 or [::1], or set server.insecure_routable = true"
    )]
    Routable {
        /// The key.
        name: &'static str,
        /// The address.
        address: SocketAddr,
    },
}

macro_rules! settings {
    (@range $min:literal, $max:literal) => { Some(($min, $max)) };
    (@range) => { None };
    (@check $name:expr, $value:expr, $type:ty, $min:literal, $max:literal) => { within::<$type>($name, &$value, $min, $max)? };
    (@check $name:expr, $value:expr, $type:ty,) => {};
    ($( $(#[$doc:meta])* $section:ident: $struct:ident {
        $( $key:ident: $type:ty = $default:literal $(in $min:literal to $max:literal)?, $what:literal, $why:literal; )+
    } )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub struct $struct { $( #[doc = $what] pub $key: $type ),+ }
        )+

        /// Every setting of the server. [`Settings::default`] is the table's defaults.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Settings { $( $(#[$doc])* pub $section: $struct ),+ }

        impl Default for Settings {
            // The table's own text, which a test reads.
            fn default() -> Self {
                Self { $( $section: $struct { $( $key: <$type as Value>::read($default).expect("a default of the table") ),+ } ),+ }
            }
        }

        impl Settings {
            /// The table, in the order of the documentation.
            pub fn table() -> Vec<Row> {
                vec![ $( $( Row {
                    section: stringify!($section),
                    key: stringify!($key),
                    kind: <$type as Value>::KIND,
                    default: $default,
                    range: settings!(@range $($min, $max)?),
                    what: $what,
                    why: $why,
                } ),+ ),+ ]
            }

            /// Sets `section.key` from its text form.
            ///
            /// # Errors
            /// [`SettingsFault::Unknown`] or [`SettingsFault::Unreadable`].
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingsFault> {
                match name {
                    $( $( concat!(stringify!($section), ".", stringify!($key)) => {
                        self.$section.$key = <$type as Value>::read(text)
                            .map_err(|what| SettingsFault::Unreadable { name: name.to_owned(), what })?;
                    } )+ )+
                    _ => return Err(unknown(name)),
                }
                Ok(())
            }

            /// The settings as a file that [`super::load`] reads.
            pub fn to_toml(&self) -> String {
                let mut out = String::new();
                $(
                    out.push_str(concat!("[", stringify!($section), "]\n"));
                    $( out.push_str(&format!("{} = {}\n", stringify!($key), self.$section.$key.toml())); )+
                    out.push('\n');
                )+
                out.truncate(out.trim_end().len());
                out.push('\n');
                out
            }

            fn check_ranges(&self) -> Result<(), SettingsFault> {
                $( $( settings!(@check concat!(stringify!($section), ".", stringify!($key)), self.$section.$key, $type, $($min, $max)?); )+ )+
                Ok(())
            }
        }
    };
}

settings! {
    /// Where the server listens and how it stops.
    server: ServerSettings {
        listen: SocketAddr = "127.0.0.1:7420", "Address of the gRPC API.",
            "Loopback: nobody is authenticated yet, so nobody from outside is let in.";
        metrics_listen: SocketAddr = "127.0.0.1:7421", "Address of `/metrics` and `/healthz`.",
            "Its own port, so that a scraper needs no way to the API.";
        insecure_routable: bool = "false", "Allows addresses that other machines can reach, without authentication.",
            "Whoever reaches the API can read and clear every page. While it is on, health, log and metrics say so.";
        stop_grace: Span = "10s" in "0s" to "10m", "Time that calls in flight and writes behind get to finish after SIGTERM.",
            "Below the 30 s after which most supervisors kill, with room to flush the write queue.";
    }
    /// Where the server keeps what must survive a restart.
    data: DataSettings {
        dir: PathBuf = "./cairn-data", "The data folder. Used by one server at a time.",
            "Works from a fresh clone without root; set it to a folder on the SSD.";
    }
    /// Page memory.
    dram: DramSettings {
        bytes: ByteSize = "1GiB" in "1MiB" to "64TiB", "Size of the page pool.",
            "Small enough for a laptop; give it most of the machine's memory. It is taken and touched at the start.";
        arena_bytes: ByteSize = "64MiB" in "1MiB" to "16GiB", "Size of an arena: the unit in which tenants and page sizes share the pool.",
            "Holds 28 pages of 2.25 MiB, and sixteen tenants or page sizes fit in the default pool.";
        huge_pages: HugePages = "auto", "Huge pages for the pool; `/metrics` shows which the machine gave.",
            "Direct reads from an SSD run faster into huge pages, and the largest that are free are taken.";
    }
    /// The SSD tier.
    ssd: SsdSettings {
        bytes: ByteSize = "4GiB" in "1MiB" to "1024TiB", "Size of the SSD file, preallocated.",
            "Four times the pool: a small step for a first try; give it the SSD.";
        region_bytes: ByteSize = "64MiB" in "1MiB" to "16GiB", "Size of a region: the unit in which page sizes share the file.",
            "As an arena, so that a page that fits in memory fits on the SSD.";
        device: DeviceKind = "auto", "What moves pages: `io_uring`, or threads with positioned I/O; `kvctl stats` shows which is in use.",
            "io_uring where the system has it; containers often forbid it. Either uses direct I/O where the filesystem has it.";
        read_threads: u64 = "4" in "1" to "256", "Threads of the positioned device: reads that the SSD works on at once. With io_uring that is measured at the start.",
            "Four reads of a page of megabytes keep most NVMe drives busy.";
        read_queue: u64 = "64" in "1" to "65536", "Reads that may wait for the SSD; a get waits to submit more.",
            "Long enough never to run dry, short enough that a get's deadline means something.";
        write: WritePolicy = "auto", "Chains written to the SSD: `all` behind their put; `requested`: if their put asks for it; `reused`: the start that was used a second time; `session`: from the session's second turn on; `budget`: those worth most, as the budget allows. `auto`: `budget` if `[endurance]` sets one, else `all`.",
            "Without a budget the SSD is there to hold what memory can not; with one, `budget` makes the most hits of it.";
        write_behind_bytes: ByteSize = "256MiB" in "1MiB" to "1TiB", "Bytes that may wait to be written; more are not written behind.",
            "About a tenth of a second of a fast drive; waiting pages hold pool memory.";
        write_behind_time: Span = "30s" in "10ms" to "1h", "Time that a page may wait to be written; then it is dropped from the queue, unless its put waits for it.",
            "On a slow disk, what is written late keeps newer pages from being written at all.";
        load_window_bytes: ByteSize = "64MiB" in "1MiB" to "16GiB", "Bytes that one get loads from the SSD ahead of its reader.",
            "Hides the SSD's latency from the reader without one get filling the pool.";
        scrub_period: Span = "168h" in "0s" to "8760h", "Time in which every page on the SSD is read and verified once; 0: only when `kvctl scrub --now` or `kvctl verify` asks.",
            "A week: of 4 TiB that is 7 MB/s. Bits that rot are found before there are many.";
        scrub_bytes_per_second_max: ByteSize = "64MiB", "Bytes a second that the scrub reads at most; 0: as fast as the SSD can.",
            "Ten times what 4 TiB in a week need, and two per cent of what a fast drive reads.";
        health_program: Program = "smartctl", "Program that asks the drive for its own wear, run as `smartctl --json=c -A /dev/DISK` at the start and once an hour, for 5 s at most; empty: the drive is not asked. `kvctl budget` shows what it told, or why it did not.",
            "smartctl (package smartmontools, 7.0 or later) knows drives of every kind. It needs root's rights; where the server has none, name a script that runs it with them.";
    }
    /// How much may be written to the SSD. With neither `dwpd` nor `tbw` there is no limit; what is written is counted all the same.
    endurance: EnduranceSettings {
        dwpd: Thousandths = "0" in "0" to "100", "Drive writes a day of `ssd.bytes`; 0: not limited so.",
            "No drive is known. The data sheet says it: 1 on 3.84 TB over 5 years is 44.4 MB/s.";
        tbw: ByteSize = "0B", "Bytes that may be written in `years`, instead of `dwpd`; 0: not limited so.",
            "No drive is known. Consumer drives are sold with it.";
        years: u64 = "5" in "1" to "20", "Years that the drive is to last.",
            "What most drives are rated for.";
        bucket_days: Thousandths = "7" in "0.001" to "60", "Days of unspent budget that are kept for busier times.",
            "A week: quiet nights and weekends pay for working days.";
    }
    /// What a call may cost. More is refused before memory is taken for it.
    limits: LimitSettings {
        page_bytes_max: ByteSize = "32MiB" in "256B" to "1GiB", "Largest page of a namespace.",
            "Pages of today's models are 0.1 to 8 MiB. It must fit in an arena and in a region.";
        chain_pages_max: u64 = "65536" in "1" to "1048576", "Most pages in one chain.",
            "A million tokens in pages of 16.";
        part_bytes_max: ByteSize = "4MiB" in "4KiB" to "64MiB", "Most page bytes in one part of a put.",
            "Parts of 1 MiB are fastest here; four times that is tolerated.";
        message_bytes_max: ByteSize = "5MiB" in "64KiB" to "256MiB", "Largest message that is decoded.",
            "A part, a chain of 65,536 keys of 64 bytes and a chain of a million tokens are 4 MiB each.";
        request_bytes_max: ByteSize = "512MiB" in "64KiB" to "1TiB", "Bytes of requests received at once; a call that needs more is told to come back.",
            "Every put that is let in with the largest messages, and 38 calls with the largest chains beside them.";
        calls_max: u64 = "256" in "1" to "65536", "Calls served at once; one more is told to come back.",
            "Far beyond what two sockets of engines keep in flight. A call counts until its answer has left.";
        puts_max: u64 = "64" in "1" to "65536", "Puts served at once; one more is told to come back.",
            "A put holds the frame of the page that it is filling.";
        connections_max: u64 = "256" in "1" to "65536", "Connections; one more is closed at once.",
            "One for each engine process and tool, many times over.";
        streams_max: u64 = "128" in "1" to "65536", "Calls at once on one connection; HTTP/2 holds back more.",
            "The HTTP/2 recommendation is at least 100.";
        header_bytes_max: ByteSize = "16KiB" in "4KiB" to "1MiB", "Most header bytes of a call.",
            "Calls carry a few hundred bytes of headers.";
        stream_window_bytes: ByteSize = "4MiB" in "64KiB" to "256MiB", "Bytes in flight to the server on one call (HTTP/2 stream window).",
            "Four parts: a put is not held back by the round trip.";
        connection_window_bytes: ByteSize = "16MiB" in "64KiB" to "1GiB", "Bytes in flight to the server on one connection.",
            "Four calls with full windows.";
        namespaces_max: u64 = "4096" in "1" to "1048576", "Most namespaces.",
            "Models times ranks times adapters; each costs about a kilobyte.";
        timeout_default: Span = "30s" in "1ms" to "1h", "Time of a call that does not say.",
            "Longer than any get that is worth more than computing the pages.";
        timeout_max: Span = "5m" in "1ms" to "24h", "Most time that a call may ask for.",
            "A put of a long prefix over a slow link, and no more.";
    }
    /// Logging, to standard error.
    log: LogSettings {
        level: LogLevel = "info", "How much is logged.",
            "At rest that is a line at the start and one at the end.";
        format: LogFormat = "text", "Lines for people, or one JSON object a line.",
            "The first reader is a person at a terminal.";
    }
}

fn within<T: Value + PartialOrd>(
    name: &'static str,
    value: &T,
    min: &'static str,
    max: &'static str,
) -> Result<(), SettingsFault> {
    let inside = T::read(min).is_ok_and(|min| *value >= min) && T::read(max).is_ok_and(|max| *value <= max);
    if inside { Ok(()) } else { Err(SettingsFault::OutOfRange { name, value: value.text(), min, max }) }
}

impl Settings {
    /// Checks every range, and what must fit with what.
    ///
    /// # Errors
    /// The first [`SettingsFault`], which names the key and what is allowed.
    pub fn validate(&self) -> Result<(), SettingsFault> {
        self.check_ranges()?;
        even("dram.arena_bytes", self.dram.arena_bytes)?;
        even("ssd.region_bytes", self.ssd.region_bytes)?;
        at_most(("dram.arena_bytes", self.dram.arena_bytes), ("dram.bytes", self.dram.bytes))?;
        self.one_region_fits()?;
        at_most(("limits.page_bytes_max", self.limits.page_bytes_max), ("dram.arena_bytes", self.dram.arena_bytes))?;
        at_most(("limits.page_bytes_max", self.limits.page_bytes_max), ("ssd.region_bytes", self.ssd.region_bytes))?;
        at_most(
            ("limits.timeout_default", self.limits.timeout_default),
            ("limits.timeout_max", self.limits.timeout_max),
        )?;
        self.messages_fit()?;
        if self.endurance.dwpd.0 > 0 && self.endurance.tbw.0 > 0 {
            return Err(SettingsFault::Conflict {
                name: "endurance.tbw",
                value: self.endurance.tbw.text(),
                rule: "0 beside",
                other: "endurance.dwpd",
                other_value: self.endurance.dwpd.text(),
            });
        }
        self.only_loopback("server.listen", self.server.listen)?;
        self.only_loopback("server.metrics_listen", self.server.metrics_listen)
    }

    /// The write budget, if there is one.
    pub fn endurance_plan(&self) -> Option<Plan> {
        let EnduranceSettings { dwpd, tbw, years, bucket_days } = &self.endurance;
        if dwpd.0 > 0 {
            Some(Plan::of_drive_writes(*dwpd, self.ssd.bytes.0, *years, *bucket_days))
        } else {
            (tbw.0 > 0).then(|| Plan::of_total_bytes(tbw.0, *years, *bucket_days))
        }
    }

    /// How often the SSD is scrubbed.
    pub fn scrub_plan(&self) -> ScrubPlan {
        let SsdSettings { scrub_period, scrub_bytes_per_second_max, .. } = &self.ssd;
        let period = Some(scrub_period.0).filter(|period| !period.is_zero());
        ScrubPlan { period, bytes_per_second_max: scrub_bytes_per_second_max.0 }
    }

    /// Whether an address that other machines can reach is served without authentication.
    pub fn is_insecure(&self) -> bool {
        [self.server.listen, self.server.metrics_listen]
            .iter()
            .any(|address| !address.ip().to_canonical().is_loopback())
    }

    fn one_region_fits(&self) -> Result<(), SettingsFault> {
        let needed = ByteSize(self.ssd.region_bytes.0.saturating_add(SSD_FRONT_BYTES));
        at_least(("ssd.bytes", self.ssd.bytes), needed, "ssd.region_bytes and the 64KiB before the first region")
    }

    /// A part and a chain of the largest size can be sent, and a message received.
    fn messages_fit(&self) -> Result<(), SettingsFault> {
        let limits = &self.limits;
        let message = ("limits.message_bytes_max", limits.message_bytes_max);
        let with_extra = |bytes: u64| ByteSize(bytes.saturating_add(MESSAGE_EXTRA_BYTES));
        at_least(message, with_extra(limits.part_bytes_max.0), "limits.part_bytes_max and 4KiB around it")?;
        let chain_bytes = limits.chain_pages_max.saturating_mul(KEY_BYTES_MAX);
        at_least(message, with_extra(chain_bytes), "limits.chain_pages_max keys of 64B and 4KiB around them")?;
        at_most(message, ("limits.request_bytes_max", limits.request_bytes_max))
    }

    fn only_loopback(&self, name: &'static str, address: SocketAddr) -> Result<(), SettingsFault> {
        if address.ip().to_canonical().is_loopback() || self.server.insecure_routable {
            Ok(())
        } else {
            Err(SettingsFault::Routable { name, address })
        }
    }
}

/// Arenas and regions lie on the memory pages and sectors of the machine.
fn even(name: &'static str, value: ByteSize) -> Result<(), SettingsFault> {
    let unit = ByteSize(4096);
    if value.0.is_multiple_of(unit.0) { Ok(()) } else { Err(SettingsFault::Uneven { name, value, unit }) }
}

fn at_most<T: Value + PartialOrd>(small: (&'static str, T), large: (&'static str, T)) -> Result<(), SettingsFault> {
    if small.1 <= large.1 {
        return Ok(());
    }
    Err(SettingsFault::Conflict {
        name: small.0,
        value: small.1.text(),
        rule: "at most",
        other: large.0,
        other_value: large.1.text(),
    })
}

fn at_least(
    (name, value): (&'static str, ByteSize),
    needed: ByteSize,
    holds: &'static str,
) -> Result<(), SettingsFault> {
    if value >= needed { Ok(()) } else { Err(SettingsFault::TooSmall { name, value, needed, holds }) }
}

fn unknown(name: &str) -> SettingsFault {
    let keys: Vec<String> = Settings::table().iter().map(Row::name).collect();
    SettingsFault::Unknown { name: name.to_owned(), nearest: nearest(name, &keys).cloned() }
}

/// The one of `names` that `name` was probably meant to be; `None` if none is near.
pub(super) fn nearest<'a>(name: &str, names: &'a [String]) -> Option<&'a String> {
    let far = name.len().max(6) / 3;
    names
        .iter()
        .map(|other| (distance(name, other), other))
        .filter(|(d, _)| *d <= far)
        .min_by_key(|(d, _)| *d)
        .map(|(_, n)| n)
}

/// Letters to add, drop or change to make `a` into `b`.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
