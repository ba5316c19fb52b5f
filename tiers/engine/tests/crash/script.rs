//! A life of an engine: operations one after the other, each of them waited for, so that the same script makes the same history.
//!
//! The writer stands still while a put fills its queue: it is held in the clearing of a space that has no pages. So a put is one batch.

use std::sync::Arc;

use cairn_core::{Durability, PageKey, PageOutcome};
use cairn_testkit::dice::Dice;
use cairn_testkit::trials::number;

use crate::house::{Cairn, House, Place, Seen, send_all, slot_at};
use crate::oracle::{Life, Note, Start};

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Puts the first pages of a chain.
    Put { chain: usize, pages: usize, durability: Durability },
    /// Puts of both page sizes that are written as one batch.
    PutBoth { chains: [usize; 2] },
    /// Reads a chain.
    Get { chain: usize },
    /// Clears a space.
    Clear { space: usize },
    /// Clears a space while pages of it wait to be written.
    PutAndClear { chain: usize },
    /// Closes in order, or not, and opens again. The power stays on.
    Reopen { orderly: bool },
    /// The directory is lost; opens again.
    LoseDirectory,
    /// A page on the SSD goes bad and is read after a restart.
    Rot { nth: usize, at: usize },
}

/// An engine in the middle of its life.
pub(crate) struct Script<'a> {
    house: &'a House,
    /// `None` only if it could not be opened again.
    open: Option<Cairn>,
    notes: Vec<(usize, Note)>,
    start: Start,
    /// Hears of every note at once.
    listener: Option<Box<dyn FnMut(Note) + 'a>>,
}

/// A script of `ops` operations that the dice choose.
pub(crate) fn roll(house: &House, dice: &mut Dice, ops: usize) -> Vec<Op> {
    (0..ops).map(|_| roll_one(house, dice)).collect()
}

fn roll_one(house: &House, dice: &mut Dice) -> Op {
    let chain = dice.place(house.chains.len());
    let half = house.chains.len() / 2;
    match dice.place(40) {
        0..16 => Op::Put {
            chain,
            pages: 1 + dice.place(house.chains[chain].keys.len()),
            durability: if dice.place(3) == 0 { Durability::Memory } else { Durability::Ssd },
        },
        16..22 => Op::PutBoth { chains: [dice.place(half), half + dice.place(half)] },
        22..28 => Op::Get { chain },
        28..30 => Op::Clear { space: dice.place(2) },
        30..32 => Op::PutAndClear { chain },
        32..36 => Op::Reopen { orderly: dice.place(2) == 0 },
        36 => Op::LoseDirectory,
        _ => Op::Rot { nth: dice.place(64), at: dice.place(4096) },
    }
}

impl<'a> Script<'a> {
    /// Goes on with an engine that has just been checked.
    pub(crate) fn new(house: &'a House, cairn: Cairn, start: Start) -> Self {
        Self { house, open: Some(cairn), notes: Vec::new(), start, listener: None }
    }

    /// The same, told to `listener` note by note.
    pub(crate) fn told_to(self, listener: impl FnMut(Note) + 'a) -> Self {
        Self { listener: Some(Box::new(listener)), ..self }
    }

    pub(crate) fn cairn(&self) -> &Cairn {
        self.open.as_ref().expect("an engine that failed to open ends the script")
    }

    /// Whether a durable put of the page has been answered.
    pub(crate) fn has_acknowledged(&self, key: &PageKey) -> bool {
        self.notes.iter().any(|(_, note)| *note == Note::Acknowledged(*key))
    }

    /// Ends the life: what happened in it.
    pub(crate) fn end(self) -> Life {
        let history = self.cairn().recorder.history();
        Life { history, notes: self.notes, start: self.start }
    }

