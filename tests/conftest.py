# SPDX-License-Identifier: Apache-2.0
"""Options of the test run, and the plugins that every run has."""

from hypothesis import settings


pytest_plugins = ("tests.support.leftovers", "tests.support.needs", "tests.support.samples", "tests.support.shared")

# How long an example takes is the machine's affair.
settings.register_profile("vllm-watch", deadline=None)
settings.load_profile("vllm-watch")


def pytest_addoption(parser):
    """Let the kept pages be written anew: look at the difference before keeping it."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
