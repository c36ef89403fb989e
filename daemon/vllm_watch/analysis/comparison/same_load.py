# SPDX-License-Identifier: Apache-2.0
"""Whether both sides were asked the same: the model, the load, the lengths, the prefix cache, the temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vllm_watch.analysis.comparison.finding import Finding
from vllm_watch.analysis.comparison.load_kinds import load_kind, load_name
from vllm_watch.analysis.comparison.pair import Measured, Pair, mean_known, relative_difference
from vllm_watch.analysis.loadtest.client_texts import BENCHMARK_KINDS
from vllm_watch.analysis.loadtest.load_test import Load, Result
from vllm_watch.daemon.catalog.number_texts import count, limit, percent, significant


LENGTH_TOLERANCE = 0.05
LENGTH_LIMIT = 0.20
RATE_TOLERANCE = 0.02
PROMPTS_TOLERANCE = 0.10
HIT_TOLERANCE = 0.05
HIT_LIMIT = 0.20


def check_model(pair: Pair) -> Iterator[Finding]:
    """The sides serve one model."""
    names = [sorted({_model(run.model) for run in side.runs if run.model is not None}) for side in pair.sides]
    if not names[0] or not names[1]:
        missing = " and ".join(side.name for side, known in zip(pair.sides, names, strict=True) if not known)
        yield Finding(f"The model of {missing} is not known.", prevents=False)
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
        yield Finding(f"Whether both sides got the same load is not known{_arrivals(pair)}.", prevents=False)
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
            prevents=False,
        )


def check_lengths(pair: Pair) -> Iterator[Finding]:
    """Prompts and answers are equally long."""
    for name, value in (("input", _input_length), ("output", _output_length)):
        means = [_mean_length(side, value) for side in pair.sides]
        if means[0] is None or means[1] is None:
            continue
        difference = relative_difference(means[0], means[1])
        if difference > LENGTH_TOLERANCE:
            text = f"The lengths differ: {means[0]:.0f} and {means[1]:.0f} {name} tokens for each request."
            yield Finding(text, prevents=difference > LENGTH_LIMIT)


def check_prefix_cache(pair: Pair) -> Iterator[Finding]:
    """An equal share of the prompts came from the prefix cache, unless caching is what was changed."""
    ratios = [side.mean(lambda run: run.use.prefix_cache_hit_ratio) for side in pair.sides]
    switches = [{run.config.get("enable-prefix-caching") for run in side.runs} for side in pair.sides]
    if ratios[0] is None or ratios[1] is None or switches[0] != switches[1]:
        return
    if abs(ratios[0] - ratios[1]) > HIT_TOLERANCE:
        yield Finding(
            f"The shares of prompt tokens from the prefix cache differ: {percent(ratios[0])} % and "
            f"{percent(ratios[1])} %. Reset the cache between runs.",
            prevents=abs(ratios[0] - ratios[1]) > HIT_LIMIT,
        )


def check_temperature(pair: Pair) -> Iterator[Finding]:
    """Tokens were sampled at one temperature: it sets how many drafts are accepted."""
    known = [
        sorted({run.load.temperature for run in side.runs if run.load.temperature is not None}) for side in pair.sides
    ]
    if not known[0] or not known[1]:
        missing = " and ".join(side.name for side, each in zip(pair.sides, known, strict=True) if not each)
        why = "a result file does not hold it" if pair.view == "client" else "the server does not report it"
        yield Finding(f"The temperature of {missing} is not known: {why}.", prevents=False)
    elif known[0] != known[1]:
        texts = [", ".join(map(limit, side)) for side in known]
        yield Finding(f"The temperatures differ: {texts[0]} and {texts[1]}.", prevents=True)


def _model(name: str) -> str:
    """Return a model's name; of a path only its last part, for one model is in other folders on other machines."""
    return name.rstrip("/").rpartition("/")[2] if name.startswith("/") else name


def _sizes_differ(a: Load, b: Load) -> bool:
    rates = [float(load.request_rate) for load in (a, b) if isinstance(load.request_rate, float | int)]
    is_other_rate = len(rates) == 2 and relative_difference(rates[0], rates[1]) > RATE_TOLERANCE
    return is_other_rate or a.ramp_up != b.ramp_up or a.max_concurrency != b.max_concurrency


def _arrivals(pair: Pair) -> str:
    """Return how many requests arrived, as far as the servers know: the reader knows what was sent."""
    rates = [side.mean(lambda run: run.load.offered_request_rate) for side in pair.sides]
    known = [f"{significant(rate)} in {side.name}" for rate, side in zip(rates, pair.sides, strict=True) if rate]
    return f"; requests that arrived each second: {', '.join(known)}" if known else ""


def _input_length(load: Load, result: Result) -> float | None:
    if load.mean_input_tokens is not None or not result.successful:
        return load.mean_input_tokens
    return None if result.total_input_tokens is None else result.total_input_tokens / result.successful


def _output_length(load: Load, result: Result) -> float | None:
    if load.mean_output_tokens is not None or not result.successful:
        return load.mean_output_tokens
    return None if result.total_output_tokens is None else result.total_output_tokens / result.successful


def _mean_length(side: Measured, value: Callable[[Load, Result], float | None]) -> float | None:
    return mean_known([value(run.load, result) for run, result in zip(side.runs, side.results, strict=True)])
