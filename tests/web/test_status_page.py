# SPDX-License-Identifier: Apache-2.0
"""The status page's files hold together and load nothing from elsewhere."""

from __future__ import annotations

import re

from pathlib import Path

import pytest
import yaml

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds
from vllm_watch.daemon.catalog.states import ENGINE_STATES
from vllm_watch.daemon.state.window import STAGES
from vllm_watch.daemon.web.routes import load_assets
from vllm_watch_parsers.events import FAILURE_KINDS


ASSETS = {path: asset.body.decode() for path, asset in load_assets().items()}
SCRIPTS = {path: text for path, text in ASSETS.items() if path.endswith(".js")}
NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("path", sorted(ASSETS))
def test_nothing_is_loaded_from_elsewhere(path):
    """The only addresses of other hosts are the namespace of SVG, examples of vLLM's, and where the runbooks are."""
    text = ASSETS[path]
    for known in (NAMESPACE, "http://127.0.0.1:8000/", shipped_thresholds()["runbooks"]):
        text = text.replace(known, "")

    assert re.findall(r"(?:https?:)?//[\w.]+\.\w", text) == []


@pytest.mark.parametrize("path", sorted(SCRIPTS))
def test_nothing_is_read_as_html(path):
    """Scripts make nodes and text only: what a log or a client says cannot become markup or code."""
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|DOMParser", SCRIPTS[path]) == []


def test_thresholds_are_those_of_the_alerts():
    """The bar of the KV cache changes its colour where the alert fires."""
    alerts = yaml.safe_load((Path(__file__).parents[2] / "alerts" / "thresholds.yml").read_text(encoding="utf-8"))
    exported = dict(re.findall(r"export const (\w+) = ([\d.]+);", SCRIPTS["/static/limits.js"]))

    assert alerts["kv_full_ratio"] == float(exported["KV_FULL_RATIO"])
    assert "new Bar(KV_FULL_RATIO)" in SCRIPTS["/static/engine.js"]


def test_page_has_no_code_of_its_own():
    """The page needs no exception from its Content-Security-Policy."""
    assert re.findall(r"<style|style=|\son\w+=|<script(?![^>]*src=)", ASSETS["/"]) == []


@pytest.mark.parametrize("state", ENGINE_STATES)
def test_state_is_known_to_the_page(state):
    """Every state has its place from worst to best, its colour and, unless it needs none, its sign."""
    assert f'"{state}"' in SCRIPTS["/static/states.js"]
    assert f".{state} {{" in ASSETS["/static/page.css"]


@pytest.mark.parametrize("name", [*FAILURE_KINDS, *STAGES])
def test_word_of_the_snapshot_is_known_to_the_page(name):
    """Every failure and every stage has its words."""
    assert re.search(rf"\b{name}\b", SCRIPTS["/static/words.js"])
