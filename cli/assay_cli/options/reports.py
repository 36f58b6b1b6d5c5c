"""Which reports a command writes: --report and --output-dir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.errors import InvalidInputError, Problem
from assay.model.report_settings import REPORTS, ReportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")


def report_option(*names: str, default: str) -> Callable[[F], F]:
    """Return the option that names formats of reports.

    Args:
        names: The option's names.
        default: What is written without it, for its help.
    """
    return click.option(
        *names,
        "report_names",
        multiple=True,
        metavar="FORMAT",
        help=f"Report to write: {', '.join(REPORTS)}; with an option as charts:plot_format=svg; repeatable, or several "
        f"with commas; default: {default}.",
    )


def chosen_reports(
    names: Sequence[str], default: tuple[ReportSettings, ...], *, option: str = "--report"
) -> tuple[ReportSettings, ...]:
    """Return the reports that an option names; the default where it is not given.

    Args:
        names: Its values.
        default: The reports without it.
        option: The option, for what is said about its values.

    Raises:
        InvalidInputError: A name or an option is wrong; holds every problem.
        SetupError: A package that a format needs is missing.
    """
    from assay.reports.writing import check_formats
    from assay.specs.reports import read_reports

    found = default
    if names:
        problems: list[Problem] = []
        items = [_item(name.strip(), option, problems) for each in names for name in each.split(",") if name.strip()]
        found = read_reports(items, problems)
        if problems:
            raise InvalidInputError(
                [Problem(problem.message, _shown(problem.field, option, items)) for problem in problems]
            )
    check_formats(found)
    return found


def _item(text: str, option: str, problems: list[Problem]) -> str | dict[str, dict[str, Any]]:
    """Return what a spec would list for "NAME" or "NAME:KEY=VALUE"."""
    name, colon, setting = text.partition(":")
    if not colon:
        return name
    key, equals, value = setting.partition("=")
    if not equals:
        problems.append(Problem(f"must be FORMAT or FORMAT:OPTION=VALUE, not {text!r}", option))
    return {name: {key: {"true": True, "false": False}.get(value, value)}}


def _shown(field: str, option: str, items: Sequence[object]) -> str:
    """Return how a user knows a field of the list: by the format's name."""
    for index, item in enumerate(items):
        if field.startswith(f"reports[{index}]"):
            return f"{option} {item if isinstance(item, str) else next(iter(item))}"  # type: ignore[call-overload]
    return option
