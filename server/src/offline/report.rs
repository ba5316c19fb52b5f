//! What was found in a data folder, for people and for programs.

use std::path::PathBuf;

use cairn_core::metrics::{Damage, Label};
use cairn_core::{ByteSize, DeviceId};
use cairn_directory::Record;
use cairn_ssd::{RegionCounts, SuperblockState};
use serde_json::{Value, json};

use super::verify::DamageCounts;
use super::{EXIT_CLEAN, EXIT_DAMAGE};

/// Most pages that are named one by one; all are counted.
const NAMED_MAX: usize = 1000;
/// Most of them in a report for people.
const SHOWN_MAX: usize = 20;

/// Everything that was found.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) dir: PathBuf,
    pub(super) ssd: SsdState,
    pub(super) directory: DirectoryState,
    pub(super) pages: PageCounts,
    pub(super) faulty: Vec<FaultyPage>,
}

/// The SSD file but for its pages.
#[derive(Debug)]
pub(super) struct SsdState {
    pub(super) superblocks: Option<[SuperblockState; 2]>,
    pub(super) regions: RegionCounts,
    pub(super) bytes: u64,
    /// Why none of its pages can be read.
    pub(super) fault: Option<String>,
}

/// The directory but for its pages.
#[derive(Default, Debug)]
pub(super) struct DirectoryState {
    pub(super) device: Option<DeviceId>,
    pub(super) entries: u64,
    pub(super) namespaces: u64,
    pub(super) corrupt_records: u64,
    pub(super) corrupt_namespaces: u64,
    /// Why it can not be used.
    pub(super) fault: Option<String>,
}

/// Pages, by what entry and slot say of them.
#[derive(Default, Debug)]
pub(super) struct PageCounts {
    /// With an entry, and whole.
    pub(super) whole: u64,
    pub(super) whole_bytes: u64,
    /// With an entry, and damaged, by how.
    pub(super) damaged: DamageCounts,
    /// With an entry, and the disk could not read them.
    pub(super) unreadable: u64,
    /// Entries whose slot holds no such page.
    pub(super) without_page: u64,
    /// Whole pages that no entry names.
    pub(super) without_entry: u64,
    /// What is no whole page, and no entry names.
    pub(super) torn_without_entry: u64,
    /// Pages left from an earlier use of their region.
    pub(super) stale: u64,
}

/// What is wrong with a page that an entry names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Damaged(Damage),
    Unreadable,
    NoPage,
}

impl Fault {
    fn text(self) -> &'static str {
        match self {
            Self::Damaged(damage) => damage.text(),
            Self::Unreadable => "unreadable",
            Self::NoPage => "no_page",
        }
    }
}

/// A page that its entry names, and that is not there as it should be.
#[derive(Debug)]
pub(super) struct FaultyPage {
    record: Record,
    fault: Fault,
}

impl FaultyPage {
    pub(super) fn add(to: &mut Vec<Self>, record: &Record, fault: Fault) {
        if to.len() < NAMED_MAX {
            to.push(Self { record: *record, fault });
        }
    }

    fn line(&self) -> String {
        let Record { namespace, key, slot, .. } = &self.record;
        format!(
            "  region {} slot {}: {} page {key} of namespace {namespace}",
            slot.region,
            slot.slot,
            self.fault.text()
        )
    }

    fn json(&self) -> Value {
        let Record { namespace, key, slot, .. } = &self.record;
        json!({
            "region": slot.region, "slot": slot.slot, "fault": self.fault.text(),
            "namespace": namespace.to_string(), "key": key.to_string(),
        })
    }
}

impl DirectoryState {
    pub(super) fn is_whole(&self) -> bool {
        self.fault.is_none()
    }
}

impl Report {
    /// Whether nothing is damaged or missing. What nobody was promised is no damage.
    fn is_clean(&self) -> bool {
        let whole = |half: &SuperblockState| matches!(half, SuperblockState::Whole { .. });
        let pages = &self.pages;
        let lost = pages.damaged.values().sum::<u64>() + pages.unreadable + pages.without_page;
        let corrupt = self.directory.corrupt_records + self.directory.corrupt_namespaces + self.ssd.regions.damaged;
        self.ssd.superblocks.is_some_and(|halves| halves.iter().all(whole))
            && self.directory.is_whole()
            && lost + corrupt == 0
    }

    pub(super) fn exit_code(&self) -> u8 {
        if self.is_clean() { EXIT_CLEAN } else { EXIT_DAMAGE }
    }

