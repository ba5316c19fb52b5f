//! What is written to flash: the decision for each chain, and its charge to the write budget.
//!
//! A put asks once, with its whole chain. The policy names how many pages from the head on deserve to be written; all of those that are
//! not on the SSD yet are charged to the [`Budget`] in one step, and either the budget covers every one of them or none is written. A
//! rule that looked at one page at a time would write tails whose heads are missing, which nobody can use.

use std::collections::HashMap;
use std::str::FromStr;

use cairn_core::{Durability, KeptOff, Moment, Tier};

use crate::Budget;
use crate::bar::Bar;
use crate::sessions::{Sessions, Turn};
use crate::sketch::Sketch;

/// Which chains are written to the SSD. What a put asks to be durable passes every one of them; the budget governs it all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WritePolicy {
    /// [`WritePolicy::Budget`] if there is a write budget, else [`WritePolicy::All`].
    #[default]
    Auto,
    /// Every chain, behind the put.
    All,
    /// Only chains whose put asks for [`Durability::Ssd`].
    Requested,
    /// Of every chain the start that has been used a second time.
    Reused,
    /// Chains whose session has shown a second turn.
    Session,
    /// Chains by what they are worth, as many as the budget suffices for.
    Budget,
}

impl WritePolicy {
    /// Every policy.
    pub const ALL: [Self; 6] = [Self::Auto, Self::All, Self::Requested, Self::Reused, Self::Session, Self::Budget];

    /// Name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::All => "all",
            Self::Requested => "requested",
            Self::Reused => "reused",
            Self::Session => "session",
            Self::Budget => "budget",
        }
    }
}

impl FromStr for WritePolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no such write policy: {name:?}; there are {names}")
        })
    }
}

/// One page of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The page's fingerprint: equal pages have equal ones, and different pages seldom do.
    pub page: u64,
    /// Where it is: on the SSD, in DRAM only, or nowhere yet.
    pub place: Option<Tier>,
}

/// What is to be written of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Pages from the head on that are to be on the SSD.
    pub pages: usize,
    /// Those of them that are not there yet.
    pub admitted_pages: u64,
    /// The upper bound that the budget holds for them; to be settled.
    pub held_bytes: u64,
    /// Pages after them, not on the SSD, that stay off it.
    pub refused_pages: u64,
    /// Why; meaningless if there are none.
    pub refused: KeptOff,
}

/// The decision and what it has learned.
#[derive(Debug)]
pub struct Admission {
    policy: WritePolicy,
    /// `None` for policies that look at nothing but the put itself.
    memory: Option<Box<Memory>>,
}

/// What was seen of requests. About 10 MiB.
#[derive(Debug, Default)]
struct Memory {
    uses: Sketch,
    sessions: Sessions,
    bar: Bar,
    /// The candidate of each record that was refused lately.
    refused: HashMap<u32, u64>,
}

/// KeptOff candidates remembered.
const REFUSED_MAX: usize = 8192;

impl Admission {
    /// An admission that has seen nothing. `has_budget`: what [`WritePolicy::Auto`] goes by.
    pub fn new(policy: WritePolicy, has_budget: bool) -> Self {
        let policy = match policy {
            WritePolicy::Auto if has_budget => WritePolicy::Budget,
            WritePolicy::Auto => WritePolicy::All,
            named => named,
        };
        let looks = matches!(policy, WritePolicy::Reused | WritePolicy::Session | WritePolicy::Budget);
        Self { policy, memory: looks.then(Box::default) }
    }

    /// The policy in effect; never [`WritePolicy::Auto`].
    pub fn policy(&self) -> WritePolicy {
        self.policy
    }

    /// Whether [`Admission::get`] needs to be told of anything.
    pub fn looks_at_gets(&self) -> bool {
        self.memory.is_some()
    }

    /// A put of `chain`, of which each page costs `page_bytes` to write. Holds what the verdict admits.
    pub fn put(
        &mut self,
        chain: &[Link],
        page_bytes: u64,
        asked: Durability,
        budget: &mut Budget,
        now: Moment,
    ) -> Verdict {
        let deserves = self.deserves(chain, page_bytes, budget, now);
        let (pages, refused) = if asked >= Durability::Ssd { (chain.len(), KeptOff::BudgetSpent) } else { deserves };
        charge(chain, pages, refused, page_bytes, budget, now)
    }

