//! Turn-taking chat, made up: the load for those who have no trace.
//!
//! Sessions arrive independently of each other. Each starts with the page that all share (the system prompt), and takes turns: the next
//! prompt is the last one, its answer and a new message. A page that was incomplete is another page once it has been filled, so its id
//! changes. Now and then a client edits its history, and the prompts part somewhere in the middle. Most sessions never return; those
//! that do return mostly within ten minutes, and the more often they have returned, the likelier they return again.
//!
//! The constants are fitted to one published hour of online chat (Mooncake, FAST'25, conversation trace): 24.0 pages a request, 38.7 %
//! of the requests continue a session, 36.6 % of the pages are found with a cache that forgets nothing, 75.8 % of the pages are asked
//! for once, 94.6 % of the returns come within 10 minutes.
//!
//! Memory is bounded by the sessions that will return: at most those of the last hour.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cairn_testkit::dice::Dice;

use crate::trace::{PAGE_TOKENS, Request};

/// Mean time between new sessions: about 7,100 an hour.
const SESSION_GAP: Duration = Duration::from_millis(505);
/// Prompts longer than this, in tokens, return less often: documents to be summarised, not talks.
const TALK_TOKENS_MAX: u64 = 20_000;
/// Longest pause of a session that returns.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Shortest and longest prompt, in tokens.
const PROMPT_TOKENS: std::ops::RangeInclusive<f64> = 891.0..=126_195.0;

/// An endless stream of requests in order of arrival; take as many as are needed.
#[derive(Debug)]
pub struct Generator {
    dice: Dice,
    now: Duration,
    next_session: Duration,
    next_page: u64,
    returning: BinaryHeap<Reverse<Session>>,
}

/// A session that will come back, ordered by when.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Session {
    returns: Duration,
    turns: u32,
    prompt_tokens: u64,
    answer_tokens: u64,
    pages: Vec<u64>,
}

