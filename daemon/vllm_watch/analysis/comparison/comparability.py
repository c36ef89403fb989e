# SPDX-License-Identifier: Apache-2.0
"""Whether two sides can be compared, what differs between them, and which metrics mean something else on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.comparison.comparison_model import COSTS, GOODPUT, METRICS, THROUGHPUTS, ConfigDifference, Side
from vllm_watch.analysis.comparison.pair import (
    Pair,
    differs_in_chunks,
    load_name,
    mean_known,
    relative_difference,
)
from vllm_watch.analysis.comparison.sound_runs import (
    RUN_CHECKS,
    Finding,
    check_overlap,
    check_repetition,
    check_sides,
    of_sides,
)
from vllm_watch.analysis.loadtest.client_texts import BENCHMARK_KINDS
from vllm_watch.analysis.loadtest.load_test import Load, Run
from vllm_watch.analysis.loadtest.offered_load import SERVED, load_kind, served_share
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import count, limit, percent, significant


LENGTH_TOLERANCE = 0.05
LENGTH_LIMIT = 0.20
RATE_TOLERANCE = 0.02
PROMPTS_TOLERANCE = 0.10
HIT_TOLERANCE = 0.05

_LENGTHS = {
    "input": N_("The lengths differ: {a:.0f} and {b:.0f} input tokens for each request."),
    "output": N_("The lengths differ: {a:.0f} and {b:.0f} output tokens for each request."),
}


def findings(pair: Pair) -> tuple[Finding, ...]:
    """Return all that speaks against comparing two sides, what prevents it first."""
    checks = (
        check_repetition,
        check_overlap,
        check_model,
        check_load,
        check_lengths,
        check_points,
        check_prefix_cache,
        check_temperature,
        *RUN_CHECKS,
    )
    said = [*(finding for check in checks for finding in check(pair)), *check_sides(pair.sides)]
    return tuple(sorted(said, key=lambda finding: not finding.prevents))


def check_model(pair: Pair) -> Iterator[Finding]:
    """The sides serve one model."""
    names = [sorted({_model(run.model) for run in side.runs if run.model is not None}) for side in pair.sides]
    if not names[0] or not names[1]:
        yield Finding(_("The model of {sides} is not known.", sides=_lacking(pair, names)))
    elif names[0] != names[1]:
        yield Finding(_("The models differ: {a} and {b}.", a=listed(names[0]), b=listed(names[1])), prevents=True)


def check_load(pair: Pair) -> Iterator[Finding]:
    """Both sides got the same kind of load, of the same size."""
    for side in pair.sides:
        texts = list(dict.fromkeys(load_name(run.load) for run in side.runs))
        if len(texts) > 1:
            yield Finding(
                _("The runs of {name} have different loads: {texts}.", name=side.name, texts=listed(texts)),
                prevents=True,
            )
            return
    a, b = (side.runs[0].load for side in pair.sides)
    kinds = load_kind(a), load_kind(b)
    if a.endpoint is not None and b.endpoint is not None and a.endpoint != b.endpoint:
        kinds_of_test = [_(BENCHMARK_KINDS[endpoint]) for endpoint in (a.endpoint, b.endpoint)]
        yield Finding(
            _("The benchmarks are of different kinds: {kinds}.", kinds=_(" and ").join(kinds_of_test)), prevents=True
        )
    elif None in kinds:
        yield Finding(_unknown_load(pair))
    elif kinds[0] != kinds[1]:
        yield Finding(
            _("The loads are of different kinds: {a} and {b}.", a=load_name(a), b=load_name(b)), prevents=True
        )
    elif _sizes_differ(a, b):
        yield Finding(_("The loads differ: {a} and {b}.", a=load_name(a), b=load_name(b)), prevents=True)
    elif a.burstiness is not None and b.burstiness is not None and a.burstiness != b.burstiness:
        yield Finding(
            _("The burstiness differs: {a} and {b}.", a=limit(a.burstiness), b=limit(b.burstiness)), prevents=True
        )
    elif a.num_prompts and b.num_prompts and relative_difference(a.num_prompts, b.num_prompts) > PROMPTS_TOLERANCE:
        yield Finding(
            _(
                "The sides sent {a} and {b} requests: the start and the end of the load weigh "
                "more where there are fewer.",
                a=count(a.num_prompts),
                b=count(b.num_prompts),
            ),
            prevents=pair.is_burst,
        )


def check_points(pair: Pair) -> Iterator[Finding]:
    """By the server, each run is long enough for its scrapes or lines: else its rates are only lower bounds."""
    for side in pair.sides:
        if pair.view == "server" and any(run.may_be_shorter for run in side.runs):
            text = N_("Runs of {name} are too short for how often the server was seen: give the benchmark's results.")
            yield Finding(_(text, name=side.name), prevents=True)


def check_lengths(pair: Pair) -> Iterator[Finding]:
    """Prompts and answers are equally long; what is answered may follow from the configuration, what is asked not."""
    for name, text in _LENGTHS.items():
        lengths = [[getattr(run.load, f"mean_{name}_tokens") for run in side.runs] for side in pair.sides]
        a, b = (mean_known(of_side) for of_side in lengths)
        difference = 0.0 if a is None or b is None else relative_difference(a, b)
        if difference > LENGTH_TOLERANCE:
            yield Finding(_(text, a=a, b=b), prevents=name == "input" and difference > LENGTH_LIMIT)


def check_prefix_cache(pair: Pair) -> Iterator[Finding]:
    """An equal share of the prompts came from the prefix cache."""
    a, b = (side.mean(lambda run: run.use.prefix_cache_hit_ratio) for side in pair.sides)
    if a is not None and b is not None and abs(a - b) > HIT_TOLERANCE:
        yield Finding(
            _(
                "The shares of prompt tokens from the prefix cache differ: {a} % and {b} %. If that is not what was "
                "tested, reset the cache between runs.",
                a=percent(a),
                b=percent(b),
            ),
        )


def check_temperature(pair: Pair) -> Iterator[Finding]:
    """Tokens were sampled at one temperature: it sets how many drafts are accepted."""
    temperatures = [
        sorted({run.load.temperature for run in side.runs if run.load.temperature is not None}) for side in pair.sides
    ]
    if not temperatures[0] or not temperatures[1]:
        why = _("a result file does not hold it") if pair.view == "client" else _("the server does not report it")
        yield Finding(_("The temperature of {sides} is not known: {why}.", sides=_lacking(pair, temperatures), why=why))
    elif temperatures[0] != temperatures[1]:
        a, b = (listed(map(limit, values)) for values in temperatures)
        yield Finding(_("The temperatures differ: {a} and {b}.", a=a, b=b), prevents=True)


def side_settings(runs: Sequence[Run]) -> dict[str, str]:
    """Return what the runs of a side ran with; where they differ, all values in order."""
    return {name: ", ".join(values) for name, values in _all_settings(runs).items()}


def config_differences(a: Side, b: Side) -> tuple[ConfigDifference, ...]:
    """Return what differs, by name; what one side does not know is absent there."""
    ours, theirs = side_settings(a.runs), side_settings(b.runs)
    return tuple(
        ConfigDifference(flag=name, a=ours.get(name), b=theirs.get(name))
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    )


def common_settings(sides: Sequence[Side]) -> dict[str, str]:
    """Return what all sides have alike, by name."""
    first, *others = (side_settings(side.runs) for side in sides)
    return {name: value for name, value in sorted(first.items()) if all(o.get(name) == value for o in others)}


def check_configuration(a: Side, b: Side) -> Iterator[Finding]:
    """Yield what makes the differences of configuration incomplete."""
    yield from of_sides((a, b), _incomplete)
    yield from of_sides((a, b), _varying)


def traps(pair: Pair) -> Mapping[str, str]:
    """Return the metrics that mean something else on the two sides, or nothing, by name, each with the reason."""
    chunks, rate, objectives = differs_in_chunks(pair), _repeated_rate(pair), _other_objectives(pair)
    notes: dict[str, str] = {}
    if chunks is not None:
        text = _("ITL counts chunks, not tokens: {chunks}. Compare TPOT instead.", chunks=chunks)
        notes |= {metric.name: text for metric in METRICS if metric.latency == "itl_ms"}
    if rate is not None:
        notes |= dict.fromkeys((*THROUGHPUTS, *COSTS), rate)
    return notes if objectives is None else notes | {GOODPUT: objectives}


def _model(name: str) -> str:
    """Return the last part of a model's name: one model is in other folders on other machines, or without its owner."""
    return name.rstrip("/").rpartition("/")[2]


