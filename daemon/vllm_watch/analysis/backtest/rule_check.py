# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own check of rules, with the lines of the user's file."""

from __future__ import annotations

import re

from collections.abc import Iterator

from vllm_watch.analysis.backtest.promtool import Promtool
from vllm_watch.analysis.backtest.rule_nodes import rule_nodes
from vllm_watch.analysis.backtest.rule_set import RuleFile, RuleSet
from vllm_watch.daemon.support.errors import ConfigError
from vllm_watch.daemon.support.printable import printable


_IN_RULE = re.compile(r'(?:\d+:\d+: )*group "(.*?)", rule (\d+), "(.*?)": (.*)')
_LINE = re.compile(r"(?:yaml: )?(?:unmarshal errors: )?line (\d+): (.*)")


def check_rules(tool: Promtool, rules: RuleSet) -> None:
    """
    Check the files of a set of rules.

    Raises:
        ConfigError: Prometheus does not accept them; a message names the file, and where that is known the line.
    """
    for number, file in enumerate(rules.files):
        path = tool.folder / f"rules{number}.yml"
        path.write_text(file.text, encoding="utf-8")
        ended = tool.run("check", "rules", path)
        if not ended.is_well:
            lines = [line.strip() for line in ended.printed.splitlines()]
            said = [line.removeprefix(f"{path}: ") for line in lines if line.startswith(f"{path}: ")]
            messages = _messages(file, said or [f"promtool rejects it: {' '.join(lines)}"])
            raise ConfigError(*dict.fromkeys(map(printable, messages)))


def _messages(file: RuleFile, said: list[str]) -> Iterator[str]:
    lines = {(node.group, node.number): node.line for node in rule_nodes(file.name, file.text)}
    for message in said:
        in_rule, line = _IN_RULE.fullmatch(message), _LINE.fullmatch(message)
        if in_rule is not None:
            place = lines.get((in_rule[1], int(in_rule[2])))
            yield f"{file.name}{f':{place}' if place else ''}: {in_rule[3]}: {in_rule[4]}"
        else:
            yield f"{file.name}:{line[1]}: {line[2]}" if line is not None else f"{file.name}: {message}"
