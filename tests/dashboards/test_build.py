# SPDX-License-Identifier: Apache-2.0
"""The committed dashboards are what the code makes, in both languages."""

from __future__ import annotations

import re

from pathlib import Path

import pytest
import yaml


pytest.importorskip("grafana_foundation_sdk", reason="the SDK needs Python 3.11: group dashboards")

import vllm_watch

from boards.build import BOARDS, JSON, built
from boards.kit.panels import STATE_COLORS
from boards.kit.series import STATES
from boards.kit.texts import FOLDER, LANGUAGES, Texts
from vllm_watch.state.snapshot import ENGINE_STATES


@pytest.mark.parametrize("language", LANGUAGES)
def test_committed_json_is_what_the_code_makes(language):
    """`make dashboards` would change nothing, and no file is left over from a dashboard that is gone."""
    committed = {path.stem: path.read_text(encoding="utf-8") for path in (JSON / language).glob("*.json")}
    assert built(language) == committed


@pytest.mark.parametrize("path", sorted(path.name for path in (FOLDER / "en").iterdir()))
def test_both_languages_say_the_same_things(path):
    """Every text stands in both languages, in the same order: a change in one shows what the other lacks."""
    english, chinese = (_keys(FOLDER / language / path) for language in ("en", "zh"))
    assert english == chinese


@pytest.mark.parametrize("language", LANGUAGES)
def test_thresholds_in_texts_are_the_same_in_both_languages(language):
    """A text names the thresholds that its English twin names."""
    for path in sorted((FOLDER / "en").iterdir()):
        ours = (FOLDER / language / path.name).read_text(encoding="utf-8")
        assert sorted(_places(ours)) == sorted(_places(path.read_text(encoding="utf-8"))), path.name


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
        assert _keys(FOLDER / "en" / f"{board}.yml") == [
            key for key in _keys(FOLDER / "en" / f"{board}.yml") if key in keys
        ]
    assert set(_keys(FOLDER / "en" / "common.yml")) <= everywhere


def _places(text: str) -> list[str]:
    return re.findall(r"%\{(\w+)", text)


def _keys(path: Path) -> list[str]:
    found = []

    def walk(node, key):
        if isinstance(node, dict):
            for name, below in node.items():
                walk(below, f"{key}.{name}" if key else str(name))
        else:
            found.append(key)

    walk(yaml.safe_load(path.read_text(encoding="utf-8")), "")
    return found


def test_the_states_are_everywhere_the_same():
    """The dashboards' states are those of an engine, each with a colour, and the status page's go the other way."""
    words = (Path(vllm_watch.__file__).parent / "web" / "static" / "words.js").read_text()
    on_page = re.findall(r'"(\w+)"', re.search(r"STATES = \[(.*?)\]", words)[1])

    assert set(STATES) == set(STATE_COLORS) == set(ENGINE_STATES)
    assert list(STATES) == on_page[::-1]
