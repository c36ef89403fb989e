# SPDX-License-Identifier: Apache-2.0
"""
Makes the samples of this folder by running vLLM's own classes: ``python make.py SOURCES``, where vLLM 0.32.0 is.

SOURCES has the unpacked packages of other releases, one folder for each (``0.20.2``, ``0.33.0``). Each case feeds a
connector's statistics twice: to its metrics, as the server does, which gives two pages, and to its log line, for what
came between the two. What was fed is written beside them by hand here, in vllm-watch's names.
"""

import importlib.util
import io
import json
import sys
import tarfile
import types

from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


HERE = Path(__file__).parent
SOURCES = Path(sys.argv[1])
CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/v1"
KEY = {"model_name": "org/m", "engine": "0"}


def module(release, path):
    """Return a module of a release; vLLM 0.32.0 is the one that is installed."""
    if release == "0.32.0":
        return importlib.import_module(path.removesuffix(".py").replace("/", "."))
    worker = sys.modules.setdefault("vllm.v1.kv_offload.worker.worker", types.ModuleType("worker"))
    worker.TransferType = tuple
    name = f"of_{release.replace('.', '_')}_{path.replace('/', '_').removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, SOURCES / release / path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


class Page:
    """One server's metrics in a registry of its own."""

    def __init__(self, prom, config):
        self.registry = CollectorRegistry()
        types_ = {kind: partial(kind, registry=self.registry) for kind in (Gauge, Counter, Histogram)}
        running = Gauge("vllm:num_requests_running", "Number of requests.", [*KEY], registry=self.registry)
        running.labels(**KEY).set(1)
        self.prom = prom(config, types_, [*KEY], {0: [*KEY.values()]})

    def body(self):
        """Return the page without the times of creation."""
        text = generate_latest(self.registry).decode()
        return "".join(line + "\n" for line in text.splitlines() if "_created" not in line)


def config(**extra):
    """Return as much of a server's configuration as the classes ask for."""
    transfer = types.SimpleNamespace(kv_connector="x", kv_connector_extra_config=extra)
    observed = types.SimpleNamespace(kv_cache_metrics=False, custom_histogram_buckets=None)
    return types.SimpleNamespace(kv_transfer_config=transfer, observability_config=observed)


_bodies = {}


def save(name, pages, line, expected, gauges=None):
    """Keep the pages, and write the line with what it and the pages must give."""
    for number, page in enumerate(pages):
        _bodies[f"metrics_{name}_{number}.txt"] = page.encode()
    file = HERE / "expected.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[name] = {"line": line, "counters": expected, "gauges": gauges or {}}
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def line_of(stats):
    """Return the line as `KVConnectorLogging.log` makes it."""
    return "KV Transfer metrics: " + ", ".join(f"{key}={value}" for key, value in stats.reduce().items())


def case(name, page, make, fill, expected, gauges=None):
    """Feed the same twice, with a page after each time."""
    bodies = []
    for _ in range(2):
        stats = fill(make())
        page.prom.observe(stats.data)
        bodies.append(page.body())
    save(name, bodies, line_of(fill(make())), expected, gauges)


def telemetry(seconds, size):
    """Return what NIXL reports of a transfer: times in microseconds."""
    return types.SimpleNamespace(xferDuration=seconds * 1e6, postDuration=500.0, totalBytes=size, descCount=40)


