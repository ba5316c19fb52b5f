#!/usr/bin/env python3
"""Checks that the rooms of the house depend on each other in the allowed directions only (docs/ARCHITECTURE.md)."""
import json
import subprocess
import sys

# Package -> the packages of this workspace that it may use, outside its tests.
ALLOWED = {
    "cairn-core": set(),
    "cairn-policy": {"cairn-core"},
    "cairn-pool": {"cairn-core", "cairn-schedules"},
    "cairn-directory": {"cairn-core", "cairn-policy"},
    "cairn-ssd": {"cairn-core", "cairn-schedules"},
    "cairn-engine": {"cairn-core", "cairn-policy", "cairn-pool", "cairn-directory", "cairn-ssd", "cairn-schedules"},
    "cairn-proto": {"cairn-core"},
    "cairn-client": {"cairn-core", "cairn-proto"},
    "cairn-server": {"cairn-core", "cairn-policy", "cairn-pool", "cairn-directory", "cairn-ssd", "cairn-engine", "cairn-proto"},
    "kvctl": {"cairn-core", "cairn-proto", "cairn-client"},
    "cairn-bench": {"cairn-core", "cairn-policy", "cairn-pool", "cairn-directory", "cairn-ssd", "cairn-engine", "cairn-client", "cairn-testkit"},
    "cairn-testkit": {"cairn-core", "cairn-policy", "cairn-ssd", "cairn-directory", "cairn-schedules"},
    "cairn-lazyfs": {"cairn-testkit"},
    "cairn-schedules": set(),
}
# A scheduler of tests: outside the testkit it is there only with the feature of its name, which no package has by default.
SCHEDULES = "cairn-schedules"
# External package -> the only packages that may use it.
ONLY = {
    "rocksdb": {"cairn-directory"},
    "io-uring": {"cairn-ssd"},
    "tonic": {"cairn-proto", "cairn-server", "cairn-client"},
    "axum": {"cairn-server"},
    "fuser": {"cairn-lazyfs"},
    "shuttle": {"cairn-schedules"},
}

metadata = json.loads(
    subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"], check=True, capture_output=True).stdout
)
faults = []
for package in metadata["packages"]:
    name = package["name"]
    if "default" in package["features"]:
        faults.append(f"{name} has default features: name what is wanted instead")
    if name not in ALLOWED:
        faults.append(f"{name}: say in deploy/check-layers.py what it may use")
        continue
    for dependency in package["dependencies"]:
        used = dependency["name"]
        if dependency["kind"] == "dev":
            continue
        if (used.startswith("cairn-") or used == "kvctl") and used not in ALLOWED[name]:
            faults.append(f"{name} must not use {used}")
        if used == SCHEDULES and name != "cairn-testkit" and not dependency["optional"]:
            faults.append(f"{name} must use {used} by its feature `schedules` only")
        if name not in ONLY.get(used, {name}):
            faults.append(f"only {', '.join(sorted(ONLY[used]))} may use {used}, not {name}")
for fault in faults:
    print(f"layers: {fault}", file=sys.stderr)
sys.exit(bool(faults))
