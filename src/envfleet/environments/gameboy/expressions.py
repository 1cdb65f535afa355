"""Expressions in game files: arithmetic on named memory values, compiled once for speed.

Allowed are numbers, the names of the file, `name[index]` for list values, + - * / // % & | ^ << >>, comparisons,
and/or/not, `a if condition else b`, and abs, min and max. Nothing else compiles, so a game file can compute but cannot
run code.
"""

from __future__ import annotations

import ast
import difflib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envfleet.errors import SettingsError

__all__ = ["compile_all"]

_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "max": max, "min": min}
_ALLOWED = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_FORBIDDEN = (ast.Pow, ast.MatMult, ast.In, ast.NotIn, ast.Is, ast.IsNot)  # a power can take forever


_one_at_a_time = threading.Lock()  # Python 3.11 counts the depth of a tree over all threads together, and then refuses


def compile_all(
    expressions: Sequence[str | float], lengths: Mapping[str, int], *, where: str
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that computes all expressions from the values, given in the order of `lengths`.

    `lengths` maps each name to the length of its list, or 0 for a single number.
    """
    places = {name: place for place, name in enumerate(lengths)}
    bodies = [_checked(str(text), lengths, places, where) for text in expressions]
    tree = ast.Expression(ast.Tuple(elts=bodies, ctx=ast.Load()))
    function = ast.Expression(
        ast.Lambda(
            args=ast.arguments(posonlyargs=[], args=[ast.arg("_values")], kwonlyargs=[], kw_defaults=[], defaults=[]),
            body=tree.body,
        )
    )
    with _one_at_a_time:
        code = compile(ast.fix_missing_locations(function), f"<{where}>", "eval")
    made: Callable[[Sequence[Any]], tuple[Any, ...]] = eval(code, {"__builtins__": {}, **_FUNCTIONS})
    return made


def _checked(text: str, lengths: Mapping[str, int], places: Mapping[str, int], where: str) -> ast.expr:
    try:
        with _one_at_a_time:
            body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise SettingsError(f"{where}: received {text!r}, expected an expression such as 'health / 4'") from error
    return _Reader(text, lengths, places, where).read(body)


class _Reader:
    """Checks an expression node by node and replaces each name with the position of its value."""

    def __init__(self, text: str, lengths: Mapping[str, int], places: Mapping[str, int], where: str) -> None:
        self._text, self._lengths, self._places, self._where = text, lengths, places, where

    def read(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            return self._value(node.id, None)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self._value(node.value.id, node.slice)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Constant):
            if type(node.value) not in (int, float, bool):
                raise self._refusal(f"{node.value!r} is not a number")
            return node
        if not isinstance(node, _ALLOWED) or any(isinstance(part, _FORBIDDEN) for part in ast.iter_child_nodes(node)):
            raise self._refusal(f"{ast.unparse(node)!r} is more than arithmetic, comparisons, abs, min and max")
        for name, child in ast.iter_fields(node):
            if isinstance(child, ast.expr):
                setattr(node, name, self.read(child))
            elif isinstance(child, list):
                setattr(node, name, [self.read(part) if isinstance(part, ast.expr) else part for part in child])
        return node

    def _call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords or not node.args:
            raise self._refusal(f"{ast.unparse(node)!r} is none of abs, min and max")
        node.args = [self.read(argument) for argument in node.args]
        return node

    def _value(self, name: str, index: ast.expr | None) -> ast.expr:
        if name not in self._places:
            near = difflib.get_close_matches(name, self._places, n=1)
            raise self._refusal(
                f"there is no value {name!r} in memory" + (f"; did you mean {near[0]}?" if near else "")
            )
        here = ast.Subscript(ast.Name("_values", ast.Load()), ast.Constant(self._places[name]), ast.Load())
        length = self._lengths[name]
        if index is None:
            if length:
                raise self._refusal(f"{name} is a list of {length}, expected one of it, e.g. {name}[0]")
            return here
        if not isinstance(index, ast.Constant) or type(index.value) is not int or not 0 <= index.value < length:
            raise self._refusal(f"{name}[{ast.unparse(index)}] does not exist: {name} is " + _size(length))
        return ast.Subscript(here, index, ast.Load())

    def _refusal(self, problem: str) -> SettingsError:
        return SettingsError(f"{self._where}: in the expression {self._text!r}, {problem}")


def _size(length: int) -> str:
    return f"a list of {length}" if length else "one number"
