# SPDX-License-Identifier: Apache-2.0
# Each target makes .venv first when it is missing. PYTHON chooses the interpreter (3.10 or newer).
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
DIST ?= dist
# Tests start Python hundreds of times: what it compiled once is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
# A file's tests stay together: they share what is costly to begin with.
PYTEST = $(BIN)/pytest -q --maxprocesses 8 --dist loadfile --numprocesses
# Much of the tests' time is waiting, which is for others to use: there are more processes than cores. The quick tests
# wait less: with as many as the others have they take a quarter longer.
WORKERS = $(shell expr $$(nproc) '*' 5 / 2)
QUICK_WORKERS = $(shell expr $$(nproc) '*' 3 / 2)

.PHONY: demo run stack check test test-all coverage lint bench fuzz release-check generate incidents chart

.venv/installed: pyproject.toml
	@echo "Installing into .venv: this takes up to a minute, once."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/developing: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group test --group lint --group build --group dashboards --group deploy --group pages
	touch $@

demo: .venv/installed  ## Replay a recorded server: gauges move on http://127.0.0.1:9468/
	$(BIN)/vllm-watch demo $(ARGS)

run: .venv/installed  ## The daemon: make run ARGS='--log vllm.log --metrics http://127.0.0.1:8000/metrics'
	$(BIN)/vllm-watch run $(ARGS)

# What it takes: RECORDING and SPEED, or LOG and METRICS, or HERE=1 for this machine's servers.
stack: .venv/installed  ## A replay or a real server with Prometheus and Alertmanager: make stack LOG=vllm.log
	$(BIN)/python -m deploy.stack $(ARGS)

# Tests that need only Python; and those of a second or more, or with many processes, are left to `make test`.
check: lint  ## In a minute: lint, types, and the quick tests that need only Python
	$(PYTEST) $(QUICK_WORKERS) --hypothesis-profile=quick -m 'not (slow or needs_namespaces or needs_root or needs_tool)' $(ARGS)

test: .venv/developing  ## All tests that can run here; what cannot is said at the end
	$(PYTEST) $(WORKERS) --hypothesis-profile=quick $(ARGS)

test-all: .venv/developing  ## The same with whole samples: tests/README.md says of what
	$(PYTEST) $(WORKERS) --whole $(ARGS)

coverage: .venv/developing  ## How much of the pure core the quick tests reach: 95 % of parsers and of state, branch by branch
	$(BIN)/coverage run -m pytest -q --hypothesis-profile=quick -m 'not slow' tests/completeness tests/parsers tests/reading tests/state $(ARGS)
	$(BIN)/coverage report --include 'parsers/*' --fail-under 95
	$(BIN)/coverage report --include 'daemon/vllm_watch/daemon/state/*' --fail-under 95

lint: .venv/developing  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/developing  ## Measure speed, latency and memory; fails for what is a fifth worse than in the last release
	$(BIN)/python -m tests.benchmarks $(ARGS)

fuzz: .venv/developing  ## Look for inputs that break something: make fuzz ARGS='exposition --seconds 600'
	$(BIN)/pip install --quiet --disable-pip-version-check --group fuzz
	$(BIN)/python -m tests.fuzz $(ARGS)

release-check: .venv/developing  ## What must hold for a release only: no English text is left in the Chinese set
	$(BIN)/pytest -q tests/release_check.py $(ARGS)

generate: .venv/developing  ## Write all that is made from something else: METRICS.md, rules, dashboards, the operator's objects
	$(BIN)/python -m vllm_watch.daemon.exposition.metrics_reference > daemon/METRICS.md
	$(BIN)/python alerts/render.py
	PYTHONPATH=dashboards $(BIN)/python -m boards.build
	$(BIN)/python deploy/kubernetes/generate.py

incidents: .venv/developing  ## What people reported about vLLM, played through the rules; writes alerts/INCIDENTS.md
	$(BIN)/python -m tests.incidents $(ARGS)

chart:  ## The Helm chart as one file without links: dist/vllm-watch-VERSION.tgz; DIST= is another folder
	mkdir -p $(DIST)
	tar --create --gzip --dereference --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	  --transform 's,^chart,vllm-watch,' --directory deploy/kubernetes --file \
	  $(DIST)/vllm-watch-$$(sed -n 's/^version: //p' deploy/kubernetes/chart/Chart.yaml).tgz chart
