"""Options for the reports that a command writes: --report and --output-dir."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.errors import InvalidInputError, Problem
from assay.model.report_settings import REPORTS, ReportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

REPORTS_FOLDER = Path("assay-reports")
"""The folder for reports if the user names none."""

output_dir_option = click.option(
    "--output-dir", type=click.Path(path_type=Path), help="Folder for the reports; default: assay-reports/RUN_ID."
)


def report_option(*names: str, default: str) -> Callable[[F], F]:
    """Return the option for report formats.

    Args:
        names: The option's names.
        default: Default formats, as its help names them.
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
    """Return the reports that an option names, or the default without it.

    Args:
        names: Values of the option.
        default: Reports without the option.
        option: Name of the option, for error messages.

    Raises:
        InvalidInputError: A format or one of its options is wrong; lists every problem.
        SetupError: A package that a format needs is missing.
    """
    from assay.reports.writing import check_formats
    from assay.specs.reports import read_reports

    reports = default
    if names:
        problems: list[Problem] = []
        items = [_item(name.strip(), option, problems) for value in names for name in value.split(",") if name.strip()]
        reports = read_reports(items, problems)
        if problems:
            raise InvalidInputError(
                [Problem(problem.message, _shown(problem.field, option, items)) for problem in problems]
            )
    check_formats(reports)
    return reports


def _item(text: str, option: str, problems: list[Problem]) -> str | dict[str, dict[str, Any]]:
    """Return the entry of a spec's `reports` that "NAME" or "NAME:KEY=VALUE" stands for."""
    name, colon, setting = text.partition(":")
    if not colon:
        return name
    key, equals, value = setting.partition("=")
    if not equals:
        problems.append(Problem(f"must be FORMAT or FORMAT:OPTION=VALUE, not {text!r}", option))
    return {name: {key: {"true": True, "false": False}.get(value, value)}}


def _shown(field: str, option: str, items: Sequence[object]) -> str:
    """Return a list field as the user wrote it: the option and the format's name."""
    for index, item in enumerate(items):
        if field.startswith(f"reports[{index}]"):
            return f"{option} {item if isinstance(item, str) else next(iter(item))}"  # type: ignore[call-overload]
    return option
