# SPDX-License-Identifier: Apache-2.0
"""
The size of the house: ``python -m tests.figures`` counts it and prints a table.

A value is followed through the daemon as it runs: a module is on its way if one of its functions is called with the
value, or with something that holds it, or returns that. A form is a type that holds it: bytes, or a class.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


ROOT = Path(__file__).parents[1]
PRODUCT = ("daemon", "parsers")
PROGRAMS = ("dashboards", "alerts", "deploy")
SMALL = 60
"""A module of fewer lines is hardly a subject of its own."""
WORD = re.compile(r"[^\W\d_][\w'-]*")
NOT_PROSE = re.compile(r"(METRICS|INCIDENTS)\.md$|runbooks/|zh-CN|/\.?(corpus|golden)/")

VALUES = {"log": 12345.5, "metrics": 0.43753}
"""What is followed from each source: nothing else in the daemon has these values."""
LOG_LINE = (
    "INFO 11-23 10:00:00 [loggers.py:248] Engine 000: Avg prompt throughput: 12345.5 tokens/s, "
    "Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
    "Prefix cache hit rate: 0.0%\n"
)
PAGE = (
    '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
    '# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.43753\n'
)
DEPTH = 8
"""How deep a value may lie in what a function gets."""


def tracked(*endings: str) -> list[Path]:
    """Return the files of the repository with one of some endings."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (ROOT / name for name in listed.stdout.splitlines() if name.endswith(endings or ("",)))
    return [path for path in paths if path.exists()]


def modules(*folders: str) -> list[Path]:
    """Return the Python files in some folders."""
    return [path for path in tracked(".py") if path.relative_to(ROOT).parts[0] in folders]


def lines(paths: Iterable[Path]) -> int:
    """Return how many lines files have together."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def words() -> int:
    """Return the words of the documents in English, without METRICS.md, INCIDENTS.md and the runbooks."""
    documents = [path for path in tracked(".md") if not NOT_PROSE.search(str(path.relative_to(ROOT)))]
    return sum(len(WORD.findall(path.read_text(encoding="utf-8"))) for path in documents if not path.is_symlink())


def imports() -> Mapping[str, set[str]]:
    """Return which modules of the product each of them imports."""
    names = {dotted(path): path for path in modules(*PRODUCT)}
    return {name: {target for target in imported(path) if target in names} - {name} for name, path in names.items()}


def dotted(path: Path) -> str:
    """Return the name of a module by its file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield the names that a file imports, as modules and as what is in them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def longest_chain(graph: Mapping[str, set[str]]) -> int:
    """Return how many modules the longest chain of imports has."""
    lengths: dict[str, int] = {}

    def length(name: str) -> int:
        if name not in lengths:
            lengths[name] = 1 + max((length(target) for target in graph[name]), default=0)
        return lengths[name]

    return max(map(length, graph))


def repeated_names() -> list[str]:
    """Return the base names that several modules of the product have."""
    names = Counter(path.stem for path in modules(*PRODUCT) if not path.stem.startswith("__"))
    return sorted(name for name, number in names.items() if number > 1)


