# The build environment: `source deploy/env.sh`, then use cargo as usual. The Makefile does it for you.
# Everything heavy lives outside the clone, so that a second clone or a second build does not compile it again.
export CAIRN_CACHE="${CAIRN_CACHE:-/var/cache/cairn}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$CAIRN_CACHE/target}"
# RocksDB as deploy/setup.sh built it. Without it, cargo compiles RocksDB itself (about 12 minutes on two cores).
_rocksdb=$(sed -n '/^name = "librocksdb-sys"$/{n;s/^version = "\(.*\)"$/\1/p}' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.lock" 2>/dev/null)
if [ -n "$_rocksdb" ] && [ -f "$CAIRN_CACHE/rocksdb-$_rocksdb/librocksdb.a" ]; then
  export ROCKSDB_LIB_DIR="$CAIRN_CACHE/rocksdb-$_rocksdb" ROCKSDB_STATIC=1
fi
unset _rocksdb
