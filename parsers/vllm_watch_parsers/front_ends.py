# SPDX-License-Identifier: Apache-2.0
"""
vLLM's series under the names that others give them: Ray's agent and KServe's collectors.

Ray writes ``ray_vllm:`` (vLLM 0.5 to 0.10.2) or ``ray_vllm_`` (since 0.11) for ``vllm:``, on the page of a node's
agent. That page has the series of all workers of the node, also of ended ones, and the agent's own start time. KServe's
monitors of LLMInferenceServices put ``kserve_`` before each name.

Here one mapping turns them into vLLM's own, so that nothing else knows of them. Other programs' /metrics are recognized
by their names and not read: routers repeat under vLLM's names the values of several engines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from vllm_watch_parsers.exposition import Labels, Pairs, SeriesByName
from vllm_watch_parsers.kv_transfer import KV_NAMES
from vllm_watch_parsers.metric_names import (
    ACCEPTED_PER_POSITION,
    ADMISSION_REJECTIONS,
    GAUGES,
    HISTOGRAM_PARTS,
    HISTOGRAMS,
    HTTP_REQUESTS,
    PROCESS_START,
    PROMPT_TOKENS_BY_SOURCE,
    REQUESTS_FINISHED,
    SAMPLE_NAMES,
    SLEEP_STATE,
    WAITING_BY_REASON,
)


VLLM_NAMES: frozenset[str] = SAMPLE_NAMES | KV_NAMES
"""All sample names that are read, as vLLM itself writes them; `NAMES` has the spellings of others."""


EngineKind = Literal["vllm", "ray_vllm", "kserve_vllm"]
"""Whose names a page of vLLM's series bears."""

_PREFERRED: tuple[EngineKind, ...] = ("vllm", "kserve_vllm", "ray_vllm")

PageProblem = Literal["ray_engines_mixed", "several_servers"]
"""
Why series of vLLM's are not read.

ray_engines_mixed: Ray's agent has those of several engines under one label. several_servers: the page has those of
several servers.
"""

RAY_REPORT_SECONDS = 10.0
"""So often a worker reports to Ray's agent, which repeats the same values in between."""

OWN_PREFIX = "vllm:"
_RAY_PREFIXES = ("ray_vllm:", "ray_vllm_")
_KSERVE_PREFIX = "kserve_"
_TOTAL = "_total"

_RUNNING = GAUGES["requests_running"][0]
_SPLIT = (
    REQUESTS_FINISHED,
    WAITING_BY_REASON,
    SLEEP_STATE,
    PROMPT_TOKENS_BY_SOURCE,
    ACCEPTED_PER_POSITION,
    ADMISSION_REJECTIONS,
)
"""Families with labels besides the engine's, which vLLM up to 0.20 books under the wrong ones through Ray."""

_LAST_LABELS = (
    (SLEEP_STATE, "sleep_state", "discard_all"),
    (WAITING_BY_REASON, "reason", "deferred"),
    (PROMPT_TOKENS_BY_SOURCE, "source", "external_kv_transfer"),
)
"""Families, the label that splits each, and its value that vLLM names last."""

_OF_RAYS_AGENT = frozenset({PROCESS_START, HTTP_REQUESTS})
"""What a page of Ray says about its agent."""

_MARK_OF_ESTIMATES = "otel_scope_name"
"""Ray labels with it what came through OpenTelemetry: there it knows a histogram's buckets, and estimates its sum."""


class Name(NamedTuple):
    """What a name is: vLLM's own one, in whose spelling, and whether it is the second series of a counter."""

    own: str
    kind: EngineKind
    is_alias: bool = False


