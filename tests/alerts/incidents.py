# SPDX-License-Identifier: Apache-2.0
"""The recorded incidents and what must be said of them, in seconds of each recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.alerts.replay import Alert, fired, name_of
from tests.support.recordings import recording_path

from vllm_watch.analysis.replay.recording import BUNDLED


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
        path: Where it is.
        story: What happens, with seconds.
        expected: What must fire.
        allowed: What else may fire.
        quiet: Stretches in which nothing may begin to fire.
    """

    path: Path
    story: str
    expected: tuple[Expected, ...] = ()
    allowed: frozenset[str] = frozenset()
    quiet: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """The recording's name."""
        return name_of(self.path)


_OVERLOAD = frozenset({"VllmQueueStanding", "VllmPreemptionStorm", "VllmLatencyBudgetBurnsFast"})

INCIDENTS = (
    Incident(
        BUNDLED,
        "light load, shared prefixes, clients' errors; overload from 185, the KV cache full from 195, drained by 455; "
        "the engine killed at 507, the server back at 550",
        (
            Expected("VllmCapacityExhausted", 195, 315, ended_by=755),
            Expected("VllmEngineCrashed", 507, 567),
        ),
        _OVERLOAD | {"VllmEndToEndSlow", "VllmAcceptanceCollapsed"},
        quiet=((0, 185),),
    ),
    Incident(
        recording_path("stall"),
        "the engine is frozen from 89 to 174 with one request running, while /health says 200",
        (Expected("VllmEngineStalled", 89, 179, ended_by=200),),
        quiet=((0, 89),),
    ),
    Incident(recording_path("dp1"), "two engines under a light load", quiet=((0, 600),)),
    Incident(recording_path("prefill"), "computes twenty prompts for another server, from 10 to 90", quiet=((0, 130),)),
    Incident(recording_path("decode"), "takes their KV blocks and generates the answers", quiet=((0, 130),)),
    Incident(recording_path("vl"), "a vision model under a light load", quiet=((0, 600),)),
    Incident(
        recording_path("adapters"),
        "four LoRA adapters in two slots, two loaded and one removed later, a short sleep",
        quiet=((0, 600),),
    ),
    Incident(
        recording_path("queue"),
        "a batch of at most 4: from 110 requests wait and more come than it serves, while the KV cache stays empty",
        (Expected("VllmCapacityExhausted", 110, 230, ended_by=400),),
        frozenset({"VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow", "VllmAcceptanceCollapsed"}),
        quiet=((0, 100),),
    ),
    Incident(
        recording_path("sustained"),
        "a batch of at most 4, and more than it serves: requests wait now and then from 90, always from 170 to 595",
        (Expected("VllmCapacityExhausted", 175, 295, ended_by=640),),
        frozenset({"VllmQueueStanding", "VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow", "VllmAcceptanceCollapsed"}),
        quiet=((0, 175),),
    ),
    Incident(
        recording_path("rejections"),
        "--max-num-queued-reqs 8: from 90 to 150 the server refuses what it cannot queue",
        (Expected("VllmAdmissionRejections", 90, 150),),
        frozenset({"VllmLatencyBudgetBurnsFast", "VllmEndToEndSlow"}),
        quiet=((0, 90),),
    ),
    Incident(
        recording_path("dead"),
        "the engine is killed at 80 and nobody starts the server again",
        (Expected("VllmEngineCrashed", 80, 140), Expected("VllmEngineDown", 80, 200)),
        quiet=((0, 80),),
    ),
    Incident(
        recording_path("fullstall"),
        "overload from 80, and the engine is frozen from 130 to 230 with a full batch and a queue",
        (Expected("VllmEngineStalled", 130, 220, ended_by=260), Expected("VllmCapacityExhausted", 80, 260)),
        _OVERLOAD | {"VllmEndToEndSlow"},
        quiet=((0, 80),),
    ),
    Incident(
        recording_path("loop"),
        "killed as soon as it is ready, four times: at 45, 90, 135 and 180",
        (Expected("VllmRestartLoop", 90, 240),),
        frozenset({"VllmEngineDown"}),
        quiet=((0, 45),),
    ),
    Incident(recording_path("busy"), "three requests a second, as many as it serves well", quiet=((0, 600),)),
    Incident(
        recording_path("acceptance"),
        "every draft is accepted until 420, and few are from then on",
        (Expected("VllmAcceptanceCollapsed", 420, 630),),
        quiet=((0, 420),),
    ),
)