def nixl(release):
    """NIXL: two transfers, one failed transfer and notification, one expired request."""
    made = module(release, f"{CONNECTORS}/nixl/stats.py")

    def fill(stats):
        stats.record_transfer(telemetry(0.25, 64 * 2**20))
        stats.record_transfer(telemetry(0.5, 32 * 2**20))
        stats.record_failed_transfer()
        stats.record_failed_notification()
        stats.record_kv_expired_req()
        if release == "0.32.0":
            stats.record_failed_handshake()
            stats.record_notification_after_expiry()
        return stats

    failures = (
        {"kv_transfer_failures_total nixl transfer": 3}
        if release == "0.32.0"
        else {"kv_transfer_failures_total nixl transfer": 1, "kv_transfer_failures_total nixl notification": 1}
    )
    late = {"kv_notifications_after_expiry_total nixl": 1} if release == "0.32.0" else {}
    expected = {
        "kv_transfer_bytes_total nixl in": 96 * 2**20,
        "kv_transfer_seconds_total nixl in": 0.75,
        "kv_transfers_total nixl in": 2,
        "kv_expired_requests_total nixl": 1,
        **failures,
        **late,
    }
    page = Page(made.NixlPromMetrics, config())
    case(f"nixl-{release}", page, made.NixlKVConnectorStats, fill, expected)
    return made, fill, expected


def nixl_failed():
    """NIXL: an interval with nothing but failures."""
    made = module("0.32.0", f"{CONNECTORS}/nixl/stats.py")

    def fill(stats):
        stats.record_failed_transfer()
        stats.record_kv_expired_req()
        return stats

    expected = {
        "kv_transfers_total nixl in": 0,
        "kv_transfer_bytes_total nixl in": 0,
        "kv_transfer_seconds_total nixl in": 0,
        "kv_transfer_failures_total nixl transfer": 1,
        "kv_expired_requests_total nixl": 1,
        "kv_notifications_after_expiry_total nixl": 0,
    }
    case("nixl-failed-0.32.0", Page(made.NixlPromMetrics, config()), made.NixlKVConnectorStats, fill, expected)


def mooncake():
    """Mooncake, which has metrics since 0.33: the prefill server sends."""
    made = module("0.33.0", f"{CONNECTORS}/mooncake/stats.py")

    def fill(stats):
        stats.record_transfer(0.125, 16 * 2**20, 10)
        stats.record_failed_recv()
        stats.record_kv_expired_req()
        return stats

    expected = {
        "kv_transfer_bytes_total mooncake out": 16 * 2**20,
        "kv_transfer_seconds_total mooncake out": 0.125,
        "kv_transfers_total mooncake out": 1,
        "kv_transfer_failures_total mooncake transfer": 0,
        "kv_transfer_failures_total mooncake receive": 1,
        "kv_expired_requests_total mooncake": 1,
    }
    case("mooncake-0.33.0", Page(made.MooncakePromMetrics, config()), made.MooncakeKVConnectorStats, fill, expected)


def mooncake_store():
    """The Mooncake store: puts, one of which fails, gets and lookups."""
    made = module("0.32.0", f"{CONNECTORS}/mooncake/store/metrics.py")

    def fill(stats):
        stats.record_operation("lookup_exists", 0.002, 8)
        stats.record_operation("save_exists", 0.001, 8)
        stats.record_operation("save_put", 0.5, 4, num_bytes=4096)
        stats.record_operation("save_put", 0.25, 4, status="error", num_failed_keys=4)
        stats.record_operation("load_get", 0.125, 2, num_bytes=2048)
        return stats

    expected = {
        "kv_transfer_bytes_total mooncake_store in": 2048,
        "kv_transfer_bytes_total mooncake_store out": 4096,
        "kv_transfer_seconds_total mooncake_store in": 0.125,
        "kv_transfer_seconds_total mooncake_store out": 0.75,
        "kv_transfers_total mooncake_store in": 1,
        "kv_transfers_total mooncake_store out": 1,
        "kv_transfer_failures_total mooncake_store store": 1,
        "kv_lookups_total mooncake_store sync": 1,
        "kv_lookup_seconds_total mooncake_store sync": 0.002,
    }
    make = made.MooncakeStoreConnectorStats
    case("mooncake_store-0.32.0", Page(made.MooncakeStorePromMetrics, config()), make, fill, expected)


