# SPDX-License-Identifier: Apache-2.0
"""The results that a recorded command leaves: files that it writes and the block that it prints, without answers."""

from __future__ import annotations

import json
import os
import re

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from vllm_watch.analysis.recorder.client_messages import LITERAL
from vllm_watch.analysis.recorder.private_text import PrivateText, redact_json
from vllm_watch_parsers.benchmark import what_is


MAX_FILE = 256 * 1024 * 1024
"""The largest result that is kept, in bytes: ten thousand requests with all their times and answers are less."""

MAX_FILES = 1000
"""The most files of a folder that are looked at, the newest first."""

PRINTED = "printed.txt"
"""The name of what was printed."""

_BLANKS = " \t\r\n"


class Written(NamedTuple):
    """What tells a file that was written again from one that was not."""

    modified_ns: int
    size: int


class ResultFiles:
    """
    Finds the result files that a command writes.

    Args:
        argv: The command and its arguments.
        folder: The folder that it runs in.
    """

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._folder = folder / (_option(argv, "--result-dir") or "")
        name = _option(argv, "--result-filename") or _option(argv, "--output-json")
        self._named = [self._folder / name, folder / name] if name else []
        self._folders = list(dict.fromkeys([self._folder, folder]))
        self._before = self._files()

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each result that was written since."""
        for path, written in sorted(self._files().items()):
            if self._before.get(path) == written or written.size > MAX_FILE:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if what_is(text) is not None:
                yield path.name, text

    def _files(self) -> dict[Path, Written]:
        found = {}
        for path in [*self._named, *(path for folder in self._folders for path in _json_files(folder))]:
            try:
                status = path.stat()
            except OSError:
                continue
            found[path.resolve()] = Written(status.st_mtime_ns, status.st_size)
        return found


def printed_result(text: str) -> str | None:
    """Return what was printed, if a benchmark's result is in it."""
    return text if what_is(text) is not None else None


def _json_files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".json") and entry.is_file()]
        newest = sorted(found, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
    return [Path(entry.path) for entry in newest[:MAX_FILES]]


def _option(argv: Sequence[str], name: str) -> str | None:
    """Return the value of an option, given as ``--name VALUE`` or ``--name=VALUE``, with - or _ in its name."""
    names = {name, name.replace("-", "_").replace("__", "--", 1)}
    for argument, following in zip_longest(argv, argv[1:], fillvalue=""):
        option, sign, value = argument.partition("=")
        if option in names:
            return (value if sign else following) or None
    return None


def redact_benchmark(text: str, private: PrivateText) -> str:
    """Return a result, in JSON or as it was printed, without what is private; its numbers stay as they are."""
    if text.lstrip(_BLANKS)[:1] not in {"{", "["}:
        return "\n".join(private.clean(line) for line in text.split("\n"))
    parts, at, decoder, before = [], 0, json.JSONDecoder(), private.counts.total()
    try:
        while (at := len(text) - len(text[at:].lstrip(_BLANKS))) < len(text):
            value, at = decoder.raw_decode(text, at)
            parts.append(json.dumps(_without_errors(value, private), ensure_ascii=False))
    except (ValueError, RecursionError):
        parts.append(private.clean(text[at:]))
    return text if private.counts.total() == before else "\n".join(parts) + "\n"


def _without_errors(value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    """Return a result; its errors are tracebacks, with what the server answered."""
    if isinstance(value, list):
        return [_without_errors(each, private) for each in value]
    redacted = redact_json(value, private)
    if isinstance(value, dict) and isinstance(errors := value.get("errors"), list):
        redacted["errors"] = [_error(each, private) if isinstance(each, str) else each for each in errors]
    return redacted


def _error(text: str, private: PrivateText) -> str:
    def quoted(found: re.Match[str]) -> str:
        return private.remove("prompts", found[0])

    return "\n".join(private.clean(LITERAL.sub(quoted, line)) for line in text.split("\n"))
