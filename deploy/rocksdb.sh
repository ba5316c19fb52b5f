#!/usr/bin/env bash
# Builds the RocksDB that ships inside the librocksdb-sys crate into one static library, once.
#
# The crate's own build script compiles 343 C++ files one by one, and most of that time goes into parsing the same headers. This
# script compiles the very same files in a few large translation units (RocksDB supports that upstream: `make unity`), with the same
# defines, and leaves `librocksdb.a` where the build script looks for it through ROCKSDB_LIB_DIR. The library is outside any
# cargo target folder, so neither another profile nor another feature set builds it again.
#
# usage: deploy/rocksdb.sh SOURCE_DIR OUT_DIR     SOURCE_DIR: the unpacked librocksdb-sys crate
set -euo pipefail
source_dir=$1
out_dir=$2
units=${ROCKSDB_UNITS:-16}

[ -f "$out_dir/librocksdb.a" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=(-std=c++20 -O2 -fPIC -include cstdint -w
  -I"$source_dir/rocksdb/include" -I"$source_dir/rocksdb" -I"$source_dir"
  -DNDEBUG=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX
  -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT)
[ "$(uname -m)" = x86_64 ] && flags+=(-msse4.2 -mpclmul)

# Neighbouring files share headers, so consecutive lines of the list make good units.
grep -v -e '^util/build_version.cc$' -e '^$' "$source_dir/rocksdb_lib_sources.txt" | sed 's/[[:space:]]*$//' >"$work/sources"
split --number="l/$units" --numeric-suffixes "$work/sources" "$work/unit."
for unit in "$work"/unit.*; do
  sed 's|^|#include "|; s|$|"|' "$unit" >"$unit.cc"
done
cp "$source_dir/build_version.cc" "$work/unit.version.cc"

# A unit whose files clash with each other (same name in two anonymous namespaces) is compiled file by file instead.
compile() {
  local unit=$1
  if ! g++ "${flags[@]}" -c "$unit" -o "${unit%.cc}.o" 2>"$unit.log"; then
    echo "  $(basename "$unit"): files clash, compiling them one by one" >&2
    local n=0
    while read -r file; do
      n=$((n + 1))
      g++ "${flags[@]}" -c "$source_dir/rocksdb/$file" -o "${unit%.cc}.$n.o"
    done <"${unit%.cc}"
  fi
}
# As many at once as there are processors; every one is waited for, so that a failed one ends the script.
running=()
for unit in "$work"/unit.*.cc; do
  if [ "${#running[@]}" -ge "$(nproc)" ]; then
    wait "${running[0]}"
    running=("${running[@]:1}")
  fi
  compile "$unit" &
  running+=($!)
done
for pid in "${running[@]}"; do wait "$pid"; done

mkdir -p "$out_dir"
ar crs "$work/librocksdb.a" "$work"/*.o
mv "$work/librocksdb.a" "$out_dir/librocksdb.a.part"
mv "$out_dir/librocksdb.a.part" "$out_dir/librocksdb.a"
