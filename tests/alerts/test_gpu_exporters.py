# SPDX-License-Identifier: Apache-2.0
"""What other exporters say of GPUs is recorded as the daemon's own series, in the right units, or not at all."""

from __future__ import annotations

import re
import urllib.parse

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from prometheus_client.parser import text_string_to_metric_families
from tests.support.http_servers import StandIn, answer
from tests.support.monitoring import get_json, promtool, running_prometheus
from tests.support.waiting import until
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.catalog import gpu_texts
from vllm_watch.daemon.catalog.series import GPUS
from vllm_watch_parsers.kernel_messages import XID_CLASSES


ALERTS = Path(__file__).parents[2] / "alerts"
RULES = {path.stem: path for path in sorted((ALERTS / "gpu-exporters").glob("*.yml"))}
BODIES = Path(__file__).parent / "gpu_bodies"
ALL_BODIES = sorted(path.relative_to(BODIES).as_posix() for path in BODIES.glob("*/*.prom"))
RECORDED = "# RECORDED\n"
"""Between a body and what has to be recorded of it."""
SERIES = {series.full_name: series for series in GPUS.series}
SHOWN_BY = "gpu:vllm_watch_gpu_info:shown_by"
WANTED = ("gpu:vllm_watch_server_gpu_info:unread", "gpu:vllm_watch_server_gpu_info:uncounted", SHOWN_BY)
"""What the rules record for themselves and for the alerts: the GPUs that are wanted, and which exporter shows them."""
GROWN = {"dcgm-exporter": "vllm_watch_gpu_xid_last_timestamp_seconds"}
"""What is recorded when something changes, and not of one body."""
NOT_SAID = {"driver_version", "pci_bus_id"}
"""Labels that an exporter may not have."""
DAEMON = {"instance": "watch:9468", "job": "vllm-watch"}
ABSENT = "\N{EN DASH}"
"""What the document has for a series that an exporter cannot give."""
CODES = {
    "action": gpu_texts.GPU_ACTIONS,
    "reason": gpu_texts.GPU_THROTTLING,
    "direction": ("tx", "rx"),
    "sensor": ("core", "memory"),
    "lifetime": ("boot", "life"),
    "class": XID_CLASSES,
}
_MEMORY = ("corrected", "uncorrected")
KINDS = {
    "vllm_watch_gpu_ecc_errors_total": _MEMORY,
    "vllm_watch_gpu_remapped_rows": _MEMORY,
    "vllm_watch_gpu_nvlink_errors_total": gpu_texts.GPU_LINK_ERRORS,
    "vllm_watch_gpu_pcie_errors_total": gpu_texts.GPU_PCIE_ERRORS,
}

JOIN = "sum by (instance, server) (vllm_watch_gpu_power_watts * on (instance, job, gpu) group_right () %s)"
"""Watts of a server, as a join with the GPUs that it uses, shortened by their series."""
POWER = {
    "dcgm-exporter": ('DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="%s"}', "GPU-0a", "GPU-0a"),
    "nvidia_gpu_exporter": ('nvidia_smi_power_draw_watts{uuid="%s"}', "0a", "GPU-0a"),
    "amd-device-metrics-exporter": ('gpu_package_power{gpu_id="0",serial_number="%s"}', "69225", "AMD-69225"),
}
"""The power of a GPU as each exporter has it, what it calls the GPU, and what `gpus` of a server calls it."""

Sample = tuple[str, tuple[tuple[str, str], ...]]


