# SPDX-License-Identifier: Apache-2.0
"""The thresholds of the rules: those of the package, and a file in which some of them are others."""

from __future__ import annotations

import re

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from vllm_watch.analysis.backtest.durations import DURATION
from vllm_watch.daemon.catalog.reasons import GPU_FAILURES, NOT_JUDGED
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml
from vllm_watch.daemon.support.errors import ConfigError, FileError


PACKAGE = "vllm_watch.analysis.backtest"

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_PLACE = re.compile(r"%\{(\w+)\}")
_COMMENT = re.compile(r"\s*#")


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
    mistakes: list[ConfigError] = []
    found = {}
    for name, node in read_yaml(file).mapping().items():
        try:
            found[name] = _value(name, node, shipped)
        except ConfigError as error:
            mistakes.append(error)
    if mistakes:
        raise ConfigError(*(message for mistake in mistakes for message in mistake.messages))
    return {**shipped, **found}


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
    Return a source of rules with each ``%{name}`` replaced.

    Args:
        text: The source.
        thresholds: Values by name.
        file: What messages name.

    Raises:
        ConfigError: The source names a threshold that there is not.
    """
    values = with_lists(thresholds)
    for number, line in enumerate(text.splitlines(), 1):
        unknown = [] if _COMMENT.match(line) else [name for name in _PLACE.findall(line) if name not in values]
        if unknown:
            raise ConfigError(f"{file}:{number}: there is no threshold {unknown[0]}")
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
