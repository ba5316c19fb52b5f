//! From a hash to the number of an entry.
//!
//! In shards, each a hash table of its own: a table doubles by moving all it holds, and with one table of ten million that would hold
//! up every caller for half a second; a shard takes about one millisecond.

use hashbrown::HashTable;

const SHARDS: usize = 1024;

#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<HashTable<u32>>,
}

/// The shard of a hash: by bits of which the tables use neither the lowest (place) nor the highest (tag).
const fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

impl Table {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    /// The number under `hash` for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[shard_of(hash)].find(hash, |number| is_it(*number)).copied()
    }

    /// Makes room for `numbers` more, evenly spread; `hash_of` as for [`Table::insert`].
    pub(super) fn reserve(&mut self, numbers: usize, hash_of: impl Fn(u32) -> u64) {
        for shard in &mut self.shards {
            shard.reserve(numbers / SHARDS, |number| hash_of(*number));
        }
    }

    /// Adds `number` under `hash`. `hash_of` is asked for the hashes of others, when the table grows.
    pub(super) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        self.shards[shard_of(hash)].insert_unique(hash, number, |number| hash_of(*number));
    }

    pub(super) fn remove(&mut self, hash: u64, number: u32) {
        if let Ok(found) = self.shards[shard_of(hash)].find_entry(hash, |other| *other == number) {
            found.remove();
        }
    }

    /// Bytes allocated.
    pub(super) fn resident_bytes(&self) -> usize {
        let shards = self.shards.capacity() * size_of::<HashTable<u32>>();
        shards + self.shards.iter().map(HashTable::allocation_size).sum::<usize>()
    }
}
