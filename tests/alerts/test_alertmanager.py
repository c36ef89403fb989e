# SPDX-License-Identifier: Apache-2.0
"""Who is told of what: routes, inhibition and texts, by Debian's Alertmanager itself."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest
import yaml

from tests.support.monitoring import (
    ALERTS,
    NOWHERE,
    SHIPPED,
    Receivers,
    alertmanager,
    get_json,
    post_json,
)
from tests.support.processes import run_command
from tests.support.waiting import until
from tests.support.yaml_files import load_yaml


EXAMPLES = sorted((SHIPPED.parent / "examples").glob("*.yml"))
RULES = [
    rule
    for path in sorted((ALERTS / "rules").glob("*.yml"))
    for group in load_yaml(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
RECEIVERS = {"critical": "page", "warning": "channel", "info": "digest", "none": "deadman"}
TEMPLATES = str(SHIPPED.parent / "templates" / "*.tmpl")
NAME = re.compile(r"(?:Vllm|Gpu)[A-Z]\w+|Watchdog")

needs_amtool = pytest.mark.needs_tool("amtool")
needs_alertmanager = pytest.mark.needs_tool("prometheus-alertmanager")


def amtool(*arguments):
    """Return what amtool prints; it must succeed."""
    run = run_command("amtool", *map(str, arguments))
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


# The files.


@needs_amtool
def test_the_shipped_file_is_valid_and_finds_its_templates():
    """Alertmanager takes the file as it stands, and its templates are where it looks."""
    assert " 5 receivers" in amtool("check-config", SHIPPED)
    (pattern,) = load_yaml(SHIPPED.read_text(encoding="utf-8"))["templates"]
    assert {path.name for path in SHIPPED.parent.glob(pattern)} == {"chat.tmpl", "email.tmpl"}


@needs_amtool
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_by_itself_and_in_the_shipped_file(path, tmp_path):
    """An example is a whole configuration, and its receivers fit in the place of the shipped ones."""
    amtool("check-config", path)
    own = load_yaml(path.read_text(encoding="utf-8"))
    for pattern in own.get("templates", ()):
        assert len(list(path.parent.glob(pattern))) == 2
    shipped = load_yaml(SHIPPED.read_text(encoding="utf-8"))
    replaced = {receiver["name"]: receiver for receiver in shipped["receivers"]}
    assert {receiver["name"] for receiver in own["receivers"]} <= set(replaced) - {"nobody"}
    replaced |= {receiver["name"]: receiver for receiver in own["receivers"]}
    merged = tmp_path / "alertmanager.yml"
    merged.write_text(yaml.safe_dump({**shipped, "receivers": list(replaced.values()), "templates": [TEMPLATES]}))
    amtool("check-config", merged)


def test_examples_name_only_texts_that_there_are():
    """A receiver that names a text that is not there would lose every page, and no check of Alertmanager's tells."""
    texts = "".join(path.read_text(encoding="utf-8") for path in SHIPPED.parent.glob("templates/*.tmpl"))
    known = set(re.findall(r'define "([\w.]+)"', texts))
    named = {
        name
        for path in [*EXAMPLES, *SHIPPED.parent.glob("templates/*.tmpl")]
        for name in re.findall(r'template "([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    assert {"vllm_watch.title", "vllm_watch.text", "vllm_watch.html"} <= named <= known


def test_no_receiver_of_the_shipped_file_swallows_what_somebody_should_read():
    """Until a user changes them, pages go where nothing listens, and Alertmanager says so: only `nobody` is silent."""
    receivers = {each["name"]: each for each in load_yaml(SHIPPED.read_text(encoding="utf-8"))["receivers"]}
    assert receivers.pop("nobody") == {"name": "nobody"}
    for name, receiver in receivers.items():
        assert [each["url"] for each in receiver["webhook_configs"]] == [NOWHERE + name]
    assert set(receivers) == {"page", "channel", "digest", "deadman"}


# Routes.


def route(**labels):
    """Return the receivers that an alert goes to."""
    return amtool(
        "config", "routes", "test", f"--config.file={SHIPPED}", *(f"{name}={value}" for name, value in labels.items())
    ).split()


@needs_amtool
def test_each_alert_goes_where_its_severity_says():
    """
    What is critical is a page, warnings and advice are messages, and the Watchdog is the dead man's switch's.

    Routes ask for the severity and for some names alone: alerts that are alike in these are one case.
    """
    asked = json.dumps(load_yaml(SHIPPED.read_text(encoding="utf-8"))["route"]["routes"])
    assert set(re.findall(r'"(\w+)=', asked)) == {"severity", "alertname"}
    kinds = {(rule["alert"] if rule["alert"] in asked else "VllmOther", rule["labels"]["severity"]) for rule in RULES}
    assert {severity for _, severity in kinds} == set(RECEIVERS)
    for name, severity in kinds:
        for labels in ({}, {"server": "qwen", "engine": "0", "instance": "a:9468", "cluster": "b"}):
            assert route(alertname=name, severity=severity, **labels) == [RECEIVERS[severity]]


def test_the_digest_is_one_message_a_day():
    """Advice of all servers is one group, which is sent at each of its daily intervals as long as there is any."""
    (advice,) = (
        each
        for each in load_yaml(SHIPPED.read_text(encoding="utf-8"))["route"]["routes"]
        if each.get("matchers") == ['severity="info"']
    )
    assert (advice["group_by"], advice["group_interval"], advice["repeat_interval"]) == (["cluster"], "1d", "23h")


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "VllmWatchGone", "severity": "critical"}, "page"),  # absent(): no instance, no job
        ({"alertname": "DiskFull", "severity": "critical"}, "page"),
        ({"alertname": "DiskFull", "severity": "warning"}, "channel"),
        ({"alertname": "DiskFull"}, "channel"),
        ({"alertname": "DiskFull", "severity": "page"}, "channel"),
        ({"alertname": "DiskFull", "severity": "none"}, "nobody"),  # It would keep the dead man's switch alive.
        ({"alertname": "Watchdog", "severity": "none", "cluster": "b"}, "deadman"),
        ({"alertname": "WatchdogElse", "severity": "info"}, "digest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
def test_other_alerts_have_a_way_too(labels, receiver):
    """What is not of these rules is paged if it is critical and else read in the channel, never lost."""
    assert route(**labels) == [receiver]


def test_pages_are_kept_apart_and_messages_together():
    """
    A server that does not work is one page, so is one that is too slow, and what else is critical each by itself.

    A server's warnings are one message, the Watchdog is alone.
    """
    root = load_yaml(SHIPPED.read_text(encoding="utf-8"))["route"]
    groups = [(each["receiver"], each.get("group_by")) for each in root["routes"]]
    assert root["group_by"] == ["cluster", "instance", "server"]
    assert groups == [
        ("deadman", ["..."]),
        ("nobody", None),
        ("digest", ["cluster"]),
        ("page", ["cluster", "alertname"]),
        ("page", ["cluster", "instance", "server"]),
        ("page", ["cluster", "instance", "server"]),
        ("page", ["cluster", "instance", "server", "alertname"]),
    ]
    assert not any(each.get("continue") for each in root["routes"])


# Inhibition, in a running Alertmanager.


ADVICE = {"alertname": "VllmDemandNearMaximum", "engine": "0", "severity": "info", "server": "a", "instance": "h:9468"}
SHORTER = {
    "group_wait: 10m": "group_wait: 1s",
    "group_interval: 1d": "group_interval: 2s",
    "repeat_interval: 23h": "repeat_interval: 1s",
}
"""A day takes two seconds."""


def post(url, *alerts, **times):
    """Post alerts that have fired for a minute, and may have ended."""
    start = dt.datetime.now(dt.timezone.utc) - dt.timedelta(minutes=1)
    post_json(f"{url}/api/v2/alerts", [{"labels": labels, "startsAt": start.isoformat(), **times} for labels in alerts])


@needs_alertmanager
def test_a_day_of_advice_is_one_message(tmp_path):
    """Advice of two servers and kinds comes together, again a day later, with what came and went; then it ends."""
    with Receivers() as receivers, alertmanager(tmp_path, receivers.url, SHORTER) as url:
        first, second = ADVICE, {**ADVICE, "alertname": "VllmDataParallelImbalance", "server": "b"}
        # Alertmanager sends the first of them at once where it began longer ago than the group waits.
        post(url, first, second, startsAt=dt.datetime.now(dt.timezone.utc).isoformat())
        until(lambda: len(receivers.to("digest")) >= 2)
        over = dt.datetime.now(dt.timezone.utc).isoformat()
        post(url, first, endsAt=over)
        until(lambda: any(statuses(each)["VllmDemandNearMaximum"] == "resolved" for each in receivers.to("digest")))
        post(url, second, endsAt=over)
        until(lambda: receivers.to("digest")[-1].body["status"] == "resolved")

    days = [statuses(each) for each in receivers.to("digest")]
    assert days[0] == days[1] == {"VllmDemandNearMaximum": "firing", "VllmDataParallelImbalance": "firing"}
    assert {"VllmDemandNearMaximum": "resolved", "VllmDataParallelImbalance": "firing"} in days
    assert days[-1]["VllmDataParallelImbalance"] == "resolved"
    assert not receivers.to("channel")


def statuses(message):
    """Return the status of each alert of a message, by name."""
    return {each["labels"]["alertname"]: each["status"] for each in message.body["alerts"]}


def test_inhibition_names_only_alerts_that_there_are():
    """An alert that was renamed would silence nothing and be silenced by nothing, without a word."""
    rules = load_yaml(SHIPPED.read_text(encoding="utf-8"))["inhibit_rules"]
    assert set(NAME.findall(json.dumps(rules))) <= {rule["alert"] for rule in RULES}


def test_inhibition_is_bound_to_a_server_or_a_daemon():
    """Each label that must be equal is also matched as not empty on both sides, but for those that only narrow it."""
    for rule in load_yaml(SHIPPED.read_text(encoding="utf-8"))["inhibit_rules"]:
        bound = set(rule["equal"]) - {"cluster"} - ({"instance"} if "server" in rule["equal"] else set())
        bound -= {"engine", "gpu"} if "alertname" in rule["equal"] else set()
        assert bound & {"server", "instance"}
        for side in ("source_matchers", "target_matchers"):
            assert {f'{label}=~".+"' for label in bound} <= set(rule[side]), rule


STALLED = {"alertname": "VllmEngineStalled", "engine": "0", "state": "stalled", "severity": "critical"}
DOWN = {"alertname": "VllmEngineDown", "engine": "0", "state": "down", "severity": "critical"}
FULL = {"alertname": "VllmCapacityExhausted", "engine": "0", "severity": "critical"}
FAST = {
    "alertname": "VllmLatencyBudgetBurnsFast",
    "engine": "0",
    "objective": "time_to_first_token",
    "severity": "critical",
}
SLOW = {**FAST, "alertname": "VllmLatencyBudgetBurnsSlowly", "severity": "warning"}
LOOP = {"alertname": "VllmRestartLoop", "severity": "critical"}
GONE = {"alertname": "VllmWatchGone", "job": "vllm-watch", "severity": "critical"}
KV = {"alertname": "VllmQueueStanding", "engine": "0", "severity": "warning"}
SERVER = "<a server of this case>"


def alert(of, name="", **labels):
    """Return an alert like another one."""
    return {**of, **({"alertname": name} if name else {}), **labels}


def without(of, *labels):
    """Return an alert that lacks labels."""
    return {label: value for label, value in of.items() if label not in labels}


def gpu_alert(name, gpu="GPU-a"):
    """Return an alert about a GPU."""
    return {"alertname": name, "gpu": gpu, "severity": "critical"}


PROBE = {"alertname": "VllmProbeFailing", "severity": "critical"}
LOST = gpu_alert("GpuNeedsAction")

# What fires, what else fires, and whether that is silenced: of one server of one daemon, unless a row says more.
INHIBITION = {
    "two severities: the less severe one": (FULL, {**FULL, "severity": "warning"}, True),
    "two severities: of another engine": (FULL, {**FULL, "severity": "warning", "engine": "1"}, False),
    "stalled: saturation of the engine": (STALLED, KV, True),
    "stalled: the page for saturation": (STALLED, FULL, True),
    "stalled: latency": (STALLED, FAST, True),
    "stalled: cache": (STALLED, alert(KV, "VllmCacheCollapseSlows"), True),
    "stalled: another engine": (STALLED, alert(KV, engine="1"), False),
    "stalled: another server": (STALLED, alert(KV, server="other"), False),
    "stalled: the same name at another daemon": (STALLED, alert(KV, instance="other:9468"), False),
    "stalled: the same name in another cluster": (STALLED, alert(KV, cluster="other"), False),
    "stalled: an alert without an engine": (STALLED, alert(without(KV, "engine"), "VllmAdmissionRejections"), False),
    "stalled: its cause": (STALLED, alert(without(KV, "engine"), "VllmEngineCrashed", event="nccl_error"), False),
    "stalled: the month's budget": (STALLED, SLOW, False),
    "stalled: it is down, too": (STALLED, DOWN, False),
    "stalled: an alert of another system": (STALLED, alert(KV, "DiskFull"), False),
    "down: saturation of any engine": (DOWN, alert(KV, engine="3"), True),
    "down: rejections, which have no engine": (DOWN, alert(without(KV, "engine"), "VllmAdmissionRejections"), True),
    "down: a source of it": (DOWN, alert(without(KV, "engine"), "VllmSourceDown", source="metrics"), True),
    "down: a source of another": (
        DOWN,
        alert(without(KV, "engine"), "VllmSourceDown", source="metrics", server="other"),
        False,
    ),
    "down: that it died": (DOWN, alert(without(KV, "engine"), "VllmEngineCrashed", event="engine_dead"), True),
    "down: its cause": (DOWN, alert(without(KV, "engine"), "VllmEngineCrashed", event="out_of_memory"), False),
    "down: another server": (DOWN, alert(KV, server="other"), False),
    "full: warnings of it": (FULL, alert(KV, "VllmQueueStanding"), True),
    "full: of another engine": (FULL, alert(KV, "VllmQueueStanding", engine="1"), False),
    "full: that users are refused": (FULL, alert(without(KV, "engine"), "VllmAdmissionRejections"), False),
    "full: that it is slow": (FULL, FAST, True),
    "full: a probe that waits": (FULL, alert(PROBE), True),
    "full: that most are refused": (
        FULL,
        alert(without(FULL, "engine"), "VllmAdmissionRejections"),
        False,
    ),
    "stalled: its clients hang up": (STALLED, alert(without(KV, "engine"), "VllmClientsGiveUp"), True),
    "stalled: slower": (STALLED, alert(KV, "VllmSlowerThanItWas"), True),
    "fast: end to end": (FAST, alert(KV, "VllmEndToEndSlow"), True),
    "fast: the same objective": (FAST, SLOW, True),
    "fast: the other objective": (FAST, alert(SLOW, objective="time_per_output_token"), False),
    "loop: that it died": (LOOP, alert(without(KV, "engine"), "VllmEngineCrashed", event="engine_dead"), True),
    "loop: that it is down": (LOOP, DOWN, True),
    "loop: another server": (LOOP, alert(DOWN, server="other"), False),
    "gone: the daemon's own trouble": (GONE, alert(GONE, "VllmWatchUnwell", severity="warning"), True),
    "gone: its server is not shown": (GONE, alert(GONE, "VllmServerNotWatched", severity="warning"), True),
    "gone: another daemon's trouble": (GONE, alert(GONE, "VllmWatchUnwell", instance="other:9468"), False),
    "gone: what a server did": (GONE, alert(GONE, "VllmEngineCrashed", server=SERVER), False),
    "gone: a page of a server": (GONE, alert(DOWN, server=SERVER), False),
    "stalled: that no probe gets a token": (STALLED, PROBE, True),
    "stalled: the error of its GPU": (STALLED, gpu_alert("GpuXid"), True),
    "stalled: a smaller error of its GPU": (STALLED, alert(gpu_alert("GpuXid"), severity="warning"), False),
    "stalled: another server's GPU": (STALLED, alert(gpu_alert("GpuXid"), server="other"), False),
    "stalled: what is not known": (STALLED, alert(KV, "VllmStateUnknown"), True),
    "down: that no probe gets a token": (DOWN, PROBE, True),
    "down: the error of its GPU": (DOWN, gpu_alert("GpuXid"), True),
    "down: that its GPU is gone": (DOWN, gpu_alert("GpuMissing"), True),
    "down: that the driver is gone": (DOWN, alert(without(KV, "engine"), "VllmSourceDown", source="gpu"), False),
    "probe: what is not known": (PROBE, alert(KV, "VllmStateUnknown"), True),
    "throttled: that it is slower": (
        alert(gpu_alert("GpuThrottled"), severity="warning"),
        alert(KV, "VllmSlowerThanItWas"),
        True,
    ),
    "lost: that the engine died": (LOST, alert(without(KV, "engine"), "VllmEngineCrashed", event="engine_dead"), True),
    "lost: that it is down": (LOST, DOWN, True),
    "lost: that it starts again and again": (LOST, LOOP, True),
    "lost: that it is stalled": (LOST, STALLED, True),
    "lost: that no probe gets a token": (LOST, PROBE, True),
    "lost: the error of another of its GPUs": (LOST, gpu_alert("GpuXid", gpu="GPU-b"), True),
    "lost: that GPUs of it are gone": (LOST, gpu_alert("GpuMissing"), True),
    "lost: another server": (LOST, alert(DOWN, server="other"), False),
    "to be reset: that it is down": (alert(LOST, severity="warning"), DOWN, False),
    "missing: that a worker failed": (
        gpu_alert("GpuMissing"),
        alert(without(KV, "engine"), "VllmEngineCrashed", event="worker_died"),
        True,
    ),
    "xid: the codes that follow": (gpu_alert("GpuXid"), alert(gpu_alert("GpuXid"), severity="warning"), True),
    "xid: another GPU's": (gpu_alert("GpuXid"), alert(gpu_alert("GpuXid", gpu="GPU-b"), severity="warning"), False),
    "xid: its links": (gpu_alert("GpuXid"), alert(gpu_alert("GpuLinkLost"), severity="warning"), True),
    # A label that both lack counts as equal: rows that begin with "no" have none.
    "no server on either side": (STALLED, KV, False),
    "no server, down": (DOWN, alert(without(KV, "engine"), "VllmSourceDown"), False),
    "no GPU on either side": (without(gpu_alert("GpuXid"), "gpu"), without(gpu_alert("GpuLinkLost"), "gpu"), False),
    "no engine on either side": (without(STALLED, "engine"), without(KV, "engine"), False),
    "no server, loop": (LOOP, alert(without(KV, "engine"), "VllmEngineCrashed"), False),
    "no objective on either side": (without(FAST, "objective"), without(SLOW, "objective"), False),
    "no instance on either side": (without(GONE, "job"), alert(without(GONE, "job"), "VllmWatchUnwell"), False),
    "an empty server": (alert(STALLED, server=""), alert(KV, server=""), False),
}
SENTINELS = (alert(STALLED, server="sentinel"), alert(KV, server="sentinel"))


def of_case(case):
    """Return the two alerts of a row; every row's server and daemon are its own."""
    number = list(INHIBITION).index(case)
    source, target, _ = INHIBITION[case]
    placed = []
    for side, labels in (("source", source), ("target", target)):
        where = {"server": f"server-{number}", "instance": f"host-{number}:9468"}
        if case.startswith(("no server", "an empty server")):
            del where["server"]
        if case.startswith("no instance"):
            where = {}
        if case.startswith("gone"):
            del where["server"]
        placed.append({**where, **labels, "case": case, "side": side})
    for labels in placed:
        if labels.get("server") == SERVER:
            labels["server"] = f"server-{number}"
    return placed


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Return every alert's state in an Alertmanager that got them all, by row and side."""
    now = dt.datetime.now(dt.timezone.utc).isoformat()
    posted = [labels for case in INHIBITION for labels in of_case(case)]
    with alertmanager(tmp_path_factory.mktemp("inhibition"), NOWHERE) as url:
        alerts = f"{url}/api/v2/alerts"
        post_json(alerts, [{"labels": labels, "startsAt": now} for labels in (*posted, *SENTINELS)])

        def knows_all():
            """It takes alerts in one after the other: once it silences the last pair it knows all."""
            return any(
                each["labels"].get("server") == "sentinel" and each["status"]["inhibitedBy"]
                for each in get_json(alerts)
            )

        until(knows_all)
        found = get_json(alerts)
    assert len(found) == len(posted) + len(SENTINELS)
    return {(each["labels"].get("case"), each["labels"].get("side")): each["status"] for each in found}


@needs_alertmanager
@pytest.mark.parametrize("case", INHIBITION)
def test_an_alert_silences_its_consequences_and_nothing_else(states, case):
    """An alert silences what only repeats it, of its own engine, server or daemon; no missing label matches."""
    is_silenced = INHIBITION[case][2]
    assert bool(states[case, "target"]["inhibitedBy"]) == is_silenced
    assert states[case, "target"]["state"] == ("suppressed" if is_silenced else "active")
    assert states[case, "source"]["state"] == "active"


# Texts.


FIRST = {
    "status": "firing",
    "labels": {**STALLED, "server": "qwen", "instance": "10.0.0.5:9468", "job": "vllm-watch", "tier": "core"},
    "annotations": {
        "summary": "The engine has work and makes no progress.",
        "description": "qwen engine 0: requests are running, and no token came for half a minute.",
        "runbook_url": "https://example.com/runbooks/VllmEngineStalled.md",
        "dashboard_url": "http://grafana.example.com/d/vllm-watch-server?var-server=qwen&from=now-1h",
    },
    "startsAt": "2026-11-21T03:00:01.123Z",
    "endsAt": "0001-01-01T00:00:00Z",
}
OVER = {**FIRST, "status": "resolved", "endsAt": "2026-11-21T03:12:04.523Z"}
SECOND = {**FIRST, "labels": {**FIRST["labels"], "engine": "1"}}
QUEUE = {
    **FIRST,
    "labels": {**FIRST["labels"], "alertname": "VllmQueueStanding", "severity": "warning"},
    "annotations": {**FIRST["annotations"], "summary": "The queue is growing."},
}
GONE_ALERT = {
    **FIRST,
    "labels": {"alertname": "VllmWatchGone", "severity": "critical", "job": "vllm-watch"},
    "annotations": {"summary": "vllm-watch is gone, so vLLM is not monitored."},
}


def group(*alerts):
    """Return what a receiver's text is made of, as Alertmanager makes it."""

    def common(what):
        return {
            name: value
            for name, value in alerts[0][what].items()
            if all(each[what].get(name) == value for each in alerts)
        }

    return {
        "receiver": "page",
        "status": "firing" if any(each["status"] == "firing" for each in alerts) else "resolved",
        "groupLabels": {},
        "commonLabels": common("labels"),
        "commonAnnotations": common("annotations"),
        "externalURL": "http://127.0.0.1:9093",
        "alerts": list(alerts),
    }


@pytest.fixture
def rendered(tmp_path):
    """Return a function that gives a text for some alerts."""

    def render(text, *alerts, form="text"):
        data = tmp_path / "data.json"
        data.write_text(json.dumps(group(*alerts)))
        return amtool(
            *("template", "render", f"--template.glob={TEMPLATES}", f"--template.data={data}"),
            *(f"--template.type={form}", f'--template.text={{{{ template "{text}" . }}}}'),
        )

    return render


@needs_amtool
@pytest.mark.parametrize(
    ("alerts", "title"),
    [
        ([FIRST], "FIRING qwen: The engine has work and makes no progress. VllmEngineStalled on 10.0.0.5:9468"),
        ([OVER], "RESOLVED qwen: VllmEngineStalled on 10.0.0.5:9468"),
        (
            [FIRST, SECOND],
            "FIRING qwen: The engine has work and makes no progress. VllmEngineStalled (2 firing) on 10.0.0.5:9468",
        ),
        ([FIRST, SECOND, QUEUE], "FIRING qwen: VllmEngineStalled, VllmQueueStanding (3 firing) on 10.0.0.5:9468"),
        ([OVER, QUEUE], "FIRING qwen: VllmQueueStanding (1 firing, 1 resolved) on 10.0.0.5:9468"),
        ([GONE_ALERT], "FIRING vllm-watch: vllm-watch is gone, so vLLM is not monitored. VllmWatchGone"),
    ],
    ids=["firing", "resolved", "two engines", "several", "mixed", "no server"],
)
def test_a_title_says_on_one_line_who_has_what(rendered, alerts, title):
    """The server and what is wrong stand in front, where a telephone shows them; what is over goes by its name."""
    assert rendered("vllm_watch.title", *alerts) == title


@needs_amtool
def test_a_text_says_what_where_since_when_and_what_to_do(rendered):
    """A firing alert has everything to act on; a resolved one says when it was last seen, not what is wrong now."""
    assert rendered("vllm_watch.text", QUEUE, OVER) == (
        "FIRING warning: The queue is growing.\n"
        "qwen engine 0: requests are running, and no token came for half a minute.\n"
        "VllmQueueStanding, server qwen, engine 0, seen by 10.0.0.5:9468, since 2026-11-21 03:00:01 UTC\n"
        "Runbook: https://example.com/runbooks/VllmEngineStalled.md\n"
        "Dashboard: http://grafana.example.com/d/vllm-watch-server?var-server=qwen&from=now-1h\n"
        "\n"
        "RESOLVED: VllmEngineStalled, server qwen, engine 0, seen by 10.0.0.5:9468\n"
        "Not seen any more since 2026-11-21 03:12:04 UTC, after 12m3s\n"
        "Dashboard: http://grafana.example.com/d/vllm-watch-server?var-server=qwen&from=now-1h"
    )


@needs_amtool
def test_a_text_leaves_out_what_an_alert_does_not_have(rendered):
    """An alert without server, description or links has no empty lines in their place."""
    assert rendered("vllm_watch.text", GONE_ALERT) == (
        "FIRING critical: vllm-watch is gone, so vLLM is not monitored.\nVllmWatchGone, since 2026-11-21 03:00:01 UTC"
    )


DRAFTS = {
    "status": "firing",
    "labels": {**ADVICE, "server": "qwen", "instance": "10.0.0.5:9468"},
    "annotations": {
        "summary": "Most draft tokens are rejected.",
        "description": "qwen engine 0: 40% of draft tokens are accepted.",
        "runbook_url": "https://example.com/runbooks/VllmDemandNearMaximum.md",
    },
    "startsAt": "2026-11-21T03:00:01.123Z",
    "endsAt": "0001-01-01T00:00:00Z",
}
OTHER_DRAFTS = {
    **DRAFTS,
    "labels": {**DRAFTS["labels"], "server": "other"},
    "annotations": {**DRAFTS["annotations"], "description": "other engine 0: 30% of draft tokens are accepted."},
}
PREFIX = {
    **DRAFTS,
    "labels": {**DRAFTS["labels"], "alertname": "VllmDataParallelImbalance"},
    "annotations": {"summary": "The prefix cache hit rate has dropped."},
}
PREFIX_OVER = {**PREFIX, "status": "resolved", "endsAt": "2026-11-21T04:12:04.523Z"}


@needs_amtool
def test_a_digest_has_each_kind_of_advice_once(rendered):
    """A kind's summary and runbook stand above all that have it, and what has come and gone stands at the end."""
    assert rendered("vllm_watch.digest_title", DRAFTS, OTHER_DRAFTS, PREFIX_OVER) == (
        "ADVICE of the day (2 firing, 1 resolved): VllmDemandNearMaximum"
    )
    assert rendered("vllm_watch.digest", OTHER_DRAFTS, DRAFTS, PREFIX, PREFIX_OVER) == (
        "VllmDemandNearMaximum: Most draft tokens are rejected.\n"
        "Runbook: https://example.com/runbooks/VllmDemandNearMaximum.md\n"
        "* other engine 0: 30% of draft tokens are accepted. Seen by 10.0.0.5:9468 since 2026-11-21 03:00:01 UTC\n"
        "* qwen engine 0: 40% of draft tokens are accepted. Seen by 10.0.0.5:9468 since 2026-11-21 03:00:01 UTC\n"
        "\n"
        "VllmDataParallelImbalance: The prefix cache hit rate has dropped.\n"
        "* qwen Seen by 10.0.0.5:9468 since 2026-11-21 03:00:01 UTC\n"
        "\n"
        "Not seen any more:\n"
        "* VllmDataParallelImbalance, server qwen, engine 0, seen by 10.0.0.5:9468, since 2026-11-21 04:12:04 UTC, "
        "after 1h12m3s"
    )


@needs_amtool
def test_a_digest_of_what_is_over_names_it(rendered):
    """When nothing is advised any more, the last digest says what was."""
    assert (
        rendered("vllm_watch.digest_title", PREFIX_OVER) == "ADVICE of the day (1 resolved): VllmDataParallelImbalance"
    )
    assert rendered("vllm_watch.digest", PREFIX_OVER).startswith("Not seen any more:\n* VllmDataParallelImbalance, ")


@needs_amtool
def test_no_value_is_markup_in_a_chat(rendered):
    """A name with angle brackets calls nobody and makes no link."""
    hostile = {
        **FIRST,
        "labels": {name: f"<!channel>{value}" for name, value in FIRST["labels"].items()},
        "annotations": {name: f"<https://evil.example|{value}>" for name, value in FIRST["annotations"].items()},
    }
    for text in ("vllm_watch.title", "vllm_watch.text", "vllm_watch.digest_title", "vllm_watch.digest"):
        for alerts in ([hostile], [{**hostile, "status": "resolved", "endsAt": OVER["endsAt"]}]):
            shown = rendered(text, *alerts)
            assert "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}!channel" in shown
            assert not set("<>") & set(shown)


@needs_amtool
def test_an_email_escapes_every_value(rendered):
    """No value is markup in an email, and no link is anything but a web address."""
    hostile = {
        **FIRST,
        "labels": {**FIRST["labels"], **dict.fromkeys(("alertname", "server", "engine", "instance"), "<script>x")},
        "annotations": {
            "summary": "<script>x",
            "description": "<script>x & </p>",
            "runbook_url": "javascript:x",
            "dashboard_url": '"><script>x',
        },
    }
    for alerts in ([hostile], [{**hostile, "status": "resolved", "endsAt": OVER["endsAt"]}]):
        shown = rendered("vllm_watch.html", *alerts, form="html")
        assert "&lt;script&gt;x" in shown
        assert "<script" not in shown
        assert "javascript:" not in shown


@needs_amtool
def test_an_email_has_what_the_text_has(rendered):
    """The HTML says the same: what, where, since when, both links; and what is over."""
    shown = rendered("vllm_watch.html", QUEUE, OVER, form="html")
    assert re.findall(r'href="([^"]+)"', shown) == [
        "https://example.com/runbooks/VllmEngineStalled.md",
        *["http://grafana.example.com/d/vllm-watch-server?var-server=qwen&amp;from=now-1h"] * 2,
    ]
    words = " ".join(re.sub(r"<(?!/?b>)[^>]+>", " ", shown).replace("<b>", "").replace("</b>", "").split())
    assert "FIRING warning: The queue is growing. qwen engine 0: requests are running" in words
    assert "VllmQueueStanding, server qwen, engine 0, seen by 10.0.0.5:9468 since 2026-11-21 03:00:01 UTC" in words
    assert "RESOLVED: VllmEngineStalled, server qwen" in words
    assert "Not seen any more since 2026-11-21 03:12:04 UTC, after 12m3s" in words
