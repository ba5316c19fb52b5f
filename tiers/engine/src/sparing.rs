//! Log lines about single pages: enough to see what happens, however many pages a dying disk costs. The counters count them all.

use std::time::Duration;

use cairn_core::Moment;

use crate::sync::Mutex;

/// Lines in one period.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// Lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Sparing(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    since: Moment,
    lines: u32,
    kept_back: u64,
}

/// The kinds of trouble that a single page can have.
#[derive(Debug, Default)]
pub(crate) struct PageTroubles {
    pub(crate) damaged_in_dram: Sparing,
    pub(crate) damaged_on_ssd: Sparing,
    pub(crate) unreadable: Sparing,
    pub(crate) no_room: Sparing,
}

impl Sparing {
    /// Whether there may be one more line now; if so, how many were kept back since the last.
    pub(crate) fn line(&self, now: Moment) -> Option<u64> {
        let mut period = self.0.lock();
        if now.since(period.since) >= PERIOD {
            (period.since, period.lines) = (now, 0);
        }
        if period.lines >= LINES_MAX {
            period.kept_back += 1;
            return None;
        }
        period.lines += 1;
        Some(std::mem::take(&mut period.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_a_minute_and_the_next_says_how_many_it_stands_for() {
        let (sparing, start) = (Sparing::default(), Moment::default());
        let said = (0..1000).filter(|_| sparing.line(start) == Some(0)).count();
        assert_eq!(said, 10);
        assert_eq!(sparing.line(start.after(Duration::from_secs(59))), None);
        let later = start.after(Duration::from_secs(60));
        assert_eq!(sparing.line(later), Some(991));
        assert_eq!(sparing.line(later), Some(0));
    }
}
