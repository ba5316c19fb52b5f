//! The scrub: every page on the SSD is read and verified once a period, so that damage is found while it can be mended.
//!
//! One thread reads by the [timetable](cairn_policy::Timetable), in the order of regions and slots, behind everybody else: few pages are
//! [under way](crate::under_way) at once, and each is paced by the limit. What was cleared, moved or written anew while it was read is no damage. A
//! page that the device refuses to read stays: a disk that refuses everything for a while must not cost all it holds. Its region does not
//! count as verified.
//!
//! A [verification](crate::verify) takes the thread's place while it lasts.
//!
//! Where the scrub is, the writer thread saves now and then, and at the close. After an unclean stop, or if nobody remembers, a pass begins at once.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Error, ErrorKind, Moment, Result};
use cairn_directory::{Directory, DirectoryError, NamespaceNo};
use cairn_policy::{Due, ScrubMark, ScrubPlan, Timetable};
use cairn_ssd::SsdTier;
use tracing::{info, warn};

use crate::endurance::{COMMIT_BYTES, REMEMBER_INTERVAL};
use crate::engine::{Engine, Shared};
use crate::recovery::OpenMode;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, Notify};
use crate::under_way::{UnderWay, Verified};
use crate::values::ToVerify;
use crate::write_queue::Work;
use crate::writer;

/// Most pages that are read at once.
const READS_MAX: usize = 8;
/// Most bytes of them, beyond the first page.
const READ_BYTES_MAX: u64 = 16 << 20;
/// Longest rest of the thread.
const REST_MAX: Duration = Duration::from_secs(60);

/// What the scrub has done and is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubStats {
    /// How often and how fast.
    pub plan: ScrubPlan,
    /// Whether a pass is under way that was asked for.
    pub asked: bool,
    /// Whether a verification is under way.
    pub verifying: bool,
    /// How far the pass is, in millionths.
    pub progress_ppm: u64,
    /// Passes completed, over all runs.
    pub passes: u64,
    /// Time of running since the page that waits longest was written or verified, to the region; `None` if there is no page.
    pub oldest: Option<Duration>,
}

/// The thread, its timetable, and whoever takes its place.
#[derive(Debug)]
pub(crate) struct Scrub {
    plan: ScrubPlan,
    reads_max: usize,
    state: Mutex<State>,
    /// For the thread: something has changed.
    changed: Condvar,
    /// For whoever waits for the thread: it has read what was due, or lets go of its place.
    rested: Notify,
}

#[derive(Debug)]
struct State {
    timetable: Timetable,
    /// The limit of the pass that was asked for.
    asked_rate: u64,
    /// When the next page may be read: what was read before it has taken its time by then.
    free_at: Moment,
    /// What was remembered last, and when.
    saved: (ScrubMark, Moment),
    /// Whether the thread is reading.
    reading: bool,
    /// Whether a verification has its place.
    verifying: bool,
    /// Somebody wants to know when everything that is due has been read; how many have asked, and how many of these it is so for.
    asked: u64,
    answered: u64,
    stopping: bool,
}

impl Scrub {
    /// Goes on where the directory says that it was. `unclean`: the last stop was, so that all of the SSD is read at once.
    pub(crate) fn open(
        plan: ScrubPlan,
        reads_max: usize,
        directory: &dyn Directory,
        tier: &SsdTier,
        found: OpenMode,
        unclean: bool,
        now: Moment,
    ) -> Result<Self> {
        let mark = match directory.scrub() {
            // It is about another device.
            Ok(_) if found == OpenMode::Fresh => None,
            Ok(mark) => mark,
            Err(DirectoryError::Damaged { .. }) => {
                warn!("where the scrub was is not readable; a new pass begins");
                None
            }
            Err(failed) => return Err(failed.into()),
        };
        let mut timetable = Timetable::open(plan.period, tier.regions(), mark, now);
        let is_unknown = unclean || (mark.is_none() && found != OpenMode::Fresh);
        if is_unknown && timetable.is_on() {
            timetable.ask(now);
        }
        let saved = (timetable.mark(now), now);
        let state = State {
            timetable,
            asked_rate: plan.bytes_per_second_max,
            free_at: now,
            saved,
            reading: false,
            verifying: false,
            asked: 0,
            answered: 0,
            stopping: false,
        };
        let reads_max = reads_max.clamp(1, READS_MAX);
        Ok(Self { plan, reads_max, state: Mutex::new(state), changed: Condvar::new(), rested: Notify::new() })
    }

