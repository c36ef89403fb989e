# SPDX-License-Identifier: Apache-2.0
"""The screens of `top`, as they are drawn of recorded servers: each character."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.support.gpus import HOT, advised, divided, eight, gpu, unread, used
from tests.support.gpus import lost as lost_gpu
from tests.terminal.made_up import AT, HandSource, lost
from tests.terminal.picture import PICTURE, picture
from tests.terminal.recorded import recorded_frame, recorded_server, two_engines, with_gpus
from tests.terminal.screens import running, text

from vllm_watch.daemon.catalog.states import BEST_TO_WORST


STATES = tuple(reversed(BEST_TO_WORST))
SIZES = ((80, 24), (200, 50))

pytestmark = pytest.mark.slow


def all_servers():
    """Return a frame with a recorded server in each state, and one with two engines."""
    return recorded_frame(*(recorded_server(state) for state in STATES), two_engines())


async def shown(source, view, app, pilot):
    """Show something else, and return the screen."""
    source.view = view
    app.tick()
    await pilot.pause()
    return text(app)


def drawn(size, views):
    """Return the screen of each view, one after the other in one application."""

    async def run():
        source = HandSource(recorded_frame(recorded_server("idle")))
        async with running(source, size) as (app, pilot):
            return {name: await shown(source, view, app, pilot) for name, view in views.items()}

    return asyncio.run(run())


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_every_state_is_drawn_as_it_was(snapshot, size):
    """A server in each state, with one engine or two, has the screen that was kept, at both sizes."""
    servers = {**{state: recorded_server(state) for state in STATES}, "two-engines": two_engines()}

    for name, screen in drawn(size, {name: recorded_frame(server) for name, server in servers.items()}).items():
        assert snapshot(name=name) == screen


def gpu_views():
    """Return a server with eight GPUs that work, with some that do not, in parts, and while nothing can be read."""
    fallen = {"at": AT - 60, "xid": "79", "class": "reboot", "pci_bus_id": "0000:1b:00"}
    some = eight(gpu3=lost_gpu(3), gpu4=used(gpu(4), HOT), gpu5=advised(5, "drain_and_reset"))
    return {
        "healthy": with_gpus(*eight()),
        "lost": with_gpus(*some, errors=[fallen]),
        "mig": with_gpus(*divided()),
        "hanging": with_gpus(unread(0), reason="call_hangs"),
    }


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_gpus_are_drawn_as_they_were(snapshot, size):
    """Each GPU has a line, one that is lost is an alarm also in the table of servers, and what is absent is a dash."""
    servers = gpu_views()
    several = recorded_frame(recorded_server("idle"), servers["lost"], two_engines())
    screens = drawn(size, {**{name: recorded_frame(server) for name, server in servers.items()}, "several": several})

    for name, screen in screens.items():
        assert snapshot(name=name) == screen
    assert "1 LOST" in screens["several"]


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_the_other_screens_are_drawn_as_they_were(snapshot, size):
    """The table, also without its source and paused, and the help have the screens that were kept."""

    async def run():
        source = HandSource(all_servers())
        async with running(source, size) as (app, pilot):
            screens = {"table": await shown(source, all_servers(), app, pilot)}
            screens["lost"] = await shown(source, lost(all_servers()), app, pilot)
            await shown(source, all_servers(), app, pilot)
            for name, key in (("paused", "space"), ("help", "question_mark")):
                await pilot.press(key)
                await pilot.pause()
                screens[name] = text(app)
            return screens

    screens = asyncio.run(run())

    for name, screen in screens.items():
        assert snapshot(name=name) == screen


def test_small_screens_are_drawn_as_they_were(snapshot):
    """Small screens have a line for each server, or one server in short lines, as they were kept."""

    async def run():
        screens = {}
        source = HandSource(all_servers())
        async with running(source, (80, 24)) as (app, pilot):
            for width, height in ((59, 24), (40, 10)):
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                screens[f"{width}x{height}"] = await shown(source, all_servers(), app, pilot)
                one = await shown(source, recorded_frame(recorded_server("saturated")), app, pilot)
                screens[f"{width}x{height}-one"] = one
        return screens

    screens = asyncio.run(run())

    for name, screen in screens.items():
        assert snapshot(name=name) == screen


def test_the_picture_of_the_readme_is_that_of_now():
    """The README's picture is what `python -m tests.terminal.picture` draws, and asks no other host for anything."""
    kept = PICTURE.read_text(encoding="utf-8")
    hosts = set(re.findall(r"https?://([^\s\"'<:/)]+)", kept))

    assert kept == picture()
    assert {"127.0.0.1", "www.w3.org"} == hosts
