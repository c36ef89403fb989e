# SPDX-License-Identifier: Apache-2.0
"""The recorded incidents and what must be said of them, in seconds of each recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.alerts.replay import CHAT, Fired, fired
from tests.support.recordings import ROOT

from vllm_watch.recording import BUNDLED


RECORDINGS = ROOT / "recordings"


class Expected(NamedTuple):
    """An alert that must fire between two seconds, and must have ended by a third, if that is given."""

    alert: str
    earliest: int
    latest: int
    ended_by: int | None = None


class Incident(NamedTuple):
    """
    A recording, what happens in it, and what is said of it.

    Args:
        folder: Where it is.
        story: What happens, with seconds.
        expected: What must fire.
        allowed: What else may fire.
        quiet: Stretches in which nothing may begin to fire.
    """

    folder: Path
    story: str
    expected: tuple[Expected, ...] = ()
    allowed: frozenset[str] = frozenset()
    quiet: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """The recording's name."""
        return self.folder.name


_OVERLOAD = frozenset({"VllmQueueGrowing", "VllmKvCacheSaturated", "VllmPreemptionStorm", "VllmLatencyBudgetBurnsFast"})

INCIDENTS = (
    Incident(
        BUNDLED,
        "light load, shared prefixes, clients' errors; overload from 185, the KV cache full from 195, drained by 455; "
        "the engine killed at 507, the server back at 550",
        (
            Expected("VllmCapacityExhausted", 195, 315, ended_by=755),
            Expected("VllmKvCacheSaturated", 195, 315, ended_by=755),
            Expected("VllmQueueGrowing", 195, 315, ended_by=755),
            Expected("VllmEngineCrashed", 507, 567),
        ),
        _OVERLOAD | {"VllmEndToEndSlow", "VllmAcceptanceCollapsed"},
        quiet=((0, 185),),
    ),
    Incident(
        RECORDINGS / "stall",
        "the engine is frozen from 89 to 174 with one request running, while /health says 200",
        (Expected("VllmEngineStalled", 89, 179, ended_by=200),),
        frozenset({"VllmWorkerFailed"}),
        quiet=((0, 89),),
    ),
    Incident(RECORDINGS / "dp1", "two engines under a light load", quiet=((0, 600),)),
    Incident(RECORDINGS / "vl", "a vision model under a light load", quiet=((0, 600),)),
    Incident(
        RECORDINGS / "queue",
        "a batch of at most 4: from 110 requests wait and more come than it serves, while the KV cache stays empty",
        (
            Expected("VllmCapacityExhausted", 110, 230, ended_by=400),
            Expected("VllmBatchLimitReached", 110, 260, ended_by=400),
            Expected("VllmQueueGrowing", 110, 230, ended_by=400),
        ),
        frozenset({"VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow", "VllmAcceptanceCollapsed"}),
        quiet=((0, 100),),
    ),
    Incident(
        RECORDINGS / "sustained",
        "a batch of at most 4, and more than it serves: requests wait now and then from 90, always from 170 to 595",
        (
            Expected("VllmCapacityExhausted", 175, 295, ended_by=640),
            Expected("VllmBatchLimitReached", 175, 325, ended_by=640),
            Expected("VllmQueueGrowing", 175, 325, ended_by=640),
        ),
        frozenset({"VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow", "VllmAcceptanceCollapsed"}),
        quiet=((0, 175),),
    ),
    Incident(
        RECORDINGS / "rejections",
        "--max-num-queued-reqs 8: from 90 to 150 the server refuses what it cannot queue",
        (Expected("VllmAdmissionRejections", 90, 150),),
        frozenset({"VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow"}),
        quiet=((0, 90),),
    ),
    Incident(
        RECORDINGS / "dead",
        "the engine is killed at 80 and nobody starts the server again",
        (Expected("VllmEngineCrashed", 80, 140), Expected("VllmEngineDown", 80, 200)),
        quiet=((0, 80),),
    ),
    Incident(
        RECORDINGS / "fullstall",
        "overload from 80, and the engine is frozen from 130 to 230 with a full batch and a queue",
        (Expected("VllmEngineStalled", 130, 220, ended_by=260), Expected("VllmCapacityExhausted", 80, 260)),
        _OVERLOAD | {"VllmWorkerFailed", "VllmEndToEndSlow"},
        quiet=((0, 80),),
    ),
    Incident(
        RECORDINGS / "loop",
        "killed as soon as it is ready, four times: at 45, 90, 135 and 180",
        (Expected("VllmRestartLoop", 90, 240),),
        frozenset({"VllmEngineDown"}),
        quiet=((0, 45),),
    ),
    Incident(RECORDINGS / "busy", "three requests a second, as many as it serves well", quiet=((0, 600),)),
    Incident(
        RECORDINGS / "acceptance",
        "every draft is accepted until 420, and few are from then on",
        (Expected("VllmAcceptanceCollapsed", 420, 630),),
        frozenset({"VllmDraftsDoNotPay"}),
        quiet=((0, 420),),
    ),
)


def described(incident: Incident, alerts: list[Fired]) -> Iterator[str]:
    """Yield what happened and which alerts fired, from when to when."""
    yield f"{incident.name}: {incident.story}"
    for each in alerts:
        end = "to the end" if each.end is None else f"to {each.end}"
        what = " ".join(
            f"{name}={each.labels[name]}" for name in ("objective", "event", "reason") if name in each.labels
        )
        yield f"  {each.start:4d} s {end:10}  {each.severity:8}  {each.alert} {what}".rstrip()
    if not alerts:
        yield "  nothing"


def main() -> None:
    """Print every incident."""
    for incident in INCIDENTS:
        print(*described(incident, fired(incident.folder, slo=CHAT)), sep="\n")


if __name__ == "__main__":
    main()
