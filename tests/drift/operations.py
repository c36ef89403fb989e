# SPDX-License-Identifier: Apache-2.0
"""What expressions are worth whose parts are: literals, f-strings, sums, tuples, tables, both sides of a choice."""

from __future__ import annotations

import ast
import itertools

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.drift.modules import Module
from tests.drift.texts import Expression, Parts, field


MOST = 64
"""So many possible values of one expression are followed."""

_MOST_TEXT = 120

Bindings = Mapping[str, tuple[Any, ...]]
"""What names stand for inside a function that is called."""


class Operations(ABC):
    """
    Finds the values of expressions from those of their parts.

    Each method is named for a class of `ast`. Methods return all values that they find, and nothing if they find none.

    Args:
        fills_in: Whether the fields of an f-string are filled in, where their values are known.
    """

    def __init__(self, *, fills_in: bool) -> None:
        self._fills_in = fills_in

    @abstractmethod
    def values(self, node: ast.AST, module: Module, bindings: Bindings | None = None) -> tuple[Any, ...]:
        """Return what a node may be worth, at least one value; what is not known is an `Expression`."""

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
            return [field(short_text(piece.value), spec)]
        values = self.values(piece.value, module, bindings)
        texts = [value for value in values if isinstance(value, str) and not isinstance(value, Expression)]
        if texts and not spec:
            return texts
        is_told = len(values) == 1 and isinstance(values[0], Expression)
        return [field(values[0] if is_told else short_text(piece.value), spec)]

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
                found.update(inner if isinstance(inner, dict) else {Expression(short_text(value)): None})
            else:
                name = self.values(key, module, bindings)[0]
                name = name if isinstance(name, str | int | float) else Expression(short_text(key))
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


def joined(separator: Any, parts: Any) -> Any:
    """Return what ``separator.join(parts)`` is."""
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


def short_text(node: ast.AST) -> str:
    """Return the text of an expression, cut off if it is long."""
    return ast.unparse(node)[:_MOST_TEXT]


def expression_of(node: ast.AST) -> Expression:
    """Return a node as a value that is not known."""
    return Expression(short_text(node))


def distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return values, each once."""
    kept = {(type(value), repr(value)): value for value in values}
    return tuple(list(kept.values())[:MOST])