class Page(NamedTuple):
    """
    A page's series by vLLM's own names.

    Args:
        kind: Whose names they bore.
        series: Those that count.
        problem: Why they are not to be read, `None` if they are.
        is_undecided: Whether nobody can tell which of several workers runs, so that none is read.
        process: The labels that tell which server's they are; empty if there is none.
        has_estimated_sums: Whether the sums of the histograms are estimates.
    """

    kind: EngineKind
    series: SeriesByName
    problem: PageProblem | None = None
    is_undecided: bool = False
    process: Pairs = ()
    has_estimated_sums: bool = False


def _names() -> Iterator[tuple[str, Name]]:
    parts = {name + part for names in HISTOGRAMS.values() for name in names for part in HISTOGRAM_PARTS}
    for own in VLLM_NAMES:
        yield own, Name(own, "vllm")
        yield _KSERVE_PREFIX + own, Name(own, "kserve_vllm")
        if not own.startswith(OWN_PREFIX):
            continue
        for prefix in _RAY_PREFIXES:
            name = prefix + own.removeprefix(OWN_PREFIX)
            yield name, Name(own, "ray_vllm")
            if own.endswith(_TOTAL) and own not in parts:
                yield name.removesuffix(_TOTAL), Name(own, "ray_vllm", is_alias=True)


NAMES: Mapping[str, Name] = dict(_names())
WANTED: frozenset[str] = frozenset(NAMES)
"""All sample names that are read, in all spellings."""


def page_of(found: SeriesByName) -> Page:
    """
    Return a page's series by vLLM's own names: of those in vLLM's own spelling if there are any, else of KServe's, else
    of Ray's.

    Args:
        found: Its series by the names they bear.
    """
    kinds = {NAMES[name].kind for name in found if NAMES[name].own.startswith(OWN_PREFIX)}
    kind: EngineKind = next((kind for kind in _PREFERRED if kind in kinds), "vllm")
    own = _in_own_names(found, kind)
    if kind == "ray_vllm":
        return _ray_page(own)
    processes = _processes(own)
    if len(processes) > 1:
        return Page(kind, own, "several_servers")
    return Page(kind, own, process=next(iter(processes), ()))


def _in_own_names(found: SeriesByName, kind: EngineKind) -> dict[str, Mapping[Labels, float]]:
    """Return the series of one spelling, a counter's second series only where the first is missing."""
    own: dict[str, Mapping[Labels, float]] = {}
    for is_alias in (False, True):
        for name, values in found.items():
            known = NAMES[name]
            if known.kind == kind and known.is_alias == is_alias:
                own.setdefault(known.own, values)
    if kind == "ray_vllm":
        return own
    return own | {name: values for name, values in found.items() if name in _OF_RAYS_AGENT and name not in own}


def _ray_page(own: SeriesByName) -> Page:
    """
    Return what of a page of Ray counts: the series of the one worker that computes, or else of the only one there is.

    Ray's agent forgets the gauges of a worker that has reported none for a while, because it has ended or because its
    engine has had nothing to compute. It never forgets counters and histograms.
    """
    processes = {labels.process for labels in own.get(_RUNNING, {})} or _processes(own)
    if len(processes) != 1:
        is_undecided = _RUNNING not in own
        return Page("ray_vllm", {}, None if is_undecided else "several_servers", is_undecided)
    (one,) = processes
    alive = _only(own, dict(one))
    if len(_processes(alive)) > 1:
        return Page("ray_vllm", {}, "several_servers")
    process = next(iter(_processes(alive)))
    every = [labels for values in alive.values() for labels in values]
    has_estimates = any(name == _MARK_OF_ESTIMATES for labels in every for name, _ in labels)
    page = Page("ray_vllm", alive, process=process, has_estimated_sums=has_estimates)
    if _has_right_labels(alive):
        return page
    if {_label(labels, "engine", "0") for labels in every} != {"0"}:
        return Page("ray_vllm", {}, "ray_engines_mixed", process=process)
    return page._replace(series={name: values for name, values in alive.items() if name not in _SPLIT})


