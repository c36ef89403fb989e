# SPDX-License-Identifier: Apache-2.0
"""
Rules: those of the package or of a user's files, with the thresholds that they were made with.

A source of rules names a threshold ``%{name}``. Only what is needed to evaluate rules is looked at here; whether they
are right is for Prometheus to say.
"""

from __future__ import annotations

import re

from collections.abc import Container, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from vllm_watch.analysis.backtest.expressions import ANY_NAME, DURATION, selected_names
from vllm_watch.daemon.catalog.reasons import GPU_FAILURES, NOT_JUDGED
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml
from vllm_watch.daemon.support.errors import ConfigError, FileError


# An alert may see what was recorded an evaluation ago: Prometheus evaluates each group at a moment of its own. So the
# groups with alerts come before those that only record.
_FILES = ("alerts.yml", "recording.yml")

PACKAGE = "vllm_watch.analysis.backtest"

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_PLACE = re.compile(r"%\{(\w+)\}")
_COMMENT = re.compile(r"\s*#")

Group = dict[str, Any]
"""A group of rules, as it stands in a file."""


class RuleFile(NamedTuple):
    """A file of rules whose thresholds are values; `name` is what messages name."""

    name: str
    text: str


class RuleSet(NamedTuple):
    """Rules that are evaluated together, in the order of their groups, and the files that were rendered for them."""

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


def shipped_rules(thresholds: Mapping[str, str]) -> RuleSet:
    """Return the package's rules with some thresholds."""
    return rule_set(shipped_sources(), thresholds)


def users_rules(paths: Sequence[str], thresholds: Mapping[str, str]) -> RuleSet:
    """
    Return a user's rules, and those of the package that record what these select and do not record themselves.

    Raises:
        ConfigError: A file cannot be read, or is no file of rules.
    """
    users = rule_set({path: _read(path) for path in paths}, thresholds)
    recorded = users.recorded
    recording = [
        {**group, "rules": [rule for rule in group["rules"] if "record" in rule and rule["record"] not in recorded]}
        for group in shipped_rules(thresholds).groups
    ]
    return users._replace(groups=(*users.groups, *recording)).without_unused()


def rule_set(sources: Mapping[str, str], thresholds: Mapping[str, str]) -> RuleSet:
    """
    Return the rules of some sources with some thresholds.

    Raises:
        ConfigError: A source is no file of rules, or names a threshold that there is not.
    """
    files = tuple(RuleFile(file, rendered(text, thresholds, file)) for file, text in sources.items())
    return RuleSet(files, tuple(group for file in files for group in _groups(file)))


def needed(groups: Sequence[Group], alerts: Container[str]) -> list[Group]:
    """Return some alerts and the rules that record what they select; the groups keep their order."""
    recording = [rule for group in groups for rule in group["rules"] if "record" in rule]
    pending = [rule for group in groups for rule in group["rules"] if rule.get("alert") in alerts]
    kept = set(map(id, pending))
    while pending:
        selected = selected_names(pending.pop()["expr"])
        new = [rule for rule in recording if id(rule) not in kept and {rule["record"], ANY_NAME} & selected]
        kept |= set(map(id, new))
        pending += new
    smaller = ({**group, "rules": [rule for rule in group["rules"] if id(rule) in kept]} for group in groups)
    return [group for group in smaller if group["rules"]]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _groups(file: RuleFile) -> Iterator[Group]:
    """Yield the groups of a file, as far as evaluating them needs; what else is wrong in it is for promtool to say."""
    try:
        groups = yaml.safe_load(file.text)["groups"]
        yield from [{**group, "rules": [_plain(rule) for rule in group["rules"]]} for group in groups]
    except yaml.YAMLError as error:
        raise ConfigError(f"{file.name}: not YAML: {' '.join(str(error).split())}") from None
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(f"{file.name}: no rules as Prometheus reads them: groups of rules, each with expr") from None


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule without what says nothing of when it fires, and with its expression as text."""
    return {**{key: value for key, value in rule.items() if key != "annotations"}, "expr": str(rule["expr"])}


def packaged_path(name: str) -> Path:
    """
    Return where a file or folder is that the package has by a symbolic link into ``alerts/``.

    Raises:
        FileError: It is not there: a checkout without links has a small file in the folder's place.
    """
    path = Path(str(files(PACKAGE))) / name
    if not (path.is_dir() or (path.suffix and path.is_file())):
        raise FileError(f"{path}: this installation has no alert rules: reinstall the package vllm-watch")
    return path


def shipped_thresholds() -> dict[str, str]:
    """Return every threshold of the package as it is written, in the order of its file."""
    return {name: node.written() for name, node in read_yaml(str(packaged_path("thresholds.yml"))).mapping().items()}


def read_thresholds(file: str) -> dict[str, str]:
    """
    Return the thresholds of a file; those that it does not have are the package's.

    Raises:
        ConfigError: It cannot be read, or names a threshold that there is not, or a value is not of its kind.
    """
    shipped = shipped_thresholds()
    mistakes: list[str] = []
    values = {}
    for name, node in read_yaml(file).mapping().items():
        try:
            values[name] = _value(name, node, shipped)
        except ConfigError as error:
            mistakes += error.messages
    if mistakes:
        raise ConfigError(*mistakes)
    return {**shipped, **values}


def _value(name: str, node: ConfigNode, shipped: Mapping[str, str]) -> str:
    if name not in shipped:
        raise node.error("there is no such threshold: the names are those of alerts/thresholds.yml")
    value = node.written()
    for kind, example, form in (("duration", "30s or 5m", DURATION), ("number", "0.9", _NUMBER)):
        if form.fullmatch(shipped[name]):
            if not form.fullmatch(value):
                raise node.error(f"expected a {kind} such as {example}, got {quote(value)}")
            return value
    return value


def with_lists(thresholds: Mapping[str, str]) -> dict[str, str]:
    """Return thresholds with what else rules name in the same way: lists from the daemon's catalogue."""
    return {**thresholds, "probe_not_judged": "|".join(NOT_JUDGED), "gpu_failures": "|".join(GPU_FAILURES)}


def named_in(text: str) -> set[str]:
    """Return the names of the thresholds in a source of rules: ``%{name}``."""
    return set(_PLACE.findall(text))


def rendered(text: str, thresholds: Mapping[str, str], file: str) -> str:
    """
    Return a source of rules, by its file's name, with each ``%{name}`` replaced.

    Raises:
        ConfigError: The source names a threshold that there is not.
    """
    values = with_lists(thresholds)
    for number, line in enumerate(text.splitlines(), 1):
        unknown = [] if _COMMENT.match(line) else [name for name in _PLACE.findall(line) if name not in values]
        if unknown:
            raise ConfigError(f"{file}:{number}: there is no threshold {unknown[0]}")
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
