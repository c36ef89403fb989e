# SPDX-License-Identifier: Apache-2.0
"""
The body of /metrics that a release would answer with: one of its own from the corpus, with the story's values.

All of its lines stay, of its first engine: families, labels and buckets are the release's. What a story says nothing
about is 0, as in a process that has just started.
"""

from __future__ import annotations

import math
import re

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple

from tests.incidents.traffic import Moment, Totals, positions
from tests.support.corpus import bodies

from vllm_watch_parsers.metric_names import COUNTERS, GAUGES, HISTOGRAMS


_SAMPLE = re.compile(r"(?P<head>(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?) (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_MODEL = re.compile(r'model_name="\w+"')
_BLOCKS = re.compile(r'num_gpu_blocks="\d+"')
_SIZE = re.compile(r'kv_cache_size_tokens="\d+"')
_BLOCK_SIZE = 16

_GAUGES: Mapping[str, str] = {
    "requests_running": "running",
    "requests_waiting": "waiting",
    "kv_cache_usage_ratio": "kv",
}
_COUNTERS: Mapping[str, Callable[[Totals], float]] = {
    "prompt_tokens": lambda totals: sum(totals.count(name) for name in ("computed", "cached", "fetched")),
    "prompt_tokens_cached": lambda totals: totals.count("cached") + totals.count("fetched"),
    "generation_tokens": lambda totals: totals.count("generated"),
    "preemptions": lambda totals: totals.count("preemptions"),
    "prefix_cache_queries": lambda totals: totals.count("computed") + totals.count("cached"),
    "prefix_cache_hits": lambda totals: totals.count("cached"),
    "external_prefix_cache_queries": lambda totals: 2 * totals.count("fetched"),
    "external_prefix_cache_hits": lambda totals: totals.count("fetched"),
    "drafts": lambda totals: totals.count("drafts"),
}
_SOURCES = {
    "local_compute": "computed",
    "local_cache_hit": "cached",
    "external_kv_transfer": "fetched",
    "device": "cached",
    "external_unspecified": "fetched",
}
_TIMES: Mapping[str, str] = {
    "time_to_first_token_seconds": "first_token",
    "inter_token_latency_seconds": "token_gap",
    "time_per_output_token_seconds": "token_gap",
    "e2e_request_latency_seconds": "whole",
    "queue_time_seconds": "queue",
    "prefill_time_seconds": "prefill",
    "decode_time_seconds": "decode",
}
_TOKENS: Mapping[str, str] = {
    "request_prompt_tokens": "computed",
    "request_computed_prompt_tokens": "computed",
    "request_generation_tokens": "generated",
    "request_max_generation_tokens": "generated",
}
_OF_NAME = {name: quantity for table in (GAUGES, COUNTERS) for quantity, names in table.items() for name in names}
_OF_HISTOGRAM = {name: quantity for quantity, names in HISTOGRAMS.items() for name in names}
_REQUESTS = re.compile(r"(?P<family>.*?)_(?P<part>bucket|sum|count)")

Filler = Callable[[Moment], float]


class _Line(NamedTuple):
    """A line of the body: its family, what stands before the value, and the value at a moment if it ever changes."""

    family: str
    head: str
    value: Filler | None


def body(release: str, model: str, *engines: Moment) -> bytes:
    """Return the body of a server of a model at a moment, which each of its engines sees in its own way."""
    lines: list[str] = []
    for number, moment in enumerate(engines):
        lines += _of_engine(release, moment, number)
    return _MODEL.sub(f'model_name="{model}"', "\n".join(lines) + "\n").encode()


def _of_engine(release: str, moment: Moment, engine: int) -> Iterator[str]:
    """Yield the lines of an engine; what is the whole server's is only among those of the first."""
    labels = f'engine="{engine}"'
    more = {_labelled(name, labels): value for name, value in moment.lines.items()}
    without = {*moment.phase.without, *(name.partition("{")[0] for name in moment.lines)}
    for line in _lines(release):
        is_of_engine = 'engine="0"' in line.head
        if line.family in without or (engine and not is_of_engine):
            continue
        head = line.head.replace('engine="0"', labels) if engine and is_of_engine else line.head
        if line.family == "vllm:cache_config_info":
            sized = _BLOCKS.sub(f'num_gpu_blocks="{moment.kv_blocks}"', head).replace(" 0.0", " 1.0")
            yield _SIZE.sub(f'kv_cache_size_tokens="{moment.kv_blocks * _BLOCK_SIZE}"', sized)
        elif line.value is None:
            yield head
        else:
            yield f"{head} {line.value(moment)!r}"
    yield from (f"{name} {value!r}" for name, value in more.items())


def _labelled(name: str, engine: str) -> str:
    """Return a sample's name with the labels that each of an engine has."""
    family, _, labels = name.partition("{")
    return f'{family}{{{engine},model_name="m"{"," + labels if labels else "}"}'


@cache
def _lines(release: str) -> tuple[_Line, ...]:
    text = bodies(release)["metrics_1.txt"].decode()
    found = []
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            found.append(_Line(line.split()[2], line, None))
            continue
        labels = dict(_LABEL.findall(sample["labels"] or ""))
        if labels.get("engine", "0") == "0":
            filler = _filler(release, sample["name"], labels)
            found.append(_Line(sample["name"], sample["head"] + ("" if filler else " 0.0"), filler))
    return tuple(found)


def _filler(release: str, name: str, labels: Mapping[str, str]) -> Filler | None:
    """Return what gives the value of a sample; nothing if it is 0."""
    fillers = (of_kind(release, name, labels) for of_kind in (_gauge, _counter, _histogram))
    return next((filler for filler in fillers if filler is not None), None)


def _gauge(_release: str, name: str, labels: Mapping[str, str]) -> Filler | None:
    quantity = _OF_NAME.get(name, "")
    if quantity in _GAUGES:
        value = _GAUGES[quantity]
        whole = round if value != "kv" else float
        return lambda moment: float(whole(moment.gauges[value]))
    if name == "vllm:num_requests_waiting_by_reason":
        is_deferred = labels["reason"] == "deferred"
        return lambda moment: float(
            round(moment.gauges["deferred"] if is_deferred else moment.gauges["waiting"] - moment.gauges["deferred"])
        )
    if name == "vllm:engine_sleep_state":
        is_awake = labels["sleep_state"] == "awake"
        return lambda moment: moment.gauges["awake"] if is_awake else 0.0
    if name == "process_start_time_seconds" or name.endswith("_created"):
        return lambda moment: STARTED + moment.totals.started
    return None


STARTED = 1_790_000_000.0
"""When the beginning of each story is, in seconds since the epoch."""


def _counter(release: str, name: str, labels: Mapping[str, str]) -> Filler | None:
    quantity = _OF_NAME.get(name, "")
    if quantity in _COUNTERS:
        count = _COUNTERS[quantity]
        return lambda moment: count(moment.totals)
    if quantity == "drafted_tokens":
        return lambda moment: moment.totals.count("drafts") * positions(release)
    if quantity == "accepted_tokens":
        return lambda moment: float(math.floor(moment.totals.accepted)) * positions(release)
    if name == "vllm:spec_decode_num_accepted_tokens_per_pos_total":
        return lambda moment: float(math.floor(moment.totals.accepted))
    if name.startswith("vllm:prompt_tokens_") and labels.get("source") in _SOURCES:
        source = _SOURCES[labels["source"]]
        return lambda moment: moment.totals.count(source)
    if name == "vllm:request_success_total":
        return partial(_finished, labels["finished_reason"])
    if name == "http_requests_total" and labels["handler"] == "/v1/chat/completions":
        return partial(_answered, labels["status"])
    return None


def _finished(reason: str, moment: Moment) -> float:
    totals = moment.totals
    counts = {
        "stop": totals.count("finished") - totals.count("cut"),
        "length": totals.count("cut"),
        "abort": totals.count("aborted"),
        "error": totals.count("errors"),
    }
    return float(counts.get(reason, 0.0))


def _answered(status: str, moment: Moment) -> float:
    """Return the answers that have ended, also those that their clients have ended."""
    totals = moment.totals
    if status == "5xx":
        return float(totals.count("refused") + totals.count("errors"))
    return float(sum(totals.count(name) for name in ("finished", "aborted", "given_up"))) if status == "2xx" else 0.0


def _histogram(_release: str, name: str, labels: Mapping[str, str]) -> Filler | None:
    part = _REQUESTS.fullmatch(name)
    quantity = _OF_HISTOGRAM.get(part["family"]) if part is not None else None
    if part is None or quantity is None:
        return None
    le = float(labels["le"]) if part["part"] == "bucket" else math.inf
    is_sum = part["part"] == "sum"
    if quantity in _TIMES:
        return partial(_times, _TIMES[quantity], le, is_sum)
    if quantity == "iteration_tokens":
        return lambda moment: moment.totals.count("generated" if is_sum else "steps")
    if quantity in {"request_params_n", "request_params_best_of"}:
        return lambda moment: moment.totals.count("finished") if le >= 1 else 0.0
    if quantity in _TOKENS:
        return partial(_tokens, _TOKENS[quantity], le, is_sum)
    return lambda moment: 0.0 if is_sum or le < math.inf else moment.totals.count("finished")


def _tokens(name: str, le: float, is_sum: bool, moment: Moment) -> float:  # noqa: FBT001 - A partial's.
    """Return a sample of how many tokens the requests had that have finished: all the same number."""
    tokens, requests = moment.totals.count(name), moment.totals.count("finished")
    return tokens if is_sum else requests if tokens <= le * requests else 0.0


def _times(name: str, le: float, is_sum: bool, moment: Moment) -> float:  # noqa: FBT001 - A partial's.
    observed = moment.totals.observed[name]
    if is_sum:
        return sum(value * number for value, number in observed.items())
    return float(sum(number for value, number in observed.items() if value <= le))