class Follower:
    """Notes where a value passes, in all threads that start after it is installed."""

    def __init__(self, value: float) -> None:
        self._value = value
        self._spelled = repr(value).encode()
        self.modules: set[str] = set()
        self.forms: set[str] = set()

    def install(self) -> None:
        """Look at each call and return of the product from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame, event, argument) -> None:
        name = frame.f_globals.get("__name__", "")
        if event not in {"call", "return"} or not name.startswith(("vllm_watch.", "vllm_watch_parsers.")):
            return
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        handed = [frame.f_locals.get(each) for each in names if each != "self"] if event == "call" else [argument]
        if [item for item in handed if self._holds(item, 0)]:
            self.modules.add(name)

    def _holds(self, item: object, depth: int) -> bool:
        if isinstance(item, bytes | bytearray | memoryview | str):
            text = item.encode() if isinstance(item, str) else bytes(item)
            if self._spelled in text:
                self.forms.add(type(item).__name__)
            return self._spelled in text
        if isinstance(item, float):
            return item == self._value
        if depth == DEPTH:
            return False
        if isinstance(item, Mapping):
            inside = list(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            inside = list(item)
        elif hasattr(item, "__struct_fields__"):
            inside = [getattr(item, field) for field in item.__struct_fields__]
        else:
            return False
        found = [part for part in inside[:2000] if self._holds(part, depth + 1)]  # All of them: each may be a form.
        if found and type(item).__module__.startswith("vllm_watch"):
            self.forms.add(type(item).__name__)
        return bool(found)


def follow(source: str) -> tuple[list[str], list[str]]:
    """Return the modules and the forms that a value passes from a source, ``log`` or ``metrics``, to our /metrics."""
    code = f"from tests.figures import run_followed; run_followed({source!r})"
    paths = os.pathsep.join(str(ROOT / folder) for folder in (".", *PRODUCT))
    environment = {**os.environ, "PYTHONPATH": paths}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    passed, forms = (line.split() for line in ran.stdout.splitlines()[-2:])
    if "--verbose" in sys.argv:
        print(f"{source}: modules: {' '.join(passed)}\n{source}: forms: {' '.join(forms)}")
    return passed, forms


def run_followed(source: str) -> None:
    """Run the daemon in this process on a source that says the value, and print what the value passed."""
    from vllm_watch.cli.command_line import main  # noqa: PLC0415  # Only the process that is followed needs it.

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    follower = Follower(VALUES[source])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.touch()
        threading.Thread(target=_end_when_shown, args=(address, log, source), daemon=True).start()
        where = ["--log", str(log)] if source == "log" else ["--metrics", _serve_page()]
        follower.install()
        try:
            main(["run", *where, "--listen", address])
        except SystemExit:
            pass
        finally:
            sys.setprofile(None)
    print(*sorted(follower.modules))
    print(*sorted(follower.forms))


def _end_when_shown(address: str, log: Path, source: str) -> None:
    """End this process when its /metrics shows the value; of a log, the line is written when the daemon is up."""
    spelled = repr(VALUES[source]).encode()
    end, body = time.monotonic() + 60, b""
    while spelled not in body and time.monotonic() < end:
        time.sleep(0.1)
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
                body = response.read()
        except OSError:
            continue
        if source == "log" and log.stat().st_size == 0:
            log.write_text(time.strftime("INFO %m-%d %H:%M:%S") + LOG_LINE[19:], encoding="utf-8")
    os.kill(os.getpid(), signal.SIGTERM)


def _serve_page() -> str:
    """Serve a /metrics with the value in the background; return its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/metrics"


def main() -> None:
    """Print the table."""
    product = modules(*PRODUCT)
    log, scraped = follow("log"), follow("metrics")
    repeated = repeated_names()
    rows = {
        "lines of daemon/ and parsers/ (Python)": lines(product),
        "their modules": len(product),
        f"modules under {SMALL} lines": sum(lines([path]) < SMALL for path in product),
        "lines of dashboards/, alerts/ and deploy/ (Python)": lines(modules(*PROGRAMS)),
        "lines of tests/ (Python)": lines(modules("tests")),
        "files in git": len(tracked()),
        "modules (forms) that a log line passes until /metrics": f"{len(log[0])} ({len(log[1])})",
        "modules (forms) that a scraped gauge passes": f"{len(scraped[0])} ({len(scraped[1])})",
        "longest chain of imports": longest_chain(imports()),
        "base names that occur twice or more": f"{len(repeated)} ({', '.join(repeated)})",
        "words of documents in English": words(),
    }
    for name, value in rows.items():
        print(f"{name:56} {value}")


if __name__ == "__main__":
    main()