def offload_first():
    """The offloading connector of 0.20.2, whose names are deprecated since 0.24."""
    made = module("0.20.2", f"{CONNECTORS}/offloading/metrics.py")

    def fill(stats):
        for size, seconds, moved in (
            (4096, 0.5, ("GPU", "CPU")),
            (1024, 0.25, ("CPU", "GPU")),
            (1024, 0.25, ("CPU", "GPU")),
        ):
            stats.record_transfer(size, seconds, moved)
        # As the front end gets them from the workers.
        stats.data = {
            name: [vars(one) if not isinstance(one, dict) else one for one in ops] for name, ops in stats.data.items()
        }
        return stats

    expected = {
        "kv_transfer_bytes_total kv_offload in": 2048,
        "kv_transfer_bytes_total kv_offload out": 4096,
        "kv_transfer_seconds_total kv_offload in": 0.5,
        "kv_transfer_seconds_total kv_offload out": 0.5,
        "kv_transfers_total kv_offload in": 2,
        "kv_transfers_total kv_offload out": 1,
    }
    case("kv_offload-0.20.2", Page(made.OffloadPromMetrics, config()), made.OffloadingConnectorStats, fill, expected)


def offload():
    """The offloading connector with two tiers behind the CPU's memory."""
    made = module("0.32.0", f"{CONNECTORS}/offloading/metrics.py")
    name = "vllm:kv_offload_"

    def fill(stats):
        stats.increase_counter(f"{name}load_bytes", 1024)
        stats.increase_counter(f"{name}load_time", 0.25)
        stats.observe_histogram(f"{name}load_size", 1024)
        stats.increase_counter(f"{name}store_bytes", 4096)
        stats.increase_counter(f"{name}store_time", 0.5)
        stats.observe_histogram(f"{name}store_size", 4096)
        stats.observe_histogram(f"{name}lookup_sync_delay_seconds", 0.001)
        stats.observe_histogram(f"{name}lookup_async_delay_seconds", 0.01)
        stats.increase_counter(f"{name}allocation_failure", 3)
        stats.increase_counter(f"{name}stores_skipped", 5)
        stats.set_gauge(f"{name}cpu_cache_usage_perc", 0.5)
        stats.set_gauge(f"{name}cpu_cache_read_usage_perc", 0.25)
        stats.set_gauge(f"{name}cpu_cache_write_usage_perc", 0.25)
        stats.observe_histogram(f"{name}cpu_allocation_size", 16)
        for tier in (("1:fs",), ("2:obj",)):
            stats.increase_counter(f"{name}tiering_read_bytes", 512, tier)
            stats.increase_counter(f"{name}tiering_read_time", 0.125, tier)
            stats.increase_counter(f"{name}tiering_write_bytes", 2048, tier)
            stats.increase_counter(f"{name}tiering_write_time", 1.5, tier)
            stats.increase_counter(f"{name}tiering_chunk_queries", 8, tier)
            stats.increase_counter(f"{name}tiering_chunk_hits", 2, tier)
            stats.increase_counter(f"{name}tiering_promotion_job_failures", 1, tier)
            stats.increase_counter(f"{name}tiering_cascade_job_failures", 2, tier)
            stats.increase_counter(f"{name}tiering_backpressure_stores_dropped", 4, tier)
            stats.increase_counter(f"{name}tiering_backpressure_blocks_dropped", 40, tier)
            stats.set_gauge(f"{name}tiering_backpressure_store_latency_ema", 0.01, tier)
            stats.set_gauge(f"{name}tiering_primary_read_usage_perc", 0.1, tier)
            stats.set_gauge(f"{name}tiering_primary_write_usage_perc", 0.1, tier)
            stats.set_gauge(f"{name}tiering_active_promotion_jobs", 2, tier)
            stats.set_gauge(f"{name}tiering_active_cascade_jobs", 3, tier)
            stats.observe_histogram(f"{name}tiering_lookup_sync_delay_seconds", 0.001, tier)
            stats.observe_histogram(f"{name}tiering_lookup_async_delay_seconds", 0.001, tier)
        stats.increase_counter(f"{name}tiering_promotion_allocation_failures", 1)
        return stats

    by_tier = {
        f"{series} kv_offload {tier}{direction}": value
        for tier in ("fs", "obj")
        for series, direction, value in (
            ("kv_tier_bytes_total", " in", 512),
            ("kv_tier_bytes_total", " out", 2048),
            ("kv_tier_seconds_total", " in", 0.125),
            ("kv_tier_seconds_total", " out", 1.5),
            ("kv_tier_queries_total", "", 8),
            ("kv_tier_hits_total", "", 2),
        )
    }
    expected = {
        "kv_transfer_bytes_total kv_offload in": 1024,
        "kv_transfer_bytes_total kv_offload out": 4096,
        "kv_transfer_seconds_total kv_offload in": 0.25,
        "kv_transfer_seconds_total kv_offload out": 0.5,
        "kv_transfers_total kv_offload in": 1,
        "kv_transfers_total kv_offload out": 1,
        "kv_lookups_total kv_offload sync": 1,
        "kv_lookups_total kv_offload async": 1,
        "kv_lookup_seconds_total kv_offload sync": 0.001,
        "kv_lookup_seconds_total kv_offload async": 0.01,
        "kv_transfers_skipped_total kv_offload no_space": 3,
        "kv_transfers_skipped_total kv_offload not_reused": 5,
        "kv_transfers_skipped_total kv_offload no_space_to_promote": 1,
        "kv_transfers_skipped_total kv_offload backpressure": 8,
        "kv_transfer_failures_total kv_offload promotion": 2,
        "kv_transfer_failures_total kv_offload cascade": 4,
        **by_tier,
    }
    gauges = {
        "kv_offload_usage_ratio kv_offload cpu": 0.5,
        "kv_transfers_pending kv_offload in": 4,
        "kv_transfers_pending kv_offload out": 6,
    }
    tiers = config(
        spec_name="TieringOffloadingSpec",
        store_threshold=2,
        cpu_bytes_to_use=2**30,
        secondary_tiers=[{"type": "fs", "root_dir": "/tmp/kv"}, {"type": "example"}],
    )
    case(
        "kv_offload-0.32.0", Page(made.OffloadPromMetrics, tiers), made.OffloadingConnectorStats, fill, expected, gauges
    )