impl Generator {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            now: Duration::ZERO,
            next_session: Duration::ZERO,
            // Page 0 is the one that all requests share.
            next_page: 1,
            returning: BinaryHeap::new(),
        }
    }

    /// The next prompt: of a new session or of the one whose pause is over, whichever comes first.
    fn next_turn(&mut self) -> Session {
        match self.returning.peek() {
            Some(Reverse(session)) if session.returns <= self.next_session => {}
            _ => return self.first_turn(),
        }
        match self.returning.pop() {
            Some(Reverse(session)) => self.further_turn(session),
            None => self.first_turn(),
        }
    }

    fn first_turn(&mut self) -> Session {
        self.now = self.next_session;
        self.next_session += self.dice.exponential(SESSION_GAP);
        let prompt_tokens =
            tokens(self.dice.log_normal(5_700.0, 1.23).clamp(*PROMPT_TOKENS.start(), *PROMPT_TOKENS.end()));
        let mut pages = vec![0];
        self.lengthen(&mut pages, prompt_tokens);
        Session { returns: self.now, turns: 1, prompt_tokens, answer_tokens: self.answer(), pages }
    }

    fn further_turn(&mut self, mut session: Session) -> Session {
        self.now = session.returns;
        let message_tokens = tokens(self.dice.log_normal(170.0, 2.0).clamp(1.0, 40_000.0));
        let full_pages = session.prompt_tokens / u64::from(PAGE_TOKENS);
        // One turn in eight goes on from an edited history.
        let kept_pages = if self.dice.chance(0.125) { self.dice.below(full_pages) } else { full_pages };
        session.pages.truncate(usize::try_from(kept_pages.max(1)).unwrap_or(usize::MAX));
        let longest = tokens(*PROMPT_TOKENS.end());
        session.prompt_tokens = (session.prompt_tokens + session.answer_tokens + message_tokens).min(longest);
        self.lengthen(&mut session.pages, session.prompt_tokens);
        session.turns += 1;
        session.answer_tokens = self.answer();
        session
    }

    /// Gives `pages` new ids up to the length of a prompt of `prompt_tokens`.
    fn lengthen(&mut self, pages: &mut Vec<u64>, prompt_tokens: u64) {
        for _ in pages.len() as u64..prompt_tokens.div_ceil(u64::from(PAGE_TOKENS)) {
            pages.push(self.next_page);
            self.next_page += 1;
        }
    }

    fn answer(&mut self) -> u64 {
        tokens(self.dice.normal(343.0, 200.0).clamp(1.0, 2_000.0))
    }

    /// Decides whether and when `session` returns.
    fn part_from(&mut self, mut session: Session) {
        let again = (0.38 + 0.10 * f64::from(session.turns - 1)).min(0.80);
        let of_its_length = if session.prompt_tokens > TALK_TOKENS_MAX { 0.7 } else { 1.0 };
        if self.dice.chance(again * of_its_length) {
            let pause = Duration::from_secs_f64(self.dice.log_normal(123.0, 1.0).min(PAUSE_MAX.as_secs_f64()));
            session.returns = self.now + pause;
            self.returning.push(Reverse(session));
        }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let session = self.next_turn();
        let request = Request {
            arrival_ms: u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX),
            input_tokens: session.prompt_tokens,
            output_tokens: session.answer_tokens,
            pages: session.pages.clone(),
        };
        self.part_from(session);
        Some(request)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers clamp to a range of small positive numbers"
)]
fn tokens(count: f64) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const REQUESTS: usize = 12_031;

    fn load(seed: u64) -> Vec<Request> {
        Generator::new(seed).take(REQUESTS).collect()
    }

    fn share(part: usize, whole: usize) -> f64 {
        part as f64 / whole as f64
    }

    /// What a cache without limits sees.
    struct Seen {
        uses: HashMap<u64, usize>,
        last_use_ms: HashMap<u64, u64>,
        asked: usize,
        hits: usize,
        continuing: usize,
        within_10_min: usize,
    }

    fn see(load: &[Request]) -> Seen {
        let (uses, last_use_ms) = (HashMap::new(), HashMap::new());
        let mut seen = Seen { uses, last_use_ms, asked: 0, hits: 0, continuing: 0, within_10_min: 0 };
        for request in load {
            let known = request.pages.iter().take_while(|page| seen.uses.contains_key(page)).count();
            seen.asked += request.pages.len();
            seen.hits += known;
            if known > 1 {
                seen.continuing += 1;
                let pause_ms = request.arrival_ms - seen.last_use_ms[&request.pages[known - 1]];
                seen.within_10_min += usize::from(pause_ms <= 600_000);
            }
            for page in &request.pages {
                *seen.uses.entry(*page).or_default() += 1;
                seen.last_use_ms.insert(*page, request.arrival_ms);
            }
        }
        seen
    }

    #[test]
    fn the_same_seed_gives_the_same_load() {
        assert_eq!(load(1), load(1));
        assert_ne!(load(1), load(2));
    }

    #[test]
    fn the_load_has_the_statistics_of_an_hour_of_chat() {
        for seed in [1, 2, 3] {
            let load = load(seed);
            let seen = see(&load);
            let once = seen.uses.values().filter(|uses| **uses == 1).count();
            let pages_a_request = share(seen.asked, load.len());
            let figures = [
                ("pages a request", pages_a_request, 23.0, 25.0),
                ("prefix hits without limit", share(seen.hits, seen.asked), 0.345, 0.385),
                ("requests that continue", share(seen.continuing, load.len()), 0.37, 0.41),
                ("pages asked for once", share(once, seen.uses.len()), 0.70, 0.76),
                ("returns within 10 min", share(seen.within_10_min, seen.continuing), 0.93, 0.98),
                ("hours", load[REQUESTS - 1].arrival_ms as f64 / 3.6e6, 0.94, 1.04),
            ];
            for (name, value, low, high) in figures {
                assert!((low..=high).contains(&value), "{name} = {value}, not in {low}..{high}, seed={seed}");
            }
        }
    }

    #[test]
    fn every_request_starts_with_the_shared_page_and_is_as_long_as_its_tokens() {
        for request in load(4) {
            assert_eq!(request.pages[0], 0);
            assert_eq!(request.pages.len() as u64, request.input_tokens.div_ceil(512));
        }
    }

    #[test]
    fn a_page_always_follows_the_same_page() {
        let mut before: HashMap<u64, u64> = HashMap::new();
        for request in load(5) {
            for pair in request.pages.windows(2) {
                assert_eq!(*before.entry(pair[1]).or_insert(pair[0]), pair[0]);
            }
        }
    }

    #[test]
    fn requests_arrive_in_order_and_not_in_bursts() {
        let load = load(6);
        assert!(load.is_sorted_by_key(|request| request.arrival_ms));
        let distinct = load.windows(2).filter(|pair| pair[0].arrival_ms != pair[1].arrival_ms).count();
        assert!(share(distinct, load.len()) > 0.98);
    }
}
