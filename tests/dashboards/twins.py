# SPDX-License-Identifier: Apache-2.0
"""The same dashboard in two languages: nothing differs but what people read."""

from __future__ import annotations

import re

from collections.abc import Iterator, Mapping


TEXTS = frozenset(
    {
        "description", "displayName", "label", "legendFormat", "noValue", "text", "textFormat", "title", "titleFormat",
        "tooltip",
    }
)  # fmt: skip
"""Fields that people read."""

NAMES_OF_COLUMNS = (".renameByName", ".matcher")
"""Objects in which names stand that people read: as columns are called, and which columns an override is of."""

ANNOTATION = re.compile(r"\.annotations\.list\[\d+\]")
"""The name of an annotation is read, too; those of variables are not."""

_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_NAMES = re.compile(r"KV cache|[A-Z0-9]{2,}|p\d+|vLLM|vllm-watch|tokens?(/s)?|[\d\s/().%:,·\uff08\uff09+-]+")
"""What is called the same in both languages: terms of vLLM's, abbreviations, quantiles, products."""

_PLACES = re.compile(r"\{\{.+?\}\}|\$\{?[\w.]+\}?")

_LEGEND = re.compile(r'"[^"{]*\{\{\w+\}\}[^"{]*"')
"""Part of a legend in a variable's query: quoted, and with a place for a label."""


def differences(english: object, other: object, path: str = "") -> Iterator[str]:
    """Yield where two dashboards differ in something else than a text, or have other places in a text."""
    if isinstance(english, Mapping) and isinstance(other, Mapping):
        if list(english) != list(other):
            yield f"{path}: other fields"
            return
        for key, value in english.items():
            yield from _of_field(key, value, other[key], path)
    elif isinstance(english, list) and isinstance(other, list):
        if len(english) != len(other):
            yield f"{path}: {len(english)} and {len(other)} of them"
            return
        for number, (one, two) in enumerate(zip(english, other, strict=True)):
            yield from differences(one, two, f"{path}[{number}]")
    elif _without_words(english) != _without_words(other):
        yield f"{path}: {english} and {other}"


def _without_words(value: object) -> object:
    """Return a query without the words of the part of a legend that it gives; anything else as it is."""
    if not isinstance(value, str):
        return value
    return _LEGEND.sub(lambda legend: " ".join(sorted(_PLACES.findall(legend[0]))), value)


def _of_field(key: str, english: object, other: object, path: str) -> Iterator[str]:
    below = f"{path}.{key}"
    if isinstance(english, str) and isinstance(other, str) and _is_text(key, path):
        if sorted(_PLACES.findall(english)) != sorted(_PLACES.findall(other)):
            yield f"{below}: other labels or variables"
    else:
        yield from differences(english, other, below)


def _is_text(key: str, path: str) -> bool:
    if key == "name" and not path.endswith(NAMES_OF_COLUMNS):
        return ANNOTATION.fullmatch(path) is not None
    return key in TEXTS or (path.endswith(NAMES_OF_COLUMNS) and key != "id")


def untranslated(dashboard: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield where a Chinese dashboard has a title or description without Chinese, and that text."""
    if isinstance(dashboard, Mapping):
        for key, value in dashboard.items():
            if key in {"title", "description"} and isinstance(value, str) and ".links" not in path:
                bare = _NAMES.sub("", value) if key == "title" else value
                if bare and not _CHINESE.search(value):
                    yield f"{path}.{key}", value
            yield from untranslated(value, f"{path}.{key}")
    elif isinstance(dashboard, list):
        for number, each in enumerate(dashboard):
            yield from untranslated(each, f"{path}[{number}]")


def invented(english: object, chinese: object) -> Iterator[str]:
    """Yield the texts of a Chinese dashboard that are neither Chinese nor the English ones."""
    same = set(untranslated(english))
    yield from (f"{path}: {text}" for path, text in untranslated(chinese) if (path, text) not in same)
