#!/usr/bin/env bash
# Installs what building Cairn needs and this machine lacks, and nothing else; says what it does. Safe to run again: then it does
# nothing. Needs Debian (or a derivative), Rust, and root or sudo only if a package is missing. `deploy/setup.sh bench` installs fio too,
# which only `make bench` uses.
set -euo pipefail
cd "$(dirname "$0")/.."
source deploy/env.sh

say() { echo "setup: $*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    say "these packages need root: ${missing[*]}; run as root, with sudo, or install them yourself"
    exit 1
  fi
}

# A C++ compiler for RocksDB; libclang and its headers to generate RocksDB's bindings.
missing=()
command -v g++ >/dev/null || missing+=(g++)
has_libclang() { PATH="$PATH:/sbin:/usr/sbin" ldconfig -p | grep -q 'libclang\(-[0-9]*\)\?\.so' || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
has_clang_headers() { compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stdbool.h' >/dev/null || compgen -G '/usr/lib/clang/*/include/stdbool.h' >/dev/null; }
has_libclang || missing+=(libclang1-14)
has_clang_headers || missing+=(libclang-common-14-dev)
[ "${1:-}" != bench ] || command -v fio >/dev/null || missing+=(fio)
if [ ${#missing[@]} -gt 0 ]; then
  say "installing with apt: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
command -v cargo >/dev/null || { say "Rust is missing (1.90 or newer): install it from https://rustup.rs"; exit 1; }
# The lints need these two; a minimal toolchain lacks them.
for component in rustfmt clippy; do
  case $component in rustfmt) tool=cargo-fmt ;; *) tool=cargo-clippy ;; esac
  if ! command -v "$tool" >/dev/null && command -v rustup >/dev/null; then
    say "adding the Rust component $component"
    rustup component add "$component" >/dev/null 2>&1 || say "could not add $component: make lint will not work"
  fi
done

# RocksDB, once for this machine. The lock keeps two builds from doing it at the same time.
if [ ! -f "$CAIRN_ROCKSDB_DIR/librocksdb.a" ]; then
  mkdir -p "$CAIRN_CACHE"
  (
    flock 9
    if [ ! -f "$CAIRN_ROCKSDB_DIR/librocksdb.a" ]; then
      say "compiling RocksDB $CAIRN_ROCKSDB_VERSION into $CAIRN_ROCKSDB_DIR (once; about 4 minutes on two cores)"
      cargo fetch --locked --quiet
      crate=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/librocksdb-sys-"$CAIRN_ROCKSDB_VERSION" | head -n 1)
      deploy/rocksdb.sh "$crate" "$CAIRN_ROCKSDB_DIR"
    fi
  ) 9>"$CAIRN_CACHE/lock"
fi
say "ready; builds go to $CARGO_TARGET_DIR"
