# SPDX-License-Identifier: Apache-2.0
"""Parsed modules: who encloses a node, what a name stands for, and who calls what."""

from __future__ import annotations

import ast
import platform
import warnings

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.drift.source_tree import DriftError


Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


class Module:
    """
    One parsed file.

    Args:
        path: The path from the folder that has the package.
        tree: The syntax tree.
        is_light: Whether only calls and raised exceptions are to be known.
    """

    def __init__(self, path: str, tree: ast.Module, *, is_light: bool = False) -> None:
        self.path = path
        self.tree = tree
        self.imports: dict[str, tuple[str, str]] = {}
        """For each imported name the module that it is from, and its name there, empty for the module itself."""
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, Function] = {}
        self.calls: list[ast.Call] = []
        self.raises: list[ast.Raise] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        self._stores: dict[ast.AST, dict[str, list[ast.AST]]] = {}
        self._attributes: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
        self._package = _dotted(path).rpartition(".")[0] if not path.endswith("__init__.py") else _dotted(path)
        if is_light:
            self._find_statements()
        else:
            self._index()

    def _find_statements(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.Raise):
                self.raises.append(node)

    def _index(self) -> None:
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.Raise):
                self.raises.append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.update(self._imported(node))

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str]]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, "")
            return
        base = node.module or ""
        if node.level:
            parents = self._package.split(".")[: len(self._package.split(".")) - node.level + 1]
            base = ".".join([*parents, *([base] if base else [])])
        for alias in node.names:
            yield alias.asname or alias.name, (base, alias.name)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node around a node."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the nearest first."""
        while (around := self._parents.get(node)) is not None:
            yield around
            node = around

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions, classes and the module around a node, the nearest first."""
        return (around for around in self.ancestors(node) if isinstance(around, _SCOPES))

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class around a node."""
        return next((scope for scope in self.scopes(node) if isinstance(scope, ast.ClassDef)), None)

    def stores(self, scope: ast.AST) -> Mapping[str, list[ast.AST]]:
        """Return the statements and loops of a scope that bind each name, in their order; not of scopes in it."""
        if scope not in self._stores:
            found: dict[str, list[ast.AST]] = defaultdict(list)
            for node in _own_nodes(scope):
                for name in _bound_names(node):
                    found[name].append(node)
            self._stores[scope] = found
        return self._stores[scope]

    def attributes(self, owner: ast.ClassDef) -> Mapping[str, list[ast.expr]]:
        """Return what a class's methods assign to the attributes of an object."""
        if owner not in self._attributes:
            found: dict[str, list[ast.expr]] = defaultdict(list)
            for node in ast.walk(owner):
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    if isinstance(target, ast.Attribute):
                        found[target.attr].append(node.value)  # type: ignore[attr-defined]
            self._attributes[owner] = found
        return self._attributes[owner]

    def is_before(self, first: ast.AST, second: ast.AST) -> bool:
        """Tell whether a statement stands before a node."""
        return (first.lineno, first.col_offset) < (second.lineno, second.col_offset)  # type: ignore[attr-defined]

    def encloses(self, outer: ast.AST | None, node: ast.AST) -> bool:
        """Tell whether a node is inside another."""
        return any(around is outer for around in self.ancestors(node))


class Project:
    """
    All modules of a source tree, parsed when they are asked for.

    Args:
        texts: The text of each file, by its path.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._modules: dict[str, Module] = {}

    def module(self, path: str) -> Module:
        """
        Return a parsed file.

        Raises:
            DriftError: This Python does not know its syntax.
        """
        if path not in self._modules:
            self._modules[path] = Module(path, self._parsed(path))
        return self._modules[path]

    def _parsed(self, path: str) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Escapes in strings of other people's code.
                return ast.parse(self._texts[path], path)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            why = error.args[0] if error.args else type(error).__name__
            raise DriftError(
                f"{path}{line} is in no syntax that Python {platform.python_version()} knows ({why}); "
                "a newer Python may read it."
            ) from None

    def light_module(self, path: str) -> Module:
        """
        Return a file of which only the calls and the raised exceptions are known; it is not kept.

        Raises:
            DriftError: As `module`.
        """
        return Module(path, self._parsed(path), is_light=True)

    def paths(self, *signs: str) -> list[str]:
        """Return the files whose text has one of the signs."""
        return [path for path in sorted(self._texts) if any(sign in self._texts[path] for sign in signs)]

    def having(self, *signs: str) -> Iterator[Module]:
        """Yield the modules whose text has one of the signs, by path."""
        return map(self.module, self.paths(*signs))

    def imported(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Return the module of this project that an imported name is from, and its name there; follows re-exports."""
        seen = set()
        while name in module.imports and (module.path, name) not in seen:
            seen.add((module.path, name))
            base, original = module.imports[name]
            path = self._path_of(base)
            if path is None or not original:
                return None
            module, name = self.module(path), original
        return (module, name) if seen else None

    def _path_of(self, dotted: str) -> str | None:
        stem = dotted.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self._texts), None)

    def text(self, path: str) -> str:
        """Return a file's text."""
        return self._texts[path]


def _dotted(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, in the order of the text, without those of functions and classes in it."""
    waiting = list(ast.iter_child_nodes(scope))[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.Lambda)):
            waiting += list(ast.iter_child_nodes(node))[::-1]


def _bound_names(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr)):
        targets = [node.target]
    else:
        return ()
    return [
        name.id
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]


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
