# SPDX-License-Identifier: Apache-2.0
"""The screen: the table of servers with one of them in detail, one server alone, or the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, get_args

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from vllm_watch.cli.terminal.cells import fit
from vllm_watch.cli.terminal.frames import Server
from vllm_watch.cli.terminal.heading import NO_SERVER, Moment, banner, common_lines, counts_line, title_line
from vllm_watch.cli.terminal.lines import EMPTY, Line, Pane, Role, Span, fitted, line, placed, rule, spread, wrapped
from vllm_watch.cli.terminal.numbers import state_piece
from vllm_watch.cli.terminal.reading_thread import ReadingThread
from vllm_watch.cli.terminal.server_detail import server_detail
from vllm_watch.cli.terminal.tables import SORT_MARK, arranged, columns_for, next_order
from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES
from vllm_watch.daemon.state.window import MIN_SECONDS


ROLES: tuple[Role, ...] = tuple(role for part in get_args(Role) for role in get_args(part))

_SMALL = (60, 12)
_COMMON = 3
_HEAD = 2
"""Lines of the head of the table."""

_LEAST_WITH_DETAIL = 18
_LEAST_DETAIL = 6

_KEY = 24
_STATE = 13
_WORD = 15

_WORDS = (
    ("output", "tokens that an engine generates, in a second; prompt: tokens of prompts that it reads"),
    ("tok/s", f"over the last {MIN_SECONDS:g} s or more; the state, running and waiting are of one moment"),
    ("running", "requests that get tokens, and the most there can be (max-num-seqs)"),
    ("waiting", "requests in the queue; deferred: of these, those that wait for something remote"),
    ("KV cache", "how much of its tokens is in use; when it is full, requests wait or are preempted"),
    ("TTFT", "time to first token"),
    ("TPOT", "time per output token, mean over a request"),
    ("ITL", "inter-token latency: from one token to the next"),
    ("p50 p95 p99", "half of the values are below p50, 95 % below p95, 99 % below p99; ! is over the objective"),
    ("~", "an estimate: vLLM counts latencies in ranges, and this one's end is twice its start or more"),
    (">, <", "above the start of a range too wide for an estimate; below the end of the first one"),
    ("12.5s", "a latency in seconds; those without a unit are in milliseconds"),
    ("prefix hits", "tokens of prompts that were in the cache already"),
    ("tokens a step", "how many tokens a step gives with speculative decoding: accepted drafts and one more"),
    ("draft 1, 2 …", "how many of the drafts are accepted at each position"),
    ("log, /metrics", "the source of a number, and its age there"),
)  # fmt: skip


def _key(keys: str, action: str, shown: str, word: str, text: str) -> Binding:
    """
    Return what some keys do; ``/`` is taken before the widget with the focus gets it, so that no key after it is lost.

    Args:
        keys: Their names in textual.
        action: The action of a screen or of the application.
        shown: How the help names them; the last line has the first.
        word: What they do, in a word for the last line, which does not have those without one.
        text: What they do, for the help.
    """
    first = shown.partition(",")[0]
    return Binding(keys, action, word or text, bool(word), first, priority=action == "filter", tooltip=text, id=shown)


KEYS = (
    _key("q,f10", "app.leave", "q, F10, Ctrl-C", "Quit", "quit"),
    _key("question_mark,h,f1", "help", "?, h, F1", "Help", "this help"),
    _key("slash,f4,f3", "filter", "/, F3, F4", "Filter", "show only servers with these words in name, model or state"),
    _key("s,f6", "sort", "s, F6", "Sort", "sort by the next column"),
    _key("space,p", "pause", "Space, p", "Pause", "hold the values, or go on"),
    _key("enter,right", "open", "Enter, Right, a click", "Open", "show the selected server in detail"),
    _key("escape,left,backspace", "back", "Esc, Left, Backspace", "Back", "back; in the table, show all servers again"),
    _key("r,f5,ctrl+l", "app.read_now", "r, F5, Ctrl-L", "Read", "read and draw everything now"),
    _key("up,k", "move('up')", "Up, k, the wheel", "", "the line above"),
    _key("down,j", "move('down')", "Down, j, the wheel", "", "the line below"),
    _key("pageup,ctrl+b", "move('page_up')", "PgUp, Ctrl-B", "", "a screen up"),
    _key("pagedown,ctrl+f", "move('page_down')", "PgDn, Ctrl-F", "", "a screen down"),
    _key("home,g", "move('home')", "Home, g", "", "the first line"),
    _key("end,G,upper_g", "move('end')", "End, G", "", "the last line"),
    _key("ctrl+z", "app.suspend_process", "Ctrl-Z", "", "stop until the shell's fg"),
)  # fmt: skip


class Page(VerticalScroll, inherit_bindings=False):
    """Lines that can be scrolled, by the keys of the screen."""


class ServerTable(DataTable[Text], inherit_bindings=False):
    """The table of servers, with the keys of the screen."""


_ALL = 1_000_000
"""More lines than any screen has."""

_CURSOR = {
    "up": "cursor_up", "down": "cursor_down", "page_up": "page_up", "page_down": "page_down", "home": "scroll_top",
    "end": "scroll_bottom",
}  # fmt: skip


class TopScreen(Screen[None]):
    """
    The table of servers, the worst first, with the selected one below; or one server alone, or the help.

    Args:
        source: Where frames come from.
        has_color: Whether colours are written.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES}
    BINDINGS: ClassVar[list[BindingType]] = list(KEYS)

    def __init__(self, source: ReadingThread, *, has_color: bool) -> None:
        super().__init__(classes="" if has_color else "-plain")
        self._source = source
        self._moment = Moment(source.latest(), source.now(), source.title, source.delay)
        self._hours: frozenset[str] = frozenset()
        self._sorted_by = "state"
        self._drawn: object = None
        self._servers: list[Server] = []
        self.opened: str | None = None
        """The name of the server that is shown alone."""
        self.is_help = False

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield Static(id="title")
        yield Static(id="top")
        table = ServerTable(id="servers", cursor_type="row", cursor_foreground_priority="renderable", cell_padding=0)
        table.cursor_background_priority = "renderable"
        table.header_height = _HEAD
        yield table
        yield Input(placeholder="words in name, model or state; Enter keeps them, Esc shows all", compact=True)
        with Page():
            yield Static(id="body")
        yield Footer(compact=True, show_command_palette=False)

    @property
    def selected(self) -> Server | None:
        """The server that is selected in the table; the only one if there is one."""
        row = self.query_one(ServerTable).cursor_row
        return self._servers[min(row, len(self._servers) - 1)] if self._servers else None

    @property
    def has_table(self) -> bool:
        """Whether the table is shown: it needs more than one server."""
        frame = self._moment.frame
        return frame is not None and len(frame.servers) > 1 and self.opened is None and not self.is_help

    def look(self) -> None:
        """Draw what the source has now; while paused, only the time goes on."""
        source, shown = self._source, self._moment
        if shown.paused is None:
            shown = shown._replace(view=source.latest(), title=source.title)
        self._moment = shown._replace(now=source.now(), delay=source.delay)
        self.draw()

    def ask_for_hour(self) -> None:
        """Ask the source for the last hour of the server whose detail is shown, if it does not read that already."""
        name = self.opened or (self.selected.name if self.selected is not None else None)
        names = frozenset() if name is None else frozenset((name,))
        if names != self._hours:
            self._hours = names
            self._source.show_hours(names)

    def draw(self) -> None:
        """Show what is known now."""
        width, moment = self.size.width, self._moment
        if not width or not self.is_mounted:
            return
        self._draw_table(moment)
        self._draw_lines()
        self.refresh_bindings()

    def _draw_lines(self) -> None:
        width, moment = self.size.width, self._moment
        self.query_one("#title", Static).update(self.styled([title_line(moment, width)], width))
        top = self.styled([*banner(moment, width), *self._faded(self._above(moment, width))], width)
        self.query_one("#top", Static).update(top)
        self.query_one("#top").set_class(not top, "-hidden")
        room = max(width - 1, 1)  # The last column is the scroll bar's.
        lines = _help(room) if self.is_help else self._faded(self._detail(moment, room))
        self.query_one("#body", Static).update(self.styled(lines, room))

    def _above(self, moment: Moment, width: int) -> list[Line]:
        """Return what is about no server, and how many servers are in which state."""
        frame = moment.frame
        if frame is None or self.is_help or self.opened is not None:
            return []
        is_small = width < _SMALL[0] or self.size.height < _SMALL[1]
        lines = common_lines(frame, width, 1 if is_small else _COMMON)
        if len(frame.servers) == 1:
            return lines
        words = self.query_one(Input).value
        right = f'{len(self._servers)} with "{words}"' if words else ""
        counts = counts_line(frame.servers, width - len(right) - 1)
        return [*lines, spread(counts, line(Span(right, "label")), width)]

    def _detail(self, moment: Moment, width: int) -> list[Line]:
        if moment.frame is None:
            return [] if moment.lost is not None else wrapped(f"Reading {moment.title} for the first time.", width)
        server = self.selected
        if self.opened is not None:
            server = next((server for server in moment.frame.servers if server.name == self.opened), None)
        if server is not None:
            return server_detail(server, Pane(width, moment.at))
        if self.opened is not None:
            return wrapped(f"{self.opened} is not watched any more. Esc shows the others.", width)
        words = self.query_one(Input).value
        none = f'No server has "{words}" in its name, model or state. Esc shows all.' if words else NO_SERVER
        return wrapped(none, width)

    def _draw_table(self, moment: Moment) -> None:
        """Put the servers into the table, and keep the selected one selected."""
        table, chosen = self.query_one(ServerTable), self.selected
        servers = moment.frame.servers if moment.frame is not None else ()
        self._servers = arranged(servers, self._sorted_by, self.query_one(Input).value if len(servers) > 1 else "")
        table.set_class(not self.has_table or not self._servers, "-hidden")
        shown = placed(columns_for(servers), self.size.width - 1)
        names = [server.name for server in self._servers]
        drawn = (self._sorted_by, [(column.name, width) for column, width in shown], names)
        if drawn != self._drawn:
            self._drawn = drawn
            table.clear(columns=True)
            for column, width in shown:
                head = column.head(width, SORT_MARK if column.name == self._sorted_by else "")
                table.add_column(self.styled(head), width=width + (column is not shown[-1][0]), key=column.name)
            table.add_rows([Text()] * len(shown) for _ in names)
            index = next((index for index, name in enumerate(names) if chosen is not None and name == chosen.name), 0)
            table.move_cursor(row=index)
        for row, server in enumerate(self._servers):
            for number, (column, width) in enumerate(shown):
                (cell,) = self._faded([column.line_of(server, width)])
                text = self.styled([cell])
                if table.get_cell_at(Coordinate(row, number)) != text:
                    table.update_cell_at(Coordinate(row, number), text)
        room = self.size.height - 3
        least = 0 if room < _LEAST_WITH_DETAIL else max(room // 4, _LEAST_DETAIL)
        table.styles.height = max(min(room - least, len(names) + _HEAD), 1)

    def styled(self, lines: Sequence[Line], width: int | None = None) -> Text:
        """Return lines as they look: without a width as they are, else each in exactly this many columns."""
        rows = lines if width is None else [fitted(row, width) for row in lines]
        text = Text(no_wrap=True, end="")
        for number, row in enumerate(rows):
            text.append("\n" if number else "")
            for span in row.spans:
                text.append(span.text, self._style(span.role))
        return text

    def _style(self, role: Role) -> Style | None:
        return None if role == "text" else self.get_component_rich_style(f"role--{role}", partial=True)

    def _faded(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Return lines as values that are no longer current, if they are not."""
        if self._moment.lost is None:
            return lines
        return [Line(tuple(Span(span.text, "dim") for span in row.spans)) for row in lines]

    def on_resize(self, event: Resize) -> None:
        """Draw everything for the new size."""
        del event
        self.call_after_refresh(self.draw)

    def on_data_table_row_highlighted(self) -> None:
        """Show the server that was selected."""
        self._draw_lines()

    def on_data_table_row_selected(self) -> None:
        """Open the server of a line that is clicked again."""
        self.action_open()

    def on_input_changed(self) -> None:
        """Show what has the words of the filter."""
        self.draw()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._write(is_writing=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key does something: those of the table need one, and / is a character of a filter, too."""
        del parameters
        if action == "filter":
            return self.has_table and not self.query_one(Input).has_focus
        if action == "back":
            return self.has_table or self.opened is not None or self.is_help
        return self.has_table or action not in {"sort", "open"}

    def action_help(self) -> None:
        """Show the help, or go back from it."""
        self._turn(self.opened, is_help=not self.is_help)

    def action_pause(self) -> None:
        """Hold what is shown, or go on."""
        self._moment = self._moment._replace(paused=self._source.now() if self._moment.paused is None else None)
        self.look()

    def action_filter(self) -> None:
        """Write words that servers must have."""
        self._write(is_writing=True)

    def action_back(self) -> None:
        """Go back from the help, else to the table; there, show all servers again."""
        if self.is_help or self.opened is not None:
            self._turn(self.opened if self.is_help else None)
        else:
            self.query_one(Input).value = ""
            self._write(is_writing=False)

    def action_open(self) -> None:
        """Show the selected server alone."""
        if self.has_table and self.selected is not None:
            self._turn(self.selected.name)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sorted_by = next_order(self._sorted_by)
        self.draw()

    def action_move(self, where: str) -> None:
        """Select another server; without a table scroll, at once: keys that follow before it is drawn go on there."""
        if self.has_table:
            getattr(self.query_one(ServerTable), f"action_{_CURSOR[where]}")()
            return
        page = self.query_one(Page)
        steps = {"up": -1, "down": 1, "page_up": -page.size.height, "page_down": page.size.height, "home": -_ALL}
        page.scroll_to(y=page.scroll_offset.y + steps.get(where, _ALL), animate=False, immediate=True)

    def _turn(self, opened: str | None, *, is_help: bool = False) -> None:
        self.opened, self.is_help = opened, is_help
        self.query_one(Page).scroll_to(y=0, animate=False, immediate=True)
        self.draw()

    def _write(self, *, is_writing: bool) -> None:
        words = self.query_one(Input)
        words.set_class(is_writing, "-writing")
        # Not by `focus`, which would come too late for keys that follow at once.
        self.set_focus(words if is_writing else None)
        self.draw()


def _help(width: int) -> list[Line]:
    """Return what the keys, the states and the abbreviations mean."""
    lines = [rule("Keys", width)]
    for key in KEYS:
        lines += wrapped(key.tooltip, width, first=Span(fit(key.id or "", _KEY), "label"))
    lines += [EMPTY, rule("States, the worst first", width)]
    for state in reversed(BEST_TO_WORST):
        piece = state_piece(state)
        first, *others = wrapped(STATES[state].short, width, first=Span(" " * _STATE))
        pad = Span(" " * (_STATE - len(piece.text)))
        lines += [line(piece, pad, *first.spans[1:]), *others]
    lines += [EMPTY, rule("Words", width)]
    for word, text in _WORDS:
        lines += wrapped(text, width, first=Span(fit(word, _WORD), "label"))
    return [*lines, EMPTY, line(f"{MISSING} is what is not known; it is never 0.")]
