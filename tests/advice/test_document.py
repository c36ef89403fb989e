# SPDX-License-Identifier: Apache-2.0
"""The document on the rules says what the code does."""

from __future__ import annotations

import re

from pathlib import Path

from vllm_watch.analysis.advice.judge import MOST, RULES
from vllm_watch.analysis.advice.rule import ENOUGH_SECONDS, LEAST_SECONDS, LEAST_SHARE


TEXT = (Path(__file__).parents[2] / "daemon" / "ADVISING.md").read_text(encoding="utf-8")
README = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")


def rows(text):
    """Return the cells of each row of a table whose first one is a rule."""
    lines = re.findall(r"(?m)^\| `[a-z0-9-]+` \|.*\|$", text)
    return {
        cells[0].strip("`"): cells for line in lines if (cells := [c.strip() for c in line.strip("|").split(" | ")])
    }


def test_every_rule_has_its_row():
    """The table has all rules in their order, each with the flags that it needs."""
    found = rows(TEXT)

    assert [name.strip(" `") for name in found] == [rule.name for rule in RULES]
    for rule, cells in zip(RULES, found.values(), strict=True):
        drafts = rule.name.startswith("draft-tokens")
        assert drafts or set(rule.flags) <= set(re.findall(r"`([a-z-]+)`", cells[1]))
        assert ("`--objective`" in cells[1]) == ("objective" in rule.needs)


def test_what_is_only_made_up_is_told():
    """The table of the tests has each rule once, by what it was tried on."""
    table = README
    named = [name for line in re.findall(r"(?m)^\| (`.*?`) \|", table) for name in re.findall(r"`([a-z0-9-]+)`", line)]

    assert sorted(named) == sorted(rule.name for rule in RULES)


def test_what_all_rules_share_is_told():
    """The document has the least time, the least share, when advice says that it is from a short time, and the most."""
    assert f"has to be there for {LEAST_SECONDS:.0f} s, and for {100 * LEAST_SHARE:.0f} %" in TEXT
    assert f"less than {ENOUGH_SECONDS:.0f} s" in TEXT
    assert MOST == 3
    assert "at most three for a server" in TEXT
