"""The long form of `dataset` in a spec: a mapping with the file and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE = ("path", "file")
_BESIDE = ("map", "format", "encoding", "on_bad_case")


def lift_dataset_keys(data: dict[str, Any], report: Callable[[str, str], None]) -> None:
    """Move the entries of a mapping under `dataset` to the fields of the short form, in place.

    `dataset: {path: cases.csv, map: {input: frage}}` is equivalent to `dataset: cases.csv` and `map: {input: frage}`.

    Args:
        data: The spec.
        report: Receives problems, as field and message.
    """
    entries = data.get("dataset")
    if not isinstance(entries, dict):
        return
    files = [key for key in _FILE if key in entries]
    if len(files) != 1:
        report("dataset", "must be a file name, or a mapping with the file as `path`")
    data["dataset"] = entries[files[0]] if files else None
    for key, value in entries.items():
        if key in _BESIDE and key in data:
            report(f"dataset.{key}", f"is also set beside `dataset`, as `{key}`: keep one of them")
        elif key in _BESIDE:
            data[key] = value
        elif key not in _FILE:
            report(f"dataset.{key}", unknown_name("field of a dataset", str(key), (*_FILE[:1], *_BESIDE)))
    if not files:
        del data["dataset"]
