//! A life that ends with SIGKILL: an engine in a process of its own, on real files.
//!
//! The test starts itself again as another process, which opens the engine, goes through a script, and ends itself where its [`Fate`] says.
//! What it did is in its journal; what must be found follows from that; [`Folder::check`] opens the files in this process and looks.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cairn_testkit::dice::Dice;
use cairn_testkit::real_disks::Told as OnDisks;
use cairn_testkit::real_disks::{Ending, RealDisks, Stage, end_this_process};
use cairn_testkit::recorder::Recorder;
use parking_lot::Mutex;

use crate::house::{DEVICE_BYTES, House};
use crate::journal::{self, Journal, Told};
use crate::oracle::{Event, Start, verify_on};
use crate::script::{Op, Script, roll};

/// Held while a process is started, which shares all open files with this one for a moment.
static STARTING: Mutex<()> = Mutex::new(());

const FOLDER: &str = "CAIRN_TEST_FOLDER";
const FATE: &str = "CAIRN_TEST_FATE";
/// A script that goes on for so many operations has missed its end.
const OPS_MAX: usize = 5_000;

/// What a process is to do, and where it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fate {
    /// Decides the script.
    pub(crate) seed: u64,
    pub(crate) twist: Twist,
    pub(crate) end: End,
}

/// What is out of the ordinary about a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Twist {
    None,
    /// It finds its directory deleted.
    NoDirectory,
    /// Its barriers do nothing.
    NoBarriers,
}

/// Where a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// At the change with this number since its start.
    At(Ending),
    /// In its start, as the engine is open, if not before that at the change with this number.
    Open(Ending),
    /// In its start, as the engine is open, if not so many microseconds after its beginning.
    OpenOrAfter(u64),
}

impl Twist {
    const ALL: [Self; 3] = [Self::None, Self::NoDirectory, Self::NoBarriers];

    fn label(self) -> &'static str {
        match self {
            Self::None => "ordinary",
            Self::NoDirectory => "no-directory",
            Self::NoBarriers => "no-barriers",
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, twist, end } = self;
        let (word, number, stage) = match end {
            End::At(Ending { point, stage }) => ("at", *point as u64, stage.label()),
            End::Open(Ending { point, stage }) => ("open", *point as u64, stage.label()),
            End::OpenOrAfter(us) => ("after-us", *us, "-"),
        };
        write!(f, "{seed} {} {word} {number} {stage}", twist.label())
    }
}

impl FromStr for Fate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let [seed, twist, word, number, stage] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let number: u64 = number.parse().ok()?;
            let ending = || {
                let stage = Stage::ALL.into_iter().find(|known| known.label() == stage)?;
                Some(Ending { point: number as usize, stage })
            };
            let end = match word {
                "at" => End::At(ending()?),
                "open" => End::Open(ending()?),
                _ => End::OpenOrAfter(number),
            };
            let twist = Twist::ALL.into_iter().find(|known| known.label() == twist)?;
            Some(Self { seed: seed.parse().ok()?, twist, end })
        };
        parse().ok_or_else(|| format!("no fate: {text}"))
    }
}

/// A folder in which engines live and are killed, and what is known of it.
pub(crate) struct Folder<'a> {
    house: &'a House,
    /// Where the files are.
    files: PathBuf,
    /// Where the journals are: somewhere that no fault reaches.
    journal: PathBuf,
    pub(crate) known: Start,
}

impl<'a> Folder<'a> {
    /// Nothing yet.
    pub(crate) fn new(house: &'a House, files: &Path, journals: &Path) -> Self {
        Self { house, files: files.to_owned(), journal: journals.join("journal"), known: Start::default() }
    }

