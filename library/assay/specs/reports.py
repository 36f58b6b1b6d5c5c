"""The reports that a spec requests: formats and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.model.report_settings import REPORTS, ReportSettings
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Choices = Mapping[str, tuple[Any, ...]]


def read_reports(value: object, problems: list[Problem]) -> tuple[ReportSettings, ...]:
    """Return the reports in a spec's `reports`: names, or mappings of a name to its options.

    Args:
        value: The value in the spec.
        problems: Receives the problems.
    """
    if not isinstance(value, list):
        problems.append(Problem(f"must be a list of {', '.join(REPORTS)}", "reports"))
        return ()
    reports = [_read(item, f"reports[{index}]", problems) for index, item in enumerate(value)]
    named = [report.format for report in reports if report is not None]
    twice = sorted({name for name in named if named.count(name) > 1})
    problems += [Problem(f"lists {name} more than once", "reports") for name in twice]
    return tuple(report for report in reports if report is not None)


def _read(item: object, where: str, problems: list[Problem]) -> ReportSettings | None:
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        problems.append(Problem("must be the name of a format, or one name with its options", where))
        return None
    (name, options) = next(iter(item.items()))
    if name not in REPORTS:
        problems.append(Problem(unknown_name("report", name, REPORTS), where))
        return None
    if options is None:
        options = {}
    if not isinstance(options, dict):
        problems.append(Problem(f"must be a mapping of options, not {options!r}", f"{where}.{name}"))
        return None
    problems += _option_problems(REPORTS[name], options, f"{where}.{name}")
    return ReportSettings(str(name), options)


def _option_problems(choices: Choices, options: Mapping[str, Any], where: str) -> Sequence[Problem]:
    problems = []
    for key, value in options.items():
        if key not in choices:
            message = unknown_name("option", key, choices) if choices else "this format has no options"
            problems.append(Problem(message, f"{where}.{key}"))
        elif not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices[key]):
            named = ", ".join(str(choice).lower() for choice in choices[key])
            problems.append(Problem(f"must be one of {named}, not {value!r}", f"{where}.{key}"))
    return problems