    pub(super) fn print(&self, json: bool) -> String {
        if json { self.json().to_string() } else { self.text() }
    }

    fn text(&self) -> String {
        let Self { ssd, directory, pages, .. } = self;
        let mut lines = vec![("data folder", self.dir.display().to_string()), ("ssd file", ssd.text())];
        if let Some([a, b]) = ssd.superblocks {
            lines.push(("superblocks", format!("A {}, B {}", superblock_text(a), superblock_text(b))));
        }
        lines.push(("directory", directory.text()));
        lines.push(("pages whole", format!("{}, {} bytes", pages.whole, pages.whole_bytes)));
        let damaged: u64 = pages.damaged.values().sum();
        let how: Vec<String> = pages.damaged.iter().map(|(how, count)| format!("{how} {count}")).collect();
        let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
        lines.push(("pages damaged", format!("{damaged}{how}")));
        lines.push(("pages unreadable", pages.unreadable.to_string()));
        lines.push(("entries without page", pages.without_page.to_string()));
        lines
            .push(("pages without entry", format!("{} whole, {} torn", pages.without_entry, pages.torn_without_entry)));
        lines.push(("stale pages", pages.stale.to_string()));
        lines.push(("verdict", self.verdict()));
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut lines: Vec<String> = lines.iter().map(|(name, fact)| format!("{name:<width$}  {fact}")).collect();
        lines.extend(self.faulty.iter().take(SHOWN_MAX).map(FaultyPage::line));
        if self.faulty.len() > SHOWN_MAX {
            lines.push("  and more; --json names up to 1000".to_owned());
        }
        lines.join("\n")
    }

    fn verdict(&self) -> String {
        let verdict = match (self.is_clean(), &self.ssd.fault, self.directory.is_whole()) {
            (true, ..) => "clean",
            (false, Some(_), _) => "DAMAGED: no page can be read; move the ssd file away to start empty",
            (false, None, false) => "DAMAGED: the next start makes the directory again from the pages' headers",
            (false, None, true) => {
                "DAMAGED: the next start repairs superblocks and region headers; a damaged page is a miss when it is read"
            }
        };
        verdict.to_owned()
    }

    fn json(&self) -> Value {
        let Self { ssd, directory, pages, .. } = self;
        json!({
            "clean": self.is_clean(),
            "ssd": {
                "fault": ssd.fault,
                "capacity_bytes": ssd.bytes,
                "superblocks": ssd.superblocks.map(|halves| halves.map(superblock_text)),
                "regions_in_use": ssd.regions.in_use, "regions_unused": ssd.regions.unused,
                "regions_damaged": ssd.regions.damaged,
            },
            "directory": {
                "fault": directory.fault, "entries": directory.entries, "namespaces": directory.namespaces,
                "corrupt_records": directory.corrupt_records, "corrupt_namespaces": directory.corrupt_namespaces,
            },
            "pages": {
                "whole": pages.whole, "whole_bytes": pages.whole_bytes, "damaged": pages.damaged,
                "unreadable": pages.unreadable, "entries_without_page": pages.without_page,
                "without_entry": pages.without_entry, "torn_without_entry": pages.torn_without_entry, "stale": pages.stale,
            },
            "faulty": self.faulty.iter().map(FaultyPage::json).collect::<Vec<_>>(),
        })
    }
}

impl SsdState {
    fn text(&self) -> String {
        let RegionCounts { in_use, unused, damaged } = self.regions;
        match &self.fault {
            Some(fault) => format!("DAMAGED: {fault}"),
            None => format!(
                "{}, regions: {in_use} in use, {unused} unused, {damaged} with a damaged header",
                ByteSize(self.bytes)
            ),
        }
    }
}

impl DirectoryState {
    fn text(&self) -> String {
        let Self { entries, namespaces, corrupt_records, corrupt_namespaces, .. } = self;
        match &self.fault {
            Some(fault) => format!("DAMAGED: {fault}"),
            None => format!(
                "{entries} entries, {namespaces} namespaces; corrupt: {corrupt_records} entries, {corrupt_namespaces} namespaces"
            ),
        }
    }
}

fn superblock_text(half: SuperblockState) -> String {
    match half {
        SuperblockState::Whole { sequence } => format!("whole, sequence {sequence}"),
        SuperblockState::Blank => "BLANK".to_owned(),
        SuperblockState::Foreign { version } => format!("OF VERSION {version}"),
        SuperblockState::Damaged => "DAMAGED".to_owned(),
        SuperblockState::Unreadable => "UNREADABLE".to_owned(),
    }
}
