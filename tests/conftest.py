# SPDX-License-Identifier: Apache-2.0
"""Options of the test run, and the plugins that every run has."""

import gc
import os
import signal

import pytest

from hypothesis import settings


pytest_plugins = (
    "tests.support.leftovers",
    "tests.support.needs",
    "tests.support.patience",
    "tests.support.samples",
    "tests.support.shared",
    "tests.support.fake_nvml",  # It imports shared.
)

# Prometheus and its tools take a fifth less of a processor's time with more memory.
os.environ.setdefault("GOGC", "800")

# How long an example takes is the machine's affair, and one tree has one answer: examples are the same in each run.
settings.register_profile("vllm-watch", deadline=None, derandomize=True)
# Other examples in each run, to look for what no one has seen: `make test-all ARGS=--hypothesis-profile=search`.
settings.register_profile("search", deadline=None)
# `make check` and `make test`: a fifth of the examples of each property.
settings.register_profile("quick", settings.get_profile("vllm-watch"), max_examples=20)
settings.load_profile("vllm-watch")


@pytest.fixture(autouse=True, scope="session")
def _heeded_signals():
    """Let what tests start heed the signals that `nohup`, or a shell's background, lets this run ignore."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # Unlike what is ignored, what is handled is not inherited.


@pytest.fixture(autouse=True)
def _without_the_extra_gpu(monkeypatch):
    """Let no daemon within a test's process look for this machine's GPUs, though the extra is installed for tests."""
    monkeypatch.setattr("vllm_watch.daemon.service.gpus.has_module", lambda: False)


def pytest_addoption(parser):
    """Let the kept pages be written anew: look at the difference before keeping it."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without a search for garbage, and search it in what comes later: all of this stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