    /// Lets the thread end, after what it is reading.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// For the thread: a rebuild has ended.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Whether the engine is closing.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    pub(crate) fn stats(&self, tier: &SsdTier, now: Moment) -> ScrubStats {
        let state = self.state.lock();
        let timetable = &state.timetable;
        let mut since: Option<Duration> = None;
        tier.in_use(&mut |region, begun| {
            let unverified = timetable.unverified_since(region, begun);
            since = Some(since.map_or(unverified, |since| since.min(unverified)));
        });
        ScrubStats {
            plan: self.plan,
            asked: timetable.is_asked(),
            verifying: state.verifying,
            progress_ppm: timetable.progress_ppm(),
            passes: timetable.passes(),
            oldest: since.map(|since| timetable.running(now).saturating_sub(since)),
        }
    }

    /// Waits until the thread is not reading, and keeps it from it. `None` if another verification has done that.
    pub(crate) async fn take_place(shared: &Arc<Shared>) -> Option<Place> {
        let scrub = &shared.scrub;
        {
            let mut state = scrub.state.lock();
            if std::mem::replace(&mut state.verifying, true) {
                return None;
            }
            // Not at the pace of whoever asked before.
            state.free_at = state.free_at.min(shared.clock.now());
        }
        let place = Place { shared: Arc::clone(shared) };
        loop {
            let rested = scrub.rested.notified();
            if !scrub.state.lock().reading {
                return Some(place);
            }
            rested.await;
        }
    }

    /// Says that all of a region was verified, beginning at a time of running.
    pub(crate) fn note_verified(&self, region: u32, began: Duration) {
        self.state.lock().timetable.note_verified(region, began);
    }

    /// Time of running.
    pub(crate) fn running(&self, now: Moment) -> Duration {
        self.state.lock().timetable.running(now)
    }

    /// Time until the next page may be read.
    pub(crate) fn until_free(&self, now: Moment) -> Duration {
        self.state.lock().free_at.since(now)
    }

    /// The pages of `region` in the slots from `first` to `last`, as many as may be read at once now, at `rate` bytes a second (0: no limit).
    pub(crate) fn pick(
        &self,
        shared: &Shared,
        region: u32,
        (first, last): (u32, u32),
        only: Option<NamespaceNo>,
        rate: u64,
    ) -> Vec<ToVerify> {
        pick(&mut self.state.lock(), self.reads_max, shared, region, (first, last), only, rate)
    }

    /// The pages that are to be read next, as soon as there are any; `None` when the thread is to end.
    fn next(&self, shared: &Shared) -> Option<Vec<ToVerify>> {
        let mut guard = self.state.lock();
        guard.reading = false;
        while !guard.stopping {
            let now = shared.clock.now();
            let state = &mut *guard;
            let due = if state.verifying { None } else { self.due(state, shared, now) };
            if due.is_some() {
                state.reading = true;
                return due;
            }
            self.save_now_and_then(state, shared, now);
            state.answered = state.asked;
            self.rested.notify_waiters();
            let time = if state.verifying { REST_MAX } else { until_due(state, shared, now).min(REST_MAX) };
            self.changed.wait_for(&mut guard, time);
        }
        self.rested.notify_waiters();
        None
    }

    /// The pages that are to be read now; `None` if there are none, or not yet.
    fn due(&self, state: &mut State, shared: &Shared, now: Moment) -> Option<Vec<ToVerify>> {
        if shared.is_rebuilding() {
            // What has not been found yet can not be read, and a pass without it would say nothing.
            return None;
        }
        while state.timetable.is_on() {
            let Some((region, first)) = state.timetable.place() else {
                self.end_pass(state, shared, now);
                continue;
            };
            let last = match state.timetable.due(shared.tier.slots_of(region), now) {
                Due::All => u32::MAX,
                Due::UpTo(last) => last,
                Due::Nothing => return None,
            };
            let rate = if state.timetable.is_asked() { state.asked_rate } else { self.plan.bytes_per_second_max };
            let pages = pick(state, self.reads_max, shared, region, (first, last), None, rate);
            match pages.last() {
                Some(page) => {
                    state.timetable.read_to(page.pin.slot().slot + 1);
                    return Some(pages);
                }
                None if last < u32::MAX || state.free_at > now => return None,
                None => state.timetable.next_region(now),
            }
        }
        None
    }

    fn end_pass(&self, state: &mut State, shared: &Shared, now: Moment) {
        let late = state.timetable.end_pass(now);
        shared.metrics.ssd_scrub_passes.inc();
        match self.plan.period.filter(|period| late > *period / 8) {
            Some(_) => warn!(
                late_s = late.as_secs(),
                "a pass of the scrub took longer than its period; raise ssd.scrub_bytes_per_second_max or ssd.scrub_period"
            ),
            None => info!(passes = state.timetable.passes(), "a pass of the scrub is complete"),
        }
    }

    fn save_now_and_then(&self, state: &mut State, shared: &Shared, now: Moment) {
        let (mark, at) = &state.saved;
        let new = state.timetable.mark(now);
        let has_moved = (new.region, new.began_ms, new.asked) != (mark.region, mark.began_ms, mark.asked);
        if has_moved && now.since(*at) >= REMEMBER_INTERVAL {
            state.saved = (new, now);
            shared.queue.push(Work::SaveScrub);
        }
    }
}

