"""Environment variables that a spec names: put in where the call is made, taken out of every message."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from assay.errors import Problem
from assay.spec.variables import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Secrets"]

_RECOGNISABLE_CHARS = 8
_KEY_CHARS = 16
_REDACTED = "[redacted]"


class Secrets:
    """The variables that one agent's settings name.

    Args:
        allowed: Patterns of names that may be used.
        environ: Where the variables are.
        problems: What is wrong is added here.
    """

    def __init__(self, allowed: Sequence[str], environ: Mapping[str, str], problems: list[Problem]) -> None:
        self._allowed = allowed
        self._environ = environ
        self._problems = problems
        self._values: set[str] = set()

    def resolve(self, text: str, where: str) -> str:
        """Return the text with its variables filled in; `where` is the field that holds it."""
        return VARIABLE.sub(lambda found: self._value(found[1], where), text)

    def resolve_tree(self, tree: Any, where: str) -> Any:
        """Return a JSON tree with the variables in its texts filled in; keys are left as they are."""
        if isinstance(tree, str):
            return self.resolve(tree, where)
        if isinstance(tree, Mapping):
            return {key: self.resolve_tree(value, f"{where}.{key}") for key, value in tree.items()}
        if isinstance(tree, list):
            return [self.resolve_tree(value, f"{where}[{index}]") for index, value in enumerate(tree)]
        return tree

    def redact(self, text: str) -> str:
        """Return the text without the values, nor the beginning of one where the text was cut off."""
        longest_first = sorted(self._values, key=len, reverse=True)
        for value in longest_first:
            text = text.replace(value, _REDACTED)
        for value in longest_first:
            text = _without_beginning(text, value)
        return text

    def redact_keys(self, text: str) -> str:
        """Return the text without the values that are long enough to be keys: for what is no message but an answer."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, _REDACTED) if len(value) >= _KEY_CHARS else text
        return text

    def _value(self, name: str, where: str) -> str:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._allowed):
            self._problems.append(
                Problem(f"${{{name}}} may not be used here: the operator allows names with --agent-env", where)
            )
            return ""
        value = self._environ.get(name, "")
        if not value:
            self._problems.append(
                Problem(f"the environment variable {name} is not set where the orchestrator runs", where)
            )
            return ""
        # As it may come back: plain, in a URL, or in JSON.
        self._values |= {value, quote(value), quote(value, safe=""), json.dumps(value)[1:-1]}
        return value


def _without_beginning(text: str, value: str) -> str:
    if len(value) <= _RECOGNISABLE_CHARS:
        return text
    start = text.find(value[:_RECOGNISABLE_CHARS])
    while start >= 0:
        end = start + _RECOGNISABLE_CHARS
        while text[start : end + 1] == value[: end + 1 - start] and end < len(text):
            end += 1
        text = text[:start] + _REDACTED + text[end:]
        start = text.find(value[:_RECOGNISABLE_CHARS], start + len(_REDACTED))
    return text
