# SPDX-License-Identifier: Apache-2.0
"""
The cases of failure that are known, and that each has its test.

A test of a case begins its docstring with the case's name: ``T8: a log refilled to the same length …``. The letters
stand for: T following logs, S scraping, E showing and serving, I strangers' text, D the service. ``grep -rn 'T8'
tests`` finds them.
"""

from __future__ import annotations

import ast
import functools
import re

from collections.abc import Iterator
from pathlib import Path

import pytest


CASES = {
    "T1": "lines appended, several at once or one in pieces",
    "T2": "a restart in the middle of a line",
    "T3": "rotation by renaming while the old file is still written",
    "T4": "two and three rotations between two looks",
    "T5": "rotated once, twice and beyond what is kept while nobody looked",
    "T6": "rotated and compressed while nobody looked",
    "T7": "copied and truncated",
    "T8": "truncated and filled again to the same length or more",
    "T9": "truncated to a part",
    "T10": "a hole of NUL bytes",
    "T11": "NUL bytes without end",
    "T12": "deleted while it is read, then made again",
    "T13": "a new file with the old one's inode",
    "T14": "two files with the same beginning",
    "T15": "file or folder missing, removed, made again",
    "T16": "permission lost and restored",
    "T17": "symbolic links: switched, dangling, in a loop",
    "T18": "a pipe, a folder, a socket, a device",
    "T19": "a line of 100 MiB",
    "T20": "bytes that are no text, and characters that other readers split at",
    "T21": "bursts and backlogs",
    "T22": "no inotify watches or instances left",
    "T24": "a file system without events",
    "T25": "disk full when the checkpoint is written",
    "T26": "the checkpoint's folder is read-only, removed, or a file",
    "T27": "killed again and again",
    "T28": "checkpoints that are damaged, foreign or impossible",
    "T29": "a checkpoint's temporary file left over or planted",
    "T30": "clocks that jump or stand",
    "T31": "reading that fails for a moment",
    "T32": "descriptors and threads over ten thousand rotations and scrapes",
    "T33": "random histories against a model",
    "S1": "refused, unresolved, errors, loading",
    "S2": "drips and silence",
    "S3": "bodies that break off",
    "S4": "bombs and bodies without end",
    "S5": "redirects",
    "S6": "proxies, passwords and authorities of the environment",
    "S7": "hostile pages",
    "S8": "counters that begin anew, engines that come and go, models renamed",
    "S9": "many scrapes of the daemon at once",
    "E1": "the page follows Prometheus' conventions",
    "E2": "the page to the letter",
    "E3": "one server's part of the page fails",
    "E4": "names without end in the log and on the page",
    "E5": "clients that are slow, large or rude",
    "E6": "addresses to listen on",
    "E7": "TLS and passwords",
    "I1": "a forged line through a request id",
    "I2": "a statistics line quoted in a prompt, a path, a traceback, another call site",
    "I3": "values out of range in a well-formed line",
    "I4": "control characters from the log in the daemon's own log",
    "I5": "the longest lines, made of what each pattern begins with",
    "D1": "what systemd is told",
    "D2": "a thread that is stuck",
    "D3": "SIGTERM at bad moments, and twice",
    "D4": "reloads, good, bad and many",
    "D5": "bad configurations",
    "D6": "the unit file",
    "D7": "few rights: nobody, a read-only root, no HOME, no standard input",
    "D8": "another urllib3 under requests",
}

_NAMED = re.compile(r"([TSEID]\d{1,2}(?:, [TSEID]\d{1,2})*): ")


@functools.cache
def named_cases() -> frozenset[str]:
    """Return the cases that tests name."""
    return frozenset(_named_cases())


def _named_cases() -> Iterator[str]:
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found = _NAMED.match(ast.get_docstring(node) or "")
                yield from found[1].split(", ") if found else ()


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_test(case):
    """Each known case of failure is named by at least one test."""
    assert case in named_cases(), f"{case} ({CASES[case]}) has no test"


def test_only_known_cases_are_named():
    """A test that names a case names one that there is."""
    assert named_cases() <= set(CASES)
