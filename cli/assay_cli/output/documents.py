"""JSON documents of the command: each names its schema in its first field."""

from __future__ import annotations

from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from assay.model.plain import plain
from assay.text.unsafe_text import json_text
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


def with_schema(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON document that names its form first, as `assay/NAME/1`; docs/report.md lists the names."""
    return {"schema": f"assay/{name}/1", **document}


def record(value: DataclassInstance) -> dict[str, Any]:
    """Return a dataclass as a JSON object, with null for its empty texts: they stand for absent values."""
    return asdict(
        value, dict_factory=lambda pairs: {key: None if entry == "" else plain(entry) for key, entry in pairs}
    )


def print_document(name: str, document: Mapping[str, Any], file: IO[str] | None = None) -> None:
    """Print a JSON document of the schema `name`, indented for readers."""
    click.echo(json_text(with_schema(name, document), indent=1), file=file)


def print_object(name: str, value: DataclassInstance, sentence: str, *, as_json: bool) -> None:
    """Print a dataclass as a JSON document of the schema `name`, or else a sentence on it."""
    if as_json:
        print_document(name, record(value))
    else:
        click.echo(sentence)


def print_listing(
    name: str,
    values: Sequence[D],
    head: tuple[str, ...],
    row: Callable[[D], tuple[str, ...]],
    *,
    as_json: bool,
    if_empty: str = "",
) -> None:
    """Print dataclasses as a JSON document, or else as a table.

    Args:
        name: Name of the document's schema, and of its list of the dataclasses.
        values: The dataclasses.
        head: Heading of the table.
        row: Returns the cells of one value.
        as_json: Whether to print JSON.
        if_empty: Replaces an empty table.
    """
    if as_json:
        print_document(name, {name: [record(value) for value in values]})
    else:
        click.echo(table([head, *map(row, values)]) if values or not if_empty else if_empty)


def print_line(name: str, document: Mapping[str, Any], file: IO[str] | None = None) -> None:
    """Print a JSON document of the schema `name` on one line, unbuffered."""
    click.echo(json_text(with_schema(name, document)), file=file)