    /// Lets a process live there until its end, and learns what it did.
    pub(crate) fn live(&mut self, fate: Fate) -> Result<Told, String> {
        std::fs::remove_file(&self.journal).ok();
        let mut command = Command::new(std::env::current_exe().map_err(|failed| failed.to_string())?);
        command
            .args(["life::lives_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, &self.files)
            .env(FATE, format!("{fate} {}", self.journal.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let starting = STARTING.lock();
        let child = command.spawn();
        drop(starting);
        let child = child.and_then(Child::wait_with_output).map_err(|failed| format!("start a process: {failed}"))?;
        let told = if self.journal.exists() { journal::read(&self.journal)? } else { Told::default() };
        if child.status.signal() != Some(rustix::process::Signal::KILL.as_raw()) {
            let said = String::from_utf8_lossy(&child.stderr);
            let failed = told.failed.unwrap_or_else(|| format!("{} {said}", child.status));
            return Err(format!("the process was to be killed and ended otherwise: {failed}"));
        }
        self.known = std::mem::take(&mut self.known).after(self.house, &told.happened)?;
        Ok(told)
    }

    /// Starts an engine on the files, reads every page there is, and compares with what is known.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        // Whoever was being started when these files were last closed has let go of them.
        drop(STARTING.lock());
        let disks = RealDisks::open(&self.files, DEVICE_BYTES, None, Box::new(|_| ())).map_err(chain)?;
        let recorder = Recorder::on_disks(disks).map_err(chain)?;
        let checked = self.house.runtime.block_on(verify_on(self.house, &recorder, &self.known));
        let (cairn, known) = checked?;
        drop(cairn);
        self.known = known;
        Ok(())
    }
}

fn chain(failed: impl std::error::Error) -> String {
    let mut text = failed.to_string();
    let mut cause = failed.source();
    while let Some(failed) = cause {
        text = format!("{text}: {failed}");
        cause = failed.source();
    }
    text
}

#[test]
#[ignore = "the process that is killed by the rigs"]
fn lives_until_it_is_killed() {
    let Some(told) = std::env::var_os(FATE) else { return };
    let told = told.into_string().expect("a fate is text");
    let (fate, journal) = told.rsplit_once(' ').expect("a fate and a journal");
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    // Nobody is left behind if the rig ends first.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("it is told");
    let journal = Journal::open(Path::new(journal));
    if let Err(failed) = live(fate.parse().expect("a fate"), &folder, &journal) {
        journal.say(&format!("failed {}", failed.replace('\n', " ")));
        std::process::exit(1);
    }
}

/// Ends only if something is wrong.
fn live(fate: Fate, folder: &Path, journal: &Journal) -> Result<(), String> {
    let ending = match fate.end {
        End::At(ending) | End::Open(ending) => Some(ending),
        End::OpenOrAfter(us) => {
            std::thread::spawn(move || end_after(us));
            None
        }
    };
    let house = Arc::new(House::new());
    let (told, known) = (journal.again(), Arc::clone(&house));
    let on_disks = Box::new(move |what: OnDisks<'_>| match what {
        OnDisks::Begins(point) => Event::of(&known, point).into_iter().for_each(|event| told.event(event)),
        OnDisks::Ends(stage, point) => told.say(&format!("ends {} {}", stage.label(), point.kind())),
    });
    let mut disks = RealDisks::open(folder, DEVICE_BYTES, ending, on_disks).map_err(chain)?;
    match fate.twist {
        Twist::None => {}
        Twist::NoDirectory => disks.lose_directory(),
        Twist::NoBarriers => disks.leave_out_barriers(),
    }
    let recorder = Recorder::on_disks(disks).map_err(chain)?;
    let cairn = house.open(&recorder)?;
    drop(recorder);
    journal.say("opened");
    if !matches!(fate.end, End::At(_)) {
        journal.say("ends after opening");
        end_this_process();
    }
    let notes = journal.again();
    let mut script = Script::new(&house, cairn, Start::default()).told_to(move |note| notes.note(note));
    let mut dice = Dice::new(fate.seed);
    for _ in 0..OPS_MAX {
        let op: Vec<Op> = roll(&house, &mut dice, 1);
        house.runtime.block_on(script.run(&op))?;
    }
    Err("the script was over before its end came".to_owned())
}

fn end_after(us: u64) {
    let (_open, never) = sync_channel::<()>(0);
    let _ = never.recv_timeout(Duration::from_micros(us));
    end_this_process();
}

#[test]
fn a_fate_is_told_to_another_process_as_text() {
    let ending = Ending { point: 7, stage: Stage::Halfway };
    for end in [End::At(ending), End::Open(ending), End::OpenOrAfter(900)] {
        for twist in Twist::ALL {
            let fate = Fate { seed: u64::MAX, twist, end };
            assert_eq!(fate.to_string().parse(), Ok(fate));
        }
    }
}
