"""Texts that both databases accept: without NUL, which PostgreSQL refuses, and lone surrogates."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.answers.agent_response import clean_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def json_text(data: object) -> str:
    """Return JSON text that can be stored and that the database's JSON functions can read.

    Raises:
        ValueError: A number is not finite.
    """
    text = clean_text(_ENCODER.encode(data))
    if "\\u0000" in text:
        text = _ESCAPED_NUL.sub("\\1\ufffd", text)
    return text


class CleanText(sa.types.TypeDecorator[str]):
    """Text of any length; values compared with it are cleaned too, so that they match."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as it is stored."""
        return None if value is None else clean_text(value)


class CleanString(sa.types.TypeDecorator[str]):
    """Text up to a length, cleaned like `CleanText`."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as it is stored."""
        return None if value is None else clean_text(value)
