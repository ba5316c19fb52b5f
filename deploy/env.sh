# The build environment: `source deploy/env.sh`, then use cargo as usual. The Makefile does it for you.
# Everything heavy lives outside the clone, so that a second clone or a second build does not compile it again.
if [ -z "${CAIRN_CACHE:-}" ]; then
  CAIRN_CACHE=/var/cache/cairn
  mkdir -p "$CAIRN_CACHE" 2>/dev/null && [ -w "$CAIRN_CACHE" ] || CAIRN_CACHE="$HOME/.cache/cairn"
fi
export CAIRN_CACHE
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$CAIRN_CACHE/target}"

# RocksDB as deploy/setup.sh builds it. Without that file cargo compiles RocksDB itself, about 12 minutes on two cores.
CAIRN_ROCKSDB_VERSION=$(sed -n '/^name = "librocksdb-sys"$/{n;s/^version = "\(.*\)"$/\1/p}' \
  "$(dirname "${BASH_SOURCE[0]}")/../Cargo.lock")
CAIRN_ROCKSDB_DIR="$CAIRN_CACHE/rocksdb-$CAIRN_ROCKSDB_VERSION"
if [ -f "$CAIRN_ROCKSDB_DIR/librocksdb.a" ]; then
  export ROCKSDB_LIB_DIR="$CAIRN_ROCKSDB_DIR" ROCKSDB_STATIC=1
fi
