//! The scrub's timetable: which place of the SSD is read when, so that every page is read once a period.
//!
//! A pass goes over the regions in order. Each region has its turn once a period, always at the same time of it, and each slot its moment in
//! the turn. So a page waits for a period and no more, whatever is written, moved or emptied meanwhile; the reads are spread over the period
//! as the pages are over the device; and there are never more of them than a full device needs. A pass that is late goes on as fast as it may.
//!
//! A pass that was asked for, or that follows an unclean stop, has no turns: all of it is due at once.
//!
//! Times are of running, as in the [ledger](crate::Ledger): what survives a restart is a [`ScrubMark`], and no clock that can be set is believed.

use std::time::Duration;

use cairn_core::Moment;

/// How often the SSD is scrubbed, and how fast at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubPlan {
    /// Every page is read once in this time; `None`: only when somebody asks.
    pub period: Option<Duration>,
    /// Bytes a second; 0: as fast as the device can.
    pub bytes_per_second_max: u64,
}

/// Where the scrub was, to be remembered over a restart. Times are of running, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubMark {
    /// Time that servers have run with it.
    pub running_ms: u64,
    /// When the pass under way began.
    pub began_ms: u64,
    /// When the pass before it began.
    pub before_ms: u64,
    /// The first region that the pass has not read to its end.
    pub region: u32,
    /// Whether all of the pass is due at once.
    pub asked: bool,
    /// Passes completed.
    pub passes: u64,
}

/// What of a region is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// All of it.
    All,
    /// Its slots up to this one.
    UpTo(u32),
    /// Nothing yet.
    Nothing,
}

/// The timetable of one device. Every call is given the time; a region's slots are counted by the caller.
#[derive(Clone, Debug)]
pub struct Timetable {
    period: Option<Duration>,
    regions: u32,
    ran_before: Duration,
    opened: Moment,
    began: Duration,
    before: Duration,
    asked: bool,
    passes: u64,
    /// The next place to read.
    region: u32,
    slot: u32,
    /// When the region at that place was begun to be read, and whether all of it could be read so far.
    turn_began: Duration,
    turn_is_good: bool,
    /// For each region, a time at which all that lay in it had been verified, or is not older than.
    verified: Vec<Duration>,
}

impl Timetable {
    /// Goes on from `mark` at `now`; without one, begins the first pass. `regions` is not 0.
    pub fn open(period: Option<Duration>, regions: u32, mark: Option<ScrubMark>, now: Moment) -> Self {
        let ScrubMark { running_ms, began_ms, before_ms, region, asked, passes } = mark.unwrap_or_default();
        let running = Duration::from_millis(running_ms);
        let began = Duration::from_millis(began_ms).min(running);
        let before = Duration::from_millis(before_ms).min(began);
        let region = region.min(regions);
        let (run, pass) = (running - began, began - before);
        // Nobody remembers when each region was read: they were read one after the other.
        let share = |of: Duration, part: u32, whole: u32| of.mul_f64(f64::from(part) / f64::from(whole.max(1)));
        let verified = |at: u32| {
            if at < region { began + share(run, at, region) } else { before + share(pass, at, regions) }
        };
        Self {
            period: period.filter(|period| !period.is_zero()),
            regions,
            ran_before: running,
            opened: now,
            began,
            before,
            asked,
            passes,
            region,
            slot: 0,
            turn_began: running,
            turn_is_good: true,
            verified: (0..regions).map(verified).collect(),
        }
    }

    /// Begins a pass that is due at once.
    pub fn ask(&mut self, now: Moment) {
        self.began = self.running(now);
        self.asked = true;
        self.go_to(0, now);
    }

    /// Whether there is a pass.
    pub fn is_on(&self) -> bool {
        self.asked || self.period.is_some()
    }

    /// Whether all of the pass is due at once.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// The next place to read; `None` at the end of the pass.
    pub fn place(&self) -> Option<(u32, u32)> {
        (self.region < self.regions).then_some((self.region, self.slot))
    }

    /// What is due of the region at the place, which has so many slots now.
    pub fn due(&self, slots: u32, now: Moment) -> Due {
        if self.asked {
            return Due::All;
        }
        let Some(period) = self.period.map(|period| period.as_nanos()) else { return Due::Nothing };
        let passed = self.running(now).saturating_sub(self.began).as_nanos() * u128::from(self.regions);
        let region = u128::from(self.region);
        match passed / period {
            due if due > region => Due::All,
            due if due < region => Due::Nothing,
            _ => Due::UpTo(u32::try_from(passed % period * u128::from(slots) / period).unwrap_or(u32::MAX)),
        }
    }

    /// Time until a slot of the region at the place is due, of so many; a slot behind the last is the next region. `None` if it never is.
    pub fn until(&self, slot: u32, slots: u32, now: Moment) -> Option<Duration> {
        let period = self.period.filter(|_| !self.asked)?.as_nanos();
        let slots = u128::from(slots.max(1));
        let at = (u128::from(self.region) * slots + u128::from(slot).min(slots)) * period;
        let offset = at.div_ceil(u128::from(self.regions) * slots);
        let moment = self.began + Duration::from_nanos(u64::try_from(offset).unwrap_or(u64::MAX));
        Some(moment.saturating_sub(self.running(now)))
    }

    /// The region has been read up to before `slot`.
    pub fn read_to(&mut self, slot: u32) {
        self.slot = slot;
    }

    /// Something in the region at the place could not be read: it does not count as verified.
    pub fn spoil(&mut self) {
        self.turn_is_good = false;
    }

    /// The region has been read to its end.
    pub fn next_region(&mut self, now: Moment) {
        if self.turn_is_good {
            self.note_verified(self.region, self.turn_began);
        }
        self.go_to(self.region + 1, now);
    }