    /// A get asks for `chain` and finds its start. Holds what the verdict admits of that; refusals are no news.
    pub fn get(&mut self, chain: &[Link], page_bytes: u64, budget: &mut Budget, now: Moment) -> Verdict {
        let mut pages = 0;
        if let Some(memory) = &mut self.memory {
            memory.sessions.ask(|page| chain[page].page, chain.len());
            for link in chain.iter().filter(|link| link.place == Some(Tier::Dram)) {
                memory.uses.add(link.page);
            }
            let found = chain.iter().take_while(|link| link.place.is_some()).count();
            let value = memory.sessions.value_of_reused();
            pages = match self.policy {
                WritePolicy::Reused => memory.reused(&chain[..found]),
                WritePolicy::Budget if memory.bar.is_passed_by(value, budget, now) => memory.reused(&chain[..found]),
                _ => 0,
            };
        }
        charge(chain, pages, KeptOff::NotReused, page_bytes, budget, now)
    }

    /// Pages from the head on that deserve to be written, and why not more.
    fn deserves(&mut self, chain: &[Link], page_bytes: u64, budget: &mut Budget, now: Moment) -> (usize, KeptOff) {
        let Some(memory) = &mut self.memory else {
            return match self.policy {
                WritePolicy::Requested => (0, KeptOff::NotRequested),
                _ => (chain.len(), KeptOff::BudgetSpent),
            };
        };
        for link in chain.iter().filter(|link| link.place.is_none()) {
            memory.uses.add(link.page);
        }
        let reused = memory.reused(chain);
        let turn = memory.sessions.put(|page| chain[page].page, chain.len(), now);
        match self.policy {
            WritePolicy::Reused => (reused, KeptOff::NotReused),
            WritePolicy::Session if turn.turn == 0 => (0, KeptOff::FirstTurn),
            WritePolicy::Session => (memory.sessions.lasting(chain.len()), KeptOff::LowValue),
            _ => memory.worth(&turn, chain, reused, page_bytes, budget, now),
        }
    }
}

impl Memory {
    /// Length of the start of `chain` that was used a second time: counted twice, or brought again after it had left every tier.
    fn reused(&self, chain: &[Link]) -> usize {
        let again = |link: &&Link| match link.place {
            Some(Tier::Ssd) => true,
            Some(Tier::Dram) => self.uses.count(link.page) >= 2,
            None => self.sessions.knows(link.page),
        };
        chain.iter().take_while(again).count()
    }

    /// Pages of `chain` that are above the bar: all, or the start that was used again, or none.
    fn worth(
        &mut self,
        turn: &Turn,
        chain: &[Link],
        reused: usize,
        page_bytes: u64,
        budget: &mut Budget,
        now: Moment,
    ) -> (usize, KeptOff) {
        let value = self.sessions.value(turn);
        if let Some(candidate) = turn.before.and_then(|before| self.refused.remove(&before)) {
            self.bar.replace(candidate);
        }
        let lasting = self.sessions.lasting(chain.len());
        let candidate = self.bar.add(value, unwritten(&chain[..lasting]).saturating_mul(page_bytes), now);
        if self.bar.is_passed_by(value, budget, now) {
            return (lasting, KeptOff::LowValue);
        }
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert(turn.record, candidate);
        let again = self.sessions.value_of_reused();
        (if self.bar.is_passed_by(again, budget, now) { reused } else { 0 }, KeptOff::LowValue)
    }
}

fn charge(
    chain: &[Link],
    pages: usize,
    refused: KeptOff,
    page_bytes: u64,
    budget: &mut Budget,
    now: Moment,
) -> Verdict {
    let admitted_pages = unwritten(&chain[..pages]);
    let held_bytes = admitted_pages.saturating_mul(page_bytes);
    if budget.hold(held_bytes, now) {
        let refused_pages = unwritten(&chain[pages..]);
        return Verdict { pages, admitted_pages, held_bytes, refused_pages, refused };
    }
    let refused_pages = unwritten(chain);
    Verdict { pages: 0, admitted_pages: 0, held_bytes: 0, refused_pages, refused: KeptOff::BudgetSpent }
}

fn unwritten(chain: &[Link]) -> u64 {
    chain.iter().filter(|link| link.place != Some(Tier::Ssd)).count() as u64
}
