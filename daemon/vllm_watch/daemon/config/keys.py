# SPDX-License-Identifier: Apache-2.0
"""
Keys of a configuration file, and how the value of each is read.

What people need to know of them is in `daemon/CONFIGURATION.md`.
A mapping of the file is a `Section`, a struct whose fields are annotated with the functions that read their values.
Reading does not stop at the first mistake: those of all keys of a section and of all items of a list are collected.
"""

from __future__ import annotations

import difflib
import re

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar, get_type_hints

import msgspec

from vllm_watch.daemon.config.texts import check_path, parse_duration, quote
from vllm_watch.daemon.support.errors import ConfigError


if TYPE_CHECKING:
    from typing_extensions import Self

    from vllm_watch.daemon.config.yaml_node import ConfigNode


Reader: TypeAlias = "Callable[[ConfigNode], object]"
SectionType = TypeVar("SectionType", bound="Section")
Item = TypeVar("Item")
Value = TypeVar("Value")

_NUMBER = re.compile(r"\d{1,12}(\.\d{1,12})?", re.ASCII)
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of a file. Each field that is annotated with a `Reader` is a key of it, with the field's default."""

    def checked(self, _node: ConfigNode) -> Self:
        """Return the section if its values fit together; `ConfigError` otherwise."""
        return self


@cache
def keys_of(kind: type[Section]) -> Mapping[str, Reader]:
    """Return what reads the value of each key of a section."""
    hints = get_type_hints(kind, include_extras=True)
    annotated = {name: getattr(hints[name], "__metadata__", ()) for name in kind.__struct_fields__}
    return {name: readers[0] for name, readers in annotated.items() if readers}


class Mistakes:
    """Collects the `ConfigError`s of several values, to raise them as one."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep a `ConfigError` that is raised within this context, and continue after it."""
        try:
            yield
        except ConfigError as error:
            self._messages += error.messages

    def check(self) -> None:
        """Raise what was collected, if there is anything."""
        if self._messages:
            raise ConfigError(*self._messages)


def read_each(items: Iterable[Item], read: Callable[[Item], Value]) -> list[Value]:
    """Return each item as `read` reads it; the mistakes of all items are raised together."""
    mistakes, values = Mistakes(), []
    for item in items:
        with mistakes.collect():
            values.append(read(item))
    mistakes.check()
    return values


def read_section(
    node: ConfigNode,
    kind: type[SectionType],
    *,
    otherwise: Mapping[str, object] = _NOTHING,
    fixed: Mapping[str, object] = _NOTHING,
) -> SectionType:
    """Read a mapping; `otherwise` has values of keys that are not given, `fixed` of those that may not be given."""
    values = node.mapping()
    keys = {name: key for name, key in keys_of(kind).items() if name not in fixed}
    mistakes = Mistakes()
    for name in _missing(kind, keys, {*values, *otherwise}):
        with mistakes.collect():
            raise node.error(f'missing key "{name}"')
    given = {}
    for name, value in values.items():
        with mistakes.collect():
            if name not in keys:
                raise node.error(_unknown_key(name, list(keys)), value.line)
            given[name] = keys[name](value)
    mistakes.check()
    return kind(**{**otherwise, **fixed, **given}).checked(node)


def _missing(kind: type[Section], keys: Mapping[str, Reader], given: Collection[str]) -> list[str]:
    """Return the required keys that are not given; none if there is an unknown key, which may be one of them."""
    if any(name not in keys for name in given):
        return []
    fields = msgspec.structs.fields(kind)
    return [field.name for field in fields if field.required and field.name in keys and field.name not in given]


def _unknown_key(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key[:64], known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
    return f"unknown key {quote(key)}; {hint}"


def with_fitting_timeout(
    section: SectionType, node: ConfigNode, longest: float, name: str, usual: float
) -> SectionType:
    """Return a section whose `timeout` is not longer than something; where its default is, it is the usual one."""
    timeout: float = getattr(section, "timeout")  # noqa: B009  # Not every section has one.
    if timeout <= longest:
        return section
    given = node.mapping().get("timeout")
    if given is not None:
        raise given.error(f"{given.written()} is longer than {name}")
    return msgspec.structs.replace(section, timeout=usual)


# The kinds of keys.


def text_key(parse: Callable[[str], object] = str) -> Reader:
    """Return the reader of a text."""
    return lambda node: node.parsed(node.text(), parse)


def value_key(parse: Callable[[str], object]) -> Reader:
    """Return the reader of a value that is parsed as it is written, whatever YAML reads it as."""
    return lambda node: node.parsed(node.written(), parse)


def list_key(parse: Callable[[str], object]) -> Reader:
    """Return the reader of a list of texts."""
    return lambda node: tuple(read_each(node.items(), lambda item: item.parsed(item.text(), parse)))


def words_key(*words: str) -> Reader:
    """Return the reader of one of some words."""

    def parse(text: str) -> str:
        if text not in words:
            expected = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
            raise ValueError(f"expected {expected}, got {quote(text)}")
        return text

    return value_key(parse)


def number_key(most: float) -> Reader:
    """Return the reader of a number above zero."""

    def parse(text: str) -> float:
        if _NUMBER.fullmatch(text) is None or not 0 < float(text) <= most:
            raise ValueError(f"expected a number above 0, up to {most:,.0f}, got {quote(text)}")
        return float(text)

    return value_key(parse)


def duration_key(shortest: str, longest: str) -> Reader:
    """Return the reader of a duration within these bounds."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not parse_duration(shortest) <= seconds <= parse_duration(longest):
            raise ValueError(f"expected a duration from {shortest} to {longest}, got {quote(text)}")
        return seconds

    return value_key(parse)


def read_path(node: ConfigNode) -> str:
    """Read a path; a relative one starts in the configuration's folder."""
    return str(Path(node.file).absolute().parent / node.parsed(node.text(), check_path))


def section_key(kind: type[Section], *, alone: Reader | str | None = None) -> Reader:
    """
    Return the reader of a mapping.

    Args:
        kind: The section.
        alone: How a value is read that is no mapping; a name is that of the key whose value it is, all others usual.
    """

    def read(node: ConfigNode) -> object:
        if alone is None or node.is_mapping:
            return read_section(node, kind)
        return kind(**{alone: keys_of(kind)[alone](node)}) if isinstance(alone, str) else alone(node)

    return read
