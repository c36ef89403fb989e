# SPDX-License-Identifier: Apache-2.0
"""
What is worked out of an engine's scrapes is kept until the next one.

A snapshot needs the same gauges in two places, and several snapshots are taken between two scrapes: for each scrape of
the daemon, for the status page and its charts, for the JSON.
"""

from __future__ import annotations

import functools

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from vllm_watch.daemon.state.scrape_source import ScrapeSource
from vllm_watch_parsers.scrape import EngineKey


Others = ParamSpec("Others")
Made = TypeVar("Made")


def until_next_scrape(
    make: Callable[Concatenate[ScrapeSource, EngineKey, Others], Made],
) -> Callable[Concatenate[ScrapeSource, EngineKey, Others], Made]:
    """
    Have a function return what it made last, if it is asked the same of the same scrapes; nobody may change that.

    Args:
        make: Works something out of an engine's scrapes and of its other arguments, and of nothing else.
    """

    @functools.wraps(make)
    def keeping(scrape: ScrapeSource, key: EngineKey, /, *others: Others.args, **named: Others.kwargs) -> Made:
        kept: dict[object, tuple[object, Made]] = scrape.window.kept
        asked = (others, *named.items())
        known = kept.get((make, key))
        if known is None or known[0] != asked:
            known = kept[make, key] = asked, make(scrape, key, *others, **named)
        return known[1]

    return keeping
