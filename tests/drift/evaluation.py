# SPDX-License-Identifier: Apache-2.0
"""
What an expression of the sources may be worth, without running them.

Names, attributes of classes and functions that return something simple are followed. All else is an `Expression`: its
text.
"""

from __future__ import annotations

import ast
import itertools
import re

from collections.abc import Iterator, Sequence
from typing import Any

from tests.drift.modules import CallIndex, Function, Module, Project, argument, last_name
from tests.drift.names import Names, parameters_of
from tests.drift.operations import MOST, Bindings, distinct, expression_of, joined, short_text
from tests.drift.texts import Expression, Parts, of_format


_MOST_STEPS = 3000
"""So many nodes are evaluated for one: what takes more depends on the whole program."""

_COPIES = {"list", "tuple", "sorted", "set", "frozenset", "cast"}


class Evaluator(Names):
    """
    Finds the values of expressions of one project.

    Args:
        project: The parsed modules.
        calls: Who calls what.
        fills_in: Whether the fields of an f-string are filled in, where their values are known.
    """

    def __init__(self, project: Project, calls: CallIndex, *, fills_in: bool = True) -> None:
        super().__init__(project, calls, fills_in=fills_in)
        self._found: dict[ast.AST, tuple[Any, ...]] = {}
        self._steps = 0

    def values(self, node: ast.AST, module: Module, bindings: Bindings | None = None) -> tuple[Any, ...]:
        """Return what a node may be worth, at least one value; what is not known is an `Expression`."""
        if not bindings and node in self._found:
            return self._found[node]
        if self._steps:
            return self._evaluated(node, module, bindings)
        try:
            return self._evaluated(node, module, bindings)
        except RecursionError:  # A sum of hundreds of texts.
            return (Expression(type(node).__name__),)
        finally:
            self._steps = 0

    def _evaluated(self, node: ast.AST, module: Module, bindings: Bindings | None) -> tuple[Any, ...]:
        is_outermost = self._steps == 0
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self._cuts += 1
            return (expression_of(node),)
        cuts = self._cuts
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        values = distinct(method(node, module, bindings or {}) if method else ()) or (expression_of(node),)
        if not bindings and (cuts == self._cuts or is_outermost):
            self._found[node] = values  # Not one that a circle or a limit has cut off.
        return values

    def _attribute(self, node: ast.Attribute, module: Module, _bindings: Bindings) -> Sequence[Any]:
        key = (node, "attribute")
        if key in self._busy:
            self._cuts += 1
            return ()
        self._busy.add(key)
        try:
            return list(self._members(node, module)) or (Expression(short_text(node)),)
        finally:
            self._busy.discard(key)

    def _members(self, node: ast.Attribute, module: Module) -> Iterator[Any]:
        for owner, place in self._classes_of(node.value, module):
            yield from self._member(owner, node.attr, place)

    def _classes_of(self, node: ast.expr, module: Module) -> Iterator[tuple[ast.ClassDef, Module]]:
        """Yield the class that `self` or a class's name stands for, and for `self` those around it in the sources."""
        if isinstance(node, ast.Name) and node.id in {"self", "cls"}:
            own = module.enclosing_class(node)
            if own is not None:
                yield from self._family(own, module)
        elif isinstance(node, ast.Name):
            place, name = self._project.imported(module, node.id) or (module, node.id)
            if name in place.classes:
                yield place.classes[name], place

    def _family(self, own: ast.ClassDef, module: Module) -> Iterator[tuple[ast.ClassDef, Module]]:
        yield own, module
        for base in own.bases:
            name = last_name(base)
            place, original = self._project.imported(module, name) or (module, name)
            if original in place.classes and place.classes[original] is not own:
                yield from self._family(place.classes[original], place)
        for other in module.classes.values():
            if own.name in {last_name(base) for base in other.bases}:
                yield other, module

    def _member(self, owner: ast.ClassDef, name: str, module: Module) -> Iterator[Any]:
        for store in module.stores(owner).get(name, []):
            yield from self._of_store(name, store, module, {})
        for statement in owner.body:
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if statement.name == name and any(last_name(each) == "property" for each in statement.decorator_list):
                yield from self._returned(statement, module, {})
        for value in module.attributes(owner).get(name, ()):
            yield from self.known(value, module)

    def _call(self, node: ast.Call, module: Module, bindings: Bindings) -> Sequence[Any]:
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, module, bindings)
        if name == "dict" and not node.args:
            return ({each.arg: self.values(each.value, module, bindings)[0] for each in node.keywords if each.arg},)
        if name == "Template" and node.args:
            return self.values(node.args[0], module, bindings)
        if name == "range":
            return self._range(node, module, bindings)
        if name in _COPIES and node.args:
            values = self.values(node.args[-1], module, bindings)
            return [tuple(value) if isinstance(value, dict) else value for value in values]
        place, original = self._project.imported(module, name) or (module, name)
        function = place.functions.get(original)
        if function is None:
            return ()
        bound = {
            each: self.values(passed, module, bindings)
            for each in parameters_of(function)
            if (passed := argument(node, function, each, is_method=False)) is not None
        }
        key = (function, "call")
        if key in self._busy:
            self._cuts += 1
            return ()
        self._busy.add(key)
        try:
            found = self._returned(function, place, bound)
        finally:
            self._busy.discard(key)
        return [_named_call(value, node) for value in found]

    def _range(self, node: ast.Call, module: Module, bindings: Bindings) -> Sequence[Any]:
        bounds = [self.values(each, module, bindings)[0] for each in node.args]
        if not all(isinstance(bound, int) for bound in bounds):
            return ()
        items = tuple(itertools.islice(range(*bounds), MOST + 1))
        return (items,) if len(items) <= MOST else ()

    def _method(self, node: ast.Call, function: ast.Attribute, module: Module, bindings: Bindings) -> Sequence[Any]:
        owners = self.values(function.value, module, bindings)
        if function.attr == "join" and node.args:
            return [joined(owner, each) for owner in owners for each in self.values(node.args[0], module, bindings)]
        if function.attr == "format":
            return [of_format(owner) for owner in owners if isinstance(owner, str)]
        if function.attr == "keys":
            return [tuple(owner) for owner in owners if isinstance(owner, dict)]
        if function.attr == "copy":
            return owners
        if function.attr == "substitute":  # Of string.Template, with nothing but colours.
            return [re.sub(r"\$\{\w+\}", "", owner) for owner in owners if isinstance(owner, str)]
        return [
            value
            for owner, place in self._classes_of(function.value, module)
            for statement in owner.body
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == function.attr
            for value in self._returned(statement, place, {})
        ]

    def _returned(self, function: Function, module: Module, bindings: Bindings) -> list[Any]:
        if any(isinstance(node, ast.While) for node in ast.walk(function)):
            return []  # It calculates something.
        found: list[Any] = []
        for node in self._reached(function.body, module, bindings):
            if node.value is not None:
                found += self.values(node.value, module, bindings)
        return found

    def _reached(self, body: Sequence[ast.stmt], module: Module, bindings: Bindings) -> Iterator[ast.Return]:
        """Yield the returns of a function but for branches that its arguments rule out."""
        for statement in body:
            if isinstance(statement, ast.Return):
                yield statement
                return
            if isinstance(statement, ast.If):
                truth = self._truth(statement.test, module, bindings)
                if truth is not False:
                    yield from self._reached(statement.body, module, bindings)
                if truth is not True:
                    yield from self._reached(statement.orelse, module, bindings)
                elif any(isinstance(each, ast.Return) for each in statement.body):
                    return
            elif isinstance(statement, (ast.With, ast.Try, ast.For)):
                yield from self._reached(statement.body, module, bindings)

    def _truth(self, test: ast.expr, module: Module, bindings: Bindings) -> bool | None:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            left = self.values(test.left, module, bindings)
            right = self.values(test.comparators[0], module, bindings)
            if len(left) == len(right) == 1 and not isinstance(left[0], Expression | Parts):
                return (left[0] == right[0]) is isinstance(test.ops[0], ast.Eq)
        return None


def _named_call(value: Any, call: ast.Call) -> Any:
    """Return a value; what a called function could not say is told by the call, or by its own if that has defaults."""
    text = short_text(call)
    if not isinstance(value, Expression) or ("overrides=" in text and "(" in value):
        return value
    return Expression(text)
