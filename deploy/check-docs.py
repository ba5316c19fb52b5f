#!/usr/bin/env python3
"""Checks that every test that docs/SEMANTICS.md and docs/FAULTS.md name exists. A name may have `*` for any text."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
tests = {
    name
    for source in root.rglob("*.rs")
    for name in re.findall(r"\bfn ([a-z0-9_]+)", source.read_text())
}
ROOMS = "engine|ssd|directory|pool|policy|core|server|client|benches|kvctl|proto"
faults = []
for page in ("SEMANTICS", "FAULTS"):
    text = (root / f"docs/{page}.md").read_text()
    named = re.findall(rf"`(?:{ROOMS})(?:::| )([a-z0-9_*]+)`", text)
    if not named:
        faults.append(f"docs/{page}.md names no test: has its form changed?")
    for name in named:
        pattern = re.compile("^" + name.replace("*", ".*") + "$")
        if not any(pattern.match(test) for test in tests):
            faults.append(f"docs/{page}.md names a test that does not exist: {name}")
for fault in faults:
    print(f"docs: {fault}", file=sys.stderr)
sys.exit(bool(faults))
