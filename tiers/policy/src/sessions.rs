//! Sessions, guessed from chains: which request continues which, and how often requests of a turn come back.
//!
//! Every request leaves a *record*; pages point to the record of the request that brought them, also after they have left every tier. A
//! request *continues* the record of its deepest known page if it shares more than one page and at least half of that record's length
//! with it; it is then the next turn of that session. A put that goes on where an earlier put of the same request stopped is no new turn:
//! nobody has asked for the chain since, and little time has passed.
//!
//! Bounded: 8 MiB of pointers (a million pages; the oldest of eight make room) and the last 65,536 records.

use std::time::Duration;

use cairn_core::Moment;

use crate::sketch::mixed;

const SETS: usize = 1 << 17;
const WAYS: usize = 8;
const RECORDS: usize = 1 << 16;
const LAST_PLACE: u32 = (1 << 16) - 1;
/// Turns told apart, the first request being turn 0; the last stands for all after it.
const TURNS: usize = 13;
/// Lengths told apart, by powers of two.
const LENGTHS: usize = 17;
const LENGTH_MAX: u8 = 16;
/// A continuation this long after the last put is a new turn even if nobody asked for the chain in between.
const TURN_GAP: Duration = Duration::from_secs(2);
/// A request that has not come back after so long is counted as one that does not; should it come all the same, that counts again.
const PATIENCE: Duration = Duration::from_secs(600);
/// What a hit is worth for each turn that it lies further ahead.
const AHEAD: f64 = 0.8;

/// The request that a put belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// 0 for the first request of a session.
    pub(crate) turn: usize,
    /// Its length by powers of two.
    pub(crate) length: usize,
    /// Its record.
    pub(crate) record: u32,
    /// The record of the turn before it, or its own if it was known already.
    pub(crate) before: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    sets: Vec<[Pointer; WAYS]>,
    records: Vec<Record>,
    last: u32,
    /// The record that is judged next; those before it have come back or been given up.
    judged: u32,
    turns: [Returns; TURNS],
    lengths: [[Returns; LENGTHS]; TURNS],
    /// Continuations, and how many of them took the last page of what they continue.
    tails: Returns,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pointer {
    tag: u32,
    /// 0: none.
    record: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    id: u32,
    pages: u32,
    turn: u8,
    length: u8,
    asked: bool,
    returned: bool,
    at: Moment,
}

/// How many of the requests came back.
#[derive(Clone, Copy, Debug, Default)]
struct Returns {
    requests: f64,
    returned: f64,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            sets: vec![[Pointer::default(); WAYS]; SETS],
            records: vec![Record::default(); RECORDS],
            last: 0,
            judged: 1,
            turns: [Returns::default(); TURNS],
            lengths: [[Returns::default(); LENGTHS]; TURNS],
            tails: Returns::default(),
        }
    }
}

impl Sessions {
    /// Whether a request brought `page` before.
    pub(crate) fn knows(&self, page: u64) -> bool {
        self.pointer(page).is_some()
    }

    /// Somebody has asked for `chain`.
    pub(crate) fn ask(&mut self, chain: impl Fn(usize) -> u64, pages: usize) {
        let (known, record) = self.deepest(&chain, pages);
        if let Some(record) = record.filter(|record| continues(record, known)) {
            self.records[place(record.id)].asked = true;
        }
    }

    /// A request has brought `chain`.
    pub(crate) fn put(&mut self, chain: impl Fn(usize) -> u64, pages: usize, now: Moment) -> Turn {
        self.give_up(now);
        let (known, record) = self.deepest(&chain, pages);
        let before = record.filter(|record| continues(record, known));
        let id = match before {
            Some(before) if !before.asked && now.since(before.at) < TURN_GAP => before.id,
            _ => self.new_record(before, known, pages),
        };
        let record = &mut self.records[place(id)];
        record.pages = u32::try_from(pages).unwrap_or(u32::MAX);
        record.at = now;
        let turn = Turn {
            turn: usize::from(record.turn),
            length: usize::from(record.length),
            record: id,
            before: before.map(|before| before.id),
        };
        for page in known..pages {
            self.point(chain(page), id);
        }
        turn
    }

