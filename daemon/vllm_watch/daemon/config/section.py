# SPDX-License-Identifier: Apache-2.0
"""
Sections of a configuration file: the keys of a mapping, how each is read, and what the reference writes about it.

Reading does not stop at the first mistake: those of all keys of a section and of all items of a list are collected.
"""

from __future__ import annotations

import difflib

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.texts import check_path, parse_duration
from vllm_watch.daemon.config.yaml_node import ConfigNode
from vllm_watch.daemon.support.errors import ConfigError


Reader = Callable[[ConfigNode], object]
SectionType = TypeVar("SectionType", bound=msgspec.Struct)
Item = TypeVar("Item")
Value = TypeVar("Value")


class Key(NamedTuple):
    """
    A key of a file: how its value is read, and what the reference (``daemon/CONFIGURATION.md``) writes about it.

    `expects` names the type of the value, with its bounds; `example` is a value as it is written in YAML. A value that
    is a mapping has a `section`. A key without `example` is known but not supported, and not in the reference.
    """

    read: Reader
    expects: str
    meaning: str
    example: str = ""
    section: Section | None = None


class Section(NamedTuple):
    """The keys of a mapping, and the type whose fields have their defaults."""

    of: type[msgspec.Struct]
    keys: Mapping[str, Key]


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
    mistakes, found = Mistakes(), []
    for item in items:
        with mistakes.collect():
            found.append(read(item))
    mistakes.check()
    return found


def read_section(
    node: ConfigNode,
    kind: type[SectionType],
    keys: Mapping[str, Key],
    otherwise: Mapping[str, object] = MappingProxyType({}),
) -> SectionType:
    """Read a mapping whose keys are the fields of a type; `otherwise` has the values of keys that are not given."""
    values = node.mapping()
    mistakes = Mistakes()
    for name in _missing(kind, keys, {*values, *otherwise}):
        with mistakes.collect():
            raise node.error(f'missing key "{name}"')
    given = {}
    for name, value in values.items():
        with mistakes.collect():
            given[name] = _key(node, kind, keys, name, value.line).read(value)
    mistakes.check()
    return msgspec.convert({**otherwise, **given}, kind)


def _missing(kind: type[msgspec.Struct], keys: Mapping[str, Key], given: Collection[str]) -> list[str]:
    """Return the required keys that are not given; none if there is an unknown key, which may be one of them."""
    if any(name not in keys for name in given):
        return []
    return [field.name for field in msgspec.structs.fields(kind) if field.required and field.name not in given]


def _key(node: ConfigNode, kind: type[msgspec.Struct], keys: Mapping[str, Key], name: str, line: int) -> Key:
    """Return the key of this name."""
    if name not in keys:
        known = [field for field in kind.__struct_fields__ if field in keys]
        raise node.error(_unknown_key(name, known), line)
    return keys[name]


def _unknown_key(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key[:64], known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
    return f"unknown key {quote(key)}; {hint}"


def unsupported(what: str) -> Key:
    """Return a key that other programs accept in such a file, and this one rejects."""

    def reject(node: ConfigNode) -> object:
        raise node.error(f"{what} is not supported by this version")

    return Key(reject, "", f"{what} is not supported")


def duration_key(shortest: str, longest: str, meaning: str, example: str) -> Key:
    """Return a key whose value is a duration within these bounds."""

    def read(node: ConfigNode) -> float:
        text = node.written()
        seconds = node.parsed(text, parse_duration)
        if not parse_duration(shortest) <= seconds <= parse_duration(longest):
            raise node.error(f"expected a duration from {shortest} to {longest}, got {quote(text)}")
        return seconds

    return Key(read, f"duration, {shortest} to {longest}", meaning, example)


def path_key(meaning: str, example: str) -> Key:
    """Return a key whose value is a path."""
    return Key(read_path, "path", meaning, example)


def read_path(node: ConfigNode) -> str:
    """Read a path; a relative one starts in the configuration's folder."""
    return str(Path(node.file).absolute().parent / node.parsed(node.text(), check_path))
