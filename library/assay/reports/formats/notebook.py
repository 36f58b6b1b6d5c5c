"""Notebook view of runs: HTML without scripts, which many notebooks remove."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from assay.gates.gates import compared_text
from assay.model.interval import Interval
from assay.reports.words.metric_text import (
    count_text,
    latency_s,
    partial_text,
    seconds_text,
    threshold_text,
    value_text,
)
from assay.reports.words.selected_cases import selection_sentence
from assay.text.unsafe_text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.reports.document.first_errors import FirstError

_TEXT_CHARS = 200
_TRACEBACK_CHARS = 4_000
_COLOURS = {"PASS": "#1a7f37", "FAIL": "#b42318", "INCOMPLETE": "#9a6700"}
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top"


def run_html(head: Mapping[str, Any], errors: Sequence[FirstError] = ()) -> str:
    """Return the verdict, metrics and gates of a run, and its first errors.

    Args:
        head: The document of its report without the rows.
        errors: Of the agent and of metrics.
    """
    run, summary = head["run"], head["summary"]
    status = summary["overall_status"]
    rate = summary["pass_rate"]
    passed = "no row has a verdict" if rate is None else f"pass rate {rate:.1%}"
    partial = partial_text(summary["finished_count"], summary["total_count"]) + ". " if summary.get("partial") else ""
    rows = [
        (name, _value(metric), _interval(metric), str(metric["scored_count"]), threshold_text(metric) or "-")
        for name, metric in head["results"].items()
    ]
    gates = [
        (
            gate["expression"],
            gate["outcome"],
            ""
            if gate["actual"] is None
            else compared_text(gate["expression"], gate["actual"], Interval.of_document(gate.get("interval"))),
        )
        for gate in summary["gates"]
    ]
    latency, colour = summary["latency"], _COLOURS.get(status, "inherit")
    times = f"latency P50 {seconds_text(latency_s(latency, 'p50'))}, P95 {seconds_text(latency_s(latency, 'p95'))}"
    why = html_text(partial + "; ".join(summary["reasons"]))
    selection = selection_sentence(head)
    selected = f" · <strong>{html_text(selection)}</strong>" if selection else ""
    name, run_id = html_text(run["name"]), html_text(run["run_id"])
    about = f"{name} · <code>{run_id}</code> · {count_text(summary['total_count'], 'row')}"
    parts = [
        f'<p style="margin:0 0 4px"><strong style="color:{colour}">{escape(status)}</strong> {why}{selected}</p>',
        f'<p style="margin:0 0 8px">{about}, {passed} · {times}</p>',
        html_table(("metric", "value", "95 % interval", "rows", "threshold"), rows),
    ]
    if gates:
        parts.append(html_table(("gate", "outcome", "actual"), gates))
    parts += [_error(error) for error in errors]
    return f"<div>{''.join(parts)}</div>"


def _error(error: FirstError) -> str:
    frames = clean(error.traceback, keep_lines=True)[-_TRACEBACK_CHARS:]
    shown = f"<details><summary>Traceback</summary><pre>{escape(frames)}</pre></details>" if frames else ""
    return f'<p style="margin:0 0 4px">{escape(error.sentence)}</p>{shown}'


def run_markdown(head: Mapping[str, Any]) -> str:
    """Return the same in a few lines of text, for what shows no HTML."""
    summary = head["summary"]
    rate = "no row has a verdict" if summary["pass_rate"] is None else f"pass rate {summary['pass_rate']:.1%}"
    return ", ".join(filter(None, (summary["overall_status"], rate, selection_sentence(head))))


def runs_html(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of stored runs."""
    rows = [
        (
            record["run_id"],
            record["name"],
            record["state"],
            record["verdict"] or "-",
            "-" if record["pass_rate"] is None else f"{record['pass_rate']:.1%}",
            f"{record['finished_count']}/{record['total_count']}",
            record["created_at"][:19].replace("T", " "),
        )
        for record in records
    ]
    return f"<div>{html_table(('run', 'name', 'state', 'verdict', 'pass rate', 'rows', 'created'), rows)}</div>"


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of untrusted cells."""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(heading)}</th>' for heading in heads)
    cells = ("".join(f'<td dir="auto" style="{_CELL}">{html_text(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<table style="border-collapse:collapse;margin:0 0 8px">{inner}</table>'


def html_text(text: str, width: int = _TEXT_CHARS) -> str:
    """Return an untrusted text for HTML, in one line of at most `width` characters."""
    return escape(shorten(text, width))


def _value(metric: Mapping[str, Any]) -> str:
    return value_text(metric.get("unit", ""), metric["value"])


def _interval(metric: Mapping[str, Any]) -> str:
    interval, unit = Interval.of_document(metric.get("interval")), metric.get("unit", "")
    return f"{value_text(unit, interval[0])} to {value_text(unit, interval[1])}" if interval else "-"