def simple():
    """The simple CPU offload connector: blocks."""
    made = module("0.32.0", "vllm/v1/simple_kv_offload/metrics.py")
    name = made.MetricName

    def fill(stats):
        stats.increase_counter(name.SAVE_OUTCOMES, 6, ("stored",))
        stats.increase_counter(name.SAVE_OUTCOMES, 2, ("dropped_cpu_full",))
        stats.increase_counter(name.SAVE_OUTCOMES, 9, ("skipped_already_cached",))
        stats.increase_counter(name.LOAD_BLOCKS, 3)
        stats.set_gauge(name.USED_BLOCKS, 25)
        stats.set_gauge(name.PENDING_STORE_BLOCKS, 4)
        stats.set_gauge(name.INFO, 1, ("cpu", "false", "false", "100"))
        return stats

    expected = {
        "kv_transfers_total simple_kv_offload out": 6,
        "kv_transfers_total simple_kv_offload in": 3,
        "kv_transfers_skipped_total simple_kv_offload no_space": 2,
    }
    gauges = {"kv_offload_usage_ratio simple_kv_offload cpu": 0.25, "kv_transfers_pending simple_kv_offload out": 4}
    page = Page(made.SimpleCPUOffloadPromMetrics, config())
    case("simple_kv_offload-0.32.0", page, made.SimpleCPUOffloadStats, fill, expected, gauges)


