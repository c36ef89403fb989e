# SPDX-License-Identifier: Apache-2.0
"""
A page of families that no recording has, printed by the metric classes of vLLM 0.32.0.

The values were given to these classes by hand: a diffusion model with a watermark, two requests with a NaN, a trainer
that updates the weights just now, three WebSocket connections.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.support.pages import ScrapedServer

from vllm_watch.daemon.state.snapshot import ServerSnapshot


FURTHER = Path(__file__).parents[1] / "parsers" / "pages" / "further-0.32.0.txt"


@cache
def page_of_further_families() -> ServerSnapshot:
    """Return what is shown of the page, once there were enough scrapes for rates."""
    server = ScrapedServer()
    server.scrape(FURTHER.read_text("utf-8"), after=0.0)
    later = FURTHER.read_text("utf-8").replace(
        '_committed_tokens_total{engine="0",model_name="m"} 80.0',
        '_committed_tokens_total{engine="0",model_name="m"} 240.0',
    )
    later = later.replace(
        '_denoising_steps_total{engine="0",model_name="m"} 20.0',
        '_denoising_steps_total{engine="0",model_name="m"} 60.0',
    )
    return server.scrape(later, after=10.0)
