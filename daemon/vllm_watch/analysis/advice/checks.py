# SPDX-License-Identifier: Apache-2.0
"""The commands that show what a change of a flag does."""

from __future__ import annotations

import json
import shlex

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.advice.rule import DRAFT_TOKENS, OFF
from vllm_watch.daemon.catalog.number_texts import moment


_SWITCHES = frozenset({"enforce-eager", "enable-prefix-caching"})
_FIELDS = ("method", "model")

_RUNS = 5
"""Five runs of each side find a difference of a few per cent, as `compare` says."""


def argument(flag: str, value: str, flags: Mapping[str, str]) -> str:
    """Return what to start the server with: ``with --max-num-seqs 8``, ``without --enforce-eager``."""
    outer = flag.partition(".")[0]
    if value == OFF or (flag in _SWITCHES and value == "False"):
        return f"without --{outer}"
    if flag in _SWITCHES:
        return f"with --{flag}"
    if flag == DRAFT_TOKENS:
        known = {name: flags[f"{outer}.{name}"] for name in _FIELDS if f"{outer}.{name}" in flags}
        return f"with --{outer} '{json.dumps({**known, 'num_speculative_tokens': int(value)})}'"
    return f"with --{flag} {value}"


class Range(NamedTuple):
    """A time of a server in a Prometheus."""

    url: str
    server: str
    start: float
    end: float


def check_commands(
    started: str, guarded: str, tests: Sequence[str] = (), ranges: Sequence[Range] = ()
) -> tuple[str, ...]:
    """
    Return the commands that compare a server as it is with one that has a change; comments begin with ``#``.

    Args:
        started: What the changed server is started with, as `argument` writes it.
        guarded: What must not become worse: a metric of `compare` with its limit.
        tests: The files of load tests of the server as it is, if it was tested.
        ranges: Where it was read from a Prometheus.
    """
    guard = f"--fail-if {shlex.quote(guarded)}"
    if ranges and not tests:
        first = ranges[0]
        now = f"now={_utc(first.start)}/{_utc(first.end)}"
        target = f"--prometheus {shlex.quote(first.url)} --server {shlex.quote(first.server)}"
        return (
            f"# Start the server {started}, and let it work as long under the same load, FROM and TO:",
            f"vllm-watch compare {target} {now} changed=FROM/TO {guard}",
        )
    changed = _files("changed")
    if tests:
        return (
            f"# Start the server {started}, and send it the same load {_RUNS} times:",
            _record("changed"),
            compare_command(tests, changed, guard),
        )
    return (
        f"# Send the same load to the server as it is and to one {started}, {_RUNS} times each, taking turns:",
        _record("now"),
        _record("changed"),
        compare_command(_files("now"), changed, guard),
    )


def compare_command(now: Sequence[str], changed: Sequence[str], guard: str = "") -> str:
    """Return the command that compares files of two sides."""
    sides = (f"now={','.join(now)}", f"changed={','.join(changed)}")
    return " ".join(["vllm-watch compare", *map(shlex.quote, sides), *([guard] if guard else [])])


def _record(side: str) -> str:
    return f"vllm-watch record -o {side}-1.jsonl.xz -- vllm bench serve ARGUMENTS"


def _files(side: str) -> tuple[str, ...]:
    return tuple(f"{side}-{number}.jsonl.xz" for number in range(1, _RUNS + 1))


def _utc(at: float) -> str:
    return f"{moment(at).replace(' ', 'T')}Z"
