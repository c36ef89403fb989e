# SPDX-License-Identifier: Apache-2.0
"""What differs between the configurations of two sides, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_watch.analysis.comparison.finding import Finding, SideFinding, of_sides
from vllm_watch.analysis.comparison.model import ConfigDifference, Side
from vllm_watch.analysis.loadtest.load_test import Run


_OF = "The configuration of"


def settings(run: Run) -> dict[str, str]:
    """Return what a run ran with, by name: vLLM's version, the hardware, and every flag that is known."""
    known = {} if run.version is None else {"version": run.version}
    return {**known, **run.hardware, **run.config}


def side_settings(runs: Sequence[Run]) -> dict[str, str]:
    """Return what the runs of a side ran with; where they differ, all values in order."""
    each = [settings(run) for run in runs]
    names = dict.fromkeys(name for known in each for name in known)
    return {name: ", ".join(dict.fromkeys(known[name] for known in each if name in known)) for name in names}


def config_differences(a: Side, b: Side) -> tuple[ConfigDifference, ...]:
    """Return what differs, by name; what one side does not know is absent there."""
    ours, theirs = side_settings(a.runs), side_settings(b.runs)
    names = sorted({*ours, *theirs})
    return tuple(
        ConfigDifference(flag=name, a=ours.get(name), b=theirs.get(name))
        for name in names
        if ours.get(name) != theirs.get(name)
    )


def common_settings(sides: Sequence[Side]) -> tuple[tuple[str, str], ...]:
    """Return what all sides have alike, by name."""
    each = [side_settings(side.runs) for side in sides]
    return tuple(
        (name, value) for name, value in sorted(each[0].items()) if all(known.get(name) == value for known in each[1:])
    )


def check_configuration(a: Side, b: Side) -> Iterator[Finding]:
    """Yield what makes the differences of configuration incomplete."""
    yield from of_sides(_incomplete(side) for side in (a, b))
    yield from of_sides(_varying(side) for side in (a, b))


def _incomplete(side: Side) -> SideFinding | None:
    if not any(run.config for run in side.runs):
        return SideFinding(_OF, side.name, "is not known", "add its log or recording to see what differs.")
    if all(run.server is not None for run in side.runs):
        return SideFinding(_OF, side.name, "is from a Prometheus, which has few flags", "others may differ, too.")
    return None


def _varying(side: Side) -> SideFinding | None:
    varying = sorted(
        name
        for name in side_settings(side.runs)
        if len({known[name] for run in side.runs if name in (known := settings(run))}) > 1
    )
    if not varying:
        return None
    what = f"differ in {', '.join(varying)}"
    return SideFinding("The runs of", side.name, what, "they are taken as one configuration.")
