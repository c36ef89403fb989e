# SPDX-License-Identifier: Apache-2.0
"""Commands run as nobody, also with an interpreter that stands in root's own folder."""

from __future__ import annotations

import stat
import sys

from pathlib import Path


NOBODY = 65534

_DROP = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

# Puts a folder that everyone may enter over the private one, with nothing in it but the interpreter's.
_SHOW = """
set -e
mount --bind "$2" "$3"
mount -t tmpfs -o mode=755 none "$1"
mkdir -p "$2"
mount --bind "$3" "$2"
shift 3
exec "$@"
"""


def as_nobody(empty: Path) -> list[str]:
    """Return what goes before a command that root runs as nobody; the empty folder is needed meanwhile."""
    interpreter = Path(sys.base_prefix).resolve()
    private = next((each for each in reversed(interpreter.parents) if not each.stat().st_mode & stat.S_IXOTH), None)
    if private is None:
        return [*_DROP]
    return ["unshare", "-m", "/bin/sh", "-c", _SHOW, "sh", str(private), str(interpreter), str(empty), *_DROP]
