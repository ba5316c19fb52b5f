# The commands of this house. `make demo` and `make test` need nothing but this file: they install what is missing first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
ENV := source deploy/env.sh &&
CARGO := $(ENV) cargo

.PHONY: help setup build demo test lint check bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (compiler, libclang, RocksDB), once
	@deploy/setup.sh

build: setup ## Build everything
	@$(CARGO) build --release --workspace --all-targets --locked

demo: setup ## See it run: a real trace, a crash, a restart
	@$(CARGO) build --release --locked -p cairn-server -p cairn-bench -p kvctl
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairn-bench" demo

test: setup ## Run every test
	@mkdir -p target
	@$(CARGO) build --release --workspace --bins --locked
	@$(CARGO) test --release --workspace --locked

lint: setup ## Formatting, warnings, layering
	@cargo fmt --all --check
	@$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings
	@deploy/check-layers.py

check: lint test ## What must pass before a push

bench: setup ## Speed, as ratios to limits measured in the same run; writes target/bench.json
	@mkdir -p target
	@$(CARGO) build --release --locked -p cairn-server -p cairn-bench
	@$(ENV) "$$CARGO_TARGET_DIR/release/cairn-bench" speed --json target/bench.json

docs: setup ## Print docs/CONFIG.md and docs/METRICS.md from the code's tables
	@$(CARGO) run --release --locked -q -p cairn-server -- --print-config-doc >docs/CONFIG.md
	@$(CARGO) run --release --locked -q -p cairn-server -- --print-metrics-doc >docs/METRICS.md

clean: ## Remove what the build made (RocksDB stays)
	@$(CARGO) clean