    /// Expected further hits of each page of a chain whose last request was `turn`.
    pub(crate) fn value(&self, turn: &Turn) -> f64 {
        let share = self.lengths[turn.turn][turn.length].share(self.turns[turn.turn].share(0.3, 4.0), 16.0);
        share * (1.0 + AHEAD * self.further(turn.turn + 1))
    }

    /// Expected further hits of pages that have come back once already, of whatever session.
    pub(crate) fn value_of_reused(&self) -> f64 {
        self.further(1)
    }

    /// Pages of a chain that its continuation will use. Engines that also store their last page when it is not full never use that
    /// one again; whether this one does is seen.
    pub(crate) fn lasting(&self, pages: usize) -> usize {
        if self.tails.share(0.5, 16.0) < 0.1 { pages.saturating_sub(1) } else { pages }
    }

    /// Expected hits from turn `turn` on.
    fn further(&self, turn: usize) -> f64 {
        let share = |turn: usize| self.turns[turn.min(TURNS - 1)].share(0.3, 4.0);
        let last = share(TURNS - 1);
        (turn..TURNS - 1).rev().fold(last / (1.0 - AHEAD * last), |further, turn| share(turn) * (1.0 + AHEAD * further))
    }

    /// Pages known, and the record of the deepest of them. Pages are known up to somewhere, so a binary search finds the place.
    fn deepest(&self, chain: &impl Fn(usize) -> u64, pages: usize) -> (usize, Option<Record>) {
        let (mut known, mut unknown) = (0, pages + 1);
        while unknown - known > 1 {
            let middle = usize::midpoint(known, unknown);
            if self.knows(chain(middle - 1)) { known = middle } else { unknown = middle }
        }
        let id = known.checked_sub(1).and_then(|deepest| self.pointer(chain(deepest)));
        let record = id.map(|id| self.records[place(id)]).filter(|record| Some(record.id) == id);
        (known, record)
    }

    fn new_record(&mut self, before: Option<Record>, shared_pages: usize, pages: usize) -> u32 {
        self.last = self.last.checked_add(1).unwrap_or(1);
        let mut turn = 0;
        if let Some(before) = before {
            turn = (usize::from(before.turn) + 1).min(TURNS - 1);
            self.tails.count(shared_pages >= before.pages as usize);
            if !before.returned {
                self.records[place(before.id)].returned = true;
                self.count(&before, true);
            }
        }
        let turn = u8::try_from(turn).unwrap_or(u8::MAX);
        let length = u8::try_from(pages.max(1).ilog2()).unwrap_or(u8::MAX).min(LENGTH_MAX);
        self.records[place(self.last)] = Record { id: self.last, turn, length, ..Record::default() };
        self.last
    }

    /// Counts the requests that have had time enough to come back and have not.
    fn give_up(&mut self, now: Moment) {
        while self.judged != self.last.wrapping_add(1) {
            let record = self.records[place(self.judged)];
            let is_current = record.id == self.judged;
            // The next record takes the place of the oldest, which is then judged early.
            let has_place = self.last.wrapping_sub(self.judged) < LAST_PLACE;
            if is_current && has_place && now.since(record.at) < PATIENCE {
                return;
            }
            if is_current && !record.returned {
                self.count(&record, false);
            }
            self.judged = self.judged.wrapping_add(1);
        }
    }

    fn count(&mut self, record: &Record, returned: bool) {
        let (turn, length) = (usize::from(record.turn), usize::from(record.length));
        self.turns[turn].count(returned);
        self.lengths[turn][length].count(returned);
    }

    fn pointer(&self, page: u64) -> Option<u32> {
        let (set, tag) = set_of(page);
        self.sets[set].iter().find(|pointer| pointer.record != 0 && pointer.tag == tag).map(|pointer| pointer.record)
    }

