//! What every [`Directory`] must do, as functions over a [`Rig`]; the macro [`conformance_tests`](crate::conformance_tests) makes a test
//! of each. Built with the feature `testkit` only.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "these are tests: they panic when they fail")]

use cairn_core::{
    Adapter, Checksum, Declared, DeviceId, Generation, HeadRange, Heads, Identity, KeyScheme, LayerRange, NamespaceId,
    PageKey, SlotId, StateKind, TenantId,
};

use cairn_policy::{Ledger, ScrubMark};

pub use crate::directory::Family;
use crate::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};

/// One directory that can be opened again and again.
pub trait Rig {
    /// What is tested.
    type Directory: Directory + Tamper;

    /// Opens the directory, empty the first time. Called only when what it returned before has been closed or dropped; being dropped
    /// without having been closed stands for a crash.
    fn open(&self) -> Self::Directory;
}

/// Reaches below a directory to what it stores.
pub trait Tamper {
    /// The stored value of `key`.
    fn stored(&self, family: Family, key: &[u8]) -> Option<Vec<u8>>;

    /// Stores `value` under `key`, or deletes it; false if that failed.
    fn store(&self, family: Family, key: &[u8], value: Option<&[u8]>) -> bool;
}

/// Makes a test of every function of the suite; the argument makes a fresh [`Rig`].
#[macro_export]
macro_rules! conformance_tests {
    ($rig:expr) => {
        $crate::conformance_tests! { $rig;
            what_was_committed_is_found_after_a_restart_and_after_a_crash,
            a_put_replaces_and_a_removal_removes_what_was_known_of_a_page,
            the_changes_of_one_commit_apply_in_their_order,
            removing_a_namespace_removes_all_its_pages_and_nobody_elses,
            a_commit_with_one_unfit_record_changes_nothing,
            a_scan_gives_the_records_in_order_of_namespace_and_key,
            case_17_one_corrupt_record_costs_that_record_and_is_counted,
            case_12_a_record_under_another_key_is_not_believed,
            a_record_of_an_unknown_version_is_skipped_and_counted,
            a_put_over_a_corrupt_record_mends_it,
            namespaces_come_back_with_tenant_and_identity,
            a_corrupt_namespace_record_costs_that_namespace_and_is_counted,
            the_device_is_remembered_and_a_corrupt_one_is_damage,
            the_ledger_is_remembered_and_a_corrupt_one_is_damage,
            the_mark_of_the_scrub_is_remembered_and_a_corrupt_one_is_damage,
            a_closed_directory_answers_closed_and_nothing_else,
            commits_from_many_threads_are_all_there,
        }
    };
    ($rig:expr; $($name:ident),* $(,)?) => {
        $(#[test] fn $name() { $crate::conformance::$name(&$rig) })*
    };
}

/// A record that can be; its values follow from namespace and key.
pub fn record(namespace: u8, key: u32) -> Record {
    Record {
        namespace: NamespaceId::from_bytes([namespace; 32]),
        key: page_key(key),
        parent: (!key.is_multiple_of(4)).then(|| page_key(key - 1)),
        position: key % 4,
        slot: SlotId { region: key / 10, slot: key % 10 },
        generation: Generation::from_u64(u64::from(key) + 1),
        payload_bytes: 4096,
        checksum: Checksum::of(&key.to_le_bytes()),
    }
}

/// A namespace with a name of its own.
pub fn namespace(id: u8) -> NamespaceRecord {
    let identity = Identity {
        model: format!("model-{id} \u{fc}\u{4e2d}"),
        model_revision: "1".to_owned(),
        adapter: Declared::Is(Adapter { name: "a\"dapter\n".to_owned(), revision: "2".to_owned() }),
        positions: Declared::None,
        kind: StateKind::Attention,
        dtype: "bf16".to_owned(),
        layout: "NHD".to_owned(),
        layout_version: "1".to_owned(),
        page_tokens: 16,
        page_bytes: 1 << 20,
        layers: LayerRange { first: 0, count: 32, of: 32 },
        heads: Heads::Range(HeadRange { first: 0, count: 8, of: 8 }),
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::EngineHash { algorithm: "sha256".to_owned(), seed: Declared::Is("0".to_owned()) },
    };
    let tenant = TenantId::new(&format!("tenant-{id}")).unwrap();
    NamespaceRecord { id: NamespaceId::from_bytes([id; 32]), tenant, identity }
}

fn page_key(key: u32) -> PageKey {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&key.to_be_bytes());
    PageKey::from_bytes(bytes)
}

fn puts(namespace: u8, keys: std::ops::Range<u32>) -> Vec<Change> {
    keys.map(|key| Change::Put(record(namespace, key))).collect()
}

