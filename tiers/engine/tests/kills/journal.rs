//! What a process that will be killed did, as lines of a file: it outlives the process, and another one knows from it what must be found.
//!
//! A line is written before the change that it tells of begins, and after what a caller was told: so whatever happened is in it, and
//! nothing that a caller was promised is missing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use cairn_core::PageKey;

use crate::oracle::{Event, Happened, Note};

/// What one process did.
#[derive(Default, Debug)]
pub(crate) struct Told {
    /// In order.
    pub(crate) happened: Vec<Happened>,
    /// Whether the engine was open when the process ended.
    pub(crate) opened: bool,
    /// The change at which it ended itself: when, and what.
    pub(crate) ended: Option<(String, String)>,
    /// What it found wrong.
    pub(crate) failed: Option<String>,
}

/// Writes the lines. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(path: &Path) -> Self {
        Self(File::options().create(true).append(true).open(path).expect("the journal opens"))
    }

    pub(crate) fn again(&self) -> Self {
        Self(self.0.try_clone().expect("a file is cloned"))
    }

    /// In one write, so that a line is there or not.
    pub(crate) fn say(&self, line: &str) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).expect("the journal is written");
    }

    pub(crate) fn event(&self, event: Event) {
        self.say(&match event {
            Event::Filled(key, generation) => format!("filled {key} {generation}"),
            Event::Recorded(key, generation) => format!("recorded {key} {generation}"),
            Event::Forgotten(key) => format!("forgotten {key}"),
            Event::SpaceForgotten(space) => format!("space-forgotten {space}"),
        });
    }

    pub(crate) fn note(&self, note: Note) {
        self.say(&match note {
            Note::Acknowledged(key) => format!("acknowledged {key}"),
            Note::ClearBegun(space) => format!("clear-begun {space}"),
            Note::Cleared(space) => format!("cleared {space}"),
            Note::Rotten(key, generation) => format!("rotten {key} {generation}"),
        });
    }
}

/// Reads the journal of a process that is gone.
pub(crate) fn read(path: &Path) -> Result<Told, String> {
    let text = fs::read_to_string(path).map_err(|failed| format!("read the journal: {failed}"))?;
    let mut told = Told::default();
    for line in text.lines() {
        take(&mut told, line).ok_or_else(|| format!("the journal has a line of another form: {line}"))?;
    }
    Ok(told)
}

fn take(told: &mut Told, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (key, generation) = rest.split_once(' ').unwrap_or((rest, "0"));
    let (key, generation) = (unhex(key), generation.parse().ok());
    let space = rest.parse();
    let happened = match word {
        "opened" => {
            told.opened = true;
            return Some(());
        }
        "ends" => {
            let (stage, kind) = rest.split_once(' ')?;
            told.ended = Some((stage.to_owned(), kind.to_owned()));
            return Some(());
        }
        "failed" => {
            told.failed = Some(rest.to_owned());
            return Some(());
        }
        "filled" => Happened::Event(Event::Filled(key?, generation?)),
        "recorded" => Happened::Event(Event::Recorded(key?, generation?)),
        // A start that forgets what was acknowledged is no removal.
        "forgotten" | "space-forgotten" if !told.opened => return Some(()),
        "forgotten" => Happened::Event(Event::Forgotten(key?)),
        "space-forgotten" => Happened::Event(Event::SpaceForgotten(space.ok()?)),
        "acknowledged" => Happened::Note(Note::Acknowledged(key?)),
        "clear-begun" => Happened::Note(Note::ClearBegun(space.ok()?)),
        "cleared" => Happened::Note(Note::Cleared(space.ok()?)),
        "rotten" => Happened::Note(Note::Rotten(key?, generation?)),
        _ => return None,
    };
    told.happened.push(happened);
    Some(())
}

fn unhex(text: &str) -> Option<PageKey> {
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(PageKey::from_bytes(bytes))
}
