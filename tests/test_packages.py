# SPDX-License-Identifier: Apache-2.0
"""The structure holds: packages import downwards only, classes are small, and the core does no I/O."""

from __future__ import annotations

import ast
import functools
import sys

from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import vllm_watch
import vllm_watch_parsers


PARSERS = Path(vllm_watch_parsers.__file__).parent
DAEMON = Path(vllm_watch.__file__).parent
WINGS = {
    "daemon": (
        "catalog",
        "support",
        "statistics",
        "capacity",
        "config",
        "reading",
        "state",
        "sources",
        "gpu",
        "prometheus",
        "discovery",
        "exposition",
        "web",
        "service",
    ),
    "analysis": ("replay", "recorder", "loadtest", "backtest", "comparison", "advice", "rendering"),
    "cli": ("grafana", "terminal", "commands", "command_line"),
}
"""The three wings, and what is in each: wings and their packages import only those before them."""
LAYERS = (*(f"{wing}.{name}" for wing, names in WINGS.items() for name in names), "__main__")
MAX_METHODS = 20
MAX_LINES = 40
ROOT = Path(__file__).parents[1]
PRODUCT = [DAEMON, PARSERS, *(ROOT / name for name in ("alerts", "dashboards", "deploy"))]
PURE_PACKAGES = (
    *(f"daemon/{name}" for name in ("capacity", "state", "reading", "statistics")),
    *(f"analysis/{name}" for name in ("comparison", "advice", "rendering")),
)
READERS_OF_LOAD_TESTS = {"daemon_source", "prometheus_source", "replayed_history", "report_sources"}
"""The modules of `loadtest` that open files or connections; the others analyse what these have read."""
READERS_OF_BACKTESTS = {"promtool", "rule_set", "subjects"}
"""The modules of `backtest` that open files or connections, or run promtool."""
IMPURE_OF_THE_TERMINAL = {
    "app", "canvas", "daemon_reader", "home_screen", "key_driver", "local_reader", "present", "reading_thread",
    "replay_reader", "screens", "settled", "theme",
}  # fmt: skip
"""The modules of `terminal` that read, wait, or need textual; the others make lines of values."""
PURE = sorted(
    [
        *PARSERS.glob("*.py"),
        *(path for name in PURE_PACKAGES for path in (DAEMON / name).glob("*.py")),
        DAEMON / "daemon" / "prometheus" / "answers.py",
        *(path for path in (DAEMON / "analysis" / "loadtest").glob("*.py") if path.stem not in READERS_OF_LOAD_TESTS),
        *(path for path in (DAEMON / "analysis" / "backtest").glob("*.py") if path.stem not in READERS_OF_BACKTESTS),
        *(path for path in (DAEMON / "cli" / "terminal").glob("*.py") if path.stem not in IMPURE_OF_THE_TERMINAL),
    ]
)
IMPURE = {"os", "io", "socket", "threading", "subprocess", "logging", "structlog", "requests", "random", "pathlib"}
SCREENS = {"rich", "textual"}
"""What only the extra `top` brings: `top --once` works without it."""

WITH_AN_EXTRA = {"google", "httpx2", "niquests", "rich"}
"""What the dependencies of an extra bring, and is imported only beside them."""


