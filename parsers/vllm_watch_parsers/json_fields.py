# SPDX-License-Identifier: Apache-2.0
"""JSON objects in a text, and their values by key: checked, in range, and each mistake with its line and key."""

from __future__ import annotations

import json
import math
import re

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from vllm_watch_parsers.benchmark_result import BenchmarkError


MAX_OBJECTS = 10_000
MAX_VALUES = 10_000_000
"""No list of a result has more entries."""

_BLANK = re.compile(r"\s*")
# A string that is cut off ends with the text: to search its end again at each quote in it would take forever.
_TOKEN = re.compile(r'"(?P<string>(?:[^"\\]|\\.)*)(?:"(?P<colon>\s*:)?)?|[\[{\]}]', re.DOTALL)
_CUT = 24
"""A number or literal that is cut off is an error so many characters before the text's end, or fewer."""

_DECODE = json.JSONDecoder(parse_constant=float).raw_decode


def decode_objects(text: str, most: int = MAX_OBJECTS) -> Iterator[tuple[int, object]]:
    """
    Yield the JSON values that follow each other in a text, with blanks between them, each with its line.

    There may be `most` of them.

    Raises:
        BenchmarkError: The text is cut off, or something else than JSON follows.
    """
    end = len(text.rstrip())
    position = _skip_blank(text, 0)
    line, counted = 1, 0
    for _ in range(most):
        if position >= end:
            return
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, after = _DECODE(text, position)
        except RecursionError:
            raise BenchmarkError(line, "the JSON is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise _not_json(error, line, position, end) from None
        except ValueError:
            raise BenchmarkError(line, "the JSON has a number with thousands of digits") from None
        yield line, value
        position = _skip_blank(text, after)
    raise BenchmarkError(line, f"there are more than {most} results")


def top_level_keys(text: str) -> set[str]:
    """Return the keys of the JSON object with which a text, or a list, starts, as far as the text goes."""
    keys = set()
    depth = 0
    start = text.find("{")
    for token in _TOKEN.finditer(text, max(start, 0)):
        sign = token[0][0]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and token["colon"]:
            keys.add(token["string"])
    return keys


class JsonFields:
    """
    The values of one JSON object, each read as what it has to be.

    A key that is missing and one that is null are the same: the file does not say.

    Args:
        values: The object.
        line: Where it starts.
    """

    def __init__(self, values: Mapping[str, Any], line: int) -> None:
        self.values = values
        self.line = line

    def reject(self, key: str, problem: str) -> NoReturn:
        """Raise the error for a key."""
        raise BenchmarkError(self.line, f"{key}: {problem}")

    def required(self, key: str, most: float) -> float:
        """Return a number from 0 to `most` that every result has."""
        value = self.real(key, most)
        return self.reject(key, "is missing") if value is None else value

    def required_whole(self, key: str, most: int) -> int:
        """Return a count from 0 to `most` that every result has."""
        value = self.whole(key, most)
        return self.reject(key, "is missing") if value is None else value

    def real(self, key: str, most: float) -> float | None:
        """Return a number from 0 to `most`."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.reject(key, f"must be a number, not {_shown(value)}")
        if not 0 <= value <= most:  # Also rejects NaN.
            self.reject(key, f"must be from 0 to {most:g}, not {_shown(value)}")
        return float(value)

    def whole(self, key: str, most: int) -> int | None:
        """Return a count from 0 to `most`."""
        value = self.real(key, most)
        if value is None:
            return None
        if not value.is_integer():
            self.reject(key, f"must be a whole number, not {_shown(value)}")
        return int(value)

    def text(self, key: str) -> str | None:
        """Return a text."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.reject(key, f"must be a text, not {_shown(value)}")
        return value

    def items(self, key: str) -> list[Any]:
        """Return a list; an empty one where there is none."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.reject(key, f"must be a list, not {_shown(value)}")
        if len(value) > MAX_VALUES:
            self.reject(key, f"has more than {MAX_VALUES} entries")
        return value

    def reals(self, key: str, most: float) -> array[float]:
        """Return a list of numbers from 0 to `most`."""
        return self.reals_of(key, self.items(key), most)

    def reals_of(self, path: str, items: object, most: float, least: float = 0.0) -> array[float]:
        """Return one list of numbers from `least` to `most`; `path` is where it is, for errors."""
        if not isinstance(items, list):
            self.reject(path, f"must be a list, not {_shown(items)}")
        try:
            values = array("d", items)
        except (TypeError, OverflowError):
            values = array("d", [math.nan])
        # A sum has the NaN that comparisons miss; each entry is looked at only if there is a wrong one.
        if not values or (not math.isnan(sum(values)) and least <= min(values) and max(values) <= most):
            return values
        for number, item in enumerate(items):
            is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
            if not is_number or not least <= item <= most:
                self.reject(f"{path}[{number}]", f"must be a number from {least:g} to {most:g}, not {_shown(item)}")
        return values


def _skip_blank(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found else position


def _not_json(error: json.JSONDecodeError, line: int, start: int, end: int) -> BenchmarkError:
    """Say whether the text is cut off, or where it stops to be JSON."""
    is_string_cut = error.msg.startswith("Unterminated string")
    if is_string_cut or (error.pos > start and error.pos >= end - _CUT):
        return BenchmarkError(line, f"the JSON is cut off: it ends at line {error.lineno} in the middle of a value")
    if error.pos == start:
        return BenchmarkError(line, "neither JSON nor the end of the file follows the JSON")
    return BenchmarkError(error.lineno, f"no JSON at column {error.colno}: {error.msg}")


def _shown(value: object) -> str:
    """Return a value for a message, short."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    shown = "true" if value is True else "false" if value is False else "null" if value is None else repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
