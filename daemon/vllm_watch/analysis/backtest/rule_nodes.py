# SPDX-License-Identifier: Apache-2.0
"""Where the rules of a file are, and whether it has the form of one: what is in a rule is for Prometheus to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import yaml

from vllm_watch.analysis.backtest.durations import DURATION
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.support.errors import ConfigError


_DURATIONS = ("for", "keep_firing_for")


class RuleNode(NamedTuple):
    """A rule in a file: its group's name, its number there from 1, and its line."""

    group: str
    number: int
    line: int


def rule_nodes(file: str, text: str) -> list[RuleNode]:
    """
    Return where each rule of a file is.

    Raises:
        ConfigError: It is not YAML, or has not the form of a file of rules.
    """
    groups = _entries(_composed(file, text)).get("groups")
    if not _items(groups):
        raise ConfigError(f"{file}: no rules: expected a list `groups`, as Prometheus reads it")
    return [found for group in _items(groups) for found in _of_group(file, group)]


def _of_group(file: str, group: yaml.Node) -> Iterator[RuleNode]:
    entries = _entries(group)
    name, rules = entries.get("name"), entries.get("rules")
    if not isinstance(name, yaml.ScalarNode) or not isinstance(rules, yaml.SequenceNode):
        raise ConfigError(f"{file}:{_line(group)}: expected a group with a `name` and a list `rules`")
    _check_durations(file, entries, ("interval",))
    for number, rule in enumerate(_items(rules), 1):
        of_rule = _entries(rule)
        if not {"alert", "record"} & of_rule.keys() or "expr" not in of_rule:
            where = f"{file}:{_line(rule)}: group {name.value}, rule {number}"
            raise ConfigError(f"{where}: expected `alert` or `record`, and `expr`")
        _check_durations(file, of_rule, _DURATIONS)
        yield RuleNode(name.value, number, _line(rule))


def _check_durations(file: str, entries: Mapping[str, yaml.Node], keys: tuple[str, ...]) -> None:
    """Check what promtool rejects without a line."""
    for key in keys:
        node = entries.get(key)
        if node is not None and not _is_duration(node):
            got = quote(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
            raise ConfigError(f"{file}:{_line(node)}: {key}: expected a duration such as 30s or 5m, got {got}")


def _is_duration(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and bool(node.value == "0" or DURATION.fullmatch(node.value))


def _composed(file: str, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{file}{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: not YAML: {error}") from None


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
