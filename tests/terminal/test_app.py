# SPDX-License-Identifier: Apache-2.0
"""The application of `top`: its keys, its source that fails and comes back, its sizes, its errors."""

from __future__ import annotations

import asyncio
import signal
import threading

from inspect import signature

import pytest

from tests.support.command_line import SECONDS
from tests.terminal.made_up import AT, HandSource, every_state, frame, lost, many, server
from tests.terminal.screens import lines, role_of, running, strips, text
from textual import events

from vllm_watch.cli.terminal import app as app_module
from vllm_watch.cli.terminal.app import TopApp, run_app
from vllm_watch.cli.terminal.cells import columns
from vllm_watch.cli.terminal.frames import Lost
from vllm_watch.cli.terminal.screens import KEYS, Page
from vllm_watch.daemon.exposition.document import SinceDocument
from vllm_watch.daemon.exposition.findings import Finding


pytestmark = pytest.mark.slow


def driven(view=lambda: None, size=(80, 24), **options):
    """Return a decorator: a test gets the running application, its pilot, and its source, which has this view."""

    def decorate(test):
        def run():
            async def drive():
                source = HandSource(view())
                async with running(source, size, **options) as (app, pilot):
                    values = {"source": source, "app": app, "pilot": pilot}
                    await test(**{name: values[name] for name in signature(test).parameters})

            asyncio.run(drive())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


HOSTILE = server("[red]x[/]\x1b[2J", model_name="模型\u202e", meaning="a\nb")
FINDINGS = tuple(
    Finding("wrong", f"critical, firing: VllmWatchDown of vllm-watch w{number}:9468.") for number in range(5)
)


def rows(app):
    """Return the names of the servers in the table, as they are ordered."""
    return [line.split()[0] for line in lines(app) if line.startswith(("node", "gpu", "two"))]


@driven(every_state)
async def test_the_worst_server_is_first_and_other_orders_can_be_chosen(app, pilot):
    """The table begins with the worst server; s sorts by the next column."""
    assert ["gpu-0", "gpu-1", "gpu-2"] == rows(app)[:3]
    assert "state▼" in text(app)
    await pilot.press("s")
    assert "sorted" == role_of(app, "output")
    await pilot.press("f6", "f6", "f6")
    assert "KV cache▼" in text(app)
    assert ["gpu-0", "gpu-3"] == rows(app)[7:9]  # Nothing is known of these.


@driven(lambda: every_state()._replace(findings=FINDINGS))
async def test_what_is_about_no_server_is_above_the_table(source, app, pilot):
    """Alerts about vllm-watch are above the servers, as many as there is room for, and above the only server."""
    assert ["! critical", "! critical", "! critical", "  and 2 mo"] == [row[:10] for row in lines(app)[1:5]]
    assert lines(app)[5].startswith("9 servers")
    await pilot.click(offset=(3, lines(app).index(next(each for each in lines(app) if each.startswith("gpu-2")))))
    assert "gpu-2" == app.screen.selected.name
    await pilot.resize_terminal(50, 12)
    await pilot.pause()
    assert ["  and 4 more, which --once shows"] == lines(app)[3:4]
    source.tell(frame(server())._replace(findings=FINDINGS[:1]))
    await pilot.resize_terminal(80, 24)
    await pilot.pause()
    assert lines(app)[1] == f"! {FINDINGS[0].text}"
    assert "gpu-0" in lines(app)[2]


@driven(every_state)
async def test_a_filter_leaves_what_has_all_its_words(app, pilot):
    """/ opens a line; what is written there leaves servers at once, Enter keeps them, and Esc shows all again."""
    await pilot.press("slash", *"serv twq", "backspace", "o")
    assert "serv two" in lines(app)
    assert ["two-engines"] == rows(app)[:1]
    assert '1 with "serv two"' in text(app)
    await pilot.press("enter")
    await pilot.pause()
    assert ["two-engines"] == rows(app)[:1]
    await pilot.press("f4", "x")
    await pilot.pause()
    assert "No server has" in text(app)
    await pilot.press("ctrl+u")
    app.post_message(events.Paste("gpu-3\n"))
    await pilot.pause()
    assert ["gpu-3"] == sorted(set(rows(app)))
    await pilot.press("escape")
    await pilot.pause()
    assert 9 == len(set(rows(app)))
    assert lines(app)[-1].startswith("q Quit")


@driven(every_state)
async def test_keys_that_follow_at_once_are_written_too(app, pilot):
    """Keys that are typed before the filter is drawn belong to it, also those that do something by themselves."""
    for key in ("slash", *"idle"):
        app.post_message(events.Key(key, key if len(key) == 1 else "/"))
    await pilot.pause()
    assert ["gpu-7"] == sorted(set(rows(app)))
    assert app.screen.has_table