fn stored_key(record: &Record) -> Vec<u8> {
    record.stored_key().to_vec()
}

fn scan(directory: &impl Directory) -> (Vec<Record>, ScanReport) {
    let mut records = Vec::new();
    let report = directory.scan(&mut |record| records.push(record)).unwrap();
    assert_eq!(report.records, records.len() as u64);
    (records, report)
}

fn records_of(directory: &impl Directory) -> Vec<Record> {
    scan(directory).0
}

/// Durability and restart.
pub fn what_was_committed_is_found_after_a_restart_and_after_a_crash(rig: &impl Rig) {
    let directory = rig.open();
    assert_eq!(records_of(&directory), []);
    directory.commit(&puts(1, 0..100)).unwrap();
    directory.commit(&[]).unwrap();
    directory.close().unwrap();
    let directory = rig.open();
    directory.commit(&puts(1, 100..200)).unwrap();
    drop(directory);
    let expected: Vec<Record> = (0..200).map(|key| record(1, key)).collect();
    assert_eq!(scan(&rig.open()), (expected, ScanReport { records: 200, ..ScanReport::default() }));
}

/// Replacing and removing.
pub fn a_put_replaces_and_a_removal_removes_what_was_known_of_a_page(rig: &impl Rig) {
    let directory = rig.open();
    directory.commit(&puts(1, 0..3)).unwrap();
    let moved = Record { slot: SlotId { region: 9, slot: 9 }, generation: Generation::from_u64(99), ..record(1, 1) };
    let gone = record(1, 2);
    let unknown = record(2, 2);
    let remove = |record: Record| Change::Remove { namespace: record.namespace, key: record.key };
    directory.commit(&[Change::Put(moved), remove(gone), remove(unknown)]).unwrap();
    drop(directory);
    assert_eq!(records_of(&rig.open()), [record(1, 0), moved]);
}

/// Order within a commit.
pub fn the_changes_of_one_commit_apply_in_their_order(rig: &impl Rig) {
    let directory = rig.open();
    let (old, new) = (record(1, 0), Record { generation: Generation::from_u64(77), ..record(1, 0) });
    let removed = Change::Remove { namespace: old.namespace, key: old.key };
    directory.commit(&[Change::Put(old), removed, Change::Put(new)]).unwrap();
    assert_eq!(records_of(&directory), [new]);
    directory.commit(&[Change::RemoveNamespace(old.namespace), Change::Put(old)]).unwrap();
    assert_eq!(records_of(&directory), [old]);
    directory.commit(&[Change::Put(new), Change::RemoveNamespace(old.namespace)]).unwrap();
    assert_eq!(records_of(&directory), []);
}

/// Removal by namespace, at the edges of what ids and keys can be.
pub fn removing_a_namespace_removes_all_its_pages_and_nobody_elses(rig: &impl Rig) {
    let directory = rig.open();
    let edge = |namespace: u8, key: u8| Record { key: PageKey::from_bytes([key; 32]), ..record(namespace, 0) };
    let all = [0x00, 0x01, 0xfe, 0xff].map(|namespace| [edge(namespace, 0x00), edge(namespace, 0xff)]);
    let puts: Vec<Change> = all.as_flattened().iter().copied().map(Change::Put).collect();
    directory.commit(&puts).unwrap();
    directory.save_namespace(&namespace(0xff)).unwrap();
    for removed in [0x01, 0xff] {
        directory.commit(&[Change::RemoveNamespace(NamespaceId::from_bytes([removed; 32]))]).unwrap();
    }
    directory.close().unwrap();
    let directory = rig.open();
    assert_eq!(records_of(&directory), [all[0], all[2]].as_flattened());
    assert_eq!(directory.namespaces().unwrap(), [namespace(0xff)], "the namespace itself stays known");
}

/// All or nothing.
pub fn a_commit_with_one_unfit_record_changes_nothing(rig: &impl Rig) {
    let directory = rig.open();
    let orphan = Record { parent: None, ..record(1, 1) };
    let empty = Record { payload_bytes: 0, ..record(1, 0) };
    for unfit in [orphan, empty] {
        let refused = directory.commit(&[Change::Put(record(1, 0)), Change::Put(unfit), Change::Put(record(1, 2))]);
        assert!(matches!(refused, Err(DirectoryError::Unfit { .. })), "{refused:?}");
    }
    assert_eq!(records_of(&directory), []);
    directory.commit(&puts(1, 0..1)).unwrap();
}

/// Order of a scan.
pub fn a_scan_gives_the_records_in_order_of_namespace_and_key(rig: &impl Rig) {
    let directory = rig.open();
    directory.commit(&[puts(2, 0..2), puts(1, 5..6), puts(1, 0..1)].concat()).unwrap();
    assert_eq!(records_of(&directory), [record(1, 0), record(1, 5), record(2, 0), record(2, 1)]);
}