def _has_right_labels(own: SeriesByName) -> bool:
    """
    Return whether each series has its own labels.

    No page names vLLM's release. Up to 0.20 all series of a family share their labels, those that were given last: of
    each label that splits a family there is one value, the last one that vLLM names. Reasons of finished requests were
    added at the end, so that two of them are needed.
    """
    finished = {_label(labels, "finished_reason", "") for labels in own.get(REQUESTS_FINISHED, {})}
    return len(finished) > 1 or any(
        _label(labels, name, last) != last for family, name, last in _LAST_LABELS for labels in own.get(family, {})
    )


def _processes(own: SeriesByName) -> set[Pairs]:
    """Return the processes of all series, of those that differ only in what they leave out the one that says most."""
    every = {labels.process for name, values in own.items() if name.startswith(OWN_PREFIX) for labels in values}
    return {one for one in every if not any(set(one) < set(other) for other in every)}


def _only(own: SeriesByName, process: Mapping[str, str]) -> dict[str, Mapping[Labels, float]]:
    """Return the series that say nothing else of their process; without OpenTelemetry Ray's gauges name no worker."""
    kept = {
        name: {
            labels: value
            for labels, value in values.items()
            if all(process.get(label, said) == said for label, said in labels.process)
        }
        for name, values in own.items()
    }
    return {name: values for name, values in kept.items() if values}


def _label(labels: Labels, wanted: str, missing: str) -> str:
    return next((value for name, value in labels if name == wanted), missing)


ForeignProgram = Literal[
    "ray", "router", "llm_d", "dynamo", "litellm", "sglang", "text_generation_inference", "tensorrt_llm", "triton",
    "llama_cpp", "ollama", "lmcache", "other_program",
]  # fmt: skip
FOREIGN_PROGRAMS: tuple[ForeignProgram, ...] = get_args(ForeignProgram)

_PREFIXES: tuple[tuple[ForeignProgram, tuple[str, ...]], ...] = (
    ("sglang", ("sglang:", "sglang_", "ray_sglang")),
    ("ray", ("ray_",)),
    ("text_generation_inference", ("tgi_",)),
    ("tensorrt_llm", ("trtllm_", "trtllm:")),
    ("llm_d", ("inference_extension_", "inference_model_", "inference_objective_", "inference_pool_", "llm_d_")),
    ("dynamo", ("dynamo_",)),
    ("litellm", ("litellm_",)),
    ("router", ("router_", "sgl_router_", "smg_", "vllm_router_")),
    ("triton", ("nv_inference_",)),
    ("llama_cpp", ("llamacpp:",)),
    ("ollama", ("ollama_",)),
    ("lmcache", ("lmcache:", "lmcache_mp_", "lmcache_mp:")),
    ("other_program", ("node_", "vllm_watch_")),
)
_OF_ROUTERS = frozenset({"vllm:current_qps", "vllm:healthy_pods_total", "vllm:num_incoming_requests_total"})


def foreign_program(foreign_names: Collection[str], series: Mapping[str, Collection[Pairs]]) -> ForeignProgram | None:
    """
    Return whose /metrics it is, `None` for vLLM's and for that of an unknown program.

    Args:
        foreign_names: Names that are not read.
        series: The label sets of those that are, by name.
    """
    own = [labels for name, sets in series.items() if name.startswith("vllm:") for labels in sets]
    if own:
        return "router" if _is_router(foreign_names, own) else None
    for kind, prefixes in _PREFIXES:
        if any(name.startswith(prefixes) for name in (*foreign_names, *series)):
            return kind
    return "router" if not _OF_ROUTERS.isdisjoint(foreign_names) else None


def _is_router(foreign_names: Collection[str], own: Collection[Pairs]) -> bool:
    """Return whether vLLM's names are a router's: it labels them with an engine's address, and never with a model."""
    if not _OF_ROUTERS.isdisjoint(foreign_names):
        return True
    names = {name for labels in own for name, _ in labels}
    return "server" in names and "model_name" not in names
