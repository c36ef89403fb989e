# SPDX-License-Identifier: Apache-2.0
"""Pages of one engine, made up, and a server that is shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_watch.daemon.state.scrape_source import ScrapeResult, scrape_result
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import EngineSnapshot, ServerSnapshot
from vllm_watch_parsers.scrape import read_metrics


LABELS = 'engine="0",model_name="m"'


def page(
    *, running: float = 0, waiting: float = 0, kv: float = 0, prompt: float = 0, generated: float = 0, extra: str = ""
) -> str:
    """Return an engine's gauges and counters."""
    return (
        f"vllm:num_requests_running{{{LABELS}}} {running}\n"
        f"vllm:num_requests_waiting{{{LABELS}}} {waiting}\n"
        f"vllm:kv_cache_usage_perc{{{LABELS}}} {kv}\n"
        f"vllm:prompt_tokens_total{{{LABELS}}} {prompt}\n"
        f"vllm:generation_tokens_total{{{LABELS}}} {generated}\n{extra}"
    )


def histogram(name: str, counts: Mapping[str, float], total: float, labels: str = LABELS) -> str:
    """Return a histogram's lines; `counts` are cumulative, by bound as it is written."""
    buckets = "".join(f'vllm:{name}_bucket{{{labels},le="{bound}"}} {count}\n' for bound, count in counts.items())
    return f"{buckets}vllm:{name}_sum{{{labels}}} {total}\nvllm:{name}_count{{{labels}}} {list(counts.values())[-1]}\n"


def label_sets(count: int) -> bytes:
    """Return what vLLM adds to its page for every set of LoRA adapters that ever ran and waited together."""
    lines = (
        f'vllm:lora_requests_info{{max_lora="8",running_lora_adapters="customer-{number % 97}-adapter,c{number}",'
        f'waiting_lora_adapters="customer-{number % 89}-adapter,customer-{number % 7}-adapter"}} '
        f"1.795{number * 7919 % 10**6:06}8451734e+09\n"
        for number in range(count)
    )
    return ("# TYPE vllm:lora_requests_info gauge\n" + "".join(lines)).encode()


def started(moment: float) -> str:
    """Return what a server says of its start."""
    return f"process_start_time_seconds {moment}\n"


class ScrapedServer:
    """A server without a log, whose clock the test drives."""

    def __init__(self, interval: float = 5.0, slo: Mapping[str, float] | None = None) -> None:
        self.state = ServerState(ServerSettings("s", has_log=False, metrics_interval=interval, slo=slo or {}))
        self.now = 1000.0

    def scrape(self, body: str | None, *, after: float = 5.0, reason: str = "timeout") -> ServerSnapshot:
        """Let the page be read later, or fail for a reason; return what is known then."""
        self.now += after
        if body is None:
            self.state.apply_scrape(ScrapeResult(self.now, 0.01, None, reason))
        else:
            self.state.apply_scrape(scrape_result(self.now, 0.01, read_metrics(body.encode())))
        return self.state.snapshot(self.now)

    def scrape_all(self, bodies: Sequence[str]) -> EngineSnapshot:
        """Let pages be read one after the other; return what is known of the engine then."""
        for body in bodies:
            snapshot = self.scrape(body)
        return snapshot.engines[0]
