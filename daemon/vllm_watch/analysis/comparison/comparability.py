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
from vllm_watch.daemon.catalog.number_texts import count, limit, percent, significant


LENGTH_TOLERANCE = 0.05
LENGTH_LIMIT = 0.20
RATE_TOLERANCE = 0.02
PROMPTS_TOLERANCE = 0.10
HIT_TOLERANCE = 0.05


def findings(pair: Pair) -> tuple[Finding, ...]:
    """Return all that speaks against comparing two sides, what prevents it first."""
    checks = (
        check_repetition,
        check_overlap,
        check_model,
        check_load,
        check_lengths,
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
        yield Finding(f"The model of {_lacking(pair, names)} is not known.")
    elif names[0] != names[1]:
        yield Finding(f"The models differ: {', '.join(names[0])} and {', '.join(names[1])}.", prevents=True)


def check_load(pair: Pair) -> Iterator[Finding]:
    """Both sides got the same kind of load, of the same size."""
    for side in pair.sides:
        texts = list(dict.fromkeys(load_name(run.load) for run in side.runs))
        if len(texts) > 1:
            yield Finding(f"The runs of {side.name} have different loads: {', '.join(texts)}.", prevents=True)
            return
    a, b = (side.runs[0].load for side in pair.sides)
    kinds = load_kind(a), load_kind(b)
    if a.endpoint is not None and b.endpoint is not None and a.endpoint != b.endpoint:
        kinds_of_test = f"{BENCHMARK_KINDS[a.endpoint]} and {BENCHMARK_KINDS[b.endpoint]}"
        yield Finding(f"The benchmarks are of different kinds: {kinds_of_test}.", prevents=True)
    elif None in kinds:
        yield Finding(f"Whether both sides got the same load is not known{_arrivals(pair)}.")
    elif kinds[0] != kinds[1]:
        yield Finding(f"The loads are of different kinds: {load_name(a)} and {load_name(b)}.", prevents=True)
    elif _sizes_differ(a, b):
        yield Finding(f"The loads differ: {load_name(a)} and {load_name(b)}.", prevents=True)
    elif a.burstiness is not None and b.burstiness is not None and a.burstiness != b.burstiness:
        yield Finding(f"The burstiness differs: {limit(a.burstiness)} and {limit(b.burstiness)}.", prevents=True)
    elif a.num_prompts and b.num_prompts and relative_difference(a.num_prompts, b.num_prompts) > PROMPTS_TOLERANCE:
        yield Finding(
            f"The sides sent {count(a.num_prompts)} and {count(b.num_prompts)} requests: the start and the end of the "
            "load weigh more where there are fewer.",
            prevents=pair.is_burst,
        )


def check_lengths(pair: Pair) -> Iterator[Finding]:
    """Prompts and answers are equally long; what is answered may follow from the configuration, what is asked not."""
    for name in ("input", "output"):
        lengths = [[getattr(run.load, f"mean_{name}_tokens") for run in side.runs] for side in pair.sides]
        a, b = (mean_known(of_side) for of_side in lengths)
        difference = 0.0 if a is None or b is None else relative_difference(a, b)
        if difference > LENGTH_TOLERANCE:
            text = f"The lengths differ: {a:.0f} and {b:.0f} {name} tokens for each request."
            yield Finding(text, prevents=name == "input" and difference > LENGTH_LIMIT)


def check_prefix_cache(pair: Pair) -> Iterator[Finding]:
    """An equal share of the prompts came from the prefix cache."""
    a, b = (side.mean(lambda run: run.use.prefix_cache_hit_ratio) for side in pair.sides)
    if a is not None and b is not None and abs(a - b) > HIT_TOLERANCE:
        yield Finding(
            f"The shares of prompt tokens from the prefix cache differ: {percent(a)} % and {percent(b)} %. "
            "If that is not what was tested, reset the cache between runs.",
        )


def check_temperature(pair: Pair) -> Iterator[Finding]:
    """Tokens were sampled at one temperature: it sets how many drafts are accepted."""
    temperatures = [
        sorted({run.load.temperature for run in side.runs if run.load.temperature is not None}) for side in pair.sides
    ]
    if not temperatures[0] or not temperatures[1]:
        why = "a result file does not hold it" if pair.view == "client" else "the server does not report it"
        yield Finding(f"The temperature of {_lacking(pair, temperatures)} is not known: {why}.")
    elif temperatures[0] != temperatures[1]:
        a, b = (", ".join(map(limit, values)) for values in temperatures)
        yield Finding(f"The temperatures differ: {a} and {b}.", prevents=True)


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
        text = f"ITL counts chunks, not tokens: {chunks}. Compare TPOT instead."
        notes |= {metric.name: text for metric in METRICS if metric.latency == "itl_ms"}
    if rate is not None:
        notes |= dict.fromkeys((*THROUGHPUTS, *COSTS), rate)
    return notes if objectives is None else notes | {GOODPUT: objectives}


def _model(name: str) -> str:
    """Return the last part of a model's name: one model is in other folders on other machines, or without its owner."""
    return name.rstrip("/").rpartition("/")[2]


def _lacking(pair: Pair, values: Sequence[Sequence[object]]) -> str:
    return " and ".join(side.name for side, of_side in zip(pair.sides, values, strict=True) if not of_side)


def _sizes_differ(a: Load, b: Load) -> bool:
    rates = [float(load.request_rate) for load in (a, b) if isinstance(load.request_rate, float | int)]
    is_other_rate = len(rates) == 2 and relative_difference(rates[0], rates[1]) > RATE_TOLERANCE
    return is_other_rate or a.ramp_up != b.ramp_up or a.max_concurrency != b.max_concurrency


def _arrivals(pair: Pair) -> str:
    rates = [side.mean(lambda run: run.load.offered_request_rate) for side in pair.sides]
    texts = [f"{significant(rate)} in {side.name}" for rate, side in zip(rates, pair.sides, strict=True) if rate]
    return f"; requests that arrived each second: {', '.join(texts)}" if texts else ""


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
        return Finding("The configuration of {side} is not known: add its log or recording to see what differs.")
    if all(run.server is not None for run in side.runs):
        return Finding("The configuration of {side} is from a Prometheus, which has few flags: others may differ, too.")
    return None


def _varying(side: Side) -> Finding | None:
    varying = sorted(name for name, values in _all_settings(side.runs).items() if len(values) > 1)
    text = f"The runs of {{side}} differ in {', '.join(varying)}: they are taken as one configuration."
    return Finding(text) if varying else None


def _repeated_rate(pair: Pair) -> str | None:
    loads = [run.load for side in pair.sides for run in side.runs]
    if any(load_kind(load) != "open" for load in loads) or any(side.is_saturated for side in pair.sides):
        return None
    rate = loads[0].request_rate
    given = "a rate that was given" if rate is None else f"a fixed rate of {limit(float(rate))} requests/s"
    served = {
        side.name: mean_known([served_share(run, result) for run, result in side.measured_runs]) for side in pair.sides
    }
    if all(share is None or share >= SERVED for share in served.values()):
        return f"At {given} throughput only repeats the rate."
    shares = " and ".join(f"{percent(share)} % in {name}" for name, share in served.items() if share is not None)
    return f"At {given} throughput repeats the rate, of which {shares} was served: that may be chance."


def _other_objectives(pair: Pair) -> str | None:
    limits = {
        tuple(sorted(result.goodput.objective.limits.items()))
        for side in pair.sides
        for result in side.results
        if result.goodput is not None
    }
    return "The objectives of the sides differ." if len(limits) > 1 else None
