# SPDX-License-Identifier: Apache-2.0
"""Options of the test run."""


def pytest_addoption(parser):
    """Let the kept pages be written anew: look at the difference before keeping it."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
