# SPDX-License-Identifier: Apache-2.0
"""
The texts that the sources print into the log or raise, with their placeholders.

A part of a text that is only sometimes there stands between ``⟦`` and ``⟧``. Placeholders are ``%d`` as in the sources,
and ``{:.3f}`` or ``{}`` for the fields of f-strings.
"""

from __future__ import annotations

import ast
import re

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tests.drift.evaluation import Evaluator
from tests.drift.modules import CallIndex, Module, Project, last_name
from tests.drift.texts import Expression, Parts, named, unnamed


@dataclass(frozen=True, order=True)
class Message:
    """
    One text.

    Args:
        format: The text with placeholders; of an exception its name and the text: ``ValueError: No …``.
        level: As it is printed, ``RAISED`` for an exception.
        is_periodic: Whether it is printed again and again, with statistics.
        place: Where it is printed.
    """

    format: str
    level: str
    is_periodic: bool
    place: str

    @property
    def site(self) -> str:
        """The name of the file, which the log shows."""
        return PurePosixPath(self.place.rpartition(":")[0]).name


_LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "warn": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
    "fatal": "CRITICAL",
}
_PERIODIC = {"metrics.py", "loggers.py", "perf.py", "cuda_graph.py", "stats.py", "ray_wrappers.py"}
_PERIODIC_FUNCTIONS = ("log", "_log", "maybe_log", "_maybe_log")
_NOT_PERIODIC = ("log_engine_initialized", "log_prefix")
_SKIPPED = (
    "vllm/model_executor/models/", "vllm/models/", "vllm/transformers_utils/configs/", "vllm/benchmarks/",
    "vllm/tool_parsers/", "vllm/reasoning/",
)  # fmt: skip
"""Where nothing prints what the parsers read: thousands of lines on single models, and tools that are no server."""

_SERVING = (
    "vllm/compilation/", "vllm/config", "vllm/distributed/device_communicators/", "vllm/distributed/kv_transfer/",
    "vllm/engine/", "vllm/entrypoints/", "vllm/executor/", "vllm/platforms/", "vllm/spec_decode/",
    "vllm/utils/jit_monitor.py", "vllm/v1/", "vllm/worker/",
)  # fmt: skip
"""Where texts are put together from several statements that the parsers read."""

_TRANSFER = "KV Transfer metrics: %s"
_TRANSFER_START = "KV Transfer metrics: "


def extract_messages(project: Project) -> list[Message]:
    """Return the texts of a project, each once, in their order."""
    evaluator = Evaluator(project, CallIndex(()), fills_in=False)
    found: dict[tuple[str, str], Message] = {}
    for module in _modules(project):
        for message in _of_module(module, evaluator):
            found.setdefault((message.format, message.level), message)
    printed = found.get((_TRANSFER, "INFO"))
    if printed is not None:
        for message in _transfers(project, evaluator, printed.place):
            found.setdefault((message.format, message.level), message)
    return sorted(found.values())


def _modules(project: Project) -> Iterator[Module]:
    """
    Yield the modules that print or raise something.

    Where no server is run only what a single statement says is looked at, which takes a tenth of the time and memory.
    """
    for path in project.paths("logger", "raise ", "log_fn"):
        if path.startswith(_SKIPPED):
            continue
        yield project.module(path) if path.startswith(_SERVING) else project.light_module(path)


def _of_module(module: Module, evaluator: Evaluator) -> Iterator[Message]:
    for call in module.calls:
        level = _level(call)
        if level is not None and call.args:
            is_periodic = _is_periodic(call, module)
            for text in _formats(call.args[0], module, evaluator, is_periodic=is_periodic):
                yield Message(text, level, is_periodic, f"{module.path}:{call.lineno}")
    for node in module.raises:
        if isinstance(node.exc, ast.Call) and node.exc.args:
            for text in _formats(node.exc.args[0], module, evaluator, is_periodic=False):
                yield Message(f"{last_name(node.exc.func)}: {text}", "RAISED", False, f"{module.path}:{node.lineno}")


def _level(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Name):
        return "INFO" if call.func.id == "log_fn" else None
    if isinstance(call.func, ast.Attribute) and re.search("log|lgr", last_name(call.func.value), re.IGNORECASE):
        return _LEVELS.get(call.func.attr.removesuffix("_once"))
    return None


def _is_periodic(call: ast.Call, module: Module) -> bool:
    if PurePosixPath(module.path).name not in _PERIODIC or _level(call) != "INFO":
        return False
    if isinstance(call.func, ast.Name):
        return True
    function = next((scope for scope in module.scopes(call) if isinstance(scope, ast.FunctionDef)), None)
    name = function.name if function is not None else ""
    return name.startswith(_PERIODIC_FUNCTIONS) and not name.startswith(_NOT_PERIODIC)


def _formats(node: ast.expr, module: Module, evaluator: Evaluator, *, is_periodic: bool) -> Iterator[str]:
    for value in evaluator.values(node, module):
        text = _format(value)
        if text is not None and text.strip():
            yield text
        elif is_periodic and isinstance(value, Expression):
            yield f"{{{value}}}"


def _format(value: Any) -> str | None:
    if isinstance(value, Expression):
        return None
    if isinstance(value, Parts):
        pieces = [unnamed(value.before)]
        for index, (text, is_optional) in enumerate(zip(value.texts, value.optional, strict=True)):
            piece = (value.separator if index else "") + unnamed(text)
            pieces.append(f"⟦{piece}⟧" if is_optional else piece)
        return "".join(pieces)
    return unnamed(value) if isinstance(value, str) else None


def _transfers(project: Project, evaluator: Evaluator, place: str) -> Iterator[Message]:
    """Yield for each connector's statistics the line that they become at a place: their keys are in `reduce`."""
    for module in project.having("KVConnectorStats"):
        for owner in module.classes.values():
            reduce = next((each for each in owner.body if getattr(each, "name", "") == "reduce"), None)
            keys = _keys(reduce, module, evaluator) if isinstance(reduce, ast.FunctionDef) else []
            if keys:
                text = _TRANSFER_START + ", ".join(f"{key}={{}}" for key in keys)
                yield Message(text, "INFO", True, place)


def _keys(function: ast.FunctionDef, module: Module, evaluator: Evaluator) -> list[str]:
    nodes: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            nodes += [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Assign):
            nodes += [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
    nodes.sort(key=lambda node: (node.lineno, node.col_offset))
    texts = [value for node in nodes for value in evaluator.values(node, module)]
    keys = [named(text) for text in texts if isinstance(text, str) and not isinstance(text, Expression)]
    return list(dict.fromkeys(keys))
