//! RocksDB's settings, for a small directory of 144-byte records that is scanned once at start and only written after that.
//!
//! Memory: two write buffers of 16 MiB and a block cache of 4 MiB that holds index blocks too, so a directory of any size takes under
//! 40 MiB. Disk: about 130 bytes a record, tables of 64 MiB, at most 64 MiB of log to replay at start, 2 MiB of RocksDB's own messages.

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options, ReadOptions, WriteOptions,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Settings of the database and of every family in it.
pub(super) fn open(create: bool) -> Options {
    let mut options = Options::default();
    options.create_if_missing(create);
    options.create_missing_column_families(create);
    set_checks(&mut options);
    set_sizes(&mut options);
    set_messages(&mut options);
    options
}

/// Damage is found at once and never worked around: the directory can be rebuilt.
fn set_checks(options: &mut Options) {
    options.set_paranoid_checks(true);
    options.set_track_and_verify_wals_in_manifest(true);
    // A half-written last batch is what a crash leaves; anything else wrong in the log is damage, and dropping what follows it, as the
    // default does, would bring back pages that were removed. A log that is missing or was cut off can not be told from one that ended
    // there; what is then believed of a slot wrongly, its header contradicts.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
}

fn set_sizes(options: &mut Options) {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(32 * KIB);
    table.set_block_cache(&Cache::new_lru_cache(4 * MIB));
    table.set_cache_index_and_filter_blocks(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(16 * MIB);
    options.set_max_write_buffer_number(2);
    options.set_db_write_buffer_size(32 * MIB);
    options.set_max_total_wal_size(64 * MIB as u64);
    options.set_target_file_size_base(64 * MIB as u64);
    options.set_max_manifest_file_size(4 * MIB);
    options.set_bytes_per_sync(MIB as u64);
    options.set_max_background_jobs(2);
    // Keys and records are hashes and checksums: nothing to gain.
    options.set_compression_type(DBCompressionType::None);
}

/// RocksDB writes what it has to say to files of its own; they tell of trouble only, and stay small.
fn set_messages(options: &mut Options) {
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(MIB);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
}

/// Settings of a scan: large reads, and nothing else pushed out of the cache.
pub(super) fn scan() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_readahead_size(2 * MIB);
    options
}

/// Settings of a write: durable when it returns.
pub(super) fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}
