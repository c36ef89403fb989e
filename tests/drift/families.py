# SPDX-License-Identifier: Apache-2.0
"""
The metric families that the sources construct, and how they get to Ray; of the Rust front end's the names alone.

A family is a call of one of prometheus_client's classes, of an attribute that stands for one (``self._counter_cls``),
of the function that vLLM wraps them in, or an entry of a table of metadata from which one is made.

Ray's families are vLLM's own under other names. So the facts say which of them are there, and how they are spelled.
The Rust sources are searched as text, for the names that they register.
"""

from __future__ import annotations

import ast
import itertools
import re

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.drift.evaluation import Evaluator
from tests.drift.modules import CallIndex, Module, Project, last_name
from tests.drift.texts import Expression, Parts, has_fields, named


@dataclass(frozen=True, order=True)
class Family:
    """
    One family, as one place of the sources constructs it.

    Args:
        name: As it is constructed, without the suffix that its samples get; ``{…}`` where the sources do not say it.
        engine: ``V0`` or ``V1``; those of neither are V1's, which alone has others beside it.
        type: ``counter``, ``gauge``, ``histogram``, ``summary`` or ``info``.
        labels: Their names; an expression begins with ``*`` if it stands for several.
        buckets: Their bounds; an expression where they depend on the server; empty for the client's own.
        is_hidden: Whether it is there only with --show-hidden-metrics-for-version.
        place: Where it is constructed.
    """

    name: str
    engine: str
    type: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] | str
    is_hidden: bool
    place: str


SIGNS = ("prometheus_client", "PromMetric", "StatLogger", "MetricMetadata", '"vllm:', "'vllm:", 'f"vllm')
"""What the text of a module has that constructs families, or hands labels on to one that does."""

_TYPES = ("counter", "gauge", "histogram", "summary", "info")
_CALLEE = re.compile(r"_?(counter|gauge|histogram|summary|info)(?:_cls|_class|_type)?", re.IGNORECASE)
_METADATA = re.compile(r"\w*?(Counter|Gauge|Histogram)Metadata")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_V0_FOLDERS = ("vllm/engine/", "vllm/spec_decode/")
_WRAPPERS = re.compile(r"Ray\w*Wrapper|_Ray\w*Wrapper")
_SHARED = "*labelnames"
_BY_PLACE = ("name", "documentation", "labelnames")


def extract_families(project: Project) -> list[Family]:
    """Return all families of a project, by name."""
    modules = list(project.having(*SIGNS))
    evaluator = Evaluator(project, CallIndex(modules))
    shared = _engine_labels(evaluator, modules)
    found = [
        (family, is_metadata)
        for module in modules
        for call in module.calls
        if (kind := _kind(call, module)) is not None
        for family, is_metadata in _families(call, kind, module, evaluator, shared)
    ]
    # A table may also describe what is constructed elsewhere, without all of its labels.
    constructed = {family.name for family, is_metadata in found if not is_metadata}
    kept = [family for family, is_metadata in found if not (is_metadata and family.name in constructed)]
    return sorted({(each.name, each.engine, each.type, each.place): each for each in kept}.values(), key=_order)


def _order(family: Family) -> tuple[str, ...]:
    return (family.name, family.engine, family.type, family.place)


def _kind(call: ast.Call, module: Module) -> str | None:
    """Return the type of the family that a call constructs."""
    name = last_name(call.func)
    metadata = _METADATA.fullmatch(name)
    if metadata:
        return metadata[1].lower()
    found = _CALLEE.fullmatch(name)
    if not found:
        return None
    owner = module.enclosing_class(call)
    if owner is not None and _WRAPPERS.fullmatch(owner.name):
        return None  # It hands on what others construct.
    origin = module.imports.get(name, ("", ""))[0] or _module_name(call.func, module)
    if name.endswith(("_cls", "_class", "_type")):
        return found[1].lower()
    return found[1].lower() if origin.startswith("prometheus_client") else None


