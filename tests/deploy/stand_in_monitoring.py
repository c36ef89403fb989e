# SPDX-License-Identifier: Apache-2.0
"""
In place of Prometheus, Alertmanager and Grafana, where a test is about who starts and ends them.

It is started by their names, listens where their options say, and answers what is asked at a start. A file beside the
program, of its name and ``.fails``, lets it say what is in there and end with status 3.
"""

from __future__ import annotations

import configparser
import json
import os
import sys

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


ANSWERS = {
    "/api/v1/alertmanagers": {"data": {"activeAlertmanagers": [{}]}},
    "/api/v1/targets?state=active": {"data": {"activeTargets": [{}]}},
}


class Handler(BaseHTTPRequestHandler):
    """Is ready."""

    def do_GET(self) -> None:
        """Answer with what is there, or with nothing."""
        body = json.dumps(ANSWERS.get(self.path, {})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def port(options: dict[str, str]) -> int:
    """Return where the options or the settings that they name say that it listens."""
    if "--web.listen-address" in options:
        return int(options["--web.listen-address"].rpartition(":")[2])
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(options["--config"])
    return int(settings["server"]["http_port"])


def main(program: str, *arguments: str) -> None:
    """Answer until a signal comes."""
    fails = Path(f"{program}.fails")
    if fails.exists():
        sys.stderr.write(fails.read_text())
        sys.exit(3)
    assert not [name for name in os.environ if name.startswith("GF_")] or "grafana" not in program
    options = dict(each.split("=", 1) for each in arguments if "=" in each)
    ThreadingHTTPServer(("127.0.0.1", port(options)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
