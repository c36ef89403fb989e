# SPDX-License-Identifier: Apache-2.0
"""Who calls a function or makes an object of a class, by the name that is called."""

from __future__ import annotations

import ast

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.drift.modules import Function, Module


_MOST_CALLERS = 40


class CallIndex:
    """
    The calls of some modules.

    Args:
        modules: Where callers are looked for.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._calls: dict[str, list[tuple[ast.Call, Module]]] = defaultdict(list)
        self._other_names: dict[str, set[str]] = defaultdict(set)
        for module in modules:
            for call in module.calls:
                self._calls[last_name(call.func)].append((call, module))
            for owner in module.classes.values():
                for statement in owner.body:
                    self._add_alias(statement)

    def _add_alias(self, statement: ast.stmt) -> None:
        """Keep the name of a class's attribute that is a class: ``_spec_decoding_cls = SpecDecodingProm``."""
        if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Name, ast.Attribute)):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    self._other_names[last_name(statement.value)].add(target.id)

    def of(self, function: Function, module: Module) -> Iterator[tuple[ast.Call, Module]]:
        """Yield the calls of a function; of a method ``__init__`` those that make an object of its class."""
        owner = module.enclosing_class(function)
        if function.name == "__init__" and owner is not None:
            names = {owner.name, *self._other_names[owner.name]}
        else:
            names = {function.name}
        found = [each for name in sorted(names) for each in self._calls.get(name, ())]
        yield from found[:_MOST_CALLERS]


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def argument(call: ast.Call, function: Function, name: str, *, is_method: bool) -> ast.expr | None:
    """Return what a call passes for a parameter by name or by place, `None` where that cannot be told."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if is_method and places[:1] in (["self"], ["cls"]):
        places = places[1:]
    if name not in places or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    index = places.index(name)
    return call.args[index] if index < len(call.args) else None
