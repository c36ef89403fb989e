# SPDX-License-Identifier: Apache-2.0
"""Textual's driver of a terminal, which keeps reading keys whatever the terminal sends."""

from __future__ import annotations

from contextlib import suppress

from textual.drivers.linux_driver import LinuxDriver


class KeyDriver(LinuxDriver):
    """Drops what is no UTF-8, such as an accented letter of a Latin-1 terminal: textual would end with an error."""

    def run_input_thread(self) -> None:
        """Read keys until the application ends."""
        has_ended = False
        while not has_ended:
            with suppress(UnicodeDecodeError):
                super().run_input_thread()
                has_ended = True
