"""Lists and objects written as text in table cells, as JSON or in Python's notation."""

from __future__ import annotations

import ast
import io
import itertools
import json
import math
import re
import tokenize
import warnings
from collections.abc import Mapping
from typing import Any

from assay.datasets.records import find_unusable

_MAX_LITERAL_CHARS = 64 * 1024
_MAX_BRACKETS = 2000
_BRACKETS = ("[]", "{}", "()")
_WRAPPERS = ("array(", "Index(", "set(", "frozenset(")
_WRAPPED = re.compile(r"\w+\(\s*(\[.*\]|\{.*\})\s*(?:,\s*dtype=[^()]*)?\)", re.DOTALL)
_NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)|(?<=[\[,\s])nan(?=\s*[,\]])")
"""Scalars in a list in numpy's notation, and a missing value."""
_SIDE_BY_SIDE = re.compile(r"""['"]\s+['"]""")
_SPACE_TOKENS = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def opened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table row with the lists and objects in its cells parsed."""
    return {name: value_in_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def value_in_cell(cell: str) -> Any:
    """Return the list or object in a cell, or the cell."""
    text = cell.strip()
    if not may_list(text):
        return cell
    if (wrapped := _WRAPPED.fullmatch(text)) is not None:
        text = wrapped[1]
    value = json_in_cell(text)
    if isinstance(value, str):
        value = _literal(text)
    return value if isinstance(value, list | dict) else cell


def may_list(cell: str) -> bool:
    """Return whether a cell has the brackets of a list or object in JSON, Python or numpy notation."""
    text = cell.strip()
    return text[:1] + text[-1:] in _BRACKETS or (text.endswith(")") and text.startswith(_WRAPPERS))


def texts_in_cell(cell: str) -> list[str] | None:
    """Return the texts and numbers listed in a cell; None if it holds anything else."""
    value = value_in_cell(cell)
    if not isinstance(value, list):
        return None
    items = [item for item in value if item is not None]
    if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
        return None
    return list(map(str, items))


def json_in_cell(cell: str) -> Any:
    """Return the JSON value in a cell, or the cell."""
    try:
        value = json.loads(cell, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return cell
    return cell if find_unusable(value) else value


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is more than a number can be")
    return number


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _literal(text: str) -> Any:
    """Return the value of a list or object in Python's notation, which tables written from data frames contain."""
    # Python's literal parser cannot resist texts that are designed to exhaust it.
    if len(text) > _MAX_LITERAL_CHARS or sum(map(text.count, "[{(")) > _MAX_BRACKETS or _is_deep(text):
        return text
    value = _evaluated(text)
    if value is None:
        value = _evaluated(_NUMPY.sub(lambda match: match[1] or "None", text))
    if isinstance(value, set):
        value = tuple(sorted(value, key=lambda item: text.find(repr(item))))
    if isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
        return list(value)
    return text if find_unusable(value) or not _is_json(value) else value


def _evaluated(text: str) -> Any:
    """Return the value of a Python literal; None if the text is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about escapes in the user's texts
            return ast.literal_eval(_with_commas(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError):
        return None


def _with_commas(text: str) -> str:
    """Return the text with commas inserted between adjacent texts, which numpy arrays are written as.

    Python would concatenate them.
    """
    if _SIDE_BY_SIDE.search(text) is None:
        return text
    tokens = [
        token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _SPACE_TOKENS
    ]
    parts = [tokens[0].string]
    for before, token in itertools.pairwise(tokens):
        parts.append("," if before.type == token.type == tokenize.STRING else "")
        parts.append(token.string)
    return " ".join(parts)


def _is_deep(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if depth > 50:
            return True
    return False


def _is_json(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif not (
            item is None or isinstance(item, str | bool | int) or (isinstance(item, float) and math.isfinite(item))
        ):
            return False
    return True
