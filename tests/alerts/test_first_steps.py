# SPDX-License-Identifier: Apache-2.0
"""What is said to be done first is what the runbooks say, for each cause of a bad state."""

from __future__ import annotations

import re

import first_steps as reader
import pytest

from vllm_watch.analysis.advice.judge import RULES
from vllm_watch.daemon.catalog.states import CAUSES, STATES, first_steps


EVERY = [(state, cause) for state in first_steps() for cause in (None, *CAUSES.get(state, ()))]
COST = ("running requests are lost", "loading takes minutes", "prefix cache begins empty")

RUNBOOK = """\
# VllmSleepingWithRequests

## Diagnosis

1. Not this.

## Mitigation

How it fell asleep
is not known:

1. Look, see [another](VllmEngineCrashed.md).
2. Wait for `up 1`,
   *then* rest.

`put_to_sleep`, `paused`:

1. Wake it.

Later:

* Sleep less.

## When it is a false alarm

1. Nor this.
"""


def test_every_cause_has_its_steps():
    """Each state that has a runbook has steps, and one with causes for each of them."""
    assert {state for state, known in STATES.items() if known.runbook} == set(first_steps())
    for state, causes in CAUSES.items():
        assert list(causes) == list(first_steps()[state].by_cause)


@pytest.mark.parametrize(("state", "cause"), EVERY)
def test_steps_are_whole(state, cause):
    """A step of a list stands alone: one that changes a flag or starts a server says what that costs."""
    steps = first_steps()[state].about(cause)

    assert 2 <= len(steps) <= reader.MOST_STEPS
    for number, step in enumerate(steps):
        assert step.endswith(".")
        assert not re.search(r"\b[Pp]oints? \d|with the reason", step)
        if re.search("needs? a restart", step) and "costs the same" not in step:
            assert [] == [cost for cost in COST if cost not in step]
        if re.match(r"(Raise|Or lower|Or raise|`--)", step) and state == "saturated":
            assert "a restart" in step
        if "costs the same" in step:
            assert COST[0] in steps[number - 1]


@pytest.mark.parametrize("cause", ["kv_cache_full", "batch_full"])
def test_the_first_steps_and_advise_agree(cause):
    """They name the flags that `advise` proposes for what is full, in its order, and none that it says is of no use."""
    said = re.findall(r"`--([a-z-]+)", " ".join(first_steps()["saturated"].about(cause)[2:]))
    advised = [rule.flag for rule in RULES if rule.cause == cause and not rule.name.startswith("max-num-seqs-down")]

    assert [flag for flag in dict.fromkeys(said) if flag != "max-model-len"] == advised


def read(folder, monkeypatch, text):
    """Return the steps of a runbook with this text."""
    monkeypatch.setattr(reader, "RUNBOOKS", folder)
    monkeypatch.setattr(reader, "STATES", {"sleeping": STATES["sleeping"]})
    monkeypatch.setattr(reader, "CAUSES", {"sleeping": {"put_to_sleep": "", "paused": ""}})
    (folder / "VllmSleepingWithRequests.md").write_text(text)
    return reader.first_steps("https://r.example.com")["sleeping"]


def test_steps_are_plain_text(tmp_path, monkeypatch):
    """All steps below a line of causes are taken for each of them, those below another line for none; code stays."""
    assert read(tmp_path, monkeypatch, RUNBOOK) == {
        "runbook": "VllmSleepingWithRequests",
        "url": "https://r.example.com/VllmSleepingWithRequests.md",
        "steps": ["Look, see another.", "Wait for `up 1`, then rest."],
        "by_cause": {"put_to_sleep": ["Wake it."], "paused": ["Wake it."]},
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## Mitigation", "## Cure", "VllmSleepingWithRequests.md: no steps for a cause that is not known"),
        ("`put_to_sleep`, `paused`:", "`paused`:", "VllmSleepingWithRequests.md: no steps for put_to_sleep"),
        ("`paused`:", "`paused`, `died`:", "VllmSleepingWithRequests.md: steps for died, which is no cause"),
        (
            "* Sleep less.",
            "1. Sleep less.",
            "VllmSleepingWithRequests.md: two lists of steps for a cause that is not known",
        ),
        ("1. Wake it.", "1. A\n2. B\n3. C\n4. D\n5. E", "VllmSleepingWithRequests.md: more than 4 steps below"),
        ("1. Wake it.", "1. Wake it:\n\n   ```sh\n   ls\n   ```\n", "a step has a block of code: ls"),
    ],
)
def test_a_runbook_without_its_steps_is_found(tmp_path, monkeypatch, old, new, message):
    """A cause without steps, steps without a cause, too many of them, and one that does not fit a line are errors."""
    with pytest.raises(ValueError, match=message):
        read(tmp_path, monkeypatch, RUNBOOK.replace(old, new))