/// Damage to one record: every bit of it, and every way to be of another length.
pub fn case_17_one_corrupt_record_costs_that_record_and_is_counted(rig: &impl Rig) {
    let directory = rig.open();
    directory.commit(&puts(1, 0..100)).unwrap();
    let key = stored_key(&record(1, 50));
    let good = directory.stored(Family::Entries, &key).unwrap();
    let others: Vec<Record> = (0..100).filter(|key| *key != 50).map(|key| record(1, key)).collect();
    let flipped = (0..good.len()).map(|byte| {
        let mut value = good.clone();
        value[byte] ^= 1 << (byte % 8);
        value
    });
    let cut = [0, 1, 8, good.len() / 2, good.len() - 1].map(|bytes| good[..bytes].to_vec());
    let longer = [good.clone(), vec![0]].concat();
    for corrupt in flipped.chain(cut).chain([longer]) {
        assert!(directory.store(Family::Entries, &key, Some(&corrupt)));
        assert_eq!(
            scan(&directory),
            (others.clone(), ScanReport { records: 99, corrupt_records: 1, corrupt_namespaces: 0 })
        );
    }
    directory.close().unwrap();
    assert_eq!(records_of(&rig.open()), others, "after a restart too");
}

/// Damage to a key.
pub fn case_12_a_record_under_another_key_is_not_believed(rig: &impl Rig) {
    let directory = rig.open();
    directory.commit(&puts(1, 0..2)).unwrap();
    let key = stored_key(&record(1, 0));
    let value = directory.stored(Family::Entries, &key).unwrap();
    let mut flipped = key.clone();
    flipped[63] ^= 0x10;
    assert!(directory.store(Family::Entries, &key, None) && directory.store(Family::Entries, &flipped, Some(&value)));
    assert!(directory.store(Family::Entries, &key[..63], Some(&value)));
    let report = ScanReport { records: 1, corrupt_records: 2, corrupt_namespaces: 0 };
    assert_eq!(scan(&directory), (vec![record(1, 1)], report));
}

/// A record written by a later version of the program.
pub fn a_record_of_an_unknown_version_is_skipped_and_counted(rig: &impl Rig) {
    let directory = rig.open();
    directory.commit(&puts(1, 0..2)).unwrap();
    let key = stored_key(&record(1, 0));
    let mut body = directory.stored(Family::Entries, &key).unwrap();
    body.truncate(body.len() - 8);
    body[0] = 2;
    let checksum = Checksum::of(&[&key[..], &body].concat()).to_u64().to_le_bytes();
    assert!(directory.store(Family::Entries, &key, Some(&[&body[..], &checksum].concat())));
    let report = ScanReport { records: 1, corrupt_records: 1, corrupt_namespaces: 0 };
    assert_eq!(scan(&directory), (vec![record(1, 1)], report));
}

/// Repair by use.
pub fn a_put_over_a_corrupt_record_mends_it(rig: &impl Rig) {
    let directory = rig.open();
    assert!(directory.store(Family::Entries, &stored_key(&record(1, 0)), Some(b"nonsense")));
    assert_eq!(scan(&directory).1.corrupt_records, 1);
    directory.commit(&puts(1, 0..1)).unwrap();
    assert_eq!(scan(&directory), (vec![record(1, 0)], ScanReport { records: 1, ..ScanReport::default() }));
}

/// Namespaces.
pub fn namespaces_come_back_with_tenant_and_identity(rig: &impl Rig) {
    let directory = rig.open();
    assert_eq!(directory.namespaces().unwrap(), []);
    let replaced = NamespaceRecord { tenant: TenantId::local(), ..namespace(2) };
    for saved in [&namespace(3), &replaced, &namespace(1), &namespace(2)] {
        directory.save_namespace(saved).unwrap();
    }
    drop(directory);
    assert_eq!(rig.open().namespaces().unwrap(), [namespace(1), namespace(2), namespace(3)]);
}

/// Damage to a namespace record.
pub fn a_corrupt_namespace_record_costs_that_namespace_and_is_counted(rig: &impl Rig) {
    let directory = rig.open();
    for id in [1, 2] {
        directory.save_namespace(&namespace(id)).unwrap();
    }
    directory.commit(&puts(1, 0..1)).unwrap();
    let good = directory.stored(Family::Namespaces, &[1; 32]).unwrap();
    for byte in 0..good.len() {
        let mut value = good.clone();
        value[byte] ^= 0x40;
        assert!(directory.store(Family::Namespaces, &[1; 32], Some(&value)));
        assert_eq!(directory.namespaces().unwrap(), [namespace(2)]);
    }
    let report = ScanReport { records: 1, corrupt_records: 0, corrupt_namespaces: 1 };
    assert_eq!(scan(&directory), (vec![record(1, 0)], report));
}