def _lacking(pair: Pair, values: Sequence[Sequence[object]]) -> str:
    return _(" and ").join(side.name for side, of_side in zip(pair.sides, values, strict=True) if not of_side)


def _sizes_differ(a: Load, b: Load) -> bool:
    rates = [float(load.request_rate) for load in (a, b) if isinstance(load.request_rate, float | int)]
    is_other_rate = len(rates) == 2 and relative_difference(rates[0], rates[1]) > RATE_TOLERANCE
    return is_other_rate or a.ramp_up != b.ramp_up or a.max_concurrency != b.max_concurrency


def _unknown_load(pair: Pair) -> str:
    rates = [side.mean(lambda run: run.load.offered_request_rate) for side in pair.sides]
    texts = [
        _("{rate} in {name}", rate=significant(rate), name=side.name)
        for rate, side in zip(rates, pair.sides, strict=True)
        if rate
    ]
    if not texts:
        return _("Whether both sides got the same load is not known.")
    arrived = N_("Whether both sides got the same load is not known; requests that arrived each second: {rates}.")
    return _(arrived, rates=listed(texts))


def _settings(run: Run) -> dict[str, str]:
    version = {} if run.version is None else {"version": run.version}
    return {**version, **run.hardware, **run.config}


def _all_settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for run in runs:
        for name, value in _settings(run).items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return values


