# SPDX-License-Identifier: Apache-2.0
"""What a start says over several lines: the logo, the main model and a draft; and secrets, which no event holds."""

from __future__ import annotations

import pytest

from tests.parsers.lines import TIME, events, events_of, json_record, old_record, record

from vllm_watch.daemon.state.facts import Facts
from vllm_watch_parsers.events import Lifecycle, StartupFact
from vllm_watch_parsers.startup import parse_startup


LOGO = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.33.0",
    "  █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)


def logo(first="", colour="", process="(APIServer pid=7) "):
    """Return the record of 0.15 and later that holds the logo."""
    head = f"{process}INFO {TIME} [startup.py:38] "
    return "\r\n".join(f"{head}{colour}{line}" for line in (first, *LOGO[1:])).encode()


@pytest.mark.parametrize("colour", ["", "\x1b[1;36m"])
def test_the_logo_says_version_and_model(colour):
    """The logo is one record of six lines; two of them are facts, and the first of these is the start."""
    assert events_of(logo(colour=colour)) == [
        Lifecycle("starting"),
        StartupFact(version="0.33.0"),
        StartupFact(model="Qwen/Qwen3-8B"),
    ]


def test_the_logo_says_the_same_where_its_carriage_returns_were_removed():
    """What collects logs may remove them: then each line of the logo is a record of its own, and still the start."""
    assert events_of(logo().replace(b"\r", b"")) == events_of(logo())


def test_the_logo_s_lines_are_no_facts_in_another_record():
    """In a record that begins with text, which may be a client's, a line of the logo is no fact."""
    assert events_of(logo(first="Received request x")) == []


ARGUMENTS = [
    "args: Namespace(api_key='sk-secret', ssl_keyfile_password='sk-secret', model='m', hf_token='sk-secret')",
    "non-default args: {'api_key': ['sk-secret', 'sk-secret2'], 'hf_token': 'sk-secret', 'model': 'm'}",
    "non-default args: {'model': 'm', 'api_key': 'sk-secret",
    "non-default args: {'model': ['m'], 'x': {'api_key': 'sk-secret'}, 'served_model_name': [\"m\", 'sk-secret']}",
    "Initializing a V1 LLM engine (v0.20.2) with config: model='m', env={'HF_TOKEN': 'sk-secret'}, served_model_name=m",
]


@pytest.mark.parametrize("message", ARGUMENTS)
def test_secrets_among_the_arguments_are_in_no_event(message):
    """Releases before 0.29 print API keys: an event holds the model's name and numbers, never a secret."""
    for line in (
        record(message, "utils.py"),
        old_record(message, "api_server.py"),
        json_record(message, name="a.utils"),
    ):
        said = events(line)

        assert said[0].model == "m"
        assert "sk-" not in repr(said)


@pytest.mark.parametrize("name", ["a b", "a\nb", "{a}", "<a>", "a" * 257, "", "a=b", "é"])
def test_a_model_s_name_is_spelt_like_one(name):
    """What becomes a label holds no blanks, brackets or line breaks, and has an end."""
    said = events(record(f"args: Namespace(model={name!r}, max_num_seqs=1)", "utils.py"))

    assert said == (StartupFact(max_num_seqs=1, flags=(("max-num-seqs", "1"),), flags_of="arguments"),)


MAIN_MODEL = [
    "non-default args: {'model': 'main', 'max_num_seqs': 64}",
    "Using max model len 32768",
]
DRAFT_MODEL = ["Using max model len 2048"]
ENGINE = [
    "Initializing a V1 LLM engine (v0.20.2) with config: model='main', max_seq_len=16384, tensor_parallel_size=1",
    "Starting to load model main...",
    "Starting to load model draft...",
    "Maximum concurrency for 16,384 tokens per request: 5.74x",
]


def learned(messages):
    """Return the facts that a server's lines add up to."""
    facts = Facts()
    for message in messages:
        for event in parse_startup(message):
            facts.learn(event)
    return facts


@pytest.mark.parametrize(
    ("messages", "length"),
    [
        (MAIN_MODEL, 32768),
        (MAIN_MODEL + DRAFT_MODEL, 32768),
        (MAIN_MODEL + DRAFT_MODEL + ENGINE, 16384),
        (MAIN_MODEL + ENGINE + DRAFT_MODEL, 16384),
        (DRAFT_MODEL + MAIN_MODEL + ENGINE, 16384),
        (ENGINE[3:] + DRAFT_MODEL, 16384),
    ],
)
def test_a_draft_model_s_limit_does_not_win(messages, length):
    """A draft model prints the same lines as the main one; the engine's own word is final."""
    assert learned(messages).max_model_len == length


def test_a_draft_model_s_name_does_not_win():
    """The model that is loaded first, or named in the arguments, is the server's."""
    assert learned(MAIN_MODEL + ENGINE).model == "main"
