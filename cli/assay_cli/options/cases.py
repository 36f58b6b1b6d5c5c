"""Options of `assay run` that select cases, and that name and label the run."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.errors import InvalidInputError
from assay.model.run_spec import CaseSelection
from assay.text.unsafe_text import clean
from assay_cli.options.shared import pairs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.client.client import Client
    from assay.specs.model import Spec

QUICK_CASES = 10

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Marks:
    """Name, labels and note of a run, as the command gives them.

    Args:
        name: Replaces the spec's name; None keeps it.
        labels: Added to the spec's labels.
        note: Replaces the spec's note; None keeps it.
    """

    name: str | None
    labels: Mapping[str, str]
    note: str | None

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides of a spec that set name and note."""
        values = {"name": self.name, "note": self.note}
        return tuple(f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None)

    def label(self, spec: Spec) -> Spec:
        """Return the spec with the labels added.

        Raises:
            InvalidInputError: A label is wrong; holds every problem.
        """
        from assay.model.labels import label_problems

        if not self.labels:
            return spec
        labels = {**spec.settings.labels, **self.labels}
        if problems := label_problems(labels, ""):
            raise InvalidInputError(problems)
        return replace(spec, settings=replace(spec.settings, labels=labels))


async def find_run(client: Client, reference: str) -> str:
    """Return the id of the run that the user means; print it if the user wrote only a part or an alias.

    Raises:
        InvalidInputError: Several ids begin with the text.
        NotFoundError: No run is stored.
    """
    from assay.client.run_references import find_run_id

    run_id = await find_run_id(client, reference)
    if run_id != reference:
        click.echo(f"{clean(reference)} is run {clean(run_id)}", err=True)
    return run_id


def labels_of(values: Sequence[str]) -> dict[str, str]:
    """Return the labels that --label gives.

    Raises:
        InvalidInputError: A value is not KEY=VALUE.
    """
    return pairs_of(values, "--label", "KEY=VALUE, such as branch=main")


def selection_options(command: F) -> F:
    """Add the options that select cases of a dataset; the command gets them as `selection`."""

    @click.option(
        "--case", "cases", multiple=True, metavar="ID", help="Only this case, or cases like 'inv-*'; repeatable."
    )
    @click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag; repeatable.")
    @click.option(
        "--category", "categories", multiple=True, metavar="NAME", help="Only cases of this category; repeatable."
    )
    @click.option("--quick", is_flag=True, help=f"Only the first {QUICK_CASES} of these cases: a smoke test.")
    @click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N of these cases; default: all."
    )
    @functools.wraps(command)
    def selecting(
        *args: Any,
        cases: tuple[str, ...],
        tags: tuple[str, ...],
        categories: tuple[str, ...],
        quick: bool,
        limit: int | None,
        **kwargs: Any,
    ) -> Any:
        if quick:
            limit = min(limit or QUICK_CASES, QUICK_CASES)
        return command(*args, selection=CaseSelection(cases, tags, categories, limit=limit), **kwargs)

    return selecting  # type: ignore[return-value]  # click passes what the command gets


def marks_options(command: F) -> F:
    """Add the options that name and label a run; the command gets them as `marks`."""

    @click.option("--name", metavar="NAME", help="Name of this run; default: the spec's.")
    @click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="KEY=VALUE",
        help="Label to find the run by; adds to the spec's; repeatable.",
    )
    @click.option("--note", metavar="TEXT", help="Remark that is stored with the run; default: the spec's.")
    @functools.wraps(command)
    def marking(*args: Any, name: str | None, labels: tuple[str, ...], note: str | None, **kwargs: Any) -> Any:
        return command(*args, marks=Marks(name, labels_of(labels), note), **kwargs)

    return marking  # type: ignore[return-value]  # as above
