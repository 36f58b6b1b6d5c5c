"""Settings of a run that a server of an older version does not know, and so has not stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run_settings import RunSettings

_ONLY_DESCRIBED = frozenset({"dataset", "spec_name"})  # they change nothing that a run does


def dropped_settings(sent: RunSettings, stored: RunSettings) -> list[str]:
    """Return the settings that were sent and are not stored, such as "judge.recorded_file"; in order of declaration.

    Args:
        sent: What the server was given.
        stored: What it returned: a setting that it does not know has its default there.
    """
    return list(_dropped(sent, stored, ""))


def _dropped(sent: Any, stored: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(sent):
        given, kept = getattr(sent, field.name), getattr(stored, field.name)
        name = f"{prefix}{field.name}"
        if given == kept or name in _ONLY_DESCRIBED:
            continue
        if kept == _default(field):
            yield name
        else:
            for one, other in _parts(given, kept):
                yield from _dropped(one, other, f"{name}.")


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _parts(given: object, kept: object) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of objects whose settings can be compared one by one."""
    if dataclasses.is_dataclass(given) and type(given) is type(kept):
        yield given, kept
    elif isinstance(given, Sequence) and isinstance(kept, Sequence) and len(given) == len(kept):
        yield from (pair for pair in zip(given, kept, strict=True) if dataclasses.is_dataclass(pair[0]))