    /// Says that all that lay in `region` at a time of running was verified since.
    pub fn note_verified(&mut self, region: u32, at: Duration) {
        if let Some(verified) = self.verified.get_mut(region as usize) {
            *verified = at.max(*verified);
        }
    }

    /// Ends the pass and begins the next. How late it ended.
    pub fn end_pass(&mut self, now: Moment) -> Duration {
        let running = self.running(now);
        let period = self.period.unwrap_or_default();
        let planned = if self.asked { running } else { self.began + period };
        self.before = self.began;
        // A scrub that can not keep its period does not try to catch up with more than one.
        self.began = planned.max(running.saturating_sub(period));
        self.asked = false;
        self.passes += 1;
        self.go_to(0, now);
        running.saturating_sub(planned)
    }

    /// Passes completed, over all runs.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// How far the pass is, in millionths: regions read to their end.
    pub fn progress_ppm(&self) -> u64 {
        u64::from(self.region) * 1_000_000 / u64::from(self.regions.max(1))
    }

    /// Time of running, over all runs.
    pub fn running(&self, now: Moment) -> Duration {
        self.ran_before + now.since(self.opened)
    }

    /// Since when the pages of `region` have not been verified; `begun` is when it was begun to be filled, if that was in this run.
    pub fn unverified_since(&self, region: u32, begun: Option<Moment>) -> Duration {
        let verified = self.verified.get(region as usize).copied().unwrap_or_default();
        begun.map_or(verified, |begun| verified.max(self.running(begun)))
    }

    /// What to remember.
    pub fn mark(&self, now: Moment) -> ScrubMark {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        ScrubMark {
            running_ms: ms(self.running(now)),
            began_ms: ms(self.began),
            before_ms: ms(self.before),
            region: self.region,
            asked: self.asked,
            passes: self.passes,
        }
    }

    fn go_to(&mut self, region: u32, now: Moment) {
        (self.region, self.slot) = (region, 0);
        (self.turn_began, self.turn_is_good) = (self.running(now), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1000);
    const REGIONS: u32 = 10;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn timetable(mark: Option<ScrubMark>) -> Timetable {
        Timetable::open(Some(PERIOD), REGIONS, mark, at(0))
    }

    #[test]
    fn a_region_has_its_turn_and_a_slot_its_moment_in_it() {
        let mut table = timetable(None);
        assert_eq!(table.due(4, at(0)), Due::UpTo(0));
        assert_eq!((table.due(4, at(24)), table.due(4, at(25))), (Due::UpTo(0), Due::UpTo(1)));
        assert_eq!(table.until(1, 4, at(20)), Some(Duration::from_secs(5)));
        assert_eq!(table.until(4, 4, at(20)), Some(Duration::from_secs(80)));
        assert_eq!(table.due(4, at(100)), Due::All);
        table.next_region(at(100));
        assert_eq!((table.place(), table.due(4, at(99))), (Some((1, 0)), Due::Nothing));
    }

    #[test]
    fn each_pass_begins_a_period_after_the_one_before_even_if_that_ended_late() {
        let mut table = timetable(None);
        (0..REGIONS).for_each(|_| table.next_region(at(1200)));
        assert_eq!(table.place(), None);
        assert_eq!(table.end_pass(at(1200)), Duration::from_secs(200));
        // The turns of the first two regions are over already.
        assert_eq!(table.due(4, at(1200)), Due::All);
        assert_eq!(
            (table.until(0, 4, at(1200)), table.until(4, 4, at(1050))),
            (Some(Duration::ZERO), Some(Duration::from_secs(50)))
        );
        (0..REGIONS).for_each(|_| table.next_region(at(9000)));
        table.end_pass(at(9000));
        assert_eq!(table.mark(at(9000)).began_ms, 8_000_000, "not more than one period is made up for");
    }

    #[test]
    fn a_pass_that_was_asked_for_is_due_at_once_and_the_next_one_follows_on_schedule() {
        let mut table = Timetable::open(None, REGIONS, None, at(0));
        assert_eq!((table.is_on(), table.due(4, at(5000))), (false, Due::Nothing));
        table.ask(at(5000));
        assert_eq!((table.is_on(), table.due(4, at(5000)), table.until(1, 4, at(5000))), (true, Due::All, None));
        (0..REGIONS).for_each(|_| table.next_region(at(5001)));
        table.end_pass(at(5001));
        assert_eq!((table.is_on(), table.passes()), (false, 1));
    }

    #[test]
    fn a_restart_goes_on_where_it_was_and_knows_about_when_each_region_was_read() {
        let mut table = timetable(None);
        for region in 0..REGIONS {
            table.next_region(at(u64::from(region + 1) * 100));
        }
        table.end_pass(at(1000));
        (0..5).for_each(|_| table.next_region(at(1500)));
        let again = timetable(Some(table.mark(at(1500))));
        assert_eq!((again.place(), again.passes()), (Some((5, 0)), 1));
        assert_eq!(again.due(4, at(0)), Due::UpTo(0));
        let since = |region| again.unverified_since(region, None).as_secs();
        assert_eq!((since(0), since(4), since(5), since(9)), (1000, 1400, 500, 900));
    }

    #[test]
    fn what_could_not_be_read_stays_unverified_and_what_is_written_later_counts_from_then() {
        let mut table = timetable(None);
        table.next_region(at(100));
        table.spoil();
        table.next_region(at(200));
        table.next_region(at(300));
        let since = |region| table.unverified_since(region, None).as_secs();
        assert_eq!((since(0), since(1), since(2)), (0, 0, 200));
        assert_eq!(table.unverified_since(1, Some(at(250))).as_secs(), 250);
    }
}
