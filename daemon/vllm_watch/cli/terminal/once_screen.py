# SPDX-License-Identifier: Apache-2.0
"""One screen as plain text, for scripts and for terminals without textual: the words of the screens, all of them."""

from __future__ import annotations

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.happened import common_lines
from vllm_watch.cli.terminal.heading import banner, title_line
from vllm_watch.cli.terminal.lines import EMPTY, Line, fitted
from vllm_watch.cli.terminal.model import Frame
from vllm_watch.cli.terminal.moment import Moment
from vllm_watch.cli.terminal.overview import HEAD, Shown, overview
from vllm_watch.cli.terminal.server_detail import server_detail
from vllm_watch.cli.terminal.server_table import Order


_DETAIL_LINES = 200
"""More than the lines of any server."""


def once_screen(moment: Moment, width: int, cells: Cells) -> str:
    """
    Return a screen as lines of at most so many columns: one server whole; of several a table, and the worst one whole.

    Args:
        moment: What was read, and when.
        width: Columns.
        cells: How numbers and drawings are written.
    """
    frame = moment.frame
    body = [] if frame is None else [*common_lines(frame, width), *_servers(frame, moment.at, width, cells)]
    lines = [title_line(moment, width, cells), *banner(moment, width, cells), EMPTY, *body]
    return "".join(f"{fitted(line, width, cells).text.rstrip()}\n" for line in lines)


def _servers(frame: Frame, at: float, width: int, cells: Cells) -> list[Line]:
    servers = frame.servers
    if len(servers) == 1:
        return server_detail(servers[0], at, width, cells)
    shown = Shown(servers, servers, selected=0, top=0, order=Order(), words="")
    return overview(shown, at, width, HEAD + len(servers) + _DETAIL_LINES, cells)
