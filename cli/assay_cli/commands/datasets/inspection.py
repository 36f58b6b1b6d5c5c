"""`assay datasets inspect`: show how Assay reads a dataset, before a run spends anything on it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

from assay.datasets import open_dataset
from assay.datasets.counts import count_cases
from assay.errors import InvalidInputError, Problem
from assay.metrics import METRICS, complete_parameters
from assay.metrics.assertions import why_unmade
from assay.metrics.checks.unmade_checks import not_made
from assay.model.case import case_to_json
from assay.model.run_spec import MetricSpec
from assay.text.unsafe_text import clean, shorten, without_commands
from assay_cli.exit_status import EXIT_USAGE
from assay_cli.options.shared import field_map, format_option, json_option, map_option
from assay_cli.output.documents import print_document, record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.datasets import DatasetInfo
    from assay.datasets.counts import CaseCounts
    from assay.model.case import Case

_MAX_NAMES = 20
_NAME_WIDTH = 60
_TEXT_CHARS = 400
_COUNTED = (
    ("references", "with a reference"),
    ("recorded", "with a recorded answer"),
    ("expected_sources", "with expected sources"),
    ("expected_tools", "with expected tool calls"),
    ("assertions", "with checks of their own"),
    ("human_labels", "with labels"),
    ("variables", "with variables"),
    ("choices", "with choices"),
    ("multi_turn", "with several turns"),
)


@click.command()
@click.argument("file")
@format_option
@map_option
@click.option("--encoding", metavar="NAME", help="Encoding of the file; default: UTF-8.")
@click.option("--metrics", metavar="A,B", help="Warn about any of these metrics that FILE cannot feed; default: none.")
@json_option
def inspect(
    file: str,
    dataset_format: str | None,
    mapping: tuple[str, ...],
    encoding: str | None,
    metrics: str | None,
    as_json: bool,
) -> int:
    """Show how Assay reads FILE: format, fields, counts, warnings, and the first case."""
    try:
        cases = open_dataset(file, field_map=field_map(mapping), encoding=encoding, format=dataset_format)
        info = _with_unfed(cases.check(), [name.strip() for name in (metrics or "").split(",") if name.strip()])
        counts, first = count_cases(cases.cases())
    except InvalidInputError as error:
        if not as_json:
            raise
        print_document("dataset", {"valid": False, "problems": list(map(record, error.problems))})
        return EXIT_USAGE
    assert first is not None, "a dataset without cases is refused"
    if as_json:
        print_document("dataset", _document(file, info, counts, first))
    else:
        click.echo(without_commands("\n\n".join(part for part in _parts(file, info, counts, first) if part)))
    return 0


def _with_unfed(info: DatasetInfo, names: Sequence[str]) -> DatasetInfo:
    """Return the dataset's description, with a warning for each metric that it cannot feed."""
    if not names:
        return info
    from assay.client.unfed_metrics import unfed

    settings = [
        MetricSpec(name, complete_parameters(name, METRICS[name].info.example if name in METRICS else {}, where=name))
        for name in names
    ]
    warnings = [
        Problem(f"cannot be computed: {why}; {remedy}", name, file=info.name)
        for name, why, remedy in unfed(settings, info, has_judge=True)
    ]
    return dataclasses.replace(info, warnings=(*info.warnings, *warnings))


def _document(file: str, info: DatasetInfo, counts: CaseCounts, first: Case) -> dict[str, Any]:
    return {
        "valid": True,
        "problems": [],
        "file": file,
        "format": info.format,
        "sha256": info.sha256,
        "mapping": dict(info.mapping),
        "counts": {**dataclasses.asdict(counts), "skipped": info.skipped_count},
        "checks": dict(info.checks),
        "checks_not_made": _unmade(info),
        "warnings": list(map(record, info.warnings)),
        "first_case": case_to_json(first),
    }


def _parts(file: str, info: DatasetInfo, counts: CaseCounts, first: Case) -> list[str]:
    brief = json.dumps(_brief(case_to_json(first)), ensure_ascii=False, indent=2)
    return [
        f"{clean(file)}: {info.format}, {_cases(counts.cases)}",
        _lines("Fields", [f"{name} <- {clean(source)}" for name, source in info.mapping.items()]),
        _lines("Cases", _counts(counts)),
        _lines("Checks", _checks(info)),
        _lines("Categories", _names(counts.categories, counts.uncounted_categories)),
        _lines("Tags", _names(counts.tags, counts.uncounted_tags)),
        _lines("Warnings", [clean(str(warning)) for warning in info.warnings]),
        f"First case\n\n{clean(brief, keep_lines=True)}",
    ]


def _lines(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"    {line}" for line in lines)]) if lines else ""


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count:,} cases"


def _counts(counts: CaseCounts) -> list[str]:
    lines = [f"{getattr(counts, name):,} {noun}" for name, noun in _COUNTED if getattr(counts, name)]
    if not counts.references:
        names = ", ".join(name for name, metric in METRICS.items() if metric.info.needs == "references")
        lines.insert(0, f"none with a reference: {names} cannot be computed")
    return [*lines, f"{counts.turns:,} turns in all"] if counts.multi_turn else lines


def _checks(info: DatasetInfo) -> list[str]:
    """Return the checks of the cases by type, with those that need a judge."""
    unmade = _unmade(info)
    ordered = sorted(info.checks.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [
        f"{count:,} {clean(kind)}" + (f", not made: {', '.join(unmade[kind])}" if kind in unmade else "")
        for kind, count in ordered
    ]
    sentence = not_made(unmade, sum(info.checks.values()))
    judge = any(why_unmade(kind, has_judge=True) == "" for kind in unmade)
    hint = "; a run whose spec names a `judge` makes those that need one" if judge else ""
    return [*lines, f"{sentence}{hint}"] if sentence else lines


def _unmade(info: DatasetInfo) -> dict[str, dict[str, int]]:
    """Count the checks that a run without a judge cannot make, by type and reason."""
    reasons = {kind: why_unmade(kind, has_judge=False) for kind in info.checks}
    return {kind: {why: info.checks[kind]} for kind, why in reasons.items() if why}


def _names(counted: Mapping[str, int], uncounted: int) -> list[str]:
    if not any(counted):
        return []
    # Most frequent first, ties by name, so that the list does not depend on the order of cases.
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [f"{count:,} {shorten(name, _NAME_WIDTH) if name else '(none)'}" for name, count in ordered[:_MAX_NAMES]]
    more = len(ordered) - len(lines)
    if more or uncounted:
        lines.append(f"... and {more:,}{' or more' if uncounted else ''} others")
    return lines


def _brief(value: Any) -> Any:
    """Return the case with long texts cut; only the JSON document has them in full."""
    if isinstance(value, str) and len(value) > _TEXT_CHARS:
        return f"{value[:_TEXT_CHARS]}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _brief(item) for name, item in value.items()}
    return [_brief(item) for item in value] if isinstance(value, list) else value
