# SPDX-License-Identifier: Apache-2.0
"""
The times of rules, scrapes and messages for a replay that is faster than what was recorded: all are divided alike.

A recording at ten times its speed is over in a tenth of the time, but Prometheus' clock is the machine's. A rule that
waits for a minute would wait for ten of the recording. With all durations divided by ten, of the rules and of their
expressions, the rules see each moment of the recording as they would have seen it. What Prometheus counts per second
is ten times as much then, and is divided, too.

Not divided: what a rule computes from the clock (`time()`, `timestamp()`), and texts, which name the original times.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from typing import Any

from vllm_watch.analysis.backtest.expressions import DURATION, duration_seconds


TIMES = frozenset({
    *("interval", "for", "keep_firing_for"),  # rules
    *("evaluation_interval", "scrape_interval", "scrape_timeout"),  # Prometheus
    *("group_wait", "group_interval", "repeat_interval"),  # Alertmanager
    "timeInterval",  # Grafana's data source
})  # fmt: skip
"""The keys of durations in the files of `alerts/` and `dashboards/`."""

_TEXTS = frozenset({"labels", "annotations"})
_PER_SECOND = frozenset({"rate", "irate", "deriv"})
"""Functions of PromQL whose result is so much per second."""

_AHEAD = "predict_linear"
"""The function of PromQL with a second argument in seconds."""

_CALLS = "|".join(sorted({*_PER_SECOND, _AHEAD}))
_TOKEN = re.compile(
    rf"""
      (?P<opaque> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` | \#[^\n]* )
    | (?P<range> \[[^][]*\] )
    | (?P<call> (?:{_CALLS}) (?=\s*\() )
    | (?P<name> [a-zA-Z_:][\w:]* )
    | (?P<duration> {DURATION.pattern} (?!\w) )
    | (?P<number> \d[\w.]* )
    | (?P<mark> [(),] )
    """,
    re.VERBOSE | re.ASCII,
)


def faster(document: Any, speed: float) -> Any:  # noqa: ANN401  # What a file of YAML holds.
    """
    Return a file's content with all times divided.

    Args:
        document: Rules, or the configuration of Prometheus, of Alertmanager or of a data source of Grafana.
        speed: Seconds of the recording per second; with 1 nothing changes.
    """
    if isinstance(document, list):
        return [faster(each, speed) for each in document]
    if not isinstance(document, Mapping) or speed == 1:
        return document
    return {key: _of_key(key, value, speed) for key, value in document.items()}


def _of_key(key: object, value: Any, speed: float) -> Any:  # noqa: ANN401  # As above.
    if key in _TEXTS:
        return value
    if key in TIMES and isinstance(value, str):
        return faster_duration(value, speed)
    return faster_expression(value, speed) if key == "expr" else faster(value, speed)


def faster_duration(text: str, speed: float) -> str:
    """Return a duration divided by the speed, to the millisecond; one of more than 0 stays more than 0."""
    whole = duration_seconds(text) * 1000
    divided = max(round(whole / speed), 1) if whole else 0
    return f"{divided}ms" if divided % 1000 else f"{divided // 1000}s"


def faster_expression(expression: str, speed: float) -> str:
    """
    Return an expression that yields over a fast replay what the given one yields over the recording.

    Args:
        expression: PromQL that Prometheus accepts.
        speed: Seconds of the recording per second.
    """
    written: list[str] = []
    called = ""
    functions: list[str] = []  # whose parentheses are open
    end = 0
    for token in _TOKEN.finditer(expression):
        text = token[0]
        if token.lastgroup in {"range", "duration"}:
            text = DURATION.sub(lambda found: faster_duration(found[0], speed), text)
        elif token.lastgroup == "call":
            called, text = text, f"({text}" if text in _PER_SECOND else text
        elif text == "(":
            functions.append(called)
            called = ""
        elif text == "," and functions[-1:] == [_AHEAD]:
            text = ", ("
        elif text == ")" and functions.pop() in {*_PER_SECOND, _AHEAD}:
            text = f") / {speed:g})"  # One of the two was opened above.
        written += [expression[end : token.start()], text]
        end = token.end()
    return "".join([*written, expression[end:]])