/// The device.
pub fn the_device_is_remembered_and_a_corrupt_one_is_damage(rig: &impl Rig) {
    let directory = rig.open();
    assert_eq!(directory.device().unwrap(), None);
    for device in [device(1), device(2)] {
        directory.set_device(device).unwrap();
    }
    drop(directory);
    let directory = rig.open();
    assert_eq!(directory.device().unwrap(), Some(device(2)));
    let mut value = directory.stored(Family::Meta, b"device").unwrap();
    value[10] ^= 1;
    assert!(directory.store(Family::Meta, b"device", Some(&value)));
    let refused = directory.device();
    assert!(matches!(refused, Err(DirectoryError::Damaged { .. })), "{refused:?}");
}

/// The ledger.
pub fn the_ledger_is_remembered_and_a_corrupt_one_is_damage(rig: &impl Rig) {
    let directory = rig.open();
    assert_eq!(directory.ledger().unwrap(), None);
    let hour_bytes = std::array::from_fn(|hour| hour as u64 + 1);
    let first = Ledger { level_bytes: -5, written_bytes: 7, running_seconds: 11, hour_bytes };
    let second = Ledger { level_bytes: i64::MAX, ..first };
    for ledger in [first, second] {
        directory.save_ledger(&ledger).unwrap();
    }
    drop(directory);
    let directory = rig.open();
    assert_eq!(directory.ledger().unwrap(), Some(second));
    let good = directory.stored(Family::Meta, b"ledger").unwrap();
    for byte in 0..good.len() {
        let mut value = good.clone();
        value[byte] ^= 0x10;
        assert!(directory.store(Family::Meta, b"ledger", Some(&value)));
        let refused = directory.ledger();
        assert!(matches!(refused, Err(DirectoryError::Damaged { .. })), "{refused:?}");
    }
    directory.set_device(device(1)).unwrap();
    assert!(directory.device().unwrap().is_some(), "one damaged record costs only itself");
}

/// The scrub.
pub fn the_mark_of_the_scrub_is_remembered_and_a_corrupt_one_is_damage(rig: &impl Rig) {
    let directory = rig.open();
    assert_eq!(directory.scrub().unwrap(), None);
    let first = ScrubMark { running_ms: 5, began_ms: 3, before_ms: 1, region: 7, asked: true, passes: u64::MAX };
    let second = ScrubMark { asked: false, region: u32::MAX, ..first };
    for mark in [first, second] {
        directory.save_scrub(&mark).unwrap();
        assert_eq!(directory.scrub().unwrap(), Some(mark));
    }
    drop(directory);
    let directory = rig.open();
    assert_eq!(directory.scrub().unwrap(), Some(second));
    let mut value = directory.stored(Family::Meta, b"scrub").unwrap();
    value[9] ^= 0x10;
    assert!(directory.store(Family::Meta, b"scrub", Some(&value)));
    let refused = directory.scrub();
    assert!(matches!(refused, Err(DirectoryError::Damaged { .. })), "{refused:?}");
}

/// After the end.
pub fn a_closed_directory_answers_closed_and_nothing_else(rig: &impl Rig) {
    let directory = rig.open();
    directory.close().unwrap();
    directory.close().unwrap();
    let refusals = [
        directory.commit(&puts(1, 0..1)).unwrap_err(),
        directory.scan(&mut |_| ()).unwrap_err(),
        directory.save_namespace(&namespace(1)).unwrap_err(),
        directory.namespaces().unwrap_err(),
        directory.device().unwrap_err(),
        directory.set_device(device(1)).unwrap_err(),
        directory.ledger().unwrap_err(),
        directory.save_ledger(&Ledger::default()).unwrap_err(),
        directory.scrub().unwrap_err(),
        directory.save_scrub(&ScrubMark::default()).unwrap_err(),
        directory.release().unwrap_err(),
    ];
    assert!(refusals.iter().all(|refusal| matches!(refusal, DirectoryError::Closed)), "{refusals:?}");
    assert_eq!(records_of(&rig.open()), []);
}

/// Threads.
pub fn commits_from_many_threads_are_all_there(rig: &impl Rig) {
    let directory = rig.open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = &directory;
            scope.spawn(move || {
                for key in 0..25 {
                    directory.commit(&puts(thread, key..key + 1)).unwrap();
                }
            });
        }
    });
    drop(directory);
    assert_eq!(records_of(&rig.open()).len(), 100);
}

fn device(number: u8) -> DeviceRecord {
    DeviceRecord { id: DeviceId::from_bytes([number; 16]), run: u64::from(number) + 40 }
}
