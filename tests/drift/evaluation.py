# SPDX-License-Identifier: Apache-2.0
"""
What an expression of the sources may be worth, without running them.

It follows names through assignments, imports, loops over constants, parameters of which the callers are in the
sources, and functions that return something simple. The order of statements counts as far as one assignment makes
those before it void. All else is an `Expression`: its text.
"""

from __future__ import annotations

import ast
import itertools
import re

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.drift.calls import CallIndex, argument, last_name
from tests.drift.modules import Function, Module, Project
from tests.drift.texts import Expression, Parts, field, of_format


MOST = 64
"""So many possible values of one expression are followed."""

_MOST_STEPS = 3000
"""So many nodes are evaluated for one: what takes more depends on the whole program."""

_MOST_CALLERS_DEEP = 6
"""A parameter is followed through so many callers of callers."""

_COPIES = {"list", "tuple", "sorted", "set", "frozenset", "cast"}
_MOST_TEXT = 120

Bindings = Mapping[str, tuple[Any, ...]]


class Evaluator:
    """
    Finds the values of expressions of one project.

    Args:
        project: The parsed modules.
        calls: Who calls what.
        fills_in: Whether the fields of an f-string are filled in, where their values are known.
    """

    def __init__(self, project: Project, calls: CallIndex, *, fills_in: bool = True) -> None:
        self._fills_in = fills_in
        self._project = project
        self._calls = calls
        self._busy: set[tuple[ast.AST, str]] = set()
        self._found: dict[ast.AST, tuple[Any, ...]] = {}
        self._cuts = 0
        self._steps = 0
        self._callers = 0
        self._passed: dict[tuple[ast.AST, str], Sequence[Any]] = {}

    def values(self, node: ast.AST, module: Module, bindings: Bindings | None = None) -> tuple[Any, ...]:
        """Return what a node may be worth, at least one value; what is not known is an `Expression`."""
        if not bindings and node in self._found:
            return self._found[node]
        is_outermost = self._steps == 0
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self._cuts += 1
            return (_expression(node),)
        cuts = self._cuts
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        values = _distinct(method(node, module, bindings or {}) if method else ()) or (_expression(node),)
        if is_outermost:
            self._steps = 0
        if not bindings and (cuts == self._cuts or is_outermost):
            self._found[node] = values  # Not one that a circle or a limit has cut off.
        return values

    def known(self, node: ast.AST, module: Module, bindings: Bindings | None = None) -> tuple[Any, ...]:
        """Return the values of a node that are no expressions."""
        return tuple(value for value in self.values(node, module, bindings) if not isinstance(value, Expression))

    def _constant(self, node: ast.Constant, _module: Module, _bindings: Bindings) -> Sequence[Any]:
        return (node.value,)

    def _joinedstr(self, node: ast.JoinedStr, module: Module, bindings: Bindings) -> Sequence[Any]:
        choices = [self._piece(piece, module, bindings) for piece in node.values]
        return ["".join(pieces) for pieces in itertools.islice(itertools.product(*choices), MOST)]

    def _piece(self, piece: ast.expr, module: Module, bindings: Bindings) -> list[str]:
        if isinstance(piece, ast.Constant):
            return [str(piece.value)]
        if not isinstance(piece, ast.FormattedValue):
            return [field("", "")]
        spec = ast.unparse(piece.format_spec)[2:-1] if piece.format_spec else ""
        if not self._fills_in:
            return [field(_short(piece.value), spec)]
        values = self.values(piece.value, module, bindings)
        texts = [value for value in values if isinstance(value, str) and not isinstance(value, Expression)]
        if texts and not spec:
            return texts
        is_told = len(values) == 1 and isinstance(values[0], Expression)
        return [field(values[0] if is_told else _short(piece.value), spec)]

    def _binop(self, node: ast.BinOp, module: Module, bindings: Bindings) -> Sequence[Any]:
        left = self.values(node.left, module, bindings)
        if isinstance(node.op, ast.Mod) and all(isinstance(value, str) for value in left):
            return left
        right = self.values(node.right, module, bindings)
        pairs = itertools.islice(itertools.product(left, right), MOST)
        if isinstance(node.op, ast.Add):
            return [total for one, other in pairs if (total := _added(one, other)) is not None]
        if isinstance(node.op, (ast.Pow, ast.Mult)):
            return [_calculated(node.op, one, other) for one, other in pairs if _are_small(one, other)]
        return ()

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
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.id in _parameters(scope):
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

    def _attribute(self, node: ast.Attribute, module: Module, _bindings: Bindings) -> Sequence[Any]:
        key = (node, "attribute")
        if key in self._busy:
            self._cuts += 1
            return ()
        self._busy.add(key)
        try:
            return list(self._members(node, module)) or (Expression(_short(node)),)
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

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set, module: Module, bindings: Bindings) -> Sequence[Any]:
        choices: list[list[tuple[Any, ...]]] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                values = self.values(element.value, module, bindings)
                choices.append([value if isinstance(value, tuple) else (value,) for value in values])
            else:
                choices.append([(value,) for value in self.values(element, module, bindings)])
        return [tuple(itertools.chain(*each)) for each in itertools.islice(itertools.product(*choices), MOST)]

    _list = _tuple
    _set = _tuple

    def _dict(self, node: ast.Dict, module: Module, bindings: Bindings) -> Sequence[Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.values(value, module, bindings)[0]
                found.update(inner if isinstance(inner, dict) else {Expression(_short(value)): None})
            else:
                name = self.values(key, module, bindings)[0]
                name = name if isinstance(name, str | int | float) else Expression(_short(key))
                found[name] = self.values(value, module, bindings)[0]
        return (found,)

    def _subscript(self, node: ast.Subscript, module: Module, bindings: Bindings) -> Sequence[Any]:
        found = []
        for owner in self.values(node.value, module, bindings):
            if isinstance(owner, tuple) and isinstance(node.slice, ast.Slice):
                bounds = [
                    self.values(bound, module, bindings)[0] if bound else None
                    for bound in (node.slice.lower, node.slice.upper, node.slice.step)
                ]
                if all(bound is None or isinstance(bound, int) for bound in bounds):
                    found.append(owner[slice(*bounds)])
            elif isinstance(owner, (tuple, dict)):
                for key in self.values(node.slice, module, bindings):
                    found += [owner[key]] if _has(owner, key) else []
        return found

    def _ifexp(self, node: ast.IfExp, module: Module, bindings: Bindings) -> Sequence[Any]:
        return [*self.values(node.body, module, bindings), *self.values(node.orelse, module, bindings)]

    def _boolop(self, node: ast.BoolOp, module: Module, bindings: Bindings) -> Sequence[Any]:
        return [value for each in node.values for value in self.values(each, module, bindings)]

    def _namedexpr(self, node: ast.NamedExpr, module: Module, bindings: Bindings) -> Sequence[Any]:
        return self.values(node.value, module, bindings)

    def _listcomp(self, node: ast.ListComp, module: Module, bindings: Bindings) -> Sequence[Any]:
        values = self.values(node.elt, module, bindings)
        return (values,) if not any(isinstance(value, Expression) for value in values) else ()

    _generatorexp = _listcomp

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
            for each in _parameters(function)
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
            return [_joined(owner, each) for owner in owners for each in self.values(node.args[0], module, bindings)]
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


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    kept = {(type(value), repr(value)): value for value in values}
    return tuple(list(kept.values())[:MOST])


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, Expression) and isinstance(other, tuple) and not isinstance(other, Parts):
        return (Expression(f"*{one}"), *other)
    if isinstance(other, Expression) and isinstance(one, tuple) and not isinstance(one, Parts):
        return (*one, Expression(f"*{other}"))
    if isinstance(other, Parts) and isinstance(one, str):
        text = field(one, "") if isinstance(one, Expression) else one
        return other._replace(before=text + other.before)
    if isinstance(one, Expression) and isinstance(other, Expression):
        return None
    if isinstance(one, str) and isinstance(other, str):
        return "".join(field(text, "") if isinstance(text, Expression) else text for text in (one, other))
    if isinstance(one, tuple) and isinstance(other, tuple) and not isinstance(one, Parts):
        return one + other
    if _are_small(one, other):
        return one + other
    return None