    pub(crate) async fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            if number("CAIRN_TRIAL").is_some() {
                println!("at {}: {op:?}", self.cairn().recorder.len());
            }
            self.step(*op).await.map_err(|failed| format!("{op:?}: {failed}"))?;
        }
        Ok(())
    }

    pub(crate) async fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Put { chain, pages, durability } => self.put(&[(chain, pages)], durability, false).await,
            Op::PutBoth { chains } => {
                let all = chains.map(|chain| (chain, self.house.chains[chain].keys.len()));
                self.put(&all, Durability::Ssd, false).await
            }
            Op::PutAndClear { chain } => {
                self.put(&[(chain, self.house.chains[chain].keys.len())], Durability::Ssd, true).await
            }
            Op::Get { chain } => self.get(chain).await,
            Op::Clear { space } => self.clear(space).await,
            Op::Reopen { orderly } => self.reopen(orderly).await,
            Op::LoseDirectory => {
                self.close(false).await;
                self.cairn().recorder.lose_directory();
                self.open()
            }
            Op::Rot { nth, at } => self.rot(nth, at).await,
        }
    }

    fn note(&mut self, note: Note) {
        self.notes.push((self.cairn().recorder.len(), note));
        if let Some(listener) = &mut self.listener {
            listener(note);
        }
    }

    async fn put(&mut self, what: &[(usize, usize)], durability: Durability, then_clear: bool) -> Result<(), String> {
        let recorder = Arc::clone(&self.cairn().recorder);
        recorder.hold();
        let plug = self.clear_in_background(2).await;
        // Once writes have failed, a clear is refused at once, and nothing stands still.
        while !recorder.is_held() && !plug.is_finished() {
            tokio::task::yield_now().await;
        }
        let mut puts = Vec::new();
        for (chain, pages) in what {
            let chain = &self.house.chains[*chain];
            let mut put = self.cairn().begin(chain, *pages, durability)?;
            send_all(&mut put, chain).await;
            puts.push((chain, put));
        }
        let clearing = match then_clear {
            true => {
                let space = puts[0].0.space;
                self.note(Note::ClearBegun(space));
                Some((space, self.clear_in_background(space).await))
            }
            false => None,
        };
        recorder.release();
        let plugged = plug.await.map_err(|failed| failed.to_string())?;
        if let Some((space, clearing)) = clearing
            && clearing.await.map_err(|failed| failed.to_string())?
        {
            self.note(Note::Cleared(space));
        }
        let mut durable: Vec<PageKey> = Vec::new();
        for (chain, put) in puts {
            let report = put.finish().await;
            let reached = chain.keys.iter().zip(&report.outcomes).filter(|(_, outcome)| is_durable(**outcome));
            durable.extend(reached.map(|(key, _)| *key));
        }
        // What was there already is answered at once, at no certain point; so all is noted when the writer is idle.
        self.cairn().written();
        durable.into_iter().for_each(|key| self.note(Note::Acknowledged(key)));
        // The plug fails only where the disks fail.
        let _ = plugged;
        Ok(())
    }

    /// Begins to clear a space; the answer says whether it was cleared.
    async fn clear_in_background(&self, space: usize) -> tokio::task::JoinHandle<bool> {
        let (engine, namespace) = (Arc::clone(&self.cairn().engine), Arc::clone(&self.cairn().spaces[space]));
        let clearing = tokio::spawn(async move { engine.clear(&namespace).await.is_ok() });
        // On one thread: now it has asked, and waits for the answer.
        tokio::task::yield_now().await;
        clearing
    }

    async fn clear(&mut self, space: usize) -> Result<(), String> {
        self.note(Note::ClearBegun(space));
        if self.cairn().engine.clear(&self.cairn().spaces[space]).await.is_ok() {
            self.note(Note::Cleared(space));
        }
        Ok(())
    }

    async fn get(&mut self, chain: usize) -> Result<(), String> {
        for page in 0..self.house.chains[chain].keys.len() {
            if self.house.read(self.cairn(), Place { chain, page }).await? != Seen::There {
                break;
            }
        }
        Ok(())
    }

    async fn close(&self, orderly: bool) {
        if orderly {
            self.cairn().engine.close(std::time::Duration::from_secs(30)).await;
        }
    }

    async fn reopen(&mut self, orderly: bool) -> Result<(), String> {
        self.close(orderly).await;
        self.open()
    }

    /// Opens the engine again, on the same disks, when the one before it is gone.
    fn open(&mut self) -> Result<(), String> {
        let Some(before) = self.open.take() else { return Err("nothing is open".to_owned()) };
        let recorder = Arc::clone(&before.recorder);
        // Its writer ends when the last holder lets go, and that is here.
        let engine = Arc::downgrade(&before.engine);
        drop(before);
        if engine.upgrade().is_some() {
            return Err("somebody holds the engine".to_owned());
        }
        self.open = Some(self.house.open(&recorder)?);
        Ok(())
    }

    async fn rot(&mut self, nth: usize, at: usize) -> Result<(), String> {
        self.reopen(false).await?;
        let records: Vec<_> = self.cairn().recorder.directory_state().records.into_values().collect();
        if records.is_empty() {
            return Ok(());
        }
        let record = records[nth % records.len()];
        // In what is used of the header, or in the payload.
        let at = slot_at(record.slot, record.payload_bytes) + if at < 192 { at } else { 4096 + at };
        let byte = self.cairn().recorder.peek(at, 1)[0] ^ 0x20;
        self.cairn().recorder.rot(at, &[byte]);
        self.note(Note::Rotten(record.key, record.generation.to_u64()));
        let place = self.house.places.iter().find(|place| self.house.key(**place) == record.key);
        match self.house.read(self.cairn(), *place.ok_or("a page that nobody put")?).await? {
            Seen::There => Err("I9: damage was not noticed".to_owned()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn is_durable(outcome: PageOutcome) -> bool {
    matches!(outcome, PageOutcome::Stored(Durability::Ssd) | PageOutcome::Present(Durability::Ssd))
}
