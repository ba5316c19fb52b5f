//! Who is next: one bounded line for each class of transfers.
//!
//! A class goes before all below it: demand, prefetch, write, scrub. But not for ever: a class that waited while [`PASSED_MAX`] others went
//! before it is next, so a disk that is busy with reads still takes a sixteenth of its turns for writes, and write-behind never stands still.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_core::metrics::{IoClass, Label, Metrics};

use crate::transfer::{Full, Transfer};

/// Turns that a class that waits lets pass.
const PASSED_MAX: u32 = 15;

#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    length_max: usize,
    closed: bool,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Line {
    class: IoClass,
    waiting: VecDeque<Box<dyn Transfer>>,
    passed: u32,
}

impl Lines {
    /// Empty lines with room for `length_max` transfers each, at least one.
    pub(crate) fn new(length_max: usize, metrics: Arc<Metrics>) -> Self {
        let line = |class| Line { class, waiting: VecDeque::new(), passed: 0 };
        Self {
            lines: IoClass::all().into_iter().map(line).collect(),
            length_max: length_max.max(1),
            closed: false,
            metrics,
        }
    }

    pub(crate) fn push(&mut self, class: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full> {
        let Some(line) = self.lines.iter_mut().find(|line| line.class == class) else { return Err(Full(transfer)) };
        if self.closed || line.waiting.len() >= self.length_max {
            return Err(Full(transfer));
        }
        line.waiting.push_back(transfer);
        line.show(&self.metrics);
        Ok(())
    }

    /// The next transfer of a class that `may` go now.
    pub(crate) fn pop(&mut self, may: impl Fn(IoClass) -> bool) -> Option<(IoClass, Box<dyn Transfer>)> {
        let ready = |line: &&Line| !line.waiting.is_empty() && may(line.class);
        let first = self.lines.iter().filter(ready).find(|line| line.passed >= PASSED_MAX);
        let class = first.or_else(|| self.lines.iter().find(ready))?.class;
        let mut taken = None;
        for line in &mut self.lines {
            if line.class == class {
                line.passed = 0;
                taken = line.waiting.pop_front();
                line.show(&self.metrics);
            } else if !line.waiting.is_empty() && may(line.class) {
                line.passed += 1;
            }
        }
        taken.map(|transfer| (class, transfer))
    }

    /// The next transfer of a class after all, if it begins at `at` and has at most `bytes_max`: one that goes with what was taken before.
    pub(crate) fn pop_beside(&mut self, class: IoClass, at: u64, bytes_max: u64) -> Option<Box<dyn Transfer>> {
        let line = self.lines.iter_mut().find(|line| line.class == class)?;
        line.waiting.front().filter(|next| next.at() == at && next.bytes() <= bytes_max)?;
        let next = line.waiting.pop_front();
        line.show(&self.metrics);
        next
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes no more; what waited is the caller's to drop, without the lock around this.
    pub(crate) fn close(&mut self) -> Vec<Box<dyn Transfer>> {
        self.closed = true;
        let withdrawn = self.lines.iter_mut().flat_map(|line| line.waiting.drain(..)).collect();
        self.lines.iter().for_each(|line| line.show(&self.metrics));
        withdrawn
    }
}

impl Line {
    fn show(&self, metrics: &Metrics) {
        metrics.ssd_queue.of(self.class).set(i64::try_from(self.waiting.len()).unwrap_or(i64::MAX));
    }
}
