# SPDX-License-Identifier: Apache-2.0
"""What counts as one server, and which of its time counts."""

from __future__ import annotations

from tests.advice.made_up import START, Part, load, server

from vllm_watch.analysis.advice.advice_subject import subjects
from vllm_watch.analysis.loadtest.load_test import Event


TOKENS = {"generation_tokens_total": 100.0}


def test_histories_of_one_configuration_count_together():
    """Runs with the same flags are one, with another flag, model or version they are another one."""
    part = Part(60, load(), TOKENS)
    alike = [server(part, name="a"), server(part._replace(gauges=load(15.0)), name="b")]
    others = [server(part, name="c", config={"dtype": "half"}), server(part, name="d", version="0.33.0")]
    found = subjects([*alike, *others])

    assert sorted(each.name for each in found) == ["a and 1 more", "c", "d"]
    assert {each.name: each.work.seconds for each in found}["a and 1 more"] == 120


def test_equal_names_are_told_apart():
    """Two servers of one name have their sources beside it."""
    part = Part(60, load(), TOKENS)
    found = subjects([server(part), server(part, config={"dtype": "half"})._replace(source="other.log")])

    assert sorted(each.name for each in found) == ["made-up (made-up.jsonl)", "made-up (other.log)"]


def test_time_without_work_does_not_count():
    """Idle, stalled, asleep: none of it is work, nor is a gap between two readings."""
    parts = [Part(60, load(0.0)), Part(60, load(), TOKENS)]
    parts += [Part(60, load(), state=state) for state in ("stalled", "sleeping", "down", "starting", "unknown")]
    history = server(*parts)
    late = tuple(point._replace(at=point.at + 300) for point in history.points[20:])

    assert subjects([history])[0].work.seconds == 60
    assert subjects([history._replace(points=(*history.points[:20], *late))])[0].work.seconds == 55


def test_only_the_last_configuration_counts():
    """What a server did before a restart with other flags is that of another one."""
    history = server(Part(600, load(), TOKENS))

    assert subjects([history._replace(config_since=START + 400)])[0].work.seconds == 200


def test_a_log_adds_its_flags_to_the_numbers():
    """A log and a Prometheus of one time are one server; of two servers it is not guessed which one a log is of."""
    part = Part(60, load(), TOKENS)
    crash = (Event(at=1.0, text="out of memory"),)
    crashed = {"events": crash, "failures": frozenset({"out_of_memory"})}
    log = server(part, name="log", config={"enforce-eager": "True"}, has_metrics=False, **crashed)
    numbers = server(part, name="numbers", config={"dtype": "half"})
    (found,) = subjects([log, numbers])

    assert found.name == "numbers"
    assert found.flags["enforce-eager"] == "True"
    assert found.flags["dtype"] == "half"
    assert (found.has_run_out_of_memory, found.ran_out_at) == (True, 1.0)
    assert len(subjects([log, numbers, server(part, name="more", config={"dtype": "float"})])) == 3


def test_the_engine_is_known_by_its_version_or_its_log():
    """V0 up to 0.7, V1 from 0.11 on; between them only the log says which."""
    part = Part(60, load(), TOKENS)
    eras = {
        version: subjects([server(part, version=version)])[0].era
        for version in ("0.7.3", "0.9.2", "0.11.0", "dev", None)
    }

    assert eras == {"0.7.3": "V0", "0.9.2": None, "0.11.0": "V1", "dev": None, None: None}
    assert subjects([server(part, version="0.9.2", engine_generation="V0")])[0].era == "V0"


def test_a_precision_that_was_not_set_is_the_model_s():
    """Where all flags are known, a KV cache without a precision of its own has that of the model."""
    part = Part(60, load(), TOKENS)

    assert "kv-cache-dtype" not in subjects([server(part)])[0].flags
    assert subjects([server(part, are_all_flags_known=True)])[0].flags["kv-cache-dtype"] == "auto"