@driven(every_state)
async def test_the_selected_server_stays_selected_and_is_opened(source, app, pilot):
    """Arrows and j select; the selection stays with its server; Enter opens it, and Esc goes back to the table."""
    await pilot.press("j", "down")
    source.tell(frame(server("gpu-0", "down"), *every_state().servers))
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()
    assert "gpu-2" == app.screen.opened
    assert "gpu-2" in lines(app)[1]
    app.tick()
    assert ["gpu-2"] == source.hours
    await pilot.press("escape")
    await pilot.pause()
    assert "gpu-2" == app.screen.selected.name


@driven(many)
async def test_a_table_longer_than_the_screen_is_scrolled(app, pilot):
    """The selected line is always on the screen, whichever keys go there."""
    for keys, name in ((["end"], "node199"), (["up"], "node198"), (["pageup", "k"], None), (["g"], "node000")):
        await pilot.press(*keys)
        await pilot.pause()
        assert name in {None, app.screen.selected.name}
        assert app.screen.selected.name in rows(app)


@driven(every_state)
async def test_a_click_selects_and_opens(app, pilot):
    """A click selects a server, another one on it opens it."""
    y = next(index for index, line in enumerate(lines(app)) if line.startswith("gpu-4"))
    await pilot.click(offset=(3, y))
    await pilot.pause()
    assert "gpu-4" == app.screen.selected.name
    await pilot.click(offset=(3, 1))
    assert "gpu-4" == app.screen.selected.name
    await pilot.click(offset=(3, y))
    await pilot.pause()
    assert "gpu-4" == app.screen.opened


@driven(lambda: frame(server("gpu-0", "saturated")))
async def test_one_server_is_shown_in_detail_at_once(source, app, pilot):
    """A server that has no others beside it is open from the start, and keys of the table do nothing."""
    assert "saturated  gpu-0" in lines(app)[1]
    await pilot.press("enter", "slash", "s", "escape")
    await pilot.pause()
    assert "saturated  gpu-0" in lines(app)[1]
    await pilot.press("down")
    assert "The engine is working" in lines(app)[1]
    source.tell(every_state())
    await pilot.pause()
    assert "9 servers" in lines(app)[1]


@driven(lambda: frame(server("gpu-0", "saturated", since=SinceDocument(AT - 240, is_exact=True))))
async def test_the_first_steps_can_be_reached(app, pilot):
    """Where the screen is too small for all steps, there is a scroll bar, and Down and PgDn go there."""
    for size in ((80, 24), (40, 10)):
        await pilot.resize_terminal(*size)
        await pilot.press("home")
        await pilot.pause()
        assert "saturated for 4 min" in lines(app)[1]
        page, seen = app.screen.query_one(Page), text(app)
        assert page.show_vertical_scrollbar
        await pilot.press("down")
        while page.scroll_offset.y < page.max_scroll_y:
            seen += text(app)
            await pilot.press("pagedown")
        assert "1. Find the limit" in seen
        assert "Add a replica" in seen + text(app)


@driven(lambda: frame(server()), (100, 24))
async def test_what_happens_at_another_time_has_its_date(source, app, pilot):
    """A replay is called so, and its time has a date unless it is that of the reader, both where there is room."""
    assert lines(app)[0].split()[-2:] == ["14:13:20", "UTC"]
    source.time = AT + 90_000
    source.tell(frame(server())._replace(received=AT + 90_000, is_replay=True))
    await pilot.pause()
    assert "http://127.0.0.1:9468, a replay " in lines(app)[0]
    assert lines(app)[0].split()[-3:] == ["2026-09-21", "14:13:19", "UTC"]


@driven(every_state)
async def test_a_server_that_is_gone_is_said_to_be(source, app, pilot):
    """A server that is open and not watched any more has a sentence instead of values."""
    await pilot.press("enter")
    source.tell(frame())
    await pilot.pause()
    assert "gpu-0 is not watched any more" in text(app)
    await pilot.press("escape")
    await pilot.pause()
    assert "No server is watched" in text(app)


@driven(every_state)
async def test_pause_holds_the_values_and_says_so(source, app, pilot):
    """While paused, new values are not shown and the title says how old they are; the next press goes on."""
    await pilot.press("space")
    source.time = AT + 12
    source.tell(frame(server("new-server"), server("other")))
    app.tick()
    await pilot.pause()
    assert "new-server" not in text(app)
    assert "PAUSED 12 s ago" in text(app)
    assert "read 13 s ago" in lines(app)[0]
    await pilot.press("p")
    assert "new-server" in text(app)
    assert "PAUSED" not in text(app)


@driven(every_state)
async def test_a_source_that_is_lost_is_said_to_be_and_comes_back(source, app, pilot):
    """A lost source has its reason, the values are dimmed, their age is filled; when it is back, all is as before."""
    assert "serving" == role_of(app, "serving")
    source.time = AT + 40
    source.tell(lost(every_state(), seconds=0.0))
    await pilot.pause()
    assert "LOST 40 s: vllm-watch at http://127.0.0.1:9468 does not answer" in text(app)
    assert "alarm" == role_of(app, "LOST")
    assert "alarm" == role_of(app, "read 41 s ago")
    assert "dim" == role_of(app, "serving")
    source.tell(every_state()._replace(received=AT + 40))
    await pilot.pause()
    assert "LOST" not in text(app)
    assert "read now" in lines(app)[0]
    assert "serving" == role_of(app, "serving")


