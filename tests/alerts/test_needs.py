# SPDX-License-Identifier: Apache-2.0
"""Which alerts can fire: what the package knows of the rules, and what `check` makes of it."""

from __future__ import annotations

import re

from pathlib import Path

import needs
import pytest

from tests.support.completions import GOOD
from tests.support.corpus import bodies
from tests.support.gpus import GIB, gpu
from tests.support.http_servers import StandIn, answer
from tests.support.recordings import log_file, snapshots

from vllm_watch.cli.commands.check import check
from vllm_watch.cli.commands.silent_alerts import silent_alerts
from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.state.gpu_report import ServerGpu


ROOT = Path(__file__).parents[2]
LOG = log_file("day")
OF_THE_LOG = {
    "VllmEngineCrashed",
    "VllmLogLost",
    "VllmStartTakesLong",
}
OF_OBJECTIVES = {"VllmLatencyBudgetBurnsFast", "VllmLatencyBudgetBurnsSlowly", "VllmEndToEndSlow"}
NO_LOG, NO_METRICS = "no log is configured", "no metrics are configured"
NO_MAX_NUM_SEQS = "--max-num-seqs is not known"
NO_PROBE, NO_SLO = "no probe is configured", "no slo is configured"
ONE_ENGINE = {"there is one engine": {"VllmDataParallelImbalance"}}
UNUSED = {
    "/metrics has no requests_given_up_total": {"VllmClientsGiveUp"},
    "vLLM does not run with VLLM_COMPUTE_NANS_IN_LOGITS=1": {"VllmCorruptedRequests"},
}
NO_GPUS = "no GPUs are read"
OF_GPUS = {alert for alert in alert_needs() if alert.startswith("Gpu")}
OF_KV = {alert for alert in alert_needs() if alert.startswith("VllmKv") and not alert.startswith("VllmKvCache")}
NO_KV = "no KV connector shows it"
WITHOUT_PROBE_AND_SLO = {NO_PROBE: {"VllmProbeFailing"}, NO_SLO: OF_OBJECTIVES}


def a_page(release="0.33.0"):
    """Return a release's recorded page, of its first engine."""
    page = bodies(release)["metrics_1.txt"]
    return b"".join(line for line in page.splitlines(keepends=True) if b'engine="1"' not in line)


def _written(path, text):
    path.write_text(text)
    return path


def report(folder, *options, page=None):
    """Return what `check` says of the alerts: how many can fire, of how many, and the others by reason."""
    with StandIn(lambda head: [answer(page or a_page())] if head.startswith("GET") else GOOD) as server:
        file = folder / "config.yml"
        file.write_text(f"servers: [{{name: a, {', '.join(options).replace('PAGE', repr(server.url))}}}]\n")
        lines = [finding.text for finding in check(load_config(str(file)), is_verbose=True)]
    begin = next(number for number, line in enumerate(lines) if line.startswith("alerts:"))
    able, every = map(int, re.fullmatch(r"alerts: (\d+) of (\d+) can fire", lines[begin]).groups())
    silent = {}
    for line in lines[begin + 1 :]:
        reason = re.fullmatch(r"  (\S.*), so these cannot:", line)
        if ", so these may stay silent" in line:
            continue
        if reason:
            group = silent.setdefault(reason[1], set())
        else:
            group.add(re.fullmatch(r"    (\w+): .+\.", line)[1])
    assert every == len(alert_needs())
    assert able == every - sum(map(len, silent.values()))
    return able, silent


class TestNeeds:
    """The data in the package is that of the rules."""

    def test_every_series_is_one_that_there_is(self):
        """No rule speaks of a series that the daemon never shows."""
        named = {need.series for each in alert_needs().values() for way in each.ways for need in way}

        assert named <= set(SERIES)

    @pytest.mark.parametrize(
        ("expression", "ways"),
        [
            ("vllm_watch_a", [["a"]]),
            ("rate(vllm_watch_a_bucket[5m]) > 1", [["a"]]),
            ("vllm_watch_a > vllm_watch_b", [["a", "b"]]),
            ("vllm_watch_a and on (x) vllm_watch_b or vllm_watch_c", [["a", "b"], ["c"]]),
            ("vllm_watch_a or vllm_watch_a and vllm_watch_b", [["a"]]),
            ("vllm_watch_a unless vllm_watch_b", [["a"]]),
            (
                "(vllm_watch_a or vllm_watch_b) * (vllm_watch_c or vllm_watch_d)",
                [list(x) for x in ("ac", "ad", "bc", "bd")],
            ),
            ("-max without (x) (max_over_time(vllm_watch_a[5m:1m]))", [["a"]]),
            ("record:a offset 5m", [["a", "b"]]),
            ('vllm_watch_source_up{source="log"}', [[("source_up", "log")]]),
            ('vllm_watch_source_up{source!="log"}', [["source_up"]]),
            ('vllm_watch_engine_state{state="starting"}', [[("engine_state", "log")]]),
            ("absent(vllm_watch_a) or vllm_watch_b", [[]]),
            ("up == 0", [[]]),
            ("vector(1)", [[]]),
            ("quantile_over_time(0.5, vllm_watch_a[5m])", [["a"]]),
        ],
    )
    def test_expressions(self, expression, ways):
        """Of an expression those series are needed without which it has no value."""
        group = f"""
groups:
- rules:
  - {{record: 'record:a', expr: 'vllm_watch_a + vllm_watch_b'}}
  - {{alert: X, expr: '{expression}', labels: {{severity: info}}, annotations: {{summary: Y.}}}}
"""
        named = [
            [
                {"series": each} if isinstance(each, str) else dict(zip(("series", "source"), each, strict=True))
                for each in way
            ]
            for way in ways
        ]
        assert {"X": {"severity": "info", "summary": "Y.", "ways": named}} == needs.needs({"x.yml": group})


