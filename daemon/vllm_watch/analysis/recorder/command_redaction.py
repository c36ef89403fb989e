# SPDX-License-Identifier: Apache-2.0
"""
What a recording keeps of a benchmark's command line and of its results: what vllm-watch reads, and nothing else.

As of a log: texts stay by a list of what is read, never by a list of what is private.
"""

from __future__ import annotations

import json
import re

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vllm_watch.analysis.recorder.redaction import REMOVED
from vllm_watch_parsers.benchmark import read_lines
from vllm_watch_parsers.benchmark_json import READ_TEXTS
from vllm_watch_parsers.benchmark_printed import READ_ARGUMENTS
from vllm_watch_parsers.benchmark_result import reason_of


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?|inf|(?:ttft|tpot|e2el):\d+(?:\.\d+)?")
"""Numbers, and the objectives of ``--goodput``."""

_WORD = re.compile(r"[A-Za-z_./-]{1,128}")
_OPTION = re.compile(r"--[A-Za-z][A-Za-z_-]{0,63}|-[A-Za-z]")
_LOGIN = re.compile(r"(?<=://)[^/\s'\"]*@")
"""User and password in a URL."""


def redact_arguments(argv: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """
    Return a command line with the values of the options that are read, numbers, and the names of all options.

    And how many values were removed. Words of letters before the first option are the command.
    """
    left = list(argv[:1])
    option: str | None = None
    for argument in argv[1:]:
        name, sign, value = argument.partition("=")
        if _OPTION.fullmatch(name):
            left.append(name + sign + (_value(_setting(name), value) if sign else ""))
            option = "" if sign else _setting(name)
        elif option is None:
            left.append(argument if _WORD.fullmatch(argument) else _value("", argument))
        else:
            left.append(_value(option, argument))
            option = ""
    return tuple(left), sum(new != old for new, old in zip(left, argv, strict=True))


def _setting(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _value(name: str, value: str) -> str:
    is_read = name in READ_ARGUMENTS or _NUMBER.fullmatch(value) is not None
    return _LOGIN.sub("", value) if is_read else REMOVED


def redact_result(text: str) -> tuple[str, int]:
    """
    Return a result of vLLM's benchmark, in JSON or as it was printed, with what is read of it; and how many texts went.

    In JSON all numbers stay, and the texts of the benchmark's settings; of errors only the reason stays, of objects
    within the result nothing: their keys are texts, too.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        left = read_lines(text)
        return _LOGIN.sub("", left), text.count("\n") - left.count("\n")
    decoder, at, parts, removed = json.JSONDecoder(), 0, [], Counter[str]()
    try:
        while (at := len(text) - len(text[at:].lstrip())) < len(text):
            value, at = decoder.raw_decode(text, at)
            entries = [_entry(entry, removed) for entry in (value if isinstance(value, list) else [value])]
            parts.append(json.dumps(entries if isinstance(value, list) else entries[0], ensure_ascii=False))
    except (ValueError, RecursionError):
        removed[""] += 1  # It is cut off, and of no use.
    return "\n".join(parts) + "\n", removed.total()


def _entry(entry: Any, removed: Counter[str]) -> Any:  # noqa: ANN401 - Any JSON.
    if not isinstance(entry, dict):
        return _left(entry, "", removed)
    return {key: _left(value, key, removed) for key, value in entry.items()}


def _left(value: Any, name: str, removed: Counter[str]) -> Any:  # noqa: ANN401 - Any JSON.
    """Return what is left of a value under a name of a result."""
    if isinstance(value, list):
        return [_left(each, name, removed) for each in value]
    if isinstance(value, dict):
        removed[name] += bool(value)
        return {}
    if not isinstance(value, str) or not value:
        return value
    if name == "errors":
        left = reason_of(value)
    else:
        is_read = name in READ_TEXTS or _NUMBER.fullmatch(value) is not None
        left = _LOGIN.sub("", value) if is_read else REMOVED
    removed[name] += left != value
    return left