def _incomplete(side: Side) -> Finding | None:
    if not any(run.config for run in side.runs):
        return Finding(_("The configuration of {side} is not known: add its log or recording to see what differs."))
    if all(run.server is not None for run in side.runs):
        return Finding(
            _(
                "The configuration of {side} is from a Prometheus, which has few flags: others may differ, too.",
            )
        )
    return None


def _varying(side: Side) -> Finding | None:
    varying = sorted(name for name, values in _all_settings(side.runs).items() if len(values) > 1)
    text = _("The runs of {{side}} differ in {varying}: they are taken as one configuration.", varying=listed(varying))
    return Finding(text) if varying else None


def _repeated_rate(pair: Pair) -> str | None:
    loads = [run.load for side in pair.sides for run in side.runs]
    if any(load_kind(load) != "open" for load in loads) or any(side.is_saturated for side in pair.sides):
        return None
    rate = loads[0].request_rate
    given = (
        _("a rate that was given") if rate is None else _("a fixed rate of {rate} requests/s", rate=limit(float(rate)))
    )
    served = {
        side.name: mean_known([served_share(run, result) for run, result in side.measured_runs]) for side in pair.sides
    }
    if all(share is None or share >= SERVED for share in served.values()):
        return _("At {given} throughput only repeats the rate.", given=given)
    shares = _(" and ").join(
        _("{share} % in {name}", share=percent(share), name=name) for name, share in served.items() if share is not None
    )
    return _(
        "At {given} throughput repeats the rate, of which {shares} was served: that may be chance.",
        given=given,
        shares=shares,
    )


def _other_objectives(pair: Pair) -> str | None:
    limits = {
        tuple(sorted(result.goodput.objective.limits.items()))
        for side in pair.sides
        for result in side.results
        if result.goodput is not None
    }
    return _("The objectives of the sides differ.") if len(limits) > 1 else None
