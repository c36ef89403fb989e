# SPDX-License-Identifier: Apache-2.0
"""
What names stand for: assignments, loops over constants, imports, and parameters of which the callers are known.

The order of statements counts as far as one assignment makes those before it void.
"""

from __future__ import annotations

import ast
import itertools

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.drift.modules import CallIndex, Function, Module, Project, argument
from tests.drift.operations import Bindings, Operations
from tests.drift.texts import Expression, Parts


_MOST_CALLERS_DEEP = 6
"""A parameter is followed through so many callers of callers."""


class Names(Operations):
    """
    Finds the values of names.

    Args:
        project: The parsed modules.
        calls: Who calls what.
        fills_in: Whether the fields of an f-string are filled in, where their values are known.
    """

    def __init__(self, project: Project, calls: CallIndex, *, fills_in: bool) -> None:
        super().__init__(fills_in=fills_in)
        self._project = project
        self._calls = calls
        self._busy: set[tuple[ast.AST, str]] = set()
        self._cuts = 0
        """How often a circle or a limit has ended a search: what was found meanwhile may not be all."""
        self._callers = 0
        self._passed: dict[tuple[ast.AST, str], Sequence[Any]] = {}

    def _name(self, node: ast.Name, module: Module, bindings: Bindings) -> Sequence[Any]:
        key = (node, "name")
        if key in self._busy:
            self._cuts += 1
            return ()
        self._busy.add(key)
        try:
            return self._looked_up(node, module, bindings)
        finally:
            self._busy.discard(key)

    def _looked_up(self, node: ast.Name, module: Module, bindings: Bindings) -> Sequence[Any]:
        looped = list(self._of_comprehension(node, module, bindings))
        if looped:
            return looped
        if node.id in bindings:
            return bindings[node.id]
        for scope in module.scopes(node):
            if isinstance(scope, ast.ClassDef) and not isinstance(module.parent(node), ast.stmt | ast.expr):
                continue
            found = self._stored(node, scope, module, bindings)
            if found:
                return found
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.id in parameters_of(scope):
                return self._parameter(node.id, scope, module)
        return self._imported(node.id, module)

    def _of_comprehension(self, node: ast.Name, module: Module, bindings: Bindings) -> Iterator[Any]:
        for around in module.ancestors(node):
            if isinstance(around, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
                for generator in around.generators:
                    if not module.encloses(generator, node):
                        yield from self._of_target(node.id, generator.target, generator.iter, module, bindings)

    def _stored(self, node: ast.Name, scope: ast.AST, module: Module, bindings: Bindings) -> list[Any]:
        stores = module.stores(scope).get(node.id, [])
        is_inside = module.encloses(scope, node) and next(module.scopes(node), None) is scope
        before = [store for store in stores if not is_inside or module.is_before(store, node)] or stores
        values: list[Any] = []
        for store in reversed(before):
            values += self._of_store(node.id, store, module, bindings)
            if isinstance(store, (ast.Assign, ast.AnnAssign)) and module.encloses(module.parent(store), node):
                break
        return values

    def _of_store(self, name: str, store: ast.AST, module: Module, bindings: Bindings) -> list[Any]:
        if isinstance(store, ast.For):
            return list(self._of_target(name, store.target, store.iter, module, bindings))
        if isinstance(store, (ast.AnnAssign, ast.NamedExpr)):
            return list(self.values(store.value, module, bindings)) if store.value else []
        if isinstance(store, ast.Assign):
            found: list[Any] = []
            for target in store.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found += self._grown(name, store, module, bindings)
                elif isinstance(target, (ast.Tuple, ast.List)):
                    found += self._unpacked(name, target, self.values(store.value, module, bindings))
            return found
        return []

    def _grown(self, name: str, store: ast.Assign, module: Module, bindings: Bindings) -> list[Any]:
        """Return a value with what is appended to it in the same function, where it is a list."""
        values = list(self.values(store.value, module, bindings))
        grown = [value for value in values if isinstance(value, tuple)]
        scope = next(module.scopes(store), None)
        if not grown or not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return values
        additions = list(self._additions(name, scope, module, bindings))
        if not additions:
            return values
        texts = (*grown[0], *(text for text, _ in additions))
        optional = (*(False for _ in grown[0]), *(is_optional for _, is_optional in additions))
        return [Parts(tuple(map(str, texts)), optional, "")] if all(isinstance(text, str) for text in texts) else values

    def _additions(self, name: str, scope: Function, module: Module, bindings: Bindings) -> Iterator[tuple[Any, bool]]:
        """Yield what is appended to a list in a function, and whether that happens only sometimes."""
        for call in sorted(module.calls, key=lambda call: (call.lineno, call.col_offset)):
            function = call.func
            if not isinstance(function, ast.Attribute) or function.attr not in {"append", "extend"}:
                continue
            is_own = isinstance(function.value, ast.Name) and function.value.id == name
            if not is_own or not call.args or not module.encloses(scope, call):
                continue
            around = itertools.takewhile(lambda node: node is not scope, module.ancestors(call))
            is_optional = any(isinstance(node, (ast.If, ast.For, ast.While)) for node in around)
            value = self.values(call.args[0], module, bindings)[0]
            is_several = function.attr == "extend" and isinstance(value, tuple)
            yield from ((each, is_optional) for each in (value if is_several else (value,)))

    def _of_target(
        self, name: str, target: ast.expr, iterated: ast.expr, module: Module, bindings: Bindings
    ) -> Iterator[Any]:
        if name not in {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}:
            return
        for sequence in self.values(iterated, module, bindings):
            items = sequence.items() if isinstance(sequence, dict) else sequence
            if isinstance(items, Iterable) and not isinstance(items, str):
                yield from self._unpacked(name, target, items)

    def _unpacked(self, name: str, target: ast.expr, items: Iterable[Any]) -> list[Any]:
        found = []
        for item in items:
            if isinstance(target, ast.Name):
                found.append(item)
            elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(item, tuple):
                for part, value in zip(target.elts, item, strict=False):
                    if isinstance(part, ast.Name) and part.id == name:
                        found.append(value)
        return found

    def _parameter(self, name: str, function: Function, module: Module) -> Sequence[Any]:
        """Return what callers pass for a parameter, or its default; looked for once, for callers call each other."""
        key = (function, name)
        if key not in self._passed and self._callers >= _MOST_CALLERS_DEEP:
            self._cuts += 1
            return (Expression(name),)
        if key not in self._passed:
            self._passed[key] = (Expression(name),)
            self._callers += 1
            found: list[Any] = []
            for call, caller in self._calls.of(function, module):
                passed = argument(call, function, name, is_method=module.enclosing_class(function) is not None)
                if passed is not None:
                    found += self.known(passed, caller)
            self._callers -= 1
            if not found and (default := _default(function, name)) is not None:
                found += self.known(default, module)
            self._passed[key] = found or (Expression(name),)
        return self._passed[key]

    def _imported(self, name: str, module: Module) -> Sequence[Any]:
        """Return the value of a module's global that a name stands for."""
        origin = self._project.imported(module, name)
        if origin is None:
            return (Expression(name),)
        source, original = origin
        values = [
            value
            for store in source.stores(source.tree).get(original, [])
            for value in self._of_store(original, store, source, {})
        ]
        return values or (Expression(name),)


def parameters_of(function: Function) -> list[str]:
    """Return the names of a function's parameters."""
    every = function.args
    return [each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs)]


def _default(function: Function, name: str) -> ast.expr | None:
    every = function.args
    by_place = [*every.posonlyargs, *every.args]
    pairs = list(zip(reversed(by_place), reversed(every.defaults), strict=False))
    pairs += [(each, default) for each, default in zip(every.kwonlyargs, every.kw_defaults, strict=True) if default]
    return next((default for each, default in pairs if each.arg == name), None)