    fn point(&mut self, page: u64, record: u32) {
        let (set, tag) = set_of(page);
        let set = &mut self.sets[set];
        let same = set.iter().position(|pointer| pointer.record != 0 && pointer.tag == tag);
        let oldest = || (0..WAYS).min_by_key(|way| set[*way].record).unwrap_or(0);
        let way = same.unwrap_or_else(oldest);
        set[way] = Pointer { tag, record };
    }
}

impl Returns {
    /// Requests after which old ones count half: what a turn is worth changes with the day.
    const REQUESTS_MAX: f64 = 4096.0;

    fn count(&mut self, returned: bool) {
        self.requests += 1.0;
        self.returned += f64::from(u8::from(returned));
        if self.requests > Self::REQUESTS_MAX {
            self.requests /= 2.0;
            self.returned /= 2.0;
        }
    }

    /// The share that came back, drawn to `usual` as if `weight` requests had shown it. Below 1.
    fn share(&self, usual: f64, weight: f64) -> f64 {
        ((self.returned + usual * weight) / (self.requests + weight)).min(0.99)
    }
}

fn continues(record: &Record, shared_pages: usize) -> bool {
    shared_pages > 1 && shared_pages * 2 >= record.pages as usize
}

fn place(record: u32) -> usize {
    record as usize % RECORDS
}

fn set_of(page: u64) -> (usize, u32) {
    let hash = mixed(page);
    let set = usize::try_from(hash % SETS as u64).unwrap_or(0);
    (set, u32::try_from(hash >> 32).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn put(sessions: &mut Sessions, chain: &[u64], seconds: u64) -> usize {
        sessions.put(|page| chain[page], chain.len(), at(seconds)).turn
    }

    fn chain(name: u64, pages: u64) -> Vec<u64> {
        (0..pages).map(|page| name * 1000 + page).collect()
    }

    #[test]
    fn a_request_that_grows_a_chain_is_its_next_turn() {
        let mut sessions = Sessions::default();
        let turns: Vec<usize> = (0..4).map(|turn| put(&mut sessions, &chain(1, 4 + 2 * turn), 60 * turn)).collect();
        assert_eq!(turns, [0, 1, 2, 3]);
        assert_eq!(put(&mut sessions, &chain(2, 4), 500), 0);
    }

    #[test]
    fn a_shared_first_page_or_a_short_shared_start_is_no_continuation() {
        let mut sessions = Sessions::default();
        put(&mut sessions, &chain(1, 10), 0);
        let first_only = [&chain(1, 1)[..], &chain(2, 9)].concat();
        assert_eq!(put(&mut sessions, &first_only, 60), 0);
        let four_of_ten = [&chain(1, 4)[..], &chain(3, 6)].concat();
        assert_eq!(put(&mut sessions, &four_of_ten, 120), 0);
    }

    #[test]
    fn the_pieces_of_one_request_are_one_turn_unless_somebody_asked_in_between() {
        let mut sessions = Sessions::default();
        let all = chain(1, 12);
        for pages in [4, 8, 12] {
            assert_eq!(put(&mut sessions, &all[..pages], 1), 0);
        }
        let longer = chain(1, 14);
        sessions.ask(|page| longer[page], longer.len());
        assert_eq!(put(&mut sessions, &longer, 1), 1);
    }

    #[test]
    fn turns_that_come_back_are_worth_more() {
        let mut sessions = Sessions::default();
        // Of every four sessions one goes on, and then for ten turns.
        for name in 0..400 {
            for turn in 0..if name % 4 == 0 { 10 } else { 1 } {
                put(&mut sessions, &chain(name, 4 + turn), 10_000 * name + 60 * turn);
            }
        }
        let turn = |turn| Turn { turn, length: 2, record: 0, before: None };
        let (first, second) = (sessions.value(&turn(0)), sessions.value(&turn(1)));
        assert!(first > 0.0 && second > 2.0 * first, "{first} {second}");
    }
}
