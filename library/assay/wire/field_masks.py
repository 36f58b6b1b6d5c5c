"""Field masks: which fields a request changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from google.protobuf.field_mask_pb2 import FieldMask


def masked_names(mask: FieldMask, allowed: Collection[str]) -> Sequence[str]:
    """Return the names of the fields that a request changes.

    Args:
        mask: The request's `update_mask`.
        allowed: The names of the fields that the method can change.

    Raises:
        InvalidInputError: The mask names no field, or one that the method cannot change; contains every problem.
    """
    names = ", ".join(allowed)
    problems = [
        Problem(f"must be one of {names}, not {path[:60]!a}", f"update_mask.paths[{at}]")
        for at, path in enumerate(mask.paths)
        if path not in allowed
    ]
    if not mask.paths:
        problems.append(Problem(f"is missing: name the fields to change, of {names}", "update_mask"))
    if problems:
        raise InvalidInputError(problems)
    return tuple(dict.fromkeys(mask.paths))
