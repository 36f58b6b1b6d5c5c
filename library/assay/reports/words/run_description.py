"""Description of a run: cases, agent, prompt, labels and note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.reports.words.metric_text import count_text
from assay.reports.words.selected_cases import selected_cases, selection_document
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from assay.model.run import Run

_VALUE_CHARS = 60
_LINE_CHARS = 200
_SHORT_CHARS = 100


def cases_over_dataset(run: Run) -> str:
    """Return the number of a run's cases, their dataset and their selection."""
    reading, selected = run.spec.dataset, selected_cases(run)
    # The orchestrator names a dataset as the client did that uploaded it first.
    name = reading.file if reading is not None else run.dataset.name
    repeats = f", {run.spec.repeats} times each" if run.spec.repeats > 1 else ""
    return f"{_cases(run)} over {name}{repeats}{f': {selected.why}' if selected is not None else ''}"


def selection_line(run: Run) -> str:
    """Return the selection of a run's cases; empty if it covers the whole dataset."""
    selected = selected_cases(run)
    return shorten(selected.sentence, _LINE_CHARS) if selected is not None else ""


def description_lines(run: Run) -> list[str]:
    """Return one line each for the agent, prompt, labels and note of a run, if it has them."""
    settings = run.spec
    file, first_line = _prompt(run)
    lines = [
        ("agent", _agent(run)),
        ("prompt", ": ".join(filter(None, (file, first_line)))),
        ("labels", _labels(run)),
        ("note", settings.note),
    ]
    return [f"{heading}  {shorten(text, _LINE_CHARS)}" for heading, text in lines if text]


def short(run: Run) -> str:
    """Return what distinguishes a run from others, in a few words of one line."""
    file, first_line = _prompt(run)
    parts = [
        run.spec.name,
        run.spec.agent.target or _agent(run),
        file or first_line[:_VALUE_CHARS],
        _labels(run),
        _cases(run) if run.spec.selection is not None else "",
        run.spec.note,
    ]
    return shorten("; ".join(filter(None, parts)), _SHORT_CHARS)


def description_document(run: Run) -> dict[str, Any]:
    """Return the same as data for programs."""
    agent = run.spec.agent
    file, first_line = _prompt(run)
    return {
        "labels": dict(run.spec.labels),
        "note": run.spec.note or None,
        "agent": {"adapter": agent.adapter, "target": agent.target or None},
        "source_run_id": run.spec.source_run_id or None,
        "model": agent.target if agent.fills_prompt else None,
        "prompt_file": file or None,
        "prompt": first_line or None,
        "selection": selection_document(run.spec.selection),
    }


def _cases(run: Run) -> str:
    selected = selected_cases(run)
    if selected is None or selected.total is None:
        return count_text(run.dataset.case_count, "case")
    return f"{selected.selected:,} of {count_text(selected.total, 'case')}"


def _agent(run: Run) -> str:
    if run.spec.source_run_id:
        return f"answers of {run.spec.source_run_id}"
    return f"{run.spec.agent.adapter} {run.spec.agent.target}".strip()


def _labels(run: Run) -> str:
    return " ".join(f"{key}={value}" for key, value in run.spec.labels.items())


def _prompt(run: Run) -> tuple[str, str]:
    """Return the file of a run's prompt and the first line of its text; each is empty if missing."""
    options = run.spec.agent.options
    text = options.get("prompt")
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return str(options.get("prompt_file") or ""), lines[0] if lines else ""
