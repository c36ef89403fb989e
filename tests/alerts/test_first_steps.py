# SPDX-License-Identifier: Apache-2.0
"""What the status page says to do first is what the runbooks say."""

from __future__ import annotations

import first_steps as reader
import msgspec
import pytest

from vllm_watch.backtest.thresholds import shipped_thresholds
from vllm_watch.catalog.first_steps import FirstSteps, first_steps


RUNBOOK = """\
# VllmEngineDown

## Diagnosis

1. Not this.

## Mitigation

Before `all`: look
twice.

1. Start it, see [another](VllmOutOfMemory.md).
2. Wait for `up 1`,
   *then* rest.
3. Third.
4. Fourth.

Later.

## When it is a false alarm

1. Nor this.
"""


def test_what_is_kept_is_in_the_runbooks():
    """The package has the first steps as they are in the runbooks now: `make generate` writes them."""
    made = msgspec.convert(reader.first_steps(shipped_thresholds()["runbooks"]), dict[str, FirstSteps])

    assert first_steps() == made
    assert {"down", "stalled", "saturated", "sleeping"} == set(first_steps())


def read(folder, monkeypatch, text):
    """Return the steps of a runbook with this text."""
    for name in ("VllmEngineDown", "VllmEngineStalled", "VllmCapacityExhausted", "VllmSleepsLong"):
        (folder / f"{name}.md").write_text(text)
    monkeypatch.setattr(reader, "RUNBOOKS", folder)
    return reader.first_steps("https://r.example.com")["down"]


def test_steps_are_plain_text(tmp_path, monkeypatch):
    """The first three steps of the mitigation are taken, and what comes before them; of markup only code stays."""
    assert read(tmp_path, monkeypatch, RUNBOOK) == {
        "runbook": "VllmEngineDown",
        "url": "https://r.example.com/VllmEngineDown.md",
        "before": ["Before `all`: look twice."],
        "steps": ["Start it, see another.", "Wait for `up 1`, then rest.", "Third."],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            RUNBOOK.replace("## Mitigation", "## Cure"),
            "VllmCapacityExhausted.md: the section Mitigation has no numbered",
        ),
        (RUNBOOK.replace("3. Third.", "3. Third:\n\n   ```sh\n   ls\n   ```\n"), "a step has a block of code: ls"),
    ],
)
def test_a_runbook_without_steps_is_found(tmp_path, monkeypatch, text, message):
    """A runbook without a list, and a step that does not fit a line, are errors."""
    with pytest.raises(ValueError, match=message):
        read(tmp_path, monkeypatch, text)
