"""Reading objects in memory as records: data frames, and values without a JSON form."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

from assay.datasets.records import shown

_TEXTS = (datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath)
_MISSING = ("NAType", "NaTType")  # pandas' missing values, which neither equal themselves nor are false


def is_table(data: object) -> bool:
    """Return whether an object is a data frame or table: of pandas, polars, pyarrow or a similar library."""
    return any(hasattr(data, name) for name in ("to_dicts", "to_pylist")) or (
        hasattr(data, "to_dict") and hasattr(data, "columns")
    )


def table_rows(data: Any) -> list[dict[str, Any]]:
    """Return the rows of a data frame; a named index becomes a column, any other is dropped."""
    if hasattr(data, "to_dicts"):
        return list(data.to_dicts())
    if hasattr(data, "to_pylist"):
        return list(data.to_pylist())
    if not hasattr(data, "reset_index"):
        return list(data.to_dict("records"))
    if any(name is not None for name in data.index.names):
        data = data.reset_index()
    rows: list[dict[str, Any]] = data.to_dict("records")
    for name in _counting(data):
        for row in rows:
            if row[name] == row[name]:
                row[name] = int(row[name])
    return rows


def _counting(data: Any) -> list[Any]:
    """Return the integer columns that are floats only because values are missing."""
    floats = [name for name in data.columns if getattr(data[name].dtype, "kind", "") == "f"]
    return [
        name
        for name in floats
        if data[name].isna().any() and all(value.is_integer() for value in data[name].dropna().tolist())
    ]


def plain_record(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record with JSON values; a field with a missing value (None, NaN, NaT) is omitted.

    Raises:
        ValueError: A value has no JSON form; the second argument is its field.
    """
    data: dict[str, Any] = {}
    for key, value in record.items():
        try:
            plain = plain_value(value)
        except ValueError as problem:
            raise ValueError(str(problem), str(key)) from None
        if plain is not None:
            data[str(key)] = plain
    return data


def plain_value(value: Any) -> Any:
    """Return a value in JSON form: dates and exact numbers as texts, missing values as None.

    Raises:
        ValueError: The value has no JSON form.
    """
    if value is None or isinstance(value, str | bool | int):
        return value.value if isinstance(value, enum.Enum) else value
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"holds {value}, which is not a JSON number: write null, or a number")
        return None if math.isnan(value) else float(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    if isinstance(value, enum.Enum):
        return plain_value(value.value)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _of_numpy(value)
    raise ValueError(f"holds {shown(value)}, which JSON has no form for: write it as a text")


def _of_numpy(value: Any) -> Any:
    if value.dtype.kind in "mM":  # times: `tolist` gives nanoseconds
        texts = value.astype(str).tolist()
        return _dates(texts)
    plain = value.tolist()
    return plain if type(plain) is type(value) else plain_value(plain)


def _dates(texts: Any) -> Any:
    if isinstance(texts, list):
        return [_dates(text) for text in texts]
    return None if texts == "NaT" else texts
