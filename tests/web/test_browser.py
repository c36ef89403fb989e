# SPDX-License-Identifier: Apache-2.0
"""The status page in a browser: what somebody sees and hears, what the keyboard does, and that all of it stays here."""

from __future__ import annotations

import json
import re
import threading

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.support import gpus, tools
from tests.support.pages import ScrapedServer
from tests.support.pages import page as metrics_page
from tests.support.recordings import recording
from tests.support.waiting import SECONDS, until
from tests.web.conftest import FakeEndpoints

from vllm_watch.analysis.replay.recording import server_name
from vllm_watch.cli.commands.demo import played
from vllm_watch.cli.terminal.cells import latency_text
from vllm_watch.daemon.catalog.gpu_texts import ACTION_PROBLEMS, NOT_READ_WORD, STATE_PROBLEMS
from vllm_watch.daemon.catalog.number_texts import MISSING, gibibytes, megahertz, of_most, share, shortened
from vllm_watch.daemon.catalog.reasons import GPU
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, CAUSES, ENGINE_STATES, STATES, first_steps
from vllm_watch.daemon.exposition.json_view import event_documents, server_view
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.state.snapshot import ServerEvent, StateSince
from vllm_watch.daemon.support.clock import ScaledClock
from vllm_watch.daemon.web.routes import Response
from vllm_watch.daemon.web.server import WebServer


pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_tool("chromium"),
    pytest.mark.needs_module("playwright", "axe_core_python"),
]

SPEED = 20.0
AT = 1_795_227_240.0
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
MANY = 200
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# axe-core runs in the page, whose policy stays as it is.
AXE = "() => axe.run().then(({ violations, passes }) => [passes.length, violations.map(({ id, nodes }) => "
AXE += "[id, ...nodes.map(({ html }) => html)])])"


FOCUSED = """() => {
  const node = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(node);
  const name = node.ariaLabel ?? node.innerText.trim().split("\\n")[0];
  return [name, outlineStyle !== "none" && parseFloat(outlineWidth) >= 2];
}"""


class Shown(FakeEndpoints):
    """Serves the snapshot that a test puts into it."""

    def __init__(self):
        super().__init__()
        self.document = {"servers": []}
        self.histories = None

    def snapshot(self, histories=None):
        """Return the test's snapshot, or fail as the test says, and keep whose last hour was asked for."""
        self.histories = histories
        if self.failure is not None:
            raise self.failure
        return Response(json.dumps({"version": "1", "at": AT, **self.document}).encode(), "application/json")


