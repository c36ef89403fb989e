# SPDX-License-Identifier: Apache-2.0
"""Sets of rules: those of the package or of a user's files, each with the thresholds that it was made with."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from vllm_watch.analysis.backtest.expressions import ANY_NAME, selected_names
from vllm_watch.analysis.backtest.rule_nodes import rule_nodes
from vllm_watch.analysis.backtest.thresholds import packaged_path, rendered
from vllm_watch.daemon.support.errors import ConfigError


SHIPPED = "shipped"
"""What the thresholds of the package are called."""

# An alert may see what was recorded an evaluation ago: Prometheus evaluates each group at a moment of its own. So the
# groups with alerts come before those that only record.
_FILES = ("alerts.yml", "recording.yml")

Group = dict[str, Any]
"""A group of rules, as it stands in a file."""


class RuleFile(NamedTuple):
    """A file of rules whose thresholds are values; `name` is what messages name."""

    name: str
    text: str


class RuleSet(NamedTuple):
    """
    Rules that are evaluated together, in the order of their groups.

    Args:
        name: What tells it from another one.
        files: The files that were rendered for it.
        groups: All groups of these.
    """

    name: str
    files: tuple[RuleFile, ...]
    groups: tuple[Group, ...]

    @property
    def rules(self) -> list[Mapping[str, Any]]:
        """All rules."""
        return [rule for group in self.groups for rule in group["rules"]]

    @property
    def alerts(self) -> list[Mapping[str, Any]]:
        """The rules that alert."""
        return [rule for rule in self.rules if "alert" in rule]

    @property
    def recorded(self) -> dict[str, str]:
        """The expressions of recorded series by name."""
        return {rule["record"]: rule["expr"] for rule in self.rules if "record" in rule}

    def without_unused(self) -> RuleSet:
        """Return the same alerts, without what is recorded for others than these."""
        return self._replace(groups=tuple(needed(self.groups, {rule["alert"] for rule in self.alerts})))


def shipped_sources() -> dict[str, str]:
    """Return the sources of the package's rules by the names of their files, those with alerts first."""
    folder = packaged_path("source")
    return {name: (folder / name).read_text(encoding="utf-8") for name in _FILES}


def shipped_rules(name: str, thresholds: Mapping[str, str]) -> RuleSet:
    """Return the package's rules with some thresholds."""
    return rule_set(name, shipped_sources(), thresholds)


def users_rules(name: str, paths: Sequence[str], thresholds: Mapping[str, str]) -> RuleSet:
    """
    Return a user's rules, and those of the package that record what these select and do not record themselves.

    Raises:
        ConfigError: A file cannot be read, or is no file of rules.
    """
    own = rule_set(name, {path: _read(path) for path in paths}, thresholds)
    recorded = {rule["record"] for rule in own.rules if "record" in rule}
    recording = [
        {**group, "rules": [rule for rule in group["rules"] if "record" in rule and rule["record"] not in recorded]}
        for group in shipped_rules(name, thresholds).groups
    ]
    return own._replace(groups=(*own.groups, *recording)).without_unused()


def rule_set(name: str, sources: Mapping[str, str], thresholds: Mapping[str, str]) -> RuleSet:
    """
    Return the rules of some sources with some thresholds.

    Raises:
        ConfigError: A source is no file of rules, or names a threshold that there is not.
    """
    files = tuple(RuleFile(file, rendered(text, thresholds, file)) for file, text in sources.items())
    return RuleSet(name, files, tuple(group for file in files for group in _groups(file)))


def needed(groups: Sequence[Group], alerts: Container[str]) -> list[Group]:
    """Return some alerts and the rules that record what they select; the groups keep their order."""
    rules = {(number, place): rule for number, group in enumerate(groups) for place, rule in enumerate(group["rules"])}
    kept = {key for key, rule in rules.items() if rule.get("alert") in alerts}
    pending = [rules[key]["expr"] for key in kept]
    while pending:
        selected = selected_names(pending.pop())
        new = {
            key
            for key, rule in rules.items()
            if key not in kept and "record" in rule and ({rule["record"], ANY_NAME} & selected)
        }
        kept |= new
        pending += [rules[key]["expr"] for key in new]
    smaller = (
        {**group, "rules": [rule for place, rule in enumerate(group["rules"]) if (number, place) in kept]}
        for number, group in enumerate(groups)
    )
    return [group for group in smaller if group["rules"]]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _groups(file: RuleFile) -> Iterator[Group]:
    rule_nodes(file.name, file.text)
    for group in yaml.safe_load(file.text)["groups"]:
        yield {**group, "rules": [_plain(rule) for rule in group["rules"]]}


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule without what says nothing of when it fires, and with its expression as text."""
    return {**{key: value for key, value in rule.items() if key != "annotations"}, "expr": str(rule["expr"])}
