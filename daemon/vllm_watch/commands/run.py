# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch run``: the daemon."""

from __future__ import annotations

from vllm_watch.commands.watched import Selection, configured, discovered
from vllm_watch.config.model import Config
from vllm_watch.service.supervisor import run_service
from vllm_watch.support.clock import SystemClock


def run_daemon(selection: Selection) -> None:
    """
    Watch the selected servers until a signal ends the daemon.

    Raises:
        VllmWatchError: It cannot start.
    """
    if selection.is_empty:
        follower = discovered(selection)
        run_service(follower.poll(), SystemClock(), follower=follower)
        return

    def load() -> Config:
        return configured(selection)

    run_service(load(), SystemClock(), load if selection.config_file is not None else None)