@driven()
async def test_before_the_first_answer_there_is_a_sentence(source, app, pilot):
    """Before anything was read the screen says what is being read; without an answer, why there is none."""
    assert "Reading http://127.0.0.1:9468 for the first time." in text(app)
    source.tell(lost(None))
    await pilot.pause()
    assert "NOT REACHED YET, tried again every 2 s: vllm-watch" in text(app)
    assert "LOST" not in text(app)
    assert "nothing read yet" in lines(app)[0]


@driven(every_state)
async def test_every_size_has_a_screen_and_quits(source, app, pilot):
    """From 200x50 to 1x1 nothing fails, each line is as wide as the screen, and q quits on the smallest."""
    for size in ((200, 50), (59, 12), (40, 10), (12, 3), (1, 1)):
        await pilot.resize_terminal(*size)
        for view in (every_state(), lost(every_state()), None):
            source.tell(view)
            await pilot.pause()
            shown = strips(app)
            assert {size[0]} == {sum(piece.cell_length for piece in strip) for strip in shown}
            assert size[1] == len(shown)
    await pilot.press("q")


@driven(every_state)
async def test_the_other_keys_do_what_the_help_says(source, app, pilot):
    """Every key of the help is bound; ? opens and closes the help, and r reads."""
    assert {key for binding in KEYS for key in binding.key.split(",")} <= app.screen.active_bindings.keys()
    await pilot.press("question_mark")
    await pilot.pause()
    assert app.screen.is_help
    await pilot.press("question_mark")
    await pilot.pause()
    assert not app.screen.is_help
    await pilot.press("r")
    assert 1 == source.asked
    await pilot.press("f10")
    assert app.return_code == 0


@driven(lambda: frame(HOSTILE, HOSTILE))
async def test_text_of_servers_is_shown_as_it_is(app):
    """A hostile name of a server or a model moves no cursor, is no markup, and makes no line too wide."""
    assert r"[red]x[/]\x1b" in text(app)
    assert "\x1b" not in text(app)
    assert "\u202e" not in text(app)
    assert max(columns(line) for line in lines(app)) <= 80


def test_an_error_in_drawing_is_a_sentence(monkeypatch, capsys):
    """What cannot be drawn ends the application with a sentence and exit status 1, and no traceback."""
    run_async = TopApp.run_async
    monkeypatch.setattr(TopApp, "run_async", lambda app: run_async(app, headless=True, size=(80, 24)))
    source = HandSource(frame("not a server"))

    assert 1 == run_app(source, "dark", has_color=True)
    error = capsys.readouterr().err
    assert error.startswith("vllm-watch: this is an error of top itself, please report it: AttributeError:")
    assert "Traceback" not in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("is_final", [True, False])
def test_what_was_never_read_ends_with_a_sentence(monkeypatch, capsys, is_final):
    """A mistake that stays ends the application by itself, what was never reached with q: status 1 and the reason."""
    run_async = TopApp.run_async

    async def leave(pilot):
        if not is_final:
            await pilot.press("q")

    monkeypatch.setattr(TopApp, "run_async", lambda app: run_async(app, headless=True, size=(80, 24), auto_pilot=leave))
    source = HandSource(Lost(AT, "there is no server", None, is_final))

    assert 1 == run_app(source, "dark", has_color=True)
    assert capsys.readouterr().err == f"vllm-watch: {source.title}: there is no server\n"


def test_a_signal_ends_it_as_q_does(monkeypatch):
    """SIGTERM, SIGHUP and SIGINT end the application in order, so that the terminal is as it was."""
    run_async = TopApp.run_async

    async def run(number):
        handlers = {}
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "add_signal_handler", lambda number, handler: handlers.update({number: handler}))
        app = TopApp(HandSource(), "dark", tick=None)

        async def send(_pilot):
            handlers[number]()

        monkeypatch.setattr(app, "run_async", lambda: run_async(app, headless=True, size=(80, 24), auto_pilot=send))
        await asyncio.wait_for(app_module._until_ended(app), SECONDS)
        assert app.return_code == 0

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.run(run(number))


def test_a_source_may_tell_from_its_own_thread_also_after_the_end():
    """A thread that reads tells the application of a frame, and is not disturbed when that has ended."""
    source = HandSource(every_state())

    async def run():
        async with running(source) as (app, pilot):
            thread = threading.Thread(target=source.tell, args=(frame(server("late"), server("later")),))
            thread.start()
            thread.join()
            await pilot.pause()
            assert "later" in text(app)

    asyncio.run(run())
    source.tell(every_state())
