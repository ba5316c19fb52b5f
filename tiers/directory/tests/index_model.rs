//! The index against the plainest model there is, over random operations.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::collections::{BTreeMap, BTreeSet};

use cairn_core::{PageKey, SlotId};
use cairn_directory::{Index, NamespaceNo};
use cairn_policy::PageId;
use cairn_testkit::dice::Dice;
use cairn_testkit::trials::Rig;
use proptest::prelude::*;

const ENTRIES_MAX: usize = 12;
const KEYS: u8 = 6;
const POSITIONS: u32 = 4;

type Name = (u32, u8);

#[derive(Clone, Debug)]
enum Step {
    Insert { name: Name, position: u32, parent: Option<Name> },
    Link { name: Name, parent: Name },
    Remove(Name),
    SetDram(Name, Option<u16>),
    SetSsd(Name, Option<u32>),
    Walk { namespace: u32, chain: Vec<u8> },
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Page {
    position: u32,
    parent: Option<Name>,
    dram: Option<u16>,
    ssd: Option<SlotId>,
}

/// Pages by name; everything else is searched for.
#[derive(Default)]
struct Model(BTreeMap<Name, Page>);

impl Model {
    fn children(&self, name: Name) -> BTreeSet<Name> {
        self.0.iter().filter(|(_, page)| page.parent == Some(name)).map(|(name, _)| *name).collect()
    }

    fn descendants(&self, name: Name) -> BTreeSet<Name> {
        self.children(name).into_iter().flat_map(|child| self.descendants(child).into_iter().chain([child])).collect()
    }

    fn precedes(&self, parent: Name, namespace: u32, position: u32) -> bool {
        parent.0 == namespace && self.0.get(&parent).is_some_and(|page| page.position + 1 == position)
    }

    fn insert(&mut self, name: Name, position: u32, parent: Option<Name>) -> bool {
        if self.0.contains_key(&name) {
            return true;
        }
        let fits = parent.is_none_or(|parent| self.precedes(parent, name.0, position));
        if self.0.len() >= ENTRIES_MAX || !fits {
            return false;
        }
        self.0.insert(name, Page { position, parent, ..Page::default() });
        true
    }

    fn link(&mut self, name: Name, parent: Name) -> bool {
        let Some(page) = self.0.get(&name).filter(|page| page.parent.is_none()) else { return false };
        if !self.precedes(parent, name.0, page.position) {
            return false;
        }
        self.0.entry(name).and_modify(|page| page.parent = Some(parent));
        true
    }

