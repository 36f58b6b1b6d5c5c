"""Environment variables that a spec names: put in where the call is made, taken out of messages and answers."""

from __future__ import annotations

import base64
import dataclasses
import fnmatch
import html
import json
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from assay.errors import Problem
from assay.spec.variables import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.answers import AgentResponse

__all__ = ["Secrets"]

_RECOGNISABLE_CHARS = 8
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
        self._values: list[_Value] = []  # the longest first, as one may hold another
        self._long_values: list[_Value] = []

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
        """Return a message without the values, nor the beginning of one where the text was cut off."""
        for value in self._values:
            text = value.redact(text)
        for value in self._values:
            text = _without_beginnings(text, value.beginnings)
        return text

    def redact_answer(self, response: AgentResponse) -> AgentResponse:
        """Return an answer without the values: an agent, or a gateway before it, may repeat what it was sent.

        Values of fewer than 8 characters stay in it, other than in its error: they are ordinary words as well.
        """
        if not self._values:
            return response
        redacted: AgentResponse = self._redact_tree(dataclasses.replace(response, error=None))
        error = response.error
        if error is not None:
            error = dataclasses.replace(error, message=self.redact(error.message), type=self.redact(error.type))
        return dataclasses.replace(redacted, error=error)

    def _redact_tree(self, value: Any) -> Any:
        if type(value) is str:  # no StrEnum
            return self._redact_text(value)
        if isinstance(value, dict):
            return {self._redact_text(str(key)): self._redact_tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self._redact_tree, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return dataclasses.replace(value, **{name: self._redact_tree(getattr(value, name)) for name in names})
        return value

    def _redact_text(self, text: str) -> str:
        if len(text) >= _RECOGNISABLE_CHARS:
            for value in self._long_values:
                text = value.redact(text)
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
        self._values = sorted({*self._values, _Value(value)}, key=lambda known: len(known.text), reverse=True)
        self._long_values = [known for known in self._values if len(known.text) >= _RECOGNISABLE_CHARS]
        return value


class _Value:
    """One value, and how it may come back: plain, in a URL, in JSON, in HTML, or encoded with other text around it."""

    def __init__(self, text: str) -> None:
        self.text = text
        # The environment may hold bytes that are no UTF-8.
        in_urls = {quote(text, safe=safe, errors="surrogatepass") for safe in ("/", "")}
        self.beginnings = {text, *in_urls, json.dumps(text)[1:-1]}
        # What no spelling changes: a text without it need not be searched.
        self._core = max(re.findall(r"[A-Za-z0-9_.~-]*", text), key=len)
        self._pattern = re.compile("".join(map(_spellings, text)))
        self._encoded: set[str] = set()
        if len(text) >= _RECOGNISABLE_CHARS:
            plain = text.encode("utf-8", "surrogatepass")
            base64s = {_as_base64(plain, before) for before in range(3)}
            self._encoded = base64s | {each.replace("+", "-").replace("/", "_") for each in base64s}
            self._encoded |= {plain.hex(), plain.hex().upper()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Value) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def redact(self, text: str) -> str:
        if self._core in text:
            text = self._pattern.sub(_REDACTED, text)
        for encoded in self._encoded:
            if encoded in text:
                text = text.replace(encoded, _REDACTED)
        return text


def _spellings(char: str) -> str:
    """Return the pattern of one character, escaped or not; JSON within JSON has several backslashes."""
    plain = re.escape(char)
    if char.isascii() and (char.isalnum() or char in "_.~-"):
        return plain
    in_url = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    in_json = re.escape(json.dumps(char)[1:-1].lstrip("\\") or char)
    in_html = {html.escape(char), f"&#{ord(char)};", f"&#x{ord(char):x};"} - {char}
    forms = [r"\\{0,8}" + plain, f"(?i:{in_url})", rf"\\{{1,8}}(?i:{in_json})", *map(re.escape, in_html)]
    return f"(?:{'|'.join([*forms, r'[+]'] if char == ' ' else forms)})"


def _as_base64(value: bytes, before: int) -> str:
    """Return the characters of base64 that say nothing but a value, with some bytes (0 to 2) of a group before it."""
    code = base64.b64encode(b"\0" * before + value).decode().rstrip("=")
    first = -(-before * 8 // 6)
    last = (before + len(value)) * 8 // 6
    return code[first:last]


def _without_beginnings(text: str, spellings: set[str]) -> str:
    """Return a text without the beginnings of a value: of several spellings the one that reaches farthest."""
    long = [each for each in spellings if len(each) > _RECOGNISABLE_CHARS]
    after = 0
    while found := [at for each in long if (at := text.find(each[:_RECOGNISABLE_CHARS], after)) >= 0]:
        start = min(found)
        end = start + max(_shared_chars(text, start, each) for each in long)
        text = text[:start] + _REDACTED + text[end:]
        after = start + len(_REDACTED)
    return text


def _shared_chars(text: str, start: int, value: str) -> int:
    """Return how many characters from a place on are those that a value begins with."""
    there = text[start : start + len(value)]
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(there, value, strict=False)))
