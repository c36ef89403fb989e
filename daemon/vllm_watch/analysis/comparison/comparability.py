# SPDX-License-Identifier: Apache-2.0
"""Whether two sides can be compared, what differs between them, and which metrics mean something else on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vllm_watch.analysis.comparison.comparison_model import ConfigDifference, Side
from vllm_watch.analysis.comparison.metrics import COSTS, THROUGHPUTS, Metric
from vllm_watch.analysis.comparison.pair import (
    SERVED,
    Measured,
    Pair,
    differs_in_chunks,
    load_kind,
    load_name,
    mean_known,
    relative_difference,
    result_in,
    served_share,
)
from vllm_watch.analysis.comparison.sound_runs import (
    Finding,
    SideFinding,
    check_acceptance,
    check_duration,
    check_errors,
    check_idle,
    check_in_flight,
    check_order,
    check_overlap,
    check_repetition,
    check_saturation,
    check_steadiness,
    check_variation,
    of_sides,
)
from vllm_watch.analysis.loadtest.load_text import BENCHMARK_KINDS
from vllm_watch.analysis.loadtest.model import Load, Objective, Result, Run
from vllm_watch.analysis.loadtest.number_texts import count, limit, milliseconds, percent, significant
from vllm_watch.analysis.loadtest.slow_client import slow_client


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


_CLIENT_SHARE = 0.25
"""From so large a share of the client's TTFT on that the server does not know of, the client was slow itself."""
_CLIENT_EXPLAINS = 0.5
"""From so large a part of the difference on that is the clients' alone, the servers' is not known from it."""
_CLIENT_SAME = 0.05


class Traps:
    """
    What is not compared between two sides, and why.

    Args:
        pair: The sides.
    """

    def __init__(self, pair: Pair) -> None:
        self._chunks = differs_in_chunks(pair)
        self._is_one_saturated = pair.a.is_saturated is not None and pair.a.is_saturated is not pair.b.is_saturated
        self._is_one_saturated &= pair.b.is_saturated is not None
        self._repeated_rate = _repeated_rate(pair)
        self._client = _client_difference(pair)
        self._objectives = _other_objectives(pair)

    def note(self, metric: Metric) -> str | None:
        """Return why a metric is not compared, `None` if it is."""
        if metric.latency == "itl_ms" and self._chunks is not None:
            return f"ITL counts chunks, not tokens: {self._chunks}. Compare TPOT instead."
        if metric.name in (*THROUGHPUTS, *COSTS) and self._repeated_rate is not None:
            return self._repeated_rate
        if metric.latency is not None and self._is_one_saturated:
            return "One side was saturated and the other was not: latencies then only tell how long the queue grew."
        if metric.latency == "ttft_ms" and self._client is not None:
            return self._client
        return self._objectives if metric.name == "request_goodput" else None


def trap_warnings(pair: Pair) -> Iterator[str]:
    """Yield what a reader must know of values that are compared."""
    for side in pair.sides:
        added = _client_added(side)
        if added is not None and added[0] > _CLIENT_SHARE * added[1]:
            yield slow_client(added[1], added[1] - added[0], side.name)


def _repeated_rate(pair: Pair) -> str | None:
    """Return why throughput says nothing: the server kept up with a given rate."""
    loads = [run.load for side in pair.sides for run in side.runs]
    if any(load_kind(load) != "open" for load in loads) or any(side.is_saturated for side in pair.sides):
        return None
    rate = loads[0].request_rate
    given = "a rate that was given" if rate is None else f"a fixed rate of {limit(float(rate))} requests/s"
    served = [_served(side) for side in pair.sides]
    if all(share is None or share >= SERVED for share in served):
        return f"At {given} throughput only repeats the rate."
    shares = " and ".join(
        f"{percent(share)} % in {side.name}"
        for share, side in zip(served, pair.sides, strict=True)
        if share is not None
    )
    return (
        f"At {given} throughput repeats the rate, of which {shares} was served. Whether a server was too slow, or the "
        "time after the last request is a large part of the run, is not known."
    )


def _served(side: Measured) -> float | None:
    """Return how much of the given rate was served, `None` if that is not known."""
    return mean_known([served_share(run, result) for run, result in zip(side.runs, side.results, strict=True)])


def _client_added(side: Measured) -> tuple[float, float] | None:
    """Return by how much the client's mean TTFT is above the server's, and the client's, in milliseconds."""
    pairs = [(_mean_ttft(result_in(run, "client")), _mean_ttft(result_in(run, "server"))) for run in side.runs]
    known = [(client, server) for client, server in pairs if client is not None and server is not None]
    if not known:
        return None
    client = sum(each for each, _ in known) / len(known)
    return client - sum(each for _, each in known) / len(known), client


def _client_difference(pair: Pair) -> str | None:
    """Return why the client's TTFT is not compared: most of the difference is its own slowness."""
    if pair.view != "client":
        return None
    a, b = (_client_added(side) for side in pair.sides)
    if a is None or b is None or max(a[0] / a[1], b[0] / b[1]) <= _CLIENT_SHARE:
        return None
    difference = abs(b[1] - a[1])
    if difference <= _CLIENT_SAME * a[1] or abs(b[0] - a[0]) < _CLIENT_EXPLAINS * difference:
        return None
    return (
        f"The client's own slowness is most of the difference: it adds {milliseconds(round(a[0]))} to TTFT in "
        f"{pair.a.name} and {milliseconds(round(b[0]))} in {pair.b.name}."
    )


def _mean_ttft(result: Result | None) -> float | None:
    return None if result is None or result.ttft_ms is None else result.ttft_ms.mean


def _other_objectives(pair: Pair) -> str | None:
    """Return why goodput is not compared: the sides were measured by other limits."""
    limits = {tuple(sorted(found.limits.items())) for side in pair.sides for found in _objectives(side)}
    return "The objectives of the sides differ." if len(limits) > 1 else None


def _objectives(side: Measured) -> list[Objective]:
    return [result.goodput.objective for result in side.results if result.goodput is not None]


_CHECKS: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    check_repetition,
    check_overlap,
    check_model,
    check_load,
    check_lengths,
    check_prefix_cache,
    check_temperature,
    check_errors,
    check_duration,
    check_idle,
    check_saturation,
    check_steadiness,
    check_in_flight,
    check_variation,
    check_acceptance,
    check_order,
)


def findings(pair: Pair) -> tuple[Finding, ...]:
    """Return all that speaks against comparing two sides, what prevents it first."""
    found = [finding for check in _CHECKS for finding in check(pair)]
    return tuple(sorted(found, key=lambda finding: not finding.prevents))