class TestCheck:
    """`check` tells which alerts can fire with what there is."""

    def test_log_only(self, tmp_path):
        """With a log alone what only a page says is missing, and objectives are missing twice."""
        able, silent = report(tmp_path, f"log: {LOG}")

        assert silent.keys() == {
            *(NO_METRICS, f"{NO_METRICS} and {NO_SLO}", NO_PROBE, NO_GPUS, NO_KV),
            *(f"{NO_METRICS} and the log has no requests_deferred", "there is one engine"),
        }
        assert silent[f"{NO_METRICS} and {NO_SLO}"] == OF_OBJECTIVES
        assert {"VllmPreemptionStorm", "VllmFrontEndSlow"} <= silent[NO_METRICS]
        assert able > 20

    @pytest.mark.parametrize(
        ("options", "missing"),
        [
            (["metrics: PAGE"], {NO_LOG: OF_THE_LOG | {"VllmSourcesDisagree"}, **WITHOUT_PROBE_AND_SLO}),
            ([f"log: {LOG}", "metrics: PAGE"], WITHOUT_PROBE_AND_SLO),
            ([f"log: {LOG}", "metrics: PAGE", "slo: chat", "probe: {}"], {}),
        ],
        ids=["metrics", "both", "everything"],
    )
    def test_a_page(self, tmp_path, options, missing):
        """What else is configured decides; at last it is several engines, GPUs, or a KV connector that is missing."""
        _, silent = report(tmp_path, *options)

        assert silent == {**missing, **UNUSED, **ONE_ENGINE, NO_GPUS: OF_GPUS, NO_KV: OF_KV}

    def test_an_old_release(self, tmp_path):
        """What a release's page does not have is named."""
        _, silent = report(tmp_path, "metrics: PAGE", page=a_page("0.10.2"))

        assert "VllmAdmissionRejections" in silent["/metrics has no admission_rejections_total"]
        assert {"VllmAcceptanceCollapsed"} <= silent["no speculative decoding was found"]

    def test_a_quiet_server(self, tmp_path):
        """A log that has a start and no statistics yet, and a page of zeros, will have the rest with traffic."""
        start = LOG.read_text().partition("Avg prompt throughput")[0].rpartition("\n")[0]
        (tmp_path / "quiet.log").write_text(start + "\n")
        zeros = re.sub(rb"(?m)^(vllm:\S+) \S+$", rb"\1 0.0", a_page())
        log_only = report(tmp_path, "log: quiet.log")
        both = report(tmp_path, "log: quiet.log", "metrics: PAGE", page=zeros)

        assert log_only == report(tmp_path, f"log: {LOG}")
        assert both == report(tmp_path, f"log: {LOG}", "metrics: PAGE")

    def test_no_max_num_seqs(self, tmp_path):
        """A log without the server's arguments leaves the batch's size unknown: what needs it is named."""
        (tmp_path / "part.log").write_text(LOG.read_text()[-20_000:])
        _, silent = report(tmp_path, "log: part.log")

        assert NO_MAX_NUM_SEQS not in silent
        said = [line.text for line in check(load_config(str(tmp_path / "config.yml")))]
        (limited,) = [line for line in said if "may stay silent" in line]
        assert limited.startswith("  --max-num-seqs is not known, so these may stay silent when they should not: Vllm")
        assert "VllmCapacityExhausted" in limited

    def test_alerts_are_told_once_for_servers_alike(self, tmp_path):
        """What is true of the alerts of all servers is said once."""
        with StandIn(lambda head: [answer(a_page())] if head.startswith("GET") else GOOD) as server:
            servers = ", ".join(f"{{name: pod-{number}, metrics: {server.url}/{number}}}" for number in range(3))
            file = _written(tmp_path / "config.yml", f"servers: [{servers}]\n")
            lines = [line.text for line in check(load_config(str(file)))]

        assert ["pod-0:", "pod-1:", "pod-2:"] == [line for line in lines if line.startswith("pod")]
        assert 1 == len([line for line in lines if line.startswith("alerts: ")])
        assert 1 == len([line for line in lines if re.fullmatch(r"  \d+ cannot: no GPUs are read", line)])

    def test_sources_that_cannot_be_read(self, tmp_path):
        """A source that is configured and cannot be read is told from one that is not."""
        _, silent = report(tmp_path, "log: none.log", "metrics: PAGE", "slo: chat", page=b"no page")

        assert "VllmPreemptionStorm" in silent["/metrics cannot be read"]
        assert {"VllmCapacityExhausted", "VllmQueueStanding"} <= silent["/metrics cannot be read"]

    def test_the_log_of_another_program(self, tmp_path):
        """However much traffic there is, nothing comes of a log that is not vLLM's: its alerts cannot fire."""
        other = tmp_path / "other.log"
        other.write_text("root:x:0:0:root:/root:/bin/bash\n" * 1000)
        server = load_config(str(_written(tmp_path / "config.yml", f"servers: [{{name: a, log: {str(other)!r}}}]\n")))
        lines = [finding.text.strip() for finding in check(server, is_verbose=True)]

        assert "no metrics are configured and the log is not vLLM's, so these cannot:" in lines
        assert any(line.startswith("VllmCapacityExhausted:") for line in lines)
        assert any(line.startswith("VllmQueueStanding:") for line in lines)

    def test_with_gpus(self):
        """Of a server whose GPU is read all can fire but what this GPU does not report."""
        page = next(snapshot for second, snapshot in snapshots("day") if second >= 500)
        whole = page._replace(
            gpus=(ServerGpu(gpu().gpu, "pid", is_shared=False, memory=70 * GIB, reading=gpu(), other_memory=0.0),)
        )
        plain = gpu()._replace(values={("gpu_busy_ratio",): 0.5})
        geforce = page._replace(gpus=(ServerGpu(plain.gpu, "pid", is_shared=False, memory=None, reading=plain),))
        lost = page._replace(gpus=(ServerGpu(plain.gpu, "pid", is_shared=False, memory=None, reading=None),))
        config = ServerConfig(name="day", log="/vllm.log", metrics="http://127.0.0.1:1/metrics")
        silent = [
            {each.alert: each.reason for each in silent_alerts(config, shown, shown, has_kernel_log=has_kernel_log)[0]}
            for shown, has_kernel_log in ((whole, True), (geforce, True), (lost, True), (whole, False))
        ]

        assert not {alert for alert, reason in silent[0].items() if "GPU" in reason}
        assert silent[1]["GpuMemoryFailing"] == "its GPUs have no gpu_ecc_errors_total"
        assert not silent[1].keys() & {"GpuXid", "GpuMissing"}
        assert silent[2]["GpuBusyEngineIdle"] == NO_GPUS
        assert silent[3].items() - silent[0].items() == {("GpuXid", "the kernel's log is not read")}

    def test_the_probe_is_made_once(self, tmp_path):
        """`check` asks for one token where a probe is configured, and says how long that took."""
        with StandIn(lambda head: [answer(a_page())] if head.startswith("GET") else GOOD) as server:
            file = tmp_path / "config.yml"
            file.write_text(f"servers: [{{name: a, metrics: {server.url!r}, probe: {{}}}}]\n")
            findings = list(check(load_config(str(file))))

        text = "\n".join(finding.text for finding in findings)
        assert f"probe http://127.0.0.1:{server.port}/v1/completions: ok. A completion of one token arrived" in text
        assert re.search(r"time to first token: 0\.\d{3} s", text)
        assert 1 == len([head for head in server.requests if head.startswith("POST")])

    def test_a_probe_that_fails_is_wrong(self, tmp_path):
        """A failed probe is a finding that makes `check` exit with 1."""
        with StandIn(lambda head: [answer(a_page() if head.startswith("GET") else b"", "401 No")]) as server:
            file = tmp_path / "config.yml"
            file.write_text(f"servers: [{{name: a, metrics: {server.url!r}, probe: {{}}}}]\n")
            wrong = [finding.text for finding in check(load_config(str(file))) if finding.is_wrong]

        assert any("api_key_file" in text for text in wrong)