ENDINGS = (
    Incident(
        recording_path("stop"),
        "stopped in order with requests running at 249, which takes until 289, idle at 418, and with requests at 578; "
        "started again at 297 and 427",
        # Down for longer than the alert waits, and three starts in nine minutes: both are said whoever did it.
        allowed=frozenset({"VllmEngineDown", "VllmRestartLoop"}),
        quiet=((0, 249),),
    ),
    Incident(
        recording_path("drain"),
        "stopped in order at 164, with 60 s for the requests that are there: finished at 189, gone at 206",
    ),
    Incident(
        recording_path("deadkill"),
        "API server, engine and worker are killed at 246, with a full batch and a queue, and nobody starts them again",
        (Expected("VllmEngineDown", 246, 366),),
        quiet=((0, 246),),
    ),
    Incident(
        recording_path("keepalive"),
        "the engine is killed at 240 with four requests running, and its API server goes on answering until 325",
        (Expected("VllmEngineCrashed", 240, 300), Expected("VllmEngineDown", 240, 325)),
        quiet=((0, 240),),
    ),
    Incident(
        recording_path("loadkill"),
        "killed at 108 while the model is loaded, and nobody starts it again: for a while a start that says nothing",
        allowed=frozenset({"VllmEngineDown"}),
        quiet=((0, 108),),
    ),
    Incident(
        recording_path("freeze"),
        "the engine is frozen from 147 to 223 with four requests running, whose clients give up at 170",
        (Expected("VllmEngineStalled", 147, 223, ended_by=260),),
        frozenset({"VllmClientsGiveUp"}),
        quiet=((0, 147),),
    ),
)
"""Servers that are stopped, killed and frozen in other ways than those of the incidents."""

HEALTHY = (
    Incident(recording_path("longprompt"), "from 147 to 225 one long prompt is prefilled, and nothing else happens"),
    Incident(
        recording_path("longshort"),
        "from 125 to 295 a long prompt takes the whole budget of each step, and 40 requests queue up behind it",
        allowed=frozenset({"VllmCapacityExhausted", "VllmQueueStanding", "VllmLatencyBudgetBurnsFast"}),
    ),
    Incident(
        recording_path("sleep"), "asleep from 175 to 235 and from 271 to 311, and from 328 to 398 with requests running"
    ),
    Incident(
        recording_path("pause"),
        "paused with requests running from 114 to 214, and without from 258 to 312 and 329 to 369",
    ),
    Incident(
        recording_path("twoapis"),
        "two API servers, paused from 182 to 242 with requests running, asleep from 280 to 335",
    ),
    Incident(
        recording_path("pooling"),
        "embeddings: no token is ever generated; a request of 160 long inputs at 254",
        allowed=frozenset({"VllmLatencyBudgetBurnsFast"}),
    ),
    Incident(recording_path("lora"), "seven adapters take turns in two slots"),
    Incident(
        recording_path("patience"),
        "a batch of one: a prompt given up from 202 to 217, three requests behind one from 247 to 281",
    ),
    Incident(
        recording_path("deferred"),
        "from 201 to 277 a request waits for its KV blocks, alone, and from 302 to 378 two more",
    ),
    Incident(recording_path("firstcompile"), "the start compiles from 140 to 370; the first request takes 5 s"),
)
"""Servers that do their work, or what they were told to, and look as if they did not."""

EVERY = (*INCIDENTS, *ENDINGS, *HEALTHY)


def described(incident: Incident, alerts: list[Alert]) -> Iterator[str]:
    """Yield what happened and which alerts fired, from when to when."""
    yield f"{incident.name}: {incident.story}"
    for each in alerts:
        end = "to the end" if each.end is None else f"to {each.end}"
        what = " ".join(
            f"{name}={each.labels[name]}" for name in ("objective", "event", "reason") if name in each.labels
        )
        yield f"  {each.start:4d} s {end:10}  {each.severity:8}  {each.alertname} {what}".rstrip()
    if not alerts:
        yield "  nothing"


def main() -> None:
    """Print every incident."""
    alerts = fired([incident.path for incident in EVERY], has_slo=True)
    for incident in EVERY:
        print(*described(incident, alerts[incident.name]), sep="\n")


if __name__ == "__main__":
    main()
