# SPDX-License-Identifier: Apache-2.0
"""
YAML in which every value knows its file, line and key path.

Nothing is constructed from tags. What a configuration does not need is rejected while the file is read: anchors,
aliases, tags, deep nesting, large files. A message never repeats text before an ``@``, which may be a password, nor a
password's hash.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml

from vllm_watch.daemon.config.texts import quote, shorten
from vllm_watch.daemon.support.errors import ConfigError


MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20

T = TypeVar("T")

_NULL = "tag:yaml.org,2002:null"
_NOT_TEXT = {
    "tag:yaml.org,2002:bool": "the truth value",
    "tag:yaml.org,2002:int": "the number",
    "tag:yaml.org,2002:float": "the number",
}


class ConfigNode(NamedTuple):
    """A value in a file. `line` is the line of its key, if it has one, else its own."""

    file: str
    path: str
    line: int
    node: yaml.Node

    def error(self, message: str, line: int | None = None) -> ConfigError:
        """Return an error at this value, or at another line within it."""
        where = f"{self.path}: " if self.path else ""
        return ConfigError(f"{self.file}:{line or self.line}: {where}{message}")

    @property
    def is_mapping(self) -> bool:
        """Whether the value has keys."""
        return isinstance(self.node, yaml.MappingNode)

    def mapping(self) -> dict[str, ConfigNode]:
        """Return the values by key; two equal keys are an error."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"expected a mapping, got {self._description()}")
        values: dict[str, ConfigNode] = {}
        for key, value in self.node.value:
            line = _line(key)
            if not isinstance(key, yaml.ScalarNode):
                raise self.error("expected text as the key, got a list or a mapping", line)
            name = key.value
            if name in values:
                raise self.error(f"duplicate key {quote(name)}, first given in line {values[name].line}", line)
            shown = shorten(name)
            values[name] = ConfigNode(self.file, f"{self.path}.{shown}" if self.path else shown, line, value)
        return values

    def items(self) -> list[ConfigNode]:
        """Return the values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"expected a list, got {self._description()}")
        return [
            ConfigNode(self.file, f"{self.path}[{index}]", _line(node), node)
            for index, node in enumerate(self.node.value)
        ]

    def text(self) -> str:
        """Return a text. What YAML reads as a number or a truth value is an error."""
        if self.node.tag in _NOT_TEXT:
            raise self.error(f"expected text, got {self._description()}; put it in quotes")
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag == _NULL:
            raise self.error(f"expected text, got {self._description()}")
        text = str(self.node.value)
        if not text.isprintable():
            raise self.error(f"expected text without control characters, got {quote(text)}")
        return text

    def written(self) -> str:
        """Return a text or a number as it is in the file: ``1:30``, not the 90 that YAML reads."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"expected one value, got {self._description()}")
        return str(self.node.value)

    def parsed(self, text: str, parse: Callable[[str], T]) -> T:
        """Return what `parse` returns for the text; its `ValueError` becomes an error at this value."""
        try:
            return parse(text)
        except ValueError as error:
            raise self.error(str(error)) from None

    def _description(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            return "a mapping" if self.is_mapping else "a list"
        if self.node.tag == _NULL:
            return "nothing"
        kind = _NOT_TEXT.get(self.node.tag)
        return f"{kind} {shorten(self.node.value)}" if kind else quote(self.node.value)


def read_yaml(file: str) -> ConfigNode:
    """Return the one document in a file; every failure is a `ConfigError`."""
    nodes = _compose(file, _read_text(file))
    if not nodes:
        raise ConfigError(f"{file}: the file is empty")
    if len(nodes) > 1:
        raise ConfigError(f"{file}:{_line(nodes[1])}: a second document; a configuration has only one")
    return ConfigNode(file, "", _line(nodes[0]), nodes[0])


class _Loader(yaml.SafeLoader):
    """Composes nodes; rejects those that could be expensive or hide something before it reads their content."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(text)
        self._file = file
        self._depth = 0

    def next_node(self) -> yaml.Node | None:
        """Return the next document, or `None` at the end."""
        return self.get_node() if self.check_node() else None

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node and everything in it."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # The stubs leave it out.
        where = f"{self._file}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            raise ConfigError(f"{where}: anchors and aliases are not supported")
        if getattr(event, "tag", None) is not None:
            raise ConfigError(f"{where}: tags are not supported")
        if self._depth >= MAX_DEPTH:
            raise ConfigError(f"{where}: nested more than {MAX_DEPTH} deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _read_text(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than 1 MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8 text") from None


def _compose(file: str, text: str) -> list[yaml.Node]:
    """Return the first two documents: a second one is an error."""
    try:
        loader = _Loader(file, text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{file}:{line}: not YAML: the character U+{error.character:04X} is not allowed") from None
    try:
        return list(islice(iter(loader.next_node, None), 2))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise ConfigError(f"{file}:{line}: not YAML: {said}") from None
    except (ValueError, OverflowError):
        # PyYAML itself raises these for an escape or a version whose number is too large.
        raise ConfigError(f"{file}:{loader.line + 1}: not YAML: a number is out of range") from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
