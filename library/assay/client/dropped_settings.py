"""Settings of a run that an older server has dropped because it does not know them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run_settings import RunSettings

_ONLY_DESCRIBED = frozenset({"dataset", "spec_name"})  # they do not affect a run


def dropped_settings(sent: RunSettings, stored: RunSettings) -> list[str]:
    """Return the names of dropped settings, such as "judge.recorded_file", in order of declaration.

    Args:
        sent: The settings sent to the server.
        stored: The settings it returned, with defaults for unknown settings.
    """
    return list(_dropped(sent, stored, ""))


def _dropped(sent: Any, stored: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(sent):
        sent_value, stored_value = getattr(sent, field.name), getattr(stored, field.name)
        name = f"{prefix}{field.name}"
        if sent_value == stored_value or name in _ONLY_DESCRIBED:
            continue
        if stored_value == _default(field):
            yield name
        else:
            for sent_part, stored_part in _parts(sent_value, stored_value):
                yield from _dropped(sent_part, stored_part, f"{name}.")


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _parts(sent_value: object, stored_value: object) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of objects whose settings can be compared individually."""
    if dataclasses.is_dataclass(sent_value) and type(sent_value) is type(stored_value):
        yield sent_value, stored_value
    elif (
        isinstance(sent_value, Sequence) and isinstance(stored_value, Sequence) and len(sent_value) == len(stored_value)
    ):
        yield from (pair for pair in zip(sent_value, stored_value, strict=True) if dataclasses.is_dataclass(pair[0]))