@pytest.fixture(scope="module")
def chromium():
    """The browser of this file."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # It is not there where this is skipped.

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=tools.find("chromium"), args=OPTIONS, timeout=1000 * SECONDS
        )
        with closing(browser):
            yield browser


@pytest.fixture(scope="module")
def served():
    """What the page is shown, and where it is."""
    endpoints = Shown()
    web = WebServer("127.0.0.1", 0, endpoints)
    web.start()
    yield endpoints, f"http://127.0.0.1:{web.port}/"
    web.stop()


@pytest.fixture
def shown(served):
    """What the page is shown, with nothing of the test before."""
    endpoints, _ = served
    endpoints.document, endpoints.failure = {"servers": []}, None
    return endpoints


class Visit:
    """A window of the browser: everything that it asks for and complains about is kept."""

    def __init__(self, chromium, address, **options):
        self.address = address
        self.complaints = []
        self.asked = []
        self.context = chromium.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options})
        self.context.set_default_timeout(1000 * SECONDS)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.context.on("request", lambda request: self.asked.append(request.url))

    def open(self, place=""):
        """Open the page and wait until it shows something."""
        self.page.goto(self.address + place)
        self.page.locator("#version:not(:empty)").wait_for()
        return self.page

    def violations(self):
        """Return what axe-core finds, everything unfolded."""
        import axe_core_python  # noqa: PLC0415  # It is not there where this is skipped.

        self.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        self.page.evaluate((Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
        passes, found = self.page.evaluate(AXE)
        assert passes > 20
        return found

    def focused(self):
        """Return the text, or else the name, of what has the focus, and whether that can be seen."""
        return self.page.evaluate(FOCUSED)

    def is_too_wide(self):
        """Whether anything of the page is beyond its right edge."""
        return self.page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.fixture
def visit(chromium, served):
    """Make a window; at the end of the test nothing has left this host, and nothing was wrong."""
    visits = []

    def make(address=served[1], **options):
        visits.append(Visit(chromium, address, **options))
        return visits[-1]

    yield make
    for each in visits:
        each.context.close()
        assert [] == each.complaints
        assert each.asked
        assert [] == [url for url in each.asked if not url.startswith(each.address)]


def server(name, state="serving", *, since=None, is_exact=True, engines=1, cause=None, **metrics):
    """Return a server of the snapshot, in a state since some seconds."""
    snapshot = ScrapedServer().scrape(metrics_page(**{"running": 3, "waiting": 1, "kv": 0.42, **metrics}))
    (engine,) = snapshot.engines
    known = [
        engine._replace(
            key=engine.key._replace(engine=str(number)),
            state=state if number == 0 else "serving",
            cause=cause if number == 0 else None,
            state_since=None if since is None or number else StateSince(state, AT - since, is_exact=is_exact),
        )
        for number in range(engines)
    ]
    view = server_view(snapshot._replace(name=name, at=AT, engines=tuple(known)))
    return json.loads(json.dumps(view))


def alert(name="VllmEngineStalled", severity="critical", state="firing", **more):
    """Return an alert of the snapshot."""
    links = {"runbook_url": f"https://runbooks.example.com/{name}.md"}
    said = {"alertname": name, "severity": severity, "state": state, "active_since": AT - 240, "summary": "It stands."}
    return {**said, **links, **more}


KNOWN = {"saturated": "batch_full", "stalled": "batch_stands_still", "down": "killed"}
ALL_STATES = [server(f"{state}-1", state, since=240, cause=KNOWN.get(state)) for state in ENGINE_STATES]


def test_the_page_moves_with_a_replay(visit):
    """Charts, values and the state follow a server that runs, and the last hour is there at once."""
    clock = ScaledClock(SPEED)
    stall = recording("stall")
    with played(stall, server_name(stall, None), clock, "127.0.0.1:0") as config:
        assert config.gpu.read == config.gpu.kernel_log == "never"  # This machine's GPUs are not the recorded server's.
        service = Supervisor(config, clock)
        service.start()
        running = threading.Thread(target=service.run)
        running.start()
        window = visit(f"http://127.0.0.1:{service.port}/")
        try:
            page = window.open()
            curve = page.locator(".chart path.curve.first").first
            before = until(lambda: "L" in curve.get_attribute("d") and curve.get_attribute("d"))
            until(lambda: curve.get_attribute("d") != before)
            page.locator(".trouble .what").get_by_text("Stalled for ").wait_for()
            assert f"A replay of a recorded server, {SPEED:g} times as fast." in page.locator("#replay").inner_text()
        finally:
            window.context.close()
            service.request_stop()
            running.join(SECONDS)
            service.stop()


def test_every_state_shows(visit, shown):
    """Each state has its badge and its sentence, and the bad ones say since when, and what to do first."""
    shown.document = {"servers": ALL_STATES}
    window = visit()
    page = window.open()

    assert page.locator("#replay").is_hidden()
    for state in ENGINE_STATES:
        card = page.locator(f"#server-{state}-1")
        assert card.locator("header .badge").inner_text() == state
        first = first_steps().get(state)
        assert card.locator(".trouble.bad").is_visible() is (first is not None)
        if first is None:
            continue
        assert re.fullmatch(
            rf"{state.capitalize()} for 4 min, since \d\d:\d\d:\d\d \S+", card.locator(".what").inner_text()
        )
        steps = card.locator(".steps li").all_inner_texts()
        assert steps == [step.replace("`", "") for step in first.about(KNOWN.get(state))]
        assert card.get_by_role("link", name=first.runbook).get_attribute("href") == first.url
    assert "batch_stands_still" in page.locator("#server-stalled-1 .meaning").inner_text()
    worst_first = [f"{state}-1" for state in reversed(BEST_TO_WORST)]
    assert page.locator(".overview .row[href] > span:first-child").all_inner_texts() == worst_first
    assert [text.split()[1] for text in page.locator(".troubles .badge").all_inner_texts()] == [
        state for state in reversed(BEST_TO_WORST) if state in first_steps()
    ]
    assert page.locator("#announced").inner_text().startswith("down: down-1. stalled: stalled-1.")
    assert page.title() == "1 down \N{EN DASH} vllm-watch"
    assert window.violations() == []


@pytest.mark.parametrize("state", CAUSES)
def test_what_to_do_first_is_that_of_the_cause(visit, shown, state):
    """Each cause has its sentence and its own steps, all of them; a cause that is not known has the state's."""
    causes = [None, *CAUSES[state]]
    shown.document = {"servers": [server(f"s-{cause}", state, cause=cause) for cause in causes]}
    page = visit().open()

    for cause in causes:
        card = page.locator(f"#server-s-{cause}")
        steps = first_steps()[state].about(cause)
        assert card.locator(".steps li").all_inner_texts() == [step.replace("`", "") for step in steps]
        says = f"{CAUSES[state][cause]} ({cause})" if cause else STATES[state].text
        assert card.locator(".meaning").inner_text() == says