def _joined(separator: Any, parts: Any) -> Any:
    if not isinstance(separator, str):
        return Expression("join")
    if isinstance(parts, Parts):
        return parts._replace(separator=separator)
    if isinstance(parts, tuple) and all(isinstance(part, str) for part in parts):
        return separator.join(field(part, "") if isinstance(part, Expression) else part for part in parts)
    return field(str(parts) if isinstance(parts, Expression) else "", "")


def _are_small(one: Any, other: Any) -> bool:
    return all(isinstance(value, (int, float)) and abs(value) <= 1e12 for value in (one, other))


def _calculated(operator: ast.operator, one: float, other: float) -> float:
    return one * other if isinstance(operator, ast.Mult) or abs(other) > 64 else one**other


def _has(owner: Any, key: Any) -> bool:
    if isinstance(owner, dict):
        return isinstance(key, str | int | float) and key in owner
    return isinstance(key, int) and -len(owner) <= key < len(owner)


def _named_call(value: Any, call: ast.Call) -> Any:
    """Return a value; what a called function could not say is told by the call, or by its own if that has defaults."""
    text = _short(call)
    if not isinstance(value, Expression) or ("overrides=" in text and "(" in value):
        return value
    return Expression(text)


def _parameters(function: Function) -> list[str]:
    every = function.args
    return [each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs)]


def _default(function: Function, name: str) -> ast.expr | None:
    every = function.args
    by_place = [*every.posonlyargs, *every.args]
    pairs = list(zip(reversed(by_place), reversed(every.defaults), strict=False))
    pairs += [(each, default) for each, default in zip(every.kwonlyargs, every.kw_defaults, strict=True) if default]
    return next((default for each, default in pairs if each.arg == name), None)


def _short(node: ast.AST) -> str:
    return ast.unparse(node)[:_MOST_TEXT]


def _expression(node: ast.AST) -> Expression:
    return Expression(_short(node))
