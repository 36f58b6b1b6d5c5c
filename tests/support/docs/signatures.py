"""The types in the public signatures of `assay`, read from the annotations in its source."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import assay

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[str, str]
"""A module, and a name that it defines."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NOT_LISTED = ("assay.v1", "assay.errors")
"""Public modules of their own."""


def signature_types() -> dict[Place, Place]:
    """Return every type that users of the public names give or receive, with a definition that refers to it.

    The search starts at `assay.__all__`. It follows the annotations of functions, of public methods (inherited ones
    too) and of public attributes, and the aliases of types.
    """
    roots = [defining_place("assay", name) for name in assay.__all__ if name != "__version__"]
    remaining = [root for root in roots if root is not None]
    referrers = dict.fromkeys(remaining, ("assay", "__all__"))
    while remaining:
        place = remaining.pop()
        for used in _annotated_places(place):
            if used not in referrers and not _is_left_out(used):
                referrers[used] = place
                remaining.append(used)
    return {place: referrer for place, referrer in referrers.items() if not place[1].startswith("_")}


@cache
def defining_place(module: str, name: str) -> Place | None:
    """Return where a name of a module is defined; None if that is outside of `assay`."""
    home = _names(module).get(name)
    if home is None or home[0].split(".")[0] != "assay" or home == (module, name):
        return home if home == (module, name) else None
    return defining_place(*home) or home


def _is_left_out(place: Place) -> bool:
    definition = _definition(place)
    is_variable = isinstance(definition, ast.Assign) and isinstance(definition.value, ast.Call)
    return is_variable or place[0].startswith(_NOT_LISTED)


def _annotated_places(place: Place) -> Iterator[Place]:
    """Return the definitions that the annotations of another one refer to."""
    definition = _definition(place)
    for annotation in _annotations(definition):
        yield from _places(place[0], annotation)
    for base in definition.bases if isinstance(definition, ast.ClassDef) else ():
        for home in _places(place[0], base):
            yield from _annotated_places(home)


def _places(module: str, expression: ast.expr) -> Iterator[Place]:
    for node in ast.walk(expression):
        place = defining_place(module, node.id) if isinstance(node, ast.Name) else None
        if place is not None:
            yield place


def _annotations(definition: ast.stmt | None) -> Iterator[ast.expr]:
    match definition:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _signature(definition)
        case ast.ClassDef():
            for statement in definition.body:
                if isinstance(statement, _Function) and (statement.name == "__init__" or statement.name[0] != "_"):
                    yield from _signature(statement)
                elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield from () if statement.target.id.startswith("_") else (statement.annotation,)
        case ast.Assign():
            yield definition.value


def _signature(function: _Function) -> Iterator[ast.expr]:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    yield from (argument.annotation for argument in every if argument is not None and argument.annotation is not None)
    if function.returns is not None:
        yield function.returns


@cache
def _module(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


@cache
def _names(module: str) -> dict[str, Place]:
    """Return the names that a module imports or defines, with their places."""
    imports = [node for node in ast.walk(_module(module)) if isinstance(node, ast.ImportFrom) and node.module]
    imported = {name.asname or name.name: (str(node.module), name.name) for node in imports for name in node.names}
    return imported | {name: (module, name) for name in _definitions(module)}


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    definitions: dict[str, ast.stmt] = {}
    for statement in _module(module).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            definitions[statement.targets[0].id] = statement
    return definitions


def _definition(place: Place) -> ast.stmt | None:
    module, name = place
    return _definitions(module).get(name)
