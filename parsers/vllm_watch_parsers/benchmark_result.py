# SPDX-License-Identifier: Apache-2.0
"""
What ``vllm bench serve`` found, or the script before it, or another client.

Names are those of the newest JSON. Durations are seconds where the file has seconds, milliseconds in `LatencyStats`.
`None`, and a missing entry, is what the file does not say.
"""

from __future__ import annotations

import re

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Literal, NamedTuple


MAX_SECONDS = 1e8
MAX_MILLISECONDS = 1e11

MetricName = Literal["ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue"]


class BenchmarkError(Exception):
    """
    A text is no benchmark result, or not one that can be believed.

    Args:
        line: The line, from 1, at which the result starts or the text ends to be one.
        reason: A clause that names the key or the line's text, to follow ``file:line: ``.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class LatencyStats(NamedTuple):
    """One latency over all successful requests, in milliseconds. `percentiles` is by the percentile: 99, 99.9."""

    mean: float | None = None
    median: float | None = None
    std: float | None = None
    percentiles: Mapping[float, float] = {}


class RampUp(NamedTuple):
    """How the rate grew: ``linear`` or ``exponential``, from and to requests per second."""

    strategy: str
    start_rps: float | None = None
    end_rps: float | None = None


class Requests(NamedTuple):
    """
    The successful requests one by one, in the order in which they were sent; failed ones are left out.

    Durations are in seconds. A list is empty where the file does not have it. `itls` has the gaps between the chunks of
    each answer's stream, `tpots` what a client wrote itself, `None` of an answer of one token. `start_times` are of a
    clock that may have no date.
    """

    input_lens: Sequence[int] = ()
    output_lens: Sequence[int] = ()
    ttfts: Sequence[float] = ()
    itls: Sequence[Sequence[float]] = ()
    latencies: Sequence[float] = ()
    start_times: Sequence[float] = ()
    queue_times: Sequence[float] = ()
    tpots: Sequence[float | None] = ()


class Settings(NamedTuple):
    """
    What the benchmark was asked to do.

    `date` is as written, ``YYYYmmdd-HHMMSS`` at the end of the run in the client's time zone. `request_rate` is
    infinite where there was no limit. `metadata` are the user's own keys and texts. `temperature`, `num_warmups` and
    `goodput` (limits in milliseconds) are only in what the client printed.
    """

    date: str | None = None
    backend: str | None = None
    model_id: str | None = None
    num_prompts: int | None = None
    request_rate: float | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    ramp_up: RampUp | None = None
    metadata: Mapping[str, str] = {}
    temperature: float | None = None
    num_warmups: int | None = None
    goodput: Mapping[Literal["ttft", "tpot", "e2el"], float] = {}


class ServeResult(NamedTuple):
    """
    A benchmark of a running server.

    `line` is where it starts in its file. `is_pooling` is whether it is of a pooling model, which generates nothing.
    `failed` is counted by the client, or what is missing from the prompts that were asked for (`is_failed_counted` is
    false): a data set may have fewer. `latencies` lack those whose values are all 0: nothing was measured. E2EL lacks
    mean and median if the result may be older than 0.6.4, whose client exchanged them.
    `acceptance_length` is of drafts. `errors` is how many requests failed for which reason. `end` is in seconds since
    the epoch, where the client wrote it so. `client` is who measured, if that is not vLLM's own: some of these leave
    out duration, rate or prompts.
    """

    line: int
    settings: Settings
    duration: float | None
    completed: int
    total_input_tokens: int | None
    request_throughput: float | None
    failed: int | None = None
    is_failed_counted: bool = True
    total_output_tokens: int | None = None
    output_throughput: float | None = None
    total_token_throughput: float | None = None
    request_goodput: float | None = None
    latencies: Mapping[MetricName, LatencyStats] = {}
    acceptance_length: float | None = None
    requests: Requests | None = None
    is_pooling: bool = False
    errors: Mapping[str, int] = {}
    end: float | None = None
    client: str | None = None


NO_REASON = "no reason given"
OTHER = "another reason"

_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus if status.value >= 400}
_STATUS = re.compile(
    r"(?:\bHTTP(?:/[\d.]+| Error)?|\bstatus(?:[ _]code)?|\bcode|\A)[\"'\s:=(]{0,4}([45]\d\d)\b", re.IGNORECASE
)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}([A-Z]\w{2,59}(?:Error|Exception|Timeout|Refused|Disconnected))\b", re.MULTILINE
)
_TIMEOUT = re.compile(r"time[d ]?[ -]?out", re.IGNORECASE)
_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"connect\w* (?:was )?refused|cannot connect to host", re.IGNORECASE), "connection refused"),
    (
        re.compile(r"connection (?:was )?(?:reset|closed)|server disconnected", re.IGNORECASE),
        "connection closed",
    ),
    (re.compile(r"maximum context length|context window", re.IGNORECASE), "longer than the context"),
    (re.compile(r"never received a valid chunk", re.IGNORECASE), "no token in the answer"),
    (re.compile(r"cancel+ed", re.IGNORECASE), "cancelled"),
)
_MOST = 100_000
"""Of a text so many characters are looked at, from its end: the exception is in its last line."""


def reason_of(text: str) -> str:
    """
    Return why a request failed: ``HTTP 503``, ``timeout``, the name of an exception, or that it is none of these.

    Clients write a server's answer, or a whole traceback, with addresses and parts of prompts: nothing else is kept.
    """
    shown = text[-_MOST:].strip()
    if not shown:
        return NO_REASON
    status = _STATUS.search(shown)
    code = int(status[1]) if status else _PHRASES.get(shown.lower())
    if code is not None:
        return f"HTTP {code}"
    exceptions = _EXCEPTION.findall(shown)
    if _TIMEOUT.search(exceptions[-1] if exceptions else shown):
        return "timeout"
    known = next((reason for form, reason in _KNOWN if form.search(shown)), None)
    return known or (exceptions[-1] if exceptions else OTHER)


def counted(texts: Iterable[str]) -> Mapping[str, int]:
    """Return how many failed for each reason, the most frequent first."""
    return dict(Counter(map(reason_of, texts)).most_common())
