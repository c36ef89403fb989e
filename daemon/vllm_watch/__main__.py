# SPDX-License-Identifier: Apache-2.0
"""
The program, from its first moment on: what comes while the command line is still being imported is not lost.

A reload that is asked of a daemon waits until it can be heard, and Ctrl-C ends any command without a traceback.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    if sys.argv[1:2] == ["run"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])  # `service.supervisor` lets it through.
    try:
        from vllm_watch.cli.command_line import main as run_command_line  # noqa: PLC0415  # It takes tenths of a second.

        run_command_line()
    except KeyboardInterrupt:
        sys.exit("Aborted!")


if __name__ == "__main__":
    main()
