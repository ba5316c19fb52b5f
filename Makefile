# The commands of this house. `make demo` and `make test` need nothing but this file: they install what is missing first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
ENV := source deploy/env.sh &&
CARGO := $(ENV) cargo
# The rooms whose locks and threads a scheduler can take, and the rig that does: built apart, since everybody else wants the real ones. Of the
# workspace, so that only these rooms are: with fewer packages, cargo would build most of what they use once more, with other features.
SCHEDULES := --workspace --features cairn-pool/schedules,cairn-ssd/schedules,cairn-engine/schedules --test schedules

.PHONY: help setup build demo test nightly lint check bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (compiler, libclang, RocksDB), once
	@deploy/setup.sh

build: setup ## Build everything
	@$(CARGO) build --release --workspace --all-targets --locked

demo: setup ## See it run: a real trace, a crash, a restart
	@$(CARGO) build --release --workspace --bins --locked
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairn-bench" demo

test: setup ## Run every test
	@mkdir -p target
	@$(CARGO) test --release --workspace --locked
	@$(CARGO) test --release --locked $(SCHEDULES)

PERCENT ?= 100
nightly: setup ## The rigs with their counts for a night, about six hours; PERCENT=15: one hour. CAIRN_SEED repeats one
	@mkdir -p target
	@$(CARGO) build --release --workspace --bins --locked
	@$(ENV) export CAIRN_NIGHTLY=$(PERCENT) CAIRN_SEED=$${CAIRN_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	cargo test --release --locked --no-fail-fast -p cairn-core -p cairn-directory -p cairn-ssd -p cairn-engine -p cairn-server \
	  --test fuzz --test grid --test index_model --test crash --test engine --test kills --test scarce -- --nocapture && \
	cargo test --release --locked --no-fail-fast $(SCHEDULES) -- --nocapture && \
	cargo test --release --locked -p cairn-bench --test kill -- --nocapture

lint: setup ## Formatting, warnings, layering, documents
	@cargo fmt --all --check
	@$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings
	@$(CARGO) clippy --release --locked $(SCHEDULES) -- -D warnings
	@deploy/check-layers.py
	@deploy/check-docs.py

check: lint test ## What must pass before a push

bench: setup ## Speed, as ratios to limits measured in the same run; writes target/bench.json
	@mkdir -p target
	@$(CARGO) build --release --workspace --bins --locked
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairn-bench" speed --json target/bench.json

docs: setup ## Print docs/CONFIG.md and docs/METRICS.md from the code's tables
	@$(CARGO) build --release --workspace --bins --locked
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairnd" --print-config-doc >docs/CONFIG.md
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairnd" --print-metrics-doc >docs/METRICS.md

clean: ## Remove what the build made (RocksDB stays)
	@$(CARGO) clean