@functools.cache
def imports(path):
    """Return the names of all modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def modules():
    """Return the daemon's modules by name, each with its path."""
    return {
        ".".join(["vllm_watch", *path.relative_to(DAEMON).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in DAEMON.rglob("*.py")
    }


@functools.cache
def arrows():
    """Return which of the daemon's modules each one imports."""
    known = modules()
    found = {}
    for name, path in known.items():
        named = set(imports(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):  # `from package import module`
                named |= {f"{node.module}.{alias.name}" for alias in node.names}
        found[name] = {each for each in named if each in known and each not in {"vllm_watch", name}}
    return found


def layer(module):
    """Return the wing and the package that a module is in, such as ``daemon.state``."""
    return ".".join(module.split(".")[1:3])


def reached(graph, start):
    """Return all modules that one imports, directly or through others."""
    seen, waiting = set(), [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def imported_at_run_time(path):
    """Return the packages that a file imports other than for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_checkers = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names = set()
    for node in ast.walk(tree):
        if node in for_checkers:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def brought(name):
    """Return the distributions that an installation of one brings without extras, itself included."""
    try:
        requirements = [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:  # grafana-client puts a package of its own in urllib3's place.
        requirements = []
    wanted = [one.name for one in requirements if not one.marker or one.marker.evaluate({"extra": ""})]
    return {canonicalize_name(name)}.union(*map(brought, wanted))


def test_an_installation_brings_what_is_imported():
    """What the product imports is Python's, our own, brought by the plain dependencies, or declared for an extra."""
    ours = {"vllm_watch", "vllm_watch_parsers"}
    declared = {canonicalize_name(Requirement(line).name) for line in requires("vllm-watch")}
    installed = brought("vllm-watch") | declared
    distributions = {
        name: {*map(canonicalize_name, [name, *names])} for name, names in packages_distributions().items()
    }
    others = {
        (name, path.name)
        for path in [*DAEMON.rglob("*.py"), *PARSERS.rglob("*.py")]
        for name in imported_at_run_time(path) - sys.stdlib_module_names - ours - WITH_AN_EXTRA
    }

    assert {"requests", "tornado"} <= {name for name, _ in others}
    # A module of an extra that is not installed here has no distribution.
    assert [] == [(name, path) for name, path in sorted(others) if not distributions.get(name, installed) & installed]


def test_the_tree_shows_three_wings():
    """Beside the wings there are `__init__.py` and `__main__.py` only, and every package has its place in a wing."""
    assert {"__init__", "__main__"} == {path.stem for path in DAEMON.glob("*.py")}
    assert set(LAYERS) == {layer(module) for module in modules()} - {"", *WINGS}


def test_the_daemon_needs_neither_analysis_nor_commands():
    """What runs beside the server imports nothing of what answers questions afterwards, or of what a person types."""
    graph = arrows()
    outside = {
        name: {each for each in named if not each.startswith("vllm_watch.daemon")} for name, named in graph.items()
    }

    assert {} == {name: named for name, named in outside.items() if named and name.startswith("vllm_watch.daemon.")}


def test_no_import_points_up():
    """A package imports only packages before it in the order."""
    crossing = [
        (module, imported)
        for module, named in arrows().items()
        for imported in named
        if module != "vllm_watch" and layer(module) != layer(imported)
    ]

    assert len(crossing) > 100
    assert [] == [each for each in crossing if LAYERS.index(layer(each[0])) < LAYERS.index(layer(each[1]))]


def test_no_modules_import_each_other():
    """No module imports itself, whatever others are between."""
    graph = arrows()

    assert [] == [module for module in graph if module in reached(graph, module)]


def test_no_class_is_large():
    """No class of the daemon or of the parsers has more than twenty methods."""
    classes = {
        f"{path.stem}.{node.name}": len(
            [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        )
        for path in [*DAEMON.rglob("*.py"), *PARSERS.rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }

    assert len(classes) > 100
    assert set() == {name for name, methods in classes.items() if methods > MAX_METHODS}


def test_no_function_is_long():
    """No function of the product has more than forty lines, its docstring included."""
    functions = {
        f"{path}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for part in PRODUCT
        for path in part.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert len(functions) > 1000
    assert set() == {name for name, lines in functions.items() if lines > MAX_LINES}


@pytest.mark.parametrize("path", sorted(PARSERS.glob("*.py")), ids=lambda path: path.stem)
def test_parsers_import_nothing_of_the_daemon(path):
    """vllm_watch_parsers imports only itself and the standard library's parsing."""
    assert not {name for name in imports(path) if name.partition(".")[0] == "vllm_watch"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_the_core_does_no_io_and_reads_no_clock(path):
    """Parsers and the pure packages import nothing that reads or writes; the clock is an argument."""
    text = path.read_text(encoding="utf-8")

    assert not {name.partition(".")[0] for name in imports(path)} & (IMPURE | SCREENS)
    assert not [call for call in ("open(", "time.time(", "time.monotonic(", "datetime.now(") if call in text]