def hf3fs():
    """HF3FS: a save, a load and a failed load."""
    made = module("0.32.0", f"{CONNECTORS}/hf3fs/hf3fs_connector.py")

    def fill(stats):
        stats.record_success_task_duration("Saved", 0.5)
        stats.record_success_task_duration("Loaded", 0.25)
        stats.record_failed_task_count("Loaded")
        return stats

    expected = {
        "kv_transfers_total hf3fs in": 1,
        "kv_transfers_total hf3fs out": 1,
        "kv_transfer_seconds_total hf3fs in": 0.25,
        "kv_transfer_seconds_total hf3fs out": 0.5,
        "kv_transfer_failures_total hf3fs load": 1,
        "kv_transfer_failures_total hf3fs store": 0,
    }
    case("hf3fs-0.32.0", Page(made.HF3FSPromMetrics, config()), made.HF3FSKVConnectorStats, fill, expected)


def umbp():
    """UMBP of 0.33: objects submitted, completed and failed."""
    made = module("0.33.0", f"{CONNECTORS}/umbp/stats.py")

    def fill(stats):
        stats.record("load", submitted=10, completed=7, failed=1, num_bytes=7168)
        stats.record("store", submitted=5, completed=5, num_bytes=5120)
        return stats

    expected = {
        "kv_transfers_total umbp in": 7,
        "kv_transfers_total umbp out": 5,
        "kv_transfer_bytes_total umbp in": 7168,
        "kv_transfer_bytes_total umbp out": 5120,
        "kv_transfer_failures_total umbp load": 1,
        "kv_transfer_failures_total umbp store": 0,
    }
    gauges: dict[str, float] = {}
    case("umbp-0.33.0", Page(made.UMBPStorePromMetrics, config()), made.UMBPStoreConnectorStats, fill, expected, gauges)


def hisparse():
    """HiSparse: hits and misses of the hot buffer."""
    made = module("0.32.0", f"{CONNECTORS}/hisparse/stats.py")

    def fill(stats):
        stats.record_snapshot(30, 10, 8192)
        stats.record_host_usage(0.75, 3)
        return stats

    expected = {
        "kv_tier_hits_total hisparse hot_buffer": 30,
        "kv_tier_queries_total hisparse hot_buffer": 40,
        "kv_transfer_bytes_total hisparse in": 8192,
    }
    gauges = {"kv_offload_usage_ratio hisparse cpu": 0.75}
    case(
        "hisparse-0.32.0",
        Page(made.HiSparsePromMetrics, config()),
        made.HiSparseKVConnectorStats,
        fill,
        expected,
        gauges,
    )


def several(parts):
    """Several connectors at once: NIXL's line and that of the offloading connector as dicts."""
    made = module("0.32.0", f"{CONNECTORS}/multi_connector.py")
    stats = made.MultiKVConnectorStats(data={name: fill(make()) for name, make, fill in parts})
    return line_of(stats)


def main():
    """Write all samples."""
    (HERE / "expected.json").unlink(missing_ok=True)
    nixl("0.20.2")
    made, fill, expected = nixl("0.32.0")
    nixl_failed()
    mooncake()
    mooncake_store()
    offload_first()
    offload()
    simple()
    hf3fs()
    umbp()
    hisparse()
    store = module("0.32.0", f"{CONNECTORS}/mooncake/store/metrics.py")

    def put(stats):
        stats.record_operation("save_put", 0.5, 4, num_bytes=4096)
        return stats

    stored_by = store.MooncakeStoreConnectorStats
    parts = [("NixlConnector", made.NixlKVConnectorStats, fill), ("MooncakeStoreConnector", stored_by, put)]
    line = several(parts)
    stored = {
        "kv_transfer_bytes_total mooncake_store out": 4096,
        "kv_transfer_seconds_total mooncake_store out": 0.5,
        "kv_transfers_total mooncake_store out": 1,
        "kv_transfer_failures_total mooncake_store store": 0,
    }
    save("several-0.32.0", [], line, {**expected, **stored})
    with tarfile.open(HERE / "bodies.tar.xz", "w:xz") as archive:
        for name, body in sorted(_bodies.items()):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))


if __name__ == "__main__":
    main()
