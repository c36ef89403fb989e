# SPDX-License-Identifier: Apache-2.0
"""The committed dashboards are what the code makes, in both languages."""

from __future__ import annotations

import json
import re

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import without
from tests.support.translation import is_english


pytest.importorskip("grafana_foundation_sdk", reason=without("grafana_foundation_sdk"))

from boards.build import BOARDS, built
from boards.kit import events, palette, texts
from boards.kit.panels import STATE_COLORS
from boards.kit.texts import FOLDER, Texts, english_texts, read_file
from vllm_watch.daemon.catalog.states import ENGINE_STATES


_PLACES = re.compile(r"%\{\w+|\{\{.+?\}\}|\$\{?[\w.]+\}?")
"""Places in a text: of a threshold, of a label, of a variable."""


@pytest.mark.parametrize("path", sorted(path.name for path in (FOLDER / "en").iterdir()))
def test_a_translation_has_no_texts_of_its_own(path):
    """Each Chinese text has an English one, in the same order; a text that has no Chinese yet is no fault."""
    english, chinese = list(english_texts(Path(path).stem)), list(read_file(FOLDER / "zh" / path))
    assert [key for key in english if key in set(chinese)] == chinese


@pytest.mark.parametrize("path", sorted(path.name for path in (FOLDER / "en").iterdir()))
def test_both_languages_say_the_same(path):
    """A Chinese text names the thresholds, labels and variables of its English twin; English in it is that twin."""
    english = english_texts(Path(path).stem)
    for key, text in read_file(FOLDER / "zh" / path).items():
        assert sorted(_PLACES.findall(text)) == sorted(_PLACES.findall(english[key])), key
        assert text == english[key] or not is_english(text), key


def test_a_text_without_a_translation_is_shown_in_english(monkeypatch, tmp_path):
    """Without a Chinese text, or without the file, the English one is shown, a board's own before a common one."""
    for name, text in {
        "en/new.yml": "empty: Nothing new\ntitle: New",
        "en/common.yml": "empty: No data\nnames: {state: State}",
        "zh/common.yml": "empty: 无数据",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(texts, "FOLDER", tmp_path)

    chinese = Texts("zh", "new")

    assert (chinese.get("title"), chinese.get("empty"), chinese.name("state")) == ("New", "Nothing new", "State")
    (tmp_path / "zh" / "new.yml").write_text("title: 新")
    assert Texts("zh", "new").get("title") == "新"
    (tmp_path / "zh" / "new.yml").write_text("# 还没有\n")
    assert Texts("zh", "new").get("title") == "New"


def test_no_text_is_left_over(monkeypatch):
    """Every text is on some dashboard."""
    asked: dict[str, set[str]] = {}
    plain_get = Texts.get

    def get(self, key):
        text = plain_get(self, key)
        asked.setdefault(self.board, set()).add(key)
        return text

    monkeypatch.setattr(Texts, "get", get)
    built("en")
    everywhere = set().union(*asked.values())
    assert len(asked) == len(BOARDS)
    for board, keys in asked.items():
        assert set(english_texts(board)) <= keys
    assert set(english_texts("common")) <= everywhere


def test_every_state_has_a_color():
    """The dashboards have a colour for each state of an engine, and for nothing else."""
    assert set(STATE_COLORS) == set(ENGINE_STATES)


@pytest.mark.parametrize("language", texts.LANGUAGES)
def test_severities_are_told_apart(language):
    """Wherever a severity stands, a critical alert has the colour of a server that is down and a warning another."""
    found = []
    for board in built(language).values():
        for node in _nodes(json.loads(board)):
            severities = node.get("options") if node.get("type") == "value" else None
            if severities and "critical" in severities:
                found.append((severities["critical"]["color"], severities["warning"]["color"]))
    assert found
    assert {(STATE_COLORS["down"], palette.WARNING)} == set(found)
    assert {"critical": STATE_COLORS["down"], "warning": palette.WARNING} == events.SEVERITIES


@pytest.mark.parametrize("language", texts.LANGUAGES)
def test_no_legend_has_a_bare_engine(language):
    """The number of an engine stands behind the word, or a reader takes it for a value."""
    word = Texts(language, "common").get("engine_of_legend")
    for board in built(language).values():
        legends = [node.get("legendFormat", "") for node in _nodes(json.loads(board))]
        assert [each for each in legends if "{{engine}}" in each.lower().replace(f"{word} {{{{engine}}}}", "")] == []


def _nodes(node: object) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a dashboard."""
    if isinstance(node, Mapping):
        yield node
    children = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for child in children:
        yield from _nodes(child)