def test_a_server_that_was_stopped_in_order_is_quiet(visit, shown):
    """It is called stopped, below all that need somebody, without the colour of one that died."""
    stopped, died = server("a", "down", since=240, cause="stopped"), server("b", "down", cause="engine_died")
    shown.document = {"servers": [stopped, died, server("c", "stalled"), server("d", "saturated"), server("e")]}
    page = visit().open()
    badge = page.locator("#server-a header .badge")

    assert badge.inner_text() == "stopped"
    assert badge.evaluate("(node) => getComputedStyle(node).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert page.locator("#server-a .what").inner_text().startswith("Stopped for 4 min, since ")
    assert page.locator("#server-a .meaning").inner_text().startswith("It was stopped in order")
    rows = page.locator(".overview .row[href] > span:first-child").all_inner_texts()
    assert (rows[:3], set(rows[3:])) == (["b", "c", "d"], {"a", "e"})
    assert "stopped" not in page.locator("#troubles").inner_text()
    assert page.title() == "1 down \N{EN DASH} vllm-watch"


def test_what_is_not_known_is_said(visit, shown):
    """A state that was there first has lasted for at least that long; engines that are well are not called ill."""
    shown.document = {"servers": [server("a", "stalled", since=60, is_exact=False, engines=4)]}
    page = visit().open()

    assert page.locator(".what").inner_text() == "Engine 0 of 4: stalled for at least 1 min"
    assert page.locator("#troubles").is_hidden()
    assert page.locator("#alerts").is_hidden()


def test_numbers_are_written_as_on_a_terminal(visit):
    """Ratios, large numbers and parts of a whole are written by the page as by `top` and `once`."""
    page = visit().open()
    values = [None, 0, 0.0004, 0.021, 0.42, 0.874, 0.9994, 0.9996, 1, 1.2]
    large = [None, 0, 0.5, 7.25, 512, 9994, 12_345, 141_312, 999_600, 3_141_592, 2.5e9, 3.2e15]

    def written(call, argument):
        return page.evaluate(
            f"async (each) => {{ const f = await import('/static/format.js'); return {call}; }}", argument
        )

    assert written("each.map(f.percent)", values) == [
        text if text == MISSING else f"{text} %" for text in map(share, values)
    ]
    assert written("each.map(f.shortened)", large) == [shortened(value) for value in large]
    times = [None, 0, 0.0286, 0.4, 1.26, 4.09, 9.996, 12.6, 147.3]
    for in_seconds, digits in ((False, 3), (False, 2), (True, 3), (True, 2)):
        texts = [latency_text(value, in_seconds=in_seconds, digits=digits) for value in times]
        units = [text if text == MISSING else f"{text.rstrip('s')} {'s' if in_seconds else 'ms'}" for text in texts]
        assert written(f"each.map((value) => f.latency(value, {str(in_seconds).lower()}, {digits}))", times) == units
    assert written("each.map(f.roughLatency)", [None, 0.0738, 156]) == [MISSING, "74 ms", "160 s"]
    sizes, clocks = [None, 0, 2**24, 3 * 2**29, 70 * 2**30, 1.5e11], [None, 3.45e8, 1.7554e9]
    assert written("each.map(f.gibibytes)", sizes) == [gibibytes(size) for size in sizes]
    assert written("each.map(f.megahertz)", clocks) == [megahertz(clock) for clock in clocks]
    assert written("each.map((value) => f.ofMost(value, 64))", [3, None]) == [of_most(3, 64), of_most(None, 64)]
    assert written("each.map((value) => f.ofMost(value, null))", [3]) == [of_most(3, None)]


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide", "narrow-dark"])
def test_gpus(visit, shown, viewport, scheme):
    """A server's GPUs have a row each; one that is lost is loud, what is absent is a dash, and no GPU is no table."""
    some = gpus.eight(gpu3=gpus.lost(3), gpu4=gpus.used(gpus.gpu(4), gpus.HOT), gpu5=gpus.advised(5, "reboot"))
    a, b = server("a"), server("b")
    a |= {"gpus": gpus.as_json(*some), "sources": [*a["sources"], gpus.source()]}
    b |= {"gpus": gpus.as_json(gpus.unread(0)), "sources": [*b["sources"], gpus.source("call_hangs")]}
    c = server("c")
    c["sources"] = [*c["sources"], gpus.source("no_library")]
    shown.document = {"servers": [a, b, c]}
    window = visit(viewport=viewport, color_scheme=scheme)
    page = window.open()
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#server-a .gpus tbody tr").all()]

    normal = ["ok", "97.0", "70.0 of 80.0", "0", "512 of 700", "61", "1,755", "53.0 power cap"]
    assert rows[:3] == [[str(number), *normal] for number in range(3)]
    assert rows[3] == ["3", "LOST", *[MISSING] * 7]
    assert [row[-1] for row in rows[4:6]] == ["21.4 HW heat, 90.0 power cap", "no"]
    assert page.locator("#server-a .gpus .badge").all_inner_texts() == ["LOST", "REBOOT"]
    assert page.locator("#server-a .problems li").all_inner_texts() == [
        f"GPU 3 (0000:1b:00): {STATE_PROBLEMS['lost']}",
        f"GPU 5 (0000:1d:00): {ACTION_PROBLEMS['reboot']}",
    ]
    assert page.locator(".overview .wrong-gpus").all_inner_texts() == ["2 GPUs: LOST, REBOOT", "", ""]
    assert page.locator("#server-b .gpus td").all_inner_texts() == [NOT_READ_WORD, *[MISSING] * 7]
    assert page.locator("#server-b .of-gpus .caption").inner_text() == GPU["call_hangs"].text
    assert page.locator("#server-b .problems").is_hidden()
    assert page.locator("#server-c .of-gpus").is_hidden()
    assert page.locator("#server-b .source.quiet").all_inner_texts()[-1].startswith("gpu")
    assert page.locator("#server-c .source.quiet", has_text="gpu").count() == 0
    assert page.locator("#server-c .source.unneeded").inner_text().startswith("gpu")
    assert not window.is_too_wide()
    assert window.violations() == []


def test_two_hundred_servers_by_keyboard(visit, shown):
    """Many servers are found, opened, read and closed without a mouse, and only what is open costs its last hour."""
    servers = [server(f"node{number:03}", "idle") for number in range(MANY)]
    servers[150] = server("node150", "down", since=7200)
    shown.document = {"servers": servers}
    window = visit()
    page = window.open()
    press = page.keyboard.press

    assert page.locator(".row[href]").count() == MANY
    assert page.locator(".server").count() == 0
    assert page.locator(".row[href]").first.inner_text().startswith("node150")
    for name in ("/metrics", "JSON", "node150", "Filter by name, model or state", "node150"):
        press("Tab")
        assert window.focused() == [name, True]
    press("ArrowDown")
    assert window.focused() == ["node000", True]
    press("/")
    page.keyboard.type("node15")
    assert page.locator(".row[href]:visible").count() == 10
    press("Tab")
    assert window.focused() == ["node150", True]
    press("Enter")
    page.locator("#server-node150 .what").get_by_text("Down for 2 h").wait_for()
    assert window.focused() == ["node150", True]
    press("Shift+Tab")
    press("ArrowUp")
    assert window.focused() == ["node158", True]
    press(" ")
    page.locator("#server-node158").wait_for()
    assert page.locator(".row[aria-expanded=true]").count() == 2
    until(lambda: "node158" in (shown.histories or ()))
    assert shown.histories == {"", "node150", "node158"}
    press("Escape")
    assert page.locator("#server-node158").count() == 0
    assert window.focused() == ["node158", True]
    servers[158] = server("node158", "down", since=1)
    until(lambda: page.locator(".row[href]:visible").nth(1).inner_text().startswith("node158"))
    assert window.focused() == ["node158", True]
    page.locator("#server-node150 .plot").first.focus()
    press("Escape")
    assert page.locator(".server").count() == 0
    assert window.focused() == ["node150", True]
    assert window.violations() == []


def test_events_of_the_last_hour(visit, shown):
    """The latest events are first, with age, engine (of several) and number; none is why a server is down."""
    changes = [ServerEvent(AT - 600 + each, "state", "idle", before="serving") for each in range(9)]
    events = [*changes, ServerEvent(AT - 120, "failure", "nccl_error", engine="1", times=3)]
    several = {**server("a", engines=2), "events": msgspec.to_builtins(event_documents(events))}
    down = {**server("b", "down"), "events": msgspec.to_builtins(event_documents(events[-2:]))}
    shown.document = {"servers": [several, down, {**server("c"), "events": []}]}
    page = visit().open()
    rows = page.locator("#server-a .event")

    assert rows.first.inner_text().split("\n") == ["2 min ago", "engine 1: NCCL error (3 \N{MULTIPLICATION SIGN})"]
    assert rows.nth(1).inner_text().split("\n") == ["9 min ago", "idle (was serving)"]
    assert (rows.count(), page.locator("#server-a .caption:visible").last.inner_text()) == (8, "and 2 earlier ones")
    assert "NCCL" not in page.locator("#server-b .trouble").inner_text()
    assert page.locator("#server-b .says").first.inner_text().startswith("NCCL error")
    assert page.locator("#server-c .event").inner_text().strip() == "none"


def test_alerts_are_shown_at_their_server(visit, shown):
    """Alerts are at their server with age, sentence and link, those of unknown severities too; who pages is first."""
    alerts = [
        alert(server="b", engine="0"),
        alert("VllmWatchUnwell", "warning", instance="h:9468"),
        alert("VllmQueueStanding", "warning", "pending", server="b", runbook_url="javascript:alert(1)"),
        alert("VllmQueueStanding", "page-me", server="b", runbook_url=None),
    ]
    prometheus = {"up": True, "last_reading": AT, "alerts_left_out": 3}
    servers = [server(name, "idle") for name in ("a", "b")]
    shown.document = {"servers": servers, "prometheus": prometheus, "alerts": alerts}
    window = visit()
    page = window.open()

    assert page.locator("#alerts > p").inner_text() == (
        "Alerts that fire: 1 critical, 1 warning, 1 info; 1 pending; 3 more are not shown."
    )
    assert "VllmWatchUnwell" in page.locator("#alerts .alert").inner_text()
    rows = page.locator("#server-b .alert")
    assert re.sub(r"\s+", " ", rows.first.inner_text()).strip() == (
        "critical VllmEngineStalled engine 0: It stands. firing for 4 min"
    )
    assert rows.first.get_by_role("link").get_attribute("href") == "https://runbooks.example.com/VllmEngineStalled.md"
    assert rows.first.get_by_role("link").get_attribute("rel") == "noopener noreferrer"
    assert "pending" in rows.nth(1).inner_text()
    assert rows.nth(2).inner_text().strip().startswith("info")
    assert rows.nth(1).get_by_role("link").count() == 0
    assert page.locator("#server-a .alerts").is_hidden()
    assert page.locator(".overview .row[href] > span:first-child").all_inner_texts() == ["b", "a"]
    assert window.violations() == []


def test_unknown_alerts_are_no_alerts(visit, shown):
    """Where alerts are not known the page says why and shows none; where there are none, it says that."""
    told = {"up": False, "explanation": "http://p:9090: nothing listens at this address"}
    shown.document = {"servers": [server("a")], "prometheus": told}
    page = visit().open()

    assert page.locator("#alerts").inner_text() == f"Alerts are not known. {told['explanation']}"
    shown.document = {"servers": [server("a")], "prometheus": {"up": True}, "alerts": []}
    page.locator("#alerts").get_by_text("No alert fires.").wait_for()


def test_a_daemon_that_does_not_answer(visit, shown):
    """What was shown last is called old as soon as there is no answer, and again present with the next one."""
    shown.document = {"servers": [server("a", "stalled", since=60)]}
    window = visit()
    page = window.open()
    shown.failure = RuntimeError("broken")
    page.get_by_role("alert").get_by_text("vllm-watch does not answer. These values are").wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('main')).opacity") < "0.5"
    assert page.title() == "no answer \N{EN DASH} vllm-watch"
    shown.failure = None
    page.get_by_role("alert").wait_for(state="hidden")
    # The browser itself complains about each answer that is an error.
    assert all("500" in complaint for complaint in window.complaints)
    window.complaints.clear()
