# SPDX-License-Identifier: Apache-2.0
"""The screen: the table of servers with one of them in detail, one server alone, or the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, get_args

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from vllm_watch.cli.terminal.cells import fit
from vllm_watch.cli.terminal.frames import Frame, Server
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
    _key("space,p", "app.pause", "Space, p", "Pause", "hold the values, or go on"),
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


class Present:
    """
    What is known now, as far as it is shown.

    Args:
        source: Where frames come from.
    """

    def __init__(self, source: ReadingThread) -> None:
        self._source = source
        self._hours: frozenset[str] = frozenset()
        self.moment = Moment(source.latest(), source.now(), source.title, source.delay)

    def look(self) -> None:
        """Take what the source has now; while paused, only the time goes on."""
        source, shown = self._source, self.moment
        if shown.paused is None:
            shown = shown._replace(view=source.latest(), title=source.title)
        self.moment = shown._replace(now=source.now(), delay=source.delay)

    def pause(self) -> None:
        """Hold what is known, or go on."""
        self.moment = self.moment._replace(paused=self._source.now() if self.moment.paused is None else None)
        self.look()

    def ask_for_hour(self, server: str | None) -> None:
        """Ask the source for the last hour of a server, if it does not read that already."""
        names = frozenset() if server is None else frozenset((server,))
        if names != self._hours:
            self._hours = names
            self._source.show_hours(names)


class Page(VerticalScroll, inherit_bindings=False):
    """Lines that can be scrolled, by the keys of the screen."""


class ServerTable(DataTable[Text], inherit_bindings=False):
    """The table of servers, with the keys of the screen."""

    def __init__(self) -> None:
        super().__init__(id="servers", cursor_type="row", cursor_foreground_priority="renderable", cell_padding=0)
        self.cursor_background_priority = "renderable"
        self.header_height = _HEAD
        self.servers: list[Server] = []
        self.sorted_by = "state"
        self._drawn: object = None

    @property
    def selected(self) -> Server | None:
        """The server that is selected; the only one if there is one."""
        return self.servers[min(self.cursor_row, len(self.servers) - 1)] if self.servers else None

    def draw(self, frame: Frame | None, words: str, width: int, styled: Callable[[Sequence[Line]], Text]) -> None:
        """Show the servers that have the words of a filter, and keep the selected one selected."""
        chosen, every = self.selected, frame.servers if frame is not None else ()
        self.servers = arranged(every, self.sorted_by, words)
        shown, names = placed(columns_for(every), width), [server.name for server in self.servers]
        drawn = (self.sorted_by, [(column.name, width) for column, width in shown], names)
        if drawn != self._drawn:
            self._drawn = drawn
            self.clear(columns=True)
            for column, room in shown:
                head = column.head(room, SORT_MARK if column.name == self.sorted_by else "")
                self.add_column(styled(head), width=room + (column is not shown[-1][0]), key=column.name)
            self.add_rows([Text()] * len(shown) for _ in names)
            index = next((index for index, name in enumerate(names) if chosen is not None and name == chosen.name), 0)
            self.move_cursor(row=index)
        for row, server in enumerate(self.servers):
            for number, (column, room) in enumerate(shown):
                text = styled([column.line_of(server, room)])
                if self.get_cell_at(Coordinate(row, number)) != text:
                    self.update_cell_at(Coordinate(row, number), text)


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
        present: What is known now.
        has_color: Whether colours are written.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES}
    BINDINGS: ClassVar[list[BindingType]] = list(KEYS)

    def __init__(self, present: Present, *, has_color: bool) -> None:
        super().__init__(classes="" if has_color else "-plain")
        self._present = present
        self.opened: str | None = None
        """The name of the server that is shown alone."""
        self.is_help = False

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield Static(id="title")
        yield Static(id="top")
        yield ServerTable()
        yield Input(placeholder="words in name, model or state; Enter keeps them, Esc shows all", compact=True)
        with Page():
            yield Static(id="body")
        yield Footer(compact=True, show_command_palette=False)

    @property
    def selected(self) -> Server | None:
        """The server that is selected in the table; the only one if there is one."""
        return self.query_one(ServerTable).selected

    @property
    def has_table(self) -> bool:
        """Whether the table is shown: it needs more than one server."""
        frame = self._present.moment.frame
        return frame is not None and len(frame.servers) > 1 and self.opened is None and not self.is_help

    def draw(self) -> None:
        """Show what is known now."""
        width, frame, table = self.size.width, self._present.moment.frame, self.query_one(ServerTable)
        if not width or not self.is_mounted:
            return
        words = self.query_one(Input).value if frame is not None and len(frame.servers) > 1 else ""
        table.draw(frame, words, width - 1, self.styled)
        table.set_class(not self.has_table or not table.servers, "-hidden")
        room = self.size.height - 3
        least = 0 if room < _LEAST_WITH_DETAIL else max(room // 4, _LEAST_DETAIL)
        table.styles.height = max(min(room - least, len(table.servers) + _HEAD), 1)
        self._draw_lines()
        self.refresh_bindings()

    def _draw_lines(self) -> None:
        width, moment, words = self.size.width, self._present.moment, self.query_one(Input).value
        above: list[Line] = []
        if moment.frame is not None and self.opened is None and not self.is_help:
            is_small = width < _SMALL[0] or self.size.height < _SMALL[1]
            right = f'{len(self.query_one(ServerTable).servers)} with "{words}"' if words else ""
            above = _above(moment.frame, width, right, is_small=is_small)
        room = max(width - 1, 1)  # The last column is the scroll bar's.
        server = self.selected
        if self.opened is not None:
            servers = moment.frame.servers if moment.frame is not None else ()
            server = next((server for server in servers if server.name == self.opened), None)
        lines = _help(room) if self.is_help else _detail(moment, server, self.opened, words, room)
        title = self.styled([title_line(moment, width), *banner(moment, width)], width, is_current=True)
        self.query_one("#title", Static).update(title)
        self.query_one("#top", Static).update(self.styled(above, width))
        self.query_one("#top").set_class(not above, "-hidden")
        self.query_one("#body", Static).update(self.styled(lines, room, is_current=self.is_help))

    def styled(self, lines: Sequence[Line], width: int | None = None, *, is_current: bool = False) -> Text:
        """
        Return lines as they look.

        Args:
            lines: The lines.
            width: In how many columns each; without it they are as they are.
            is_current: Whether they are no values of a source that may be lost, which are dim.
        """
        is_dim = not is_current and self._present.moment.lost is not None
        text = Text(no_wrap=True, end="")
        for number, row in enumerate(lines):
            text.append("\n" if number else "")
            for span in (row if width is None else fitted(row, width)).spans:
                role = "dim" if is_dim else span.role
                style = None if role == "text" else self.get_component_rich_style(f"role--{role}", partial=True)
                text.append(span.text, style)
        return text

    def on_resize(self, event: Resize) -> None:
        """Draw everything for the new size."""
        del event
        self.call_after_refresh(self.draw)

    def on_data_table_row_highlighted(self) -> None:
        """Show the server that was selected."""
        self._draw_lines()

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

    @on(DataTable.RowSelected)  # By another click on its line.
    def action_open(self) -> None:
        """Show the selected server alone."""
        if self.has_table and self.selected is not None:
            self._turn(self.selected.name)

    def action_sort(self) -> None:
        """Sort by the next column."""
        table = self.query_one(ServerTable)
        table.sorted_by = next_order(table.sorted_by)
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


def _above(frame: Frame, width: int, right: str, *, is_small: bool) -> list[Line]:
    """Return what is about no server, and how many servers are in which state, with a text at the right of that."""
    lines = common_lines(frame, width, 1 if is_small else _COMMON)
    if len(frame.servers) == 1:
        return lines
    counts = counts_line(frame.servers, width - len(right) - 1)
    return [*lines, spread(counts, line(Span(right, "label")), width)]


def _detail(moment: Moment, server: Server | None, opened: str | None, words: str, width: int) -> list[Line]:
    """Return a server, or why none is shown: nothing is known, it is gone, none has the words of the filter."""
    if moment.frame is None:
        return [] if moment.lost is not None else wrapped(f"Reading {moment.title} for the first time.", width)
    if server is not None:
        return server_detail(server, Pane(width, moment.at))
    if opened is not None:
        return wrapped(f"{opened} is not watched any more. Esc shows the others.", width)
    none = f'No server has "{words}" in its name, model or state. Esc shows all.' if words else NO_SERVER
    return wrapped(none, width)


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