def rules_of(path: Path) -> list[dict]:
    """Return the rules of a file."""
    return [rule for group in load_yaml(path.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def samples(text: str) -> dict[Sample, float]:
    """Return the samples of a body by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def expected(exporter: str) -> dict[Sample, float]:
    """Return what is recorded of all bodies of an exporter, by hand, with the labels of the daemon's target."""
    texts = [path.read_text(encoding="utf-8").partition(RECORDED)[2] for path in (BODIES / exporter).glob("*.prom")]
    return {
        (name, tuple(sorted({**dict(labels), **DAEMON}.items()))): value
        for text in texts
        for (name, labels), value in samples(text).items()
    }


def wanted_gpus() -> set[str]:
    """Return the GPUs of all bodies, as `gpus` of a server names them."""
    return {
        dict(labels)["gpu"]
        for exporter in RULES
        for (name, labels) in expected(exporter)
        if name == "vllm_watch_gpu_info"
    }


def own_body() -> str:
    """Return what a daemon shows that reads no GPU itself, of one server that uses all of them."""
    return "".join(
        f'vllm_watch_server_gpu_info{{server="chat",gpu="{gpu}",how="config",shared="false",team="a"}} 1\n'
        for gpu in sorted(wanted_gpus())
    )


@pytest.mark.parametrize("exporter", RULES)
def test_only_series_and_labels_of_the_catalog_are_recorded(exporter):
    """Each recorded name is a series of the group of GPUs; its labels and their values are those that it has."""
    for rule in rules_of(RULES[exporter]):
        assert rule["record"] in WANTED or set(rule.get("labels", {})) < set(SERIES[rule["record"]].labels), rule
    for name, pairs in expected(exporter):
        labels = dict(pairs)
        there, possible = set(labels) - set(DAEMON), set(SERIES[name].labels)
        assert possible - NOT_SAID <= there <= possible, (name, pairs)
        for label in there & set(CODES):
            assert labels[label] in CODES[label], (name, pairs)
        if "kind" in there:
            assert labels["kind"] in KINDS[name], (name, pairs)


@pytest.mark.parametrize("exporter", RULES)
def test_each_recorded_series_has_a_body(exporter):
    """Each rule of a file is shown by a body: no name is there that no body has."""
    shown = {(name, labels) for name, labels in expected(exporter)}
    for rule in rules_of(RULES[exporter]):
        pairs = set(rule.get("labels", {}).items())
        assert rule["record"] in {*WANTED, GROWN.get(exporter)} or any(
            name == rule["record"] and pairs <= set(labels) for name, labels in shown
        ), rule


def test_the_document_says_what_is_not_recorded():
    """The table in alerts/README.md has each series of a GPU once, and says of each exporter whether it has it."""
    text = (ALERTS / "README.md").read_text(encoding="utf-8")
    table = text.partition("| series `vllm_watch_gpu_…` |")[2].partition("\n\n")[0].splitlines()[2:]
    names = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table]
    of_a_gpu = [series.name for series in GPUS.series if series.name.startswith("gpu_") and "gpu" in series.labels]

    assert sorted(of_a_gpu) == sorted(f"gpu_{name}" for row in names for name in row)
    for column, exporter in enumerate(("dcgm-exporter", "nvidia_gpu_exporter", "amd-device-metrics-exporter"), 2):
        there = {rule["record"].removeprefix("vllm_watch_gpu_") for rule in rules_of(RULES[exporter])}
        for row, group in zip(table, names, strict=True):
            is_absent = row.split("|")[column].strip() == ABSENT
            assert dict.fromkeys(group, is_absent) == {name: name not in there for name in group}, exporter


@pytest.mark.needs_tool("prometheus")
@pytest.mark.slow
@pytest.mark.parametrize("exporter", RULES)
def test_a_prometheus_records_what_the_exporter_has(exporter, prometheuses):
    """Of the bodies of all exporters, scraped at once, those of the one whose file is loaded are recorded, exactly."""
    url = prometheuses[exporter]
    until(lambda: recorded(url) == expected(exporter), 20, lambda: difference(recorded(url), expected(exporter)))
    (group,) = get_json(f"{url}/api/v1/rules")["data"]["groups"]

    assert {"ok"} == {rule["health"] for rule in group["rules"]}


@pytest.fixture(scope="module")
def prometheuses(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Run a Prometheus for each exporter's file, all at once: each needs some seconds. Give their URLs."""
    with ExitStack() as stack:
        address = f"127.0.0.1:{stack.enter_context(StandIn(pieces)).port}"
        yield {
            exporter: stack.enter_context(a_prometheus(tmp_path_factory.mktemp(exporter), address, rules))
            for exporter, rules in RULES.items()
        }


def pieces(head: str) -> Iterator[bytes]:
    """Answer with the body that the path names, or with the daemon's."""
    path = BODIES / head.split()[1].removeprefix("/")
    body = path.read_text(encoding="utf-8").partition(RECORDED)[0] if path.is_file() else own_body()
    yield answer(body.encode())


@contextmanager
def a_prometheus(folder: Path, address: str, rules: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes all bodies every second and has one file of rules; give its URL."""
    (folder / "rules.yml").write_text(rules.read_text(encoding="utf-8").replace("interval: 15s", "interval: 1s"))
    jobs = [{"job_name": path, "metrics_path": f"/{path}"} for path in ALL_BODIES]
    renamed = {"target_label": "instance", "replacement": DAEMON["instance"]}
    jobs.append({"job_name": DAEMON["job"], "relabel_configs": [renamed]})
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{**job, "static_configs": [{"targets": [address]}]} for job in jobs],
    }
    with running_prometheus(folder, yaml.safe_dump(configuration)) as url:
        yield url


def recorded(url: str) -> dict[Sample, float]:
    """Return all series of GPUs that a Prometheus has now."""
    query = urllib.parse.quote('{__name__=~"vllm_watch_gpu_.*"}')
    found = get_json(f"{url}/api/v1/query?query={query}")["data"]["result"]
    return {
        (each["metric"].pop("__name__"), tuple(sorted(each["metric"].items()))): float(each["value"][1])
        for each in found
    }


def difference(found: dict, wanted: dict) -> str:
    """Say what is missing, what is too much, and what is different."""
    return "\n".join(
        f"{key}: {found.get(key)} instead of {wanted.get(key)}"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    )


def used(server: str, gpu: str, instance: str = "a:9468", **labels: str) -> dict[str, str]:
    """Return an input series of promtool: a server uses a GPU."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    series = f'vllm_watch_server_gpu_info{{instance="{instance}",job="vllm-watch",server="{server}",gpu="{gpu}"{more}}}'
    return {"series": series, "values": "1x100"}


def asked(expression: str, at: str, *wanted: tuple[str, float]) -> dict:
    """Return a query of promtool and what it has to give."""
    return {
        "expr": expression,
        "eval_time": at,
        "exp_samples": [{"labels": labels, "value": value} for labels, value in wanted],
    }


def assert_true(folder: Path, exporter: str, series: list[dict[str, str]], *queries: dict, beside: str = "") -> None:
    """Have promtool evaluate an exporter's rules over some series; `beside` is a file of the others that it loads."""
    assert_all_true(folder, exporter, [(series, queries)], beside)


def assert_all_true(folder: Path, exporter: str, cases: list[tuple], beside: str = "") -> None:
    """Have promtool evaluate an exporter's rules over the series of each case, and its queries."""
    document = {
        "rule_files": [str(path) for path in (RULES[exporter], ALERTS / "rules" / beside) if path.is_file()],
        "evaluation_interval": "15s",
        "tests": [
            {"interval": "15s", "input_series": series, "promql_expr_test": list(queries)} for series, queries in cases
        ],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(document))
    well, said = promtool("test", "rules", folder / "test.yml")
    assert well, said


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("exporter", RULES)
def test_the_power_of_a_server_is_that_of_its_gpus(exporter, tmp_path):
    """A join with `server_gpu_info` finds the GPU of each server, of each daemon, and leaves the others out."""
    name, theirs, ours = POWER[exporter]
    series = [
        {"series": name % theirs, "values": "300x100"},
        {"series": name % f"{theirs}ff", "values": "50x100"},
        # Two servers with labels of their own share it, and another daemon watches one of them, too.
        used("chat", ours, how="config", shared="true", team="a"),
        used("code", ours, how="config", shared="true", team="b"),
        used("chat", ours, "b:9468", how="config", shared="false"),
    ]
    gpu = f'vllm_watch_gpu_power_watts{{gpu="{ours}",instance="%s",job="vllm-watch"}}'
    assert_true(
        tmp_path,
        exporter,
        series,
        asked("vllm_watch_gpu_power_watts", "1m", (gpu % "a:9468", 300), (gpu % "b:9468", 300)),
        asked(
            JOIN % "vllm_watch_server_gpu_info",
            "1m",
            ('{instance="a:9468",server="chat"}', 300),
            ('{instance="a:9468",server="code"}', 300),
            ('{instance="b:9468",server="chat"}', 300),
        ),
    )


THERE = {
    "dcgm-exporter": 'DCGM_FI_DEV_GPU_TEMP{instance="x:9400",gpu="0",UUID="GPU-%s"%s}',
    "nvidia_gpu_exporter": 'nvidia_smi_gpu_info{instance="x:9400",uuid="%s"%s}',
    "amd-device-metrics-exporter": 'gpu_used_vram{instance="x:9400",serial_number="%s"%s}',
}
"""What tells that a GPU is there, and of which machine."""


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("exporter", RULES)
def test_an_exporter_that_is_gone_is_no_missing_gpu(exporter, tmp_path):
    """One that is scraped and shows a GPU no more is told; the address at which each GPU is shown tells them apart."""
    gpu = POWER[exporter][2].partition("-")[0] + "-%s"
    series = [
        {"series": THERE[exporter] % ("0a", ""), "values": "50x100"},
        {"series": THERE[exporter] % ("0b", ""), "values": "50x20 stale"},
        {"series": (THERE[exporter] % ("0c", ',pod="p"')).replace("x:9400", "y:9400"), "values": "50x20 stale"},
        *(used("chat", gpu % number) for number in ("0a", "0b", "0c")),
    ]
    shown = [
        (f'{SHOWN_BY}{{gpu="{gpu % n}",exporter="{x}:9400"}}', 1) for n, x in (("0a", "x"), ("0b", "x"), ("0c", "y"))
    ]
    firing = (f'{{alertname="GpuMissing",server="chat",gpu="{gpu % "0b"}"}}', 1)

    assert_true(
        tmp_path, exporter, series, asked(SHOWN_BY, "4m", *shown), asked(FIRING, "9m", firing), beside="alerts.yml"
    )


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("exporter", RULES)
def test_what_the_daemon_reads_itself_is_not_recorded(exporter, tmp_path):
    """Nothing is recorded of the GPUs of a server whose GPUs the daemon reads, until it cannot read them any more."""
    name, theirs, ours = POWER[exporter]
    up = 'vllm_watch_source_up{instance="a:9468",job="vllm-watch",server="chat",source="gpu"}'
    gpu = f'vllm_watch_gpu_power_watts{{gpu="{ours}",instance="a:9468",job="vllm-watch"}}'
    series = [
        {"series": name % theirs, "values": "300x100"},
        {"series": up, "values": "1x8 0x100"},
        used("chat", ours, how="pid"),
    ]
    assert_true(
        tmp_path,
        exporter,
        series,
        asked("vllm_watch_gpu_power_watts", "1m"),
        asked("vllm_watch_gpu_power_watts", "3m", (gpu, 300)),
    )


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("exporter", RULES)
def test_what_an_exporter_does_not_say_any_more_is_not_recorded(exporter, tmp_path):
    """A reading ends with the exporter's, and a number in place of an unknown one is none."""
    name, theirs, ours = POWER[exporter]
    unknown = {"amd-device-metrics-exporter": "65535", "dcgm-exporter": "9223372036854775794"}.get(exporter, "_")
    gpu = f'vllm_watch_gpu_power_watts{{gpu="{ours}",instance="a:9468",job="vllm-watch"}}'
    series = [{"series": name % theirs, "values": f"300x4 {unknown} 310 stale"}, used("chat", ours)]
    assert_true(
        tmp_path,
        exporter,
        series,
        asked("vllm_watch_gpu_power_watts", "1m", (gpu, 300)),
        *([] if unknown == "_" else [asked("vllm_watch_gpu_power_watts", "75s")]),
        asked("vllm_watch_gpu_power_watts", "90s", (gpu, 310)),
        asked("vllm_watch_gpu_power_watts", "105s"),
    )


ENERGY = {
    "dcgm-exporter": ('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-0a"}', "GPU-0a", 60_000),
    "nvidia_gpu_exporter": ('nvidia_smi_energy_joules_total{uuid="0a"}', "GPU-0a", 60),
    "amd-device-metrics-exporter": ('gpu_energy_consumed{serial_number="69225"}', "AMD-69225", 60_000_000),
}
"""The energy of a GPU as each exporter has it, the GPU, and 60 J in its unit."""


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("exporter", RULES)
def test_a_counter_stays_a_counter(exporter, tmp_path):
    """The rate of recorded energy is the power, and a driver that was loaded again is one reset."""
    name, gpu, step = ENERGY[exporter]
    labels = f'{{gpu="{gpu}",instance="a:9468",job="vllm-watch"}}'
    values = f"{100 * step}+{step}x20 {step}+{step}x20"
    assert_true(
        tmp_path,
        exporter,
        [{"series": name, "values": values}, used("chat", gpu)],
        asked("rate(vllm_watch_gpu_energy_joules_total[1m])", "4m", (labels, 4)),
        asked("resets(vllm_watch_gpu_energy_joules_total[4m])", "4m", (labels, 0)),
        asked("resets(vllm_watch_gpu_energy_joules_total[8m])", "9m", (labels, 1)),
        asked("rate(vllm_watch_gpu_energy_joules_total[1m])", "9m", (labels, 4)),
    )


FIRING = 'max by (alertname, server, gpu) (ALERTS{alertname=~"Gpu.*",alertstate="firing"})'


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize(
    ("exporter", "name"),
    [
        ("dcgm-exporter", 'DCGM_FI_DEV_GPU_RECOVERY_ACTION{gpu="0",UUID="GPU-0a"}'),
        ("nvidia_gpu_exporter", 'nvidia_smi_gpu_recovery_action{uuid="0a"}'),
    ],
)
def test_each_number_is_one_action(exporter, name, tmp_path):
    """What the driver recommends is the one action of its number, and a number that is not known yet is another one."""
    labels = '{__name__="vllm_watch_gpu_recovery_action",gpu="GPU-0a",instance="a:9468",job="vllm-watch",action="%s"}'
    queries = [
        asked("vllm_watch_gpu_recovery_action == 1", f"{15 * number}s", (labels % action, 1))
        for number, action in enumerate((*gpu_texts.GPU_ACTIONS, "other"))
    ]
    series = [{"series": name, "values": "0+1x9"}, used("chat", "GPU-0a")]

    assert_true(tmp_path, exporter, series, *queries, asked("count(vllm_watch_gpu_recovery_action)", "0s", ("{}", 9)))


XID = 'DCGM_EXP_XID_ERRORS_TOTAL{gpu="0",UUID="GPU-0a",xid="%s",pod="%s"}'
SMI_XID = 'nvidia_smi_xid_errors_total{uuid="0a",xid="79"}'
LAST = "vllm_watch_gpu_xid_last_timestamp_seconds"
OWN = '{instance="a:9468",job="vllm-watch"%s}'
COUNTED = (
    'vllm_watch_gpu_xid_events_total{instance="a:9468",job="vllm-watch",'
    'gpu="%s",pci_bus_id="0000:18:00",xid="79",class="reboot"}'
)
"""What the daemon itself has counted of a GPU."""


@pytest.mark.needs_tool("promtool")
def test_dcgm_exporter_s_counts_have_the_time_when_they_grew(tmp_path):
    """A code that comes or that comes again has the time of that, which stays; what was there before has none."""
    fallen = '{gpu="GPU-0a",xid="79",class="reboot"}'
    last = f"max by (gpu, xid, class) ({LAST})"
    series = [
        # Scraped from the start, but for a minute in which nothing is known.
        {"series": 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0a"}', "values": "50x39 stale _x3 50x100"},
        {"series": XID % ("31", "a"), "values": "4x39 stale _x3 4x100"},
        {"series": XID % ("79", "a"), "values": "_x11 1x7 2x19 stale _x3 2x100"},
        # The same count for another pod on the GPU.
        {"series": XID % ("79", "b"), "values": "_x11 1x7 2x19 stale _x3 2x100"},
        # Two daemons want it, and each is gone for some time.
        {**used("chat", "GPU-0a"), "values": "1x59 stale _x9 1x100"},
        {**used("code", "GPU-0a", "b:9468"), "values": "1x79 stale _x9 1x100"},
    ]
    first, second = 11 * 15, 19 * 15
    assert_true(
        tmp_path,
        "dcgm-exporter",
        series,
        asked(LAST, "2m"),
        asked(last, "4m", (fallen, first + 15)),
        *(asked(last, at, (fallen, second + 15)) for at in ("8m", "11m", "16m", "21m", "25m")),
        asked(
            "sum by (gpu, xid, class) (vllm_watch_gpu_xid_events_total)",
            "8m",
            ('{gpu="GPU-0a",xid="31",class="app"}', 4),
            (fallen, 2),
        ),
    )


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize(
    ("exporter", "errors"),
    [
        ("dcgm-exporter", {XID % ("79", ""): "_x11 1x80"}),
        (
            "nvidia_gpu_exporter",
            {SMI_XID: "_x11 1x80", 'nvidia_smi_xid_last_timestamp_seconds{uuid="0a",xid="79"}': "_x11 165x80"},
        ),
    ],
)
def test_an_xid_is_told_for_ten_minutes(exporter, errors, tmp_path):
    """The alert on Xids finds the recorded time of the last one, for the server that uses the GPU."""
    series = [{"series": name, "values": values} for name, values in errors.items()]
    series.append({"series": 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0a"}', "values": "50x100"})
    series += [used("chat", "GPU-0a"), used("code", "GPU-other")]
    firing = ('{alertname="GpuXid",server="chat",gpu="GPU-0a"}', 1)
    queries = [asked(FIRING, "4m"), asked(FIRING, "6m", firing), asked(FIRING, "12m", firing), asked(FIRING, "14m")]

    assert_true(tmp_path, exporter, series, *queries, beside="alerts.yml")


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize(("exporter", "count"), [("dcgm-exporter", XID % ("79", "")), ("nvidia_gpu_exporter", SMI_XID)])
def test_xids_that_the_daemon_counts_are_not_recorded(exporter, count, tmp_path):
    """Where the daemon reads the kernel's log and knows which GPU is where, nothing is counted a second time."""
    up = {"series": "vllm_watch_kernel_log_up" + OWN % "", "values": "1x100"}
    down = {**up, "values": "0x100"}
    driver = {"series": "vllm_watch_source_up" + OWN % ',server="chat",source="gpu"', "values": "1x100"}
    named = {"series": COUNTED % "GPU-0a", "values": "1x100"}
    unnamed = {"series": COUNTED % "", "values": "1x100"}
    series = [{"series": count, "values": "1+1x100"}, used("chat", "GPU-0a")]
    recorded_xids = 'count(vllm_watch_gpu_xid_events_total{pci_bus_id=""})'

    told = ([up, driver], [up, driver, named], [up, named])
    untold = ([], [up, unnamed], [down, named], [down, driver, named])
    cases = [([*series, *known], [asked(recorded_xids, "5m"), asked(LAST, "5m")]) for known in told]
    cases += [([*series, *known], [asked(recorded_xids, "5m", ("{}", 1))]) for known in untold]
    assert_all_true(tmp_path, exporter, cases)
