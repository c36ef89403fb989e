# SPDX-License-Identifier: Apache-2.0
"""The keys, as in htop and nvitop: from this list are what they do, the last line of each screen, and the help."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """
    What some keys do.

    Args:
        keys: Their names in textual.
        action: The action of a screen, or of the application; empty if the screen reads the key itself.
        shown: How the last line and the help name them.
        word: What they do, in a word; empty if the last line does not have it.
        text: What they do, for the help.
        others: How the help names the other keys that do the same; empty if there is none.
    """

    keys: tuple[str, ...]
    action: str
    shown: str
    word: str
    text: str
    others: str = ""


QUIT = Key(("q", "f10", "ctrl+c"), "app.leave", "q", "Quit", "quit", "F10, Ctrl-C")
HELP = Key(("question_mark", "h", "f1"), "app.show_help", "?", "Help", "this help", "h, F1")
BACK = Key(
    ("escape", "left", "backspace"),
    "back",
    "Esc",
    "Back",
    "back; in the table of servers, show all again",
    "Left, Backspace",
)
OPEN = Key(("enter", "right"), "open", "Enter", "Open", "show the selected server in detail", "Right, a click")
FILTER = Key(
    ("slash", "f4", "f3"), "", "/", "Filter", "show only servers with these words in name, model or state", "F3, F4"
)
SORT = Key(("s", "f6"), "sort", "s", "Sort", "sort by the next column", "F6")
REVERSE = Key(("S", "upper_s"), "reverse", "S", "Reverse", "sort the other way round")
PAUSE = Key(("space", "p"), "app.pause", "Space", "Pause", "hold the values, and a recording, or go on", "p")
EVENTS = Key(("e",), "app.events", "e", "Events", "what has happened in the last hour")
SLOWER = Key(("plus", "equals_sign"), "app.slower", "+", "", "wait longer between two readings", "=")
FASTER = Key(("minus",), "app.faster", "-", "", "wait less between two readings")
READ = Key(("r", "f5", "ctrl+l"), "app.read_now", "r", "Read", "read and draw everything now", "F5, Ctrl-L")
THEME = Key(("t",), "app.switch_theme", "t", "Theme", "dark or light")
UP = Key(("up", "k"), "move(-1)", "Up", "", "the line above", "k, the wheel")
DOWN = Key(("down", "j"), "move(1)", "Down", "", "the line below", "j, the wheel")
PAGE_UP = Key(("pageup", "ctrl+b"), "move_screen(-1)", "PgUp", "", "a screen up", "Ctrl-B")
PAGE_DOWN = Key(("pagedown", "ctrl+f"), "move_screen(1)", "PgDn", "", "a screen down", "Ctrl-F")
FIRST = Key(("home", "g"), "move_to_end(-1)", "Home", "", "the first line", "g")
LAST = Key(("end", "G", "upper_g"), "move_to_end(1)", "End", "", "the last line", "G")
SUSPEND = Key(("ctrl+z",), "app.suspend_process", "Ctrl-Z", "", "stop until the shell's fg")

KEYS = (
    QUIT, HELP, OPEN, BACK, UP, DOWN, PAGE_UP, PAGE_DOWN, FIRST, LAST, FILTER, SORT, REVERSE, PAUSE, EVENTS, SLOWER,
    FASTER, READ, THEME, SUSPEND,
)  # fmt: skip

OVERVIEW_KEYS = (QUIT, HELP, FILTER, SORT, REVERSE, PAUSE, OPEN, EVENTS, READ, THEME)
SERVER_KEYS = (QUIT, HELP, BACK, PAUSE, EVENTS, READ, THEME)
ONLY_SERVER_KEYS = (QUIT, HELP, PAUSE, EVENTS, READ, THEME)
SCREEN_KEYS = (QUIT, BACK)
