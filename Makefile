# SPDX-License-Identifier: Apache-2.0
# Each target makes .venv first when it is missing. PYTHON chooses the interpreter (3.10 or newer).
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: demo run test lint bench fuzz release-check docs configuration alerts dashboards kubernetes

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/developing: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group test --group lint --group build --group dashboards --group deploy
	touch $@

demo: .venv/installed  ## Replay a recorded server: gauges move on http://127.0.0.1:9468/
	$(BIN)/vllm-watch demo $(ARGS)

run: .venv/installed  ## The daemon: make run ARGS='--log vllm.log --metrics http://127.0.0.1:8000/metrics'
	$(BIN)/vllm-watch run $(ARGS)

# A file's tests stay together: they share what is costly to begin with.
test: .venv/developing  ## All tests
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile $(ARGS)

lint: .venv/developing  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/developing  ## Measure: speed of reading, cost of a scrape, latency, memory
	$(BIN)/python -m tests.benchmarks $(ARGS)

fuzz: .venv/developing  ## Look for inputs that break something: make fuzz ARGS='exposition --seconds 600'
	$(BIN)/pip install --quiet --disable-pip-version-check --group fuzz
	$(BIN)/python -m tests.fuzz $(ARGS)

release-check: .venv/developing  ## What must hold for a release only: no English text is left in the Chinese set
	$(BIN)/pytest -q tests/release_check.py $(ARGS)

docs: .venv/developing  ## Write daemon/METRICS.md from the code
	$(BIN)/python -m vllm_watch.exposition.metrics_reference > daemon/METRICS.md

configuration: .venv/developing  ## Write daemon/CONFIGURATION.md from the code
	$(BIN)/python -m vllm_watch.config.reference > daemon/CONFIGURATION.md

alerts: .venv/developing  ## Write alerts/rules from alerts/source and alerts/thresholds.yml
	$(BIN)/python alerts/render.py

dashboards: .venv/developing  ## Write dashboards/json from dashboards/boards and dashboards/texts
	PYTHONPATH=dashboards $(BIN)/python -m boards.build $(ARGS)

kubernetes: .venv/developing  ## Write the Prometheus Operator's objects from alerts/
	$(BIN)/python deploy/kubernetes/generate.py
