"""Ids of cases: derived if missing, and unique in a dataset."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from array import array
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from assay.model.answers.approvals import approvals_to_json
from assay.text.equality import folded_case, plain

if TYPE_CHECKING:
    from assay.model.case import Case

_MAX_PLACE = 2**32 - 1


def derive_id(case: Case) -> str:
    """Return 12 hexadecimal digits that reordering cases or editing references does not change.

    They are the beginning of the SHA-256 of the input, variables, parameters and any approvals as canonical JSON:
    sorted keys, NFC, no spaces.
    """
    inputs = [turn.input for turn in case.turns]
    whole: dict[str, Any] = {"input": inputs[0] if len(inputs) == 1 else inputs}
    whole |= {"parameters": case.parameters, "variables": case.variables}
    if case.approvals:
        whole["approvals"] = approvals_to_json(case.approvals)
    text = _canonical(whole)
    if not unicodedata.is_normalized("NFC", text):
        # Normalising the JSON text itself would merge a combining mark into a preceding escape such as \
        # .
        text = _canonical(_normal(whole))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def derive_plain_id(text: str) -> str:
    """Return the same id as `derive_id` for a case of one turn without variables and parameters.

    Args:
        text: The turn's input.
    """
    asked = encode_basestring(text if text.isascii() else unicodedata.normalize("NFC", text))
    return hashlib.sha256(f'{{"input":{asked},"parameters":{{}},"variables":{{}}}}'.encode()).hexdigest()[:12]


def _normal(value: Any) -> Any:
    """Return the value with all texts in Unicode form NFC."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, dict):
        return {_normal(key): _normal(item) for key, item in value.items()}
    return [_normal(item) for item in value] if isinstance(value, list) else value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_of(case: Case) -> str:
    """Return a text that is equal for cases with equal question, variables, history, references and approvals."""
    turns = case.turns
    if len(turns) == 1 and not (case.variables or turns[0].history or case.approvals) and len(turns[0].references) < 2:
        return plain_content(turns[0].input, "".join(turns[0].references))
    history = [[(message.role, _equal(message.content)) for message in turn.history] for turn in turns]
    asked = [(_equal(turn.input), list(map(_equal, turn.references))) for turn in turns]
    return repr((asked, history, _canonical(_normal(case.variables)), case.approvals))


def plain_content(question: str, reference: str) -> str:
    """Return the same text as `content_of` for a case of one turn without variables and history."""
    return f"{_equal(question)}\x1e{_equal(reference)}"


def _equal(text: str) -> str:
    return folded_case(plain(text))


class CaseIds:
    """The ids of a dataset, in about a dozen bytes each: a million take 24 MiB."""

    def __init__(self) -> None:
        self._places = _Table()
        self._counts = _Table()

    def take(self, case_id: str, place: int) -> int | None:
        """Register an id from the dataset; return the place where it occurred before, or None.

        Args:
            place: The line or the record number; at least 1.
        """
        return self._places.put(hash(case_id) or 1, place) or None

    def derive(self, base: str, place: int) -> tuple[str, int]:
        """Return an id for a case without one, and the place of the first equal case; 0 if there is none.

        The id of a case that equals an earlier one ends in -2, -3, ...

        Args:
            base: The id from `derive_id`.
            place: As for `take`.
        """
        first = self._places.put(_key(base), place)
        if not first:
            return base, 0
        count = max(self._counts.get(_key(base)), 1)
        while True:
            count += 1
            if not self._places.put(_key(f"{base}-{count}"), place):
                self._counts.set(_key(base), count)
                return f"{base}-{count}", first


def _key(case_id: str) -> int:
    """Return a 64-bit hash of an id; two of a million ids collide once in 37 million datasets."""
    return hash(case_id) or 1


class _Table:
    """A map from 64-bit keys other than 0 to small numbers other than 0; open addressing, at most half full."""

    def __init__(self) -> None:
        self._count = 0
        self._reset(1024)

    def put(self, key: int, value: int) -> int:
        """Store the value unless the key has one; return the existing value, or 0."""
        keys, mask = self._keys, self._mask
        slot = key & mask
        while existing := keys[slot]:
            if existing == key:
                return self._values[slot]
            slot = (slot + 1) & mask
        keys[slot] = key
        self._values[slot] = min(value, _MAX_PLACE)
        self._count += 1
        if self._count * 2 > mask:
            self._grow()
        return 0

    def get(self, key: int) -> int:
        """Return the key's value, or 0."""
        return self._values[self._slot(key)]

    def set(self, key: int, value: int) -> None:
        """Store the value; overwrite any existing one."""
        slot = self._slot(key)
        if self._keys[slot]:
            self._values[slot] = min(value, _MAX_PLACE)
        else:
            self.put(key, value)

    def _slot(self, key: int) -> int:
        keys, mask = self._keys, self._mask
        slot = key & mask
        while (existing := keys[slot]) and existing != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._reset(2 * (self._mask + 1))
        new_keys, new_values, mask = self._keys, self._values, self._mask
        for old, kept in zip(keys, values, strict=True):
            if old:
                slot = old & mask
                while new_keys[slot]:
                    slot = (slot + 1) & mask
                new_keys[slot], new_values[slot] = old, kept

    def _reset(self, size: int) -> None:
        self._keys = array("q", bytes(8 * size))
        self._values = array("I", bytes(4 * size))
        self._mask = size - 1
