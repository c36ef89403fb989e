# SPDX-License-Identifier: Apache-2.0
"""Eight releases' logs: every record is found, with what it says, and nothing else is."""

from __future__ import annotations

import pytest

from tests.parsers.releases import RELEASES, Expected, Found, expected_records, found_events, log_lines

from vllm_watch.daemon.state.facts import Facts
from vllm_watch_parsers.events import Lifecycle, StartupFact


EVERY_RELEASE = pytest.mark.parametrize("release", RELEASES)

# Two API servers shut down one after the other. The first one's own line says so one line before
# uvicorn's, which is the (optional) record.
EXTRA_SHUTDOWNS = {("0.12.0", 434), ("0.20.2", 483)}

ENGINES_COUNT = {"engine_stats", "spec_decoding"}


def said(found: Found) -> dict[str, object]:
    """Return what an event says, under the names of `expected.json`."""
    fields = {name: value for name, value in found.event._asdict().items() if value not in (None, ())}
    if found.kind == "failure":
        return {"event": fields["kind"]}
    if found.kind == "lifecycle":
        return {"event": fields["phase"]}
    fields.pop("engine", None)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def to_be_said(record: Expected, names: set[str]) -> dict[str, object]:
    """Return what a record says, and of what it says besides the fields that an event has."""
    fields = {**record.fields, **{name: value for name, value in record.extra.items() if name in names}}
    if record.kind == "access":
        fields.setdefault("target", fields["path"])
    return {name: value for name, value in fields.items() if value is not None}


def fits(found: Found, record: Expected) -> bool:
    """Tell whether an event is what a record stands for."""
    if found.kind != record.kind or not record.stands_on(found.line):
        return False
    if record.kind in ENGINES_COUNT and found.event.engine != record.engine:
        return False
    fields = said(found)
    if record.kind == "startup_fact":
        return record.fields.items() <= fields.items()
    return fields == to_be_said(record, set(found.event._fields))


def compare(release: str) -> tuple[list[Expected], list[Found]]:
    """Return the records that were not found, and the events that are no record's."""
    missing, surplus = list(expected_records(release)), []
    for found in found_events(release):
        record = next((record for record in missing if fits(found, record)), None)
        if record is None:
            surplus.append(found)
        else:
            missing.remove(record)
    return missing, surplus


def is_said_elsewhere(record: Expected, release: str) -> bool:
    """Tell whether other lines of the same session say all that a start-up record says."""
    sessions = {other.line: other.session for other in expected_records(release)}
    heard = {
        (name, value)
        for found in found_events(release)
        if found.kind == "startup_fact" and sessions.get(found.line) == record.session
        for name, value in said(found).items()
    }
    return record.kind == "startup_fact" and record.fields.items() <= heard


@EVERY_RELEASE
def test_every_record_is_found(release):
    """Each record is found on its line, with its engine and exactly its fields, unless it is optional."""
    missing, _ = compare(release)

    assert not [record for record in missing if not record.is_optional and not is_said_elsewhere(record, release)]


@EVERY_RELEASE
def test_nothing_else_is_found(release):
    """Forged and echoed text, requests, tables and tracebacks give no event, and no record gives two."""
    _, surplus = compare(release)

    assert not [found for found in surplus if not is_extra_shutdown(release, found)]


def is_extra_shutdown(release: str, found: Found) -> bool:
    """Tell whether an event is one of the two that say a shutdown one line early."""
    line = log_lines(release)[found.line - 1]
    return (
        (release, found.line) in EXTRA_SHUTDOWNS
        and isinstance(found.event, Lifecycle)
        and found.event.phase == "shutting_down"
        and line.endswith(b"Shutting down FastAPI HTTP server.")
    )


def lives(release: str) -> list[Facts]:
    """Return what each run of the server said about itself, as the state learns it."""
    learned: list[Facts] = []
    for found in found_events(release):
        if isinstance(found.event, Lifecycle) and found.event.phase == "starting":
            learned.append(Facts())
        elif isinstance(found.event, StartupFact):
            learned[-1].learn(found.event)
    return learned


def facts_by_session(release: str) -> list[dict[str, set[object]]]:
    """Return the values that each session's records have for each fact; the Rust server prints no start."""
    sessions: dict[int, dict[str, set[object]]] = {}
    for record in expected_records(release):
        if record.fields == {"event": "starting"}:
            sessions[record.session] = {}
        for name, value in record.fields.items() if record.kind == "startup_fact" else ():
            sessions[record.session].setdefault(name, set()).add(value)
    return list(sessions.values())


@EVERY_RELEASE
def test_each_run_of_the_server_is_a_life_of_its_own(release):
    """There are as many lives as starts, and each one's version is the folder's."""
    learned = lives(release)

    assert len(learned) == len(facts_by_session(release))
    assert {facts.version for facts in learned} == {release}


@EVERY_RELEASE
@pytest.mark.parametrize(
    "name", ["model", "max_model_len", "max_num_seqs", "tensor_parallel_size", "num_speculative_tokens"]
)
def test_the_facts_learned_are_the_session_s_own(release, name):
    """A limit is learned in each session that prints it, and it is one of the values printed there."""
    for learned, printed in zip(lives(release), facts_by_session(release), strict=True):
        values = printed.get(name, {None})

        assert getattr(learned, name) in values


@EVERY_RELEASE
def test_an_engine_s_capacity_is_the_least_of_its_workers(release):
    """Of several printed sizes of one engine's KV cache the smallest counts."""
    for learned, printed in zip(lives(release), facts_by_session(release), strict=True):
        sizes = [engine.kv_cache_tokens for engine in learned.engines.values() if engine.kv_cache_tokens]

        assert set(sizes) <= printed.get("kv_cache_tokens", set())
        assert not sizes or min(sizes) == min(printed["kv_cache_tokens"])


@EVERY_RELEASE
def test_no_api_key_is_in_any_event(release):
    """The arguments hold an API key, in clear before 0.29; no event does."""
    assert any(b"api_key" in line for line in log_lines(release))
    assert not [found for found in found_events(release) if "sk-" in repr(found.event)]
