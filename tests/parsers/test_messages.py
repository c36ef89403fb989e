# SPDX-License-Identifier: Apache-2.0
"""What the messages of each release mean, by `messages.tsv`: the same in every form; what resembles them, nothing."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import CAUSES, MESSAGES, Message, events, json_record, old_record, record

from vllm_watch_parsers.events import FAILURE_KINDS, Failure, Lifecycle, StartupDetail, StartupFact
from vllm_watch_parsers.line import is_irrelevant


BARE = [row for row in MESSAGES if row.site == "print"]
RECORDS = [row for row in MESSAGES if row not in BARE and row not in CAUSES]


def label(row: Message) -> str:
    """Return the name of a row's test."""
    return f"{row.era}: {row.text[:40]}"


@pytest.mark.parametrize("row", RECORDS, ids=label)
def test_a_record_means_the_same_in_every_form(row):
    """Each era's message gives its values, with and without brackets and as JSON, and passes the quick look."""
    name = f"vllm.{row.site.removesuffix('.py').rpartition('/')[2]}"
    line = record(row.text, row.site, row.level)

    assert events(line) == row.events
    assert events(old_record(row.text, row.site, row.level)) == row.events
    assert not (row.events and is_irrelevant(line))
    if row.site.endswith(".py"):
        assert events(json_record(row.text, name=name, levelname=row.level)) == row.events


@pytest.mark.parametrize("row", [row for row in RECORDS if "Iteration(" in row.text], ids=label)
def test_the_line_of_a_step_is_passed_over_quickly(row):
    """There may be hundreds a second."""
    assert is_irrelevant(record(row.text, row.site, row.level))


@pytest.mark.parametrize("row", [row for row in RECORDS if row.events and row.site != "engine.py"], ids=label)
def test_json_with_the_message_alone_means_the_same(row):
    """The JSON set-up that vLLM's documentation shows prints no level and no file."""
    assert events(json.dumps({"message": row.text}).encode()) == row.events


@pytest.mark.parametrize("process", ["", "(APIServer pid=7) "])
@pytest.mark.parametrize("row", BARE, ids=label)
def test_a_line_without_a_head_is_read(row, process):
    """Uvicorn, PyTorch's C++ and AMD's runtime print past vLLM's formatter, some with the process before it."""
    line = f"{process}{row.text}".encode()

    assert events(line) == events(line + b"\r") == row.events


def test_uvicorns_lines_are_read_as_json():
    """With JSON logs the logger's name is in the place of the level and blanks."""
    starts = [row for row in BARE if row.era == "uvicorn"]

    assert len(starts) == 4
    for row in starts:
        message = row.text.removeprefix("INFO:     ")
        assert events(json_record(message, name="uvicorn.error")) == row.events


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            record("GPU KV cache size: 188,064 tokens", "kv_cache_utils.py", process="(EngineCore_DP1 pid=9) "),
            StartupFact(engine="1", kv_cache_tokens=188064),
        ),
        (
            record("Using XFormers backend.", "x.py", process="(EngineCore_DP3 pid=7) "),
            StartupDetail(engine="3", flags=(("attention-backend", "XFORMERS"),)),
        ),
        (
            record("EngineCore failed to start.", "core.py", "ERROR", "(EngineCore_DP3 pid=9) "),
            Failure("engine_dead", "3"),
        ),
        (b"(ApiServer_1 pid=7) INFO:     Application startup complete.", Lifecycle("ready", "1")),
    ],
)
def test_the_rank_of_the_process_goes_with_what_it_says(line, event):
    """Under data parallelism the process that prints a line says which engine, or API server, it is about."""
    assert events(line) == (event,)


def test_every_kind_of_failure_is_found_by_some_line():
    """There is no kind of failure that nothing gives."""
    found = {event.kind for row in MESSAGES for event in row.events if isinstance(event, Failure)}

    assert found == set(FAILURE_KINDS)