/// Holds the place of the thread. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.scrub.state.lock().verifying = false;
        self.shared.scrub.changed.notify_all();
    }
}

fn pick(
    state: &mut State,
    reads_max: usize,
    shared: &Shared,
    region: u32,
    (mut first, last): (u32, u32),
    only: Option<NamespaceNo>,
    rate: u64,
) -> Vec<ToVerify> {
    let now = shared.clock.now();
    let (mut pages, mut bytes) = (Vec::new(), 0);
    while pages.len() < reads_max && state.free_at <= now {
        let found = shared.catalogue.lock().next_to_verify(region, first..=last, only, &shared.tier);
        let Some(page) = found else { break };
        bytes += page.expected.payload_bytes;
        if !pages.is_empty() && bytes > READ_BYTES_MAX {
            break;
        }
        state.free_at = state.free_at.max(now).after(time_of(page.expected.payload_bytes, rate));
        first = page.pin.slot().slot + 1;
        pages.push(page);
    }
    pages
}

/// Time that a page takes at a rate; 0 is no limit.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000;
    nanos
        .checked_div(u128::from(rate))
        .map_or(Duration::ZERO, |nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Time until there is something to read, or the next region is due.
fn until_due(state: &State, shared: &Shared, now: Moment) -> Duration {
    let timetable = &state.timetable;
    let Some((region, slot)) = timetable.place().filter(|_| timetable.is_on()) else { return REST_MAX };
    let slots = shared.tier.slots_of(region);
    let next = shared.catalogue.lock().next_slot(region, slot);
    // The region is looked at again at its end, whatever is in it by then.
    let due = match timetable.due(slots, now) {
        Due::Nothing => timetable.until(0, slots, now),
        _ => timetable.until(next.unwrap_or(u32::MAX), slots, now),
    };
    due.unwrap_or_default().max(state.free_at.since(now))
}

/// Starts the thread.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let thread = Builder::new().name("cairn-scrub".to_owned());
    let started = thread.spawn(move || run(&shared));
    started.map_err(|e| Error::new(ErrorKind::Internal, "start the scrub's thread").caused_by(e))
}

fn run(shared: &Shared) {
    while let Some(pages) = shared.scrub.next(shared) {
        let picked = pages.len();
        let under_way: Vec<UnderWay> = pages.into_iter().map_while(|page| UnderWay::begin(shared, page)).collect();
        let all = under_way.len() == picked;
        let read = under_way.into_iter().map(|page| page.wait(shared));
        // All of them are waited for, whatever comes of the first.
        let good = read.fold(all, |good, verified| good && verified != Verified::Unreadable);
        if !good {
            shared.scrub.state.lock().timetable.spoil();
        }
    }
}

/// Makes the directory remember where the scrub is. For the writer thread.
pub(crate) fn save(shared: &Shared) -> Result<()> {
    if shared.is_write_quarantined() {
        return Ok(());
    }
    let mark = shared.scrub.state.lock().timetable.mark(shared.clock.now());
    writer::charged(shared, 0, COMMIT_BYTES, || Ok(shared.directory.save_scrub(&mark)?))
}

/// The same at the end, when there is no writer any more, unless there never was a pass.
pub(crate) fn close(shared: &Shared) -> Result<()> {
    let is_on = shared.scrub.state.lock().timetable.is_on();
    if is_on { save(shared) } else { Ok(()) }
}

impl Engine {
    /// Begins a pass over everything at once, at so many bytes a second (0: as fast as the device can), or at the limit of the settings. One
    /// that was under way begins anew. Does not block.
    pub fn scrub_now(&self, bytes_per_second: Option<u64>) {
        let scrub = &self.shared.scrub;
        let mut state = scrub.state.lock();
        let now = self.shared.clock.now();
        state.timetable.ask(now);
        state.asked_rate = bytes_per_second.unwrap_or(scrub.plan.bytes_per_second_max);
        state.free_at = now;
        drop(state);
        scrub.changed.notify_all();
    }

    /// Resolves when the scrub has read everything that is due, and allowed, by the clock now. For tests, whose clock the thread can not feel.
    pub async fn scrubbed(&self) {
        let scrub = &self.shared.scrub;
        let asked = {
            let mut state = scrub.state.lock();
            state.asked += 1;
            state.asked
        };
        scrub.changed.notify_all();
        loop {
            let rested = scrub.rested.notified();
            {
                let state = scrub.state.lock();
                if state.answered >= asked || state.stopping {
                    return;
                }
            }
            rested.await;
        }
    }
}