    fn remove(&mut self, name: Name) -> bool {
        let free = self.0.get(&name).is_some_and(|page| page.dram.is_none() && page.ssd.is_none());
        free && self.children(name).is_empty() && self.0.remove(&name).is_some()
    }
}

fn key(key: u8) -> PageKey {
    PageKey::from_bytes([key; 32])
}

fn find(index: &Index<u16>, name: Name) -> Option<PageId> {
    index.find(NamespaceNo(name.0), &key(name.1))
}

fn name(index: &Index<u16>, page: PageId) -> Name {
    let entry = index.get(page).unwrap();
    (entry.namespace.0, entry.key.as_bytes()[0])
}

fn names(index: &Index<u16>, pages: impl Iterator<Item = PageId>) -> Vec<Name> {
    pages.map(|page| name(index, page)).collect()
}

/// A number for `of`, or one that nothing has.
fn number(index: &Index<u16>, of: Name) -> PageId {
    find(index, of).unwrap_or(PageId(7777))
}

fn take_step(index: &mut Index<u16>, model: &mut Model, step: Step) {
    match step {
        Step::Insert { name: new, position, parent } => {
            let below = parent.map(|parent| number(index, parent));
            let inserted = index.insert(NamespaceNo(new.0), key(new.1), position, below);
            assert_eq!(inserted.is_some(), model.insert(new, position, parent));
            assert!(inserted.is_none_or(|page| name(index, page) == new));
        }
        Step::Link { name, parent } => {
            let linked = index.link(number(index, name), number(index, parent));
            assert_eq!(linked, model.link(name, parent));
        }
        Step::Remove(name) => assert_eq!(index.remove(number(index, name)), model.remove(name)),
        Step::SetDram(name, dram) => {
            if let (Some(entry), Some(page)) = (index.get_mut(number(index, name)), model.0.get_mut(&name)) {
                (entry.dram, page.dram) = (dram, dram);
            }
        }
        Step::SetSsd(name, slot) => {
            let ssd = slot.map(|slot| SlotId { region: 0, slot });
            if let (Some(entry), Some(page)) = (index.get_mut(number(index, name)), model.0.get_mut(&name)) {
                (entry.ssd, page.ssd) = (ssd, ssd);
            }
        }
        Step::Walk { namespace, chain } => {
            let known = chain.iter().map(|key| (namespace, *key)).take_while(|name| model.0.contains_key(name));
            let keys: Vec<PageKey> = chain.iter().copied().map(key).collect();
            let walked = index.walk(NamespaceNo(namespace), &keys);
            assert_eq!(names(index, walked.into_iter()), known.collect::<Vec<_>>());
        }
    }
}

/// Everything that can be asked gives what the model gives.
fn compare(index: &Index<u16>, model: &Model) {
    assert_eq!((index.len(), index.is_empty()), (model.0.len(), model.0.is_empty()));
    assert_eq!(
        BTreeSet::from_iter(names(index, index.iter().map(|(page, _)| page))),
        model.0.keys().copied().collect()
    );
    for namespace in 0..3 {
        let members: BTreeSet<Name> = model.0.keys().copied().filter(|name| name.0 == namespace).collect();
        let listed = names(index, index.of_namespace(NamespaceNo(namespace)));
        assert_eq!(index.count(NamespaceNo(namespace)), members.len() as u64);
        assert_parents_first(model, &listed);
        assert_eq!(same_members(listed), members);
        for key in 0..KEYS {
            assert_eq!(find(index, (namespace, key)).is_some(), model.0.contains_key(&(namespace, key)));
        }
    }
    for (name, page) in &model.0 {
        compare_page(index, model, *name, page);
    }
}

fn compare_page(index: &Index<u16>, model: &Model, page_name: Name, page: &Page) {
    let number = find(index, page_name).unwrap();
    let entry = index.get(number).unwrap();
    let parent = entry.parent.map(|parent| name(index, parent));
    assert_eq!(&Page { position: entry.position, parent, dram: entry.dram, ssd: entry.ssd }, page);
    assert_eq!(entry.is_located(), page.dram.is_some() || page.ssd.is_some());
    let children = same_members(names(index, index.children(number)));
    assert_eq!(index.has_children(number), !children.is_empty());
    assert_eq!(children, model.children(page_name));
    let below = names(index, index.descendants(number));
    assert_parents_first(model, &below);
    assert_eq!(same_members(below), model.descendants(page_name));
}

/// As a set; nothing may be listed twice.
fn same_members(listed: Vec<Name>) -> BTreeSet<Name> {
    let members: BTreeSet<Name> = listed.iter().copied().collect();
    assert_eq!(members.len(), listed.len(), "{listed:?}");
    members
}

fn assert_parents_first(model: &Model, listed: &[Name]) {
    for (at, name) in listed.iter().enumerate() {
        let parent = model.0[name].parent;
        assert!(parent.is_none_or(|parent| !listed[at..].contains(&parent)), "{listed:?}");
    }
}

fn names_of_pages() -> impl Strategy<Value = Name> {
    (0..2_u32, 0..KEYS)
}

fn steps() -> impl Strategy<Value = Step> {
    let name = names_of_pages;
    prop_oneof![
        // A key's position mostly follows from the key, so that parents mostly fit.
        6 => (name(), any::<bool>()).prop_map(|((namespace, key), linked)| Step::Insert {
            name: (namespace, key),
            position: u32::from(key) % POSITIONS,
            parent: (linked && u32::from(key) % POSITIONS > 0).then(|| (namespace, key - 1)),
        }),
        2 => (name(), 0..POSITIONS, proptest::option::of(name()))
            .prop_map(|(name, position, parent)| Step::Insert { name, position, parent }),
        3 => name().prop_map(|(namespace, key)| Step::Link { name: (namespace, key), parent: (namespace, key.saturating_sub(1)) }),
        1 => (name(), name()).prop_map(|(name, parent)| Step::Link { name, parent }),
        3 => name().prop_map(Step::Remove),
        2 => (name(), proptest::option::of(any::<u16>())).prop_map(|(name, dram)| Step::SetDram(name, dram)),
        2 => (name(), proptest::option::of(any::<u32>())).prop_map(|(name, slot)| Step::SetSsd(name, slot)),
        1 => (0..2_u32, proptest::collection::vec(0..KEYS, 0..40))
            .prop_map(|(namespace, chain)| Step::Walk { namespace, chain }),
    ]
}

proptest! {
    #[test]
    fn after_any_steps_the_index_answers_like_a_plain_map(steps in proptest::collection::vec(steps(), 1..120)) {
        let mut index = Index::with_limit(u32::try_from(ENTRIES_MAX).unwrap());
        let mut model = Model::default();
        for step in steps {
            take_step(&mut index, &mut model, step);
            compare(&index, &model);
        }
    }
}

fn roll_step(dice: &mut Dice) -> Step {
    let name = |dice: &mut Dice| (u32::from(dice.place(2) == 1), u8::try_from(dice.place(usize::from(KEYS))).unwrap());
    let (one, other) = (name(dice), name(dice));
    let before = (one.0, one.1.saturating_sub(1));
    // A key's position mostly follows from the key, so that parents mostly fit.
    let position = u32::from(one.1) % POSITIONS;
    match dice.place(20) {
        0..6 => Step::Insert { name: one, position, parent: (position > 0 && dice.place(2) == 0).then_some(before) },
        6..8 => Step::Insert { name: one, position: u32::from(other.1) % POSITIONS, parent: Some(other) },
        8..11 => Step::Link { name: one, parent: before },
        11 => Step::Link { name: one, parent: other },
        12..15 => Step::Remove(one),
        15..17 => Step::SetDram(one, (dice.place(2) == 0).then_some(7)),
        17..19 => Step::SetSsd(one, (dice.place(2) == 0).then_some(9)),
        _ => Step::Walk { namespace: one.0, chain: (0..dice.place(40)).map(|_| name(dice).1).collect() },
    }
}

/// The same from seeds, very often.
#[test]
fn an_index_answers_like_a_plain_map_after_any_sequence() {
    let rig = Rig {
        name: "R4 index sequences",
        target: "-p cairn-directory --test index_model -- --nocapture an_index_answers",
        trials: 5_000,
        nightly: 500_000,
        each: 1,
    };
    rig.run(
        || (),
        |(), _, dice| {
            let mut index = Index::with_limit(u32::try_from(ENTRIES_MAX).unwrap());
            let mut model = Model::default();
            for _ in 0..=dice.place(60) {
                take_step(&mut index, &mut model, roll_step(dice));
                compare(&index, &model);
            }
            Ok(())
        },
    );
}
