"""Views of runs: the fields that a list shows, and whole runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.model.views import RunView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from assay.model.run import Run, RunSpec, RunSummary

_LISTED_DETAILS = ("groups",)
"""The details of metrics that a list shows: the means of groups of checks."""

_PROMPT_CHARS = 200


def in_view(run: Run, view: RunView) -> Run:
    """Return a run with the fields of a view."""
    if view is RunView.FULL:
        return run
    has_figures = view is RunView.FIGURES and run.summary is not None
    summary = _figures(run.summary) if has_figures and run.summary is not None else None
    return dataclasses.replace(run, spec=_basic_spec(run.spec), summary=summary, calibrations=())


def _basic_spec(spec: RunSpec) -> RunSpec:
    """Return a spec without the fields that can grow to any size."""
    reading, selection = spec.dataset, spec.selection
    return dataclasses.replace(
        spec,
        agent=dataclasses.replace(spec.agent, options=_prompt_options(spec.agent.options)),
        metrics=tuple(dataclasses.replace(metric, parameters={}, rubric_yaml="") for metric in spec.metrics),
        approvals=(),
        dataset=dataclasses.replace(reading, mapping={}, warnings=(), checks={}) if reading is not None else None,
        selection=dataclasses.replace(selection, cases=(), tags=(), categories=()) if selection is not None else None,
    )


def _prompt_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by which lists distinguish runs: the prompt's file and the first line of its text."""
    shown = {name: options[name] for name in ("prompt_file",) if name in options}
    text = options.get("prompt")
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return shown | ({"prompt": lines[0][:_PROMPT_CHARS]} if lines else {})


def _figures(summary: RunSummary) -> RunSummary:
    """Return the figures of a summary that lists show."""
    metrics = tuple(
        dataclasses.replace(metric, detail={key: metric.detail[key] for key in _LISTED_DETAILS if key in metric.detail})
        for metric in summary.metrics
    )
    return dataclasses.replace(
        summary,
        metrics=metrics,
        categories=(),
        tags=(),
        omitted_category_count=0,
        omitted_tag_count=0,
        repeats=None,
        weighted=None,
        judging=None,
    )
