# SPDX-License-Identifier: Apache-2.0
"""Each text of an answer has a translation with the same fields, and none is left over."""

from __future__ import annotations

import ast

from pathlib import Path
from string import Formatter

import pytest

import vllm_watch

from vllm_watch.daemon.catalog.language import _, catalogue, language_tag, listed, sentences, speaking


MODULES = sorted(Path(vllm_watch.__file__).parent.rglob("*.py"))
MARKS = {"_", "N_", "NoAdviceError"}


def keys():
    """Return all texts that the code gives to `_`, or marks with `N_` or as why a rule is silent."""
    calls = (node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    marked = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in MARKS)
    return {text.value for text in marked if isinstance(text, ast.Constant)}


def fields(text):
    """Return the fields of a text, each with how it is written."""
    return sorted((name, form) for _, name, form, _ in Formatter().parse(text) if name is not None)


def test_every_text_is_translated():
    """The catalogue has each text once, and nothing that is no text any more."""
    assert sorted(keys() - catalogue("zh").keys()) == []
    assert sorted(catalogue("zh").keys() - keys()) == []


@pytest.mark.parametrize("text", catalogue("zh"))
def test_a_translation_has_the_same_fields(text):
    """It fills in the same values in the same form, and is not empty."""
    assert fields(catalogue("zh")[text]) == fields(text)
    assert catalogue("zh")[text].strip()


def test_a_language_is_spoken_until_its_end():
    """Texts, lists and sentences are in the language of the moment; what is not translated stays."""
    with speaking("zh"):
        said = (_("the batch is full"), _("{flag} is not set", flag="x"), listed("ab"), sentences("ab"), language_tag())
        assert _("no such {text}", text="key") == "no such key"

    assert said == ("批次已满", "没有设置 x", "a、b", "ab", "zh-CN")
    assert (_("the batch is full"), listed("ab"), sentences("ab"), language_tag()) == (
        "the batch is full",
        "a, b",
        "a b",
        "en",
    )
