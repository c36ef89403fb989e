# SPDX-License-Identifier: Apache-2.0
"""``--language zh``: answers in Chinese, in each format, without an English word left."""

from __future__ import annotations

import html
import json
import re

from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.command_line import vllm_watch


NAMES = frozenset(
    {
        *("acceptance", "queue", "bursts", "Qwen", "vLLM", "vllm", "watch", "openai"),  # Recordings, models, programs.
        *("bench", "serve", "ARGUMENTS", "record", "compare", "HTML"),  # Commands and formats.
        *("token", "KV", "cache", "GPU", "CPU", "CUDA", "graph", "eager", "chunked", "prefill", "kernel", "worker"),
        *("TTFT", "TPOT", "ITL", "ms", "min", "UTC", "GiB", "KiB"),
        *("device", "dtype", "version", "off", "True", "NONE", "cpu", "mtp", "chat"),  # Flags and their values.
    }
)
"""What stands alone and stays: names, commands, terms that engineers do not translate, units and values."""

TESTS = Path(__file__).parents[1]
LOAD_TESTS = Path("loadtest") / "recordings"
DRAFTS = [LOAD_TESTS / f"{name}-run{number}.jsonl.xz" for name in ("draft2", "draft4") for number in (1, 2)]
WORD = re.compile(r"(?<![\w./=<>'-])[A-Za-z]{2,}(?![\w/=<>'-]|\.\w)")
COMMANDS = {
    "advise": ["advise", Path("recordings") / "acceptance.jsonl.xz", "--verbose"],
    "report": ["report", Path("recordings") / "queue.jsonl.xz", "--plan", "200 users", "--objective", "chat"],
    "of several": ["report", LOAD_TESTS / "bursts.jsonl.xz"],
    "of a client": ["report", DRAFTS[0]],
    "compare": ["compare", f"a={DRAFTS[0]},{DRAFTS[1]}", f"b={DRAFTS[2]},{DRAFTS[3]}", "--all"],
    "of three": ["compare", *DRAFTS[1:], "--all"],
    "of other loads": ["compare", DRAFTS[0], LOAD_TESTS / "prefix-on-run1.jsonl.xz"],
    "gains": ["compare", DRAFTS[0], DRAFTS[2], "--table", "gains"],
}

CASES = [
    (command, form)
    for command, arguments in COMMANDS.items()
    for form in ("text", "markdown", "html", "json")
    if "--table" not in arguments or form in {"text", "markdown"}
]


def english(text):
    """Return the words of a text that are no names, and stand alone: no part of a flag, a path or a series."""
    return sorted(set(WORD.findall(text)) - NAMES)


class Page(HTMLParser):
    """Gathers what a reader of a page sees or hears."""

    def __init__(self, text):
        super().__init__()
        self.said, self.is_hidden = [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Hear the names of parts."""
        self.is_hidden = tag == "style"
        self.said += [value for name, value in attributes if name == "aria-label"]

    def handle_data(self, data):
        """See a text."""
        self.said += [] if self.is_hidden else [data]


def sentences(value):
    """Yield all texts of a JSON document that have several words, and its keys where they are no names."""
    if isinstance(value, dict):
        assert all(re.fullmatch(r"[\w.-]+", key) for key in value)
        value = [each for key, each in value.items() if key != "unknown"]
    if isinstance(value, list):
        for each in value:
            yield from sentences(each)
    elif isinstance(value, str) and " " in value:
        yield value


@pytest.fixture(autouse=True)
def short_paths(monkeypatch):
    """Let recordings be named by short paths: a long one would be broken at the end of a line."""
    monkeypatch.chdir(TESTS)


@pytest.mark.parametrize(("command", "form"), CASES)
def test_the_answer_is_chinese(command, form):
    """Titles, columns, sentences and notes are; names, flags, units and JSON's keys stay."""
    done = vllm_watch(*COMMANDS[command], "--language", "zh", "--format", form)
    text = html.unescape(done.stdout.replace("\\_", "_")) if form == "markdown" else done.stdout
    if form == "html":
        assert '<html lang="zh-CN">' in text
        text = "\n".join(Page(text).said)
    if form == "json":
        text = "\n".join(sentences(json.loads(text)))

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search("[一-鿿]{2}", text)
    assert english(text) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_english_is_the_default(command):
    """Without the option the answer has no Chinese character."""
    assert not re.search("[一-鿿]", vllm_watch(*COMMANDS[command]).stdout)


def test_wide_characters_take_two_columns():
    """No line of text is wider than 80 columns, and what ends a clause does not begin a line."""
    lines = vllm_watch(*COMMANDS["advise"], "--language", "zh").stdout.splitlines()
    prose = [line for line in lines if re.search("[一-鿿]", line) and not line.startswith("    ")]

    assert max(sum(2 if "⺀" <= char <= "￿" else 1 for char in line) for line in prose) in {79, 80}
    assert not [line for line in lines if re.match("[，。、；：）]", line.strip())]  # noqa: RUF001
