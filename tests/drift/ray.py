# SPDX-License-Identifier: Apache-2.0
"""
How families get to Ray: which classes stand in for prometheus_client's, what labels they add, how they change names.

Ray's families are vLLM's own under other names. So these facts say which of them are there, and how they are spelled.
"""

from __future__ import annotations

import ast
import re

from collections.abc import Iterator

from tests.drift.calls import last_name
from tests.drift.modules import Module, Project


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