def _module_name(node: ast.expr, module: Module) -> str:
    """Return the module of ``prometheus_client.Counter``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return module.imports.get(node.value.id, ("", ""))[0]
    return ""


def _families(
    call: ast.Call, kind: str, module: Module, evaluator: Evaluator, shared: tuple[str, ...]
) -> Iterator[tuple[Family, bool]]:
    """Yield the families of a call, and whether it is an entry of a table; `shared` are the labels of an engine."""
    is_metadata = _METADATA.fullmatch(last_name(call.func)) is not None
    given = {each.arg: each.value for each in call.keywords if each.arg}
    if not is_metadata:
        given |= dict(zip(_BY_PLACE, call.args, strict=False))
    name = _metadata_name(call, module) if is_metadata else given.get("name")
    if name is None or (not is_metadata and not {"documentation", "labelnames"} & set(given)):
        return
    own = _labels(given.get("labelnames"), module, evaluator)
    labels = _with_shared((_SHARED, *own) if is_metadata else own, shared)
    buckets = _buckets(given.get("buckets"), module, evaluator)
    for text in _names(name, module, evaluator):
        family = Family(
            name=text,
            engine="V0" if module.path.startswith(_V0_FOLDERS) else "V1",
            type=kind,
            labels=labels,
            buckets=buckets if kind == "histogram" else (),
            is_hidden=_is_hidden(call, module),
            place=f"{module.path}:{call.lineno}",
        )
        yield family, is_metadata


def _metadata_name(call: ast.Call, module: Module) -> ast.expr | None:
    """Return the key under which a table has an entry of metadata."""
    around = module.parent(call)
    if isinstance(around, ast.Dict):
        return next((key for key, value in zip(around.keys, around.values, strict=True) if value is call), None)
    if isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Subscript):
        return around.targets[0].slice
    return None


def _names(node: ast.expr, module: Module, evaluator: Evaluator) -> list[str]:
    texts = [
        value
        for value in evaluator.values(node, module)
        if isinstance(value, str) and not isinstance(value, Expression) and _NAME.match(value)
    ]
    whole = [text for text in texts if not has_fields(text)]
    if whole:
        return sorted({text for text in whole if _NAME.fullmatch(text)})
    return sorted({named(text) for text in texts}) or [f"{{{ast.unparse(node)[:80]}}}"]


def _labels(node: ast.expr | None, module: Module, evaluator: Evaluator) -> tuple[str, ...]:
    if node is None:
        return ()
    values = evaluator.values(node, module)
    known: list[tuple[object, ...]] = [
        value for value in values if isinstance(value, tuple) and not isinstance(value, Parts)
    ]
    whole = [value for value in known if not any(isinstance(each, Expression) for each in value)]
    if known:
        most = max(map(len, whole or known))
        return tuple(map(str, next(value for value in whole or known if len(value) == most)))
    return (f"*{values[0]}",) if values[0] is not None else ()


def _with_shared(labels: tuple[str, ...], shared: tuple[str, ...]) -> tuple[str, ...]:
    """Return labels with the engine's in the place of those that a base class keeps: ``*self._labelnames``."""
    each = ((shared if label.startswith("*") and label.endswith("labelnames") else (label,)) for label in labels)
    return tuple(itertools.chain.from_iterable(each))


def _engine_labels(evaluator: Evaluator, modules: Iterable[Module]) -> tuple[str, ...]:
    """Return the labels that every family of an engine has: metadata has only those that come after them."""
    for module in modules:
        owner = module.classes.get("PrometheusStatLogger")
        for function in owner.body if owner is not None else ():
            for store in module.stores(function).get("labelnames", []) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(store, ast.Assign):
                    return _labels(store.value, module, evaluator)
    return (_SHARED,)


def _buckets(node: ast.expr | None, module: Module, evaluator: Evaluator) -> tuple[float, ...] | str:
    if node is None:
        return ()
    values = evaluator.values(node, module)
    known = [
        value
        for value in values
        if isinstance(value, tuple) and value and all(isinstance(each, (int, float)) for each in value)
    ]
    # What a user may override has its defaults; anything else that is not known depends on the server.
    expressions = [value for value in values if isinstance(value, Expression) and "overrides" not in value]
    if known and not expressions:
        return tuple(known[0])
    return str(_most_telling(expressions)) if expressions else ast.unparse(node)


def _most_telling(expressions: list[Any]) -> Any:
    """Return the expression that says how buckets are made, and not only what they are called."""
    return next((each for each in expressions if "(" in each), expressions[0])


def _is_hidden(call: ast.Call, module: Module) -> bool:
    return any(
        isinstance(around, ast.If) and "show_hidden" in ast.unparse(around.test) for around in module.ancestors(call)
    )


_CLASS = re.compile(r"_?Ray[A-Z]\w*")
_STANDS_FOR = re.compile(r"_\w+_cls")


def ray_facts(project: Project) -> tuple[str, ...]:
    """Return what the sources say of Ray's metrics, one fact each, sorted."""
    facts = {
        fact
        for module in project.having("_cls = ", "ray_metrics")
        if "metrics" in module.path
        for owner in module.classes.values()
        if _CLASS.fullmatch(owner.name)
        for fact in _of_class(owner, module)
    }
    return tuple(sorted(facts))


def _of_class(owner: ast.ClassDef, module: Module) -> Iterator[str]:
    for statement in owner.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name) and _STANDS_FOR.fullmatch(target.id):
                    yield f"{owner.name}: {target.id} is {_class_name(statement.value)}"
    for call in module.calls:
        if module.enclosing_class(call) is owner:
            yield from _of_call(call)


def _of_call(call: ast.Call) -> Iterator[str]:
    """Yield the label that a call adds, or the characters of names that it replaces."""
    values = [each.value for each in call.args if isinstance(each, ast.Constant)]
    name, texts = last_name(call.func), [value for value in values if isinstance(value, str)]
    if name == "append" and texts:
        yield f"label: {texts[0]}"
    if name == "sub" and len(texts) >= 2:
        yield f"in names {texts[0]} becomes {texts[1]}"


def _class_name(node: ast.expr) -> str:
    """Return the class that a value is, also inside a cast."""
    return last_name(node.args[-1]) if isinstance(node, ast.Call) and node.args else last_name(node)


_REGISTERED = re.compile(r"\.register(?:_with_unit)?\(\s*\"([a-zA-Z_:][a-zA-Z0-9_:]*)\"")
_TESTS = re.compile(r"(?m)^#\[cfg\(test\)\]\s*\n\s*mod\b")


def registered_names(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that the sources register, without those of their tests."""
    names = set()
    for path, text in texts.items():
        if "/tests/" not in path and not path.endswith("/tests.rs"):
            names.update(_REGISTERED.findall(_TESTS.split(text, maxsplit=1)[0]))
    return tuple(sorted(names))
