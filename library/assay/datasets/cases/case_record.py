"""Writing a case as a record of Assay's own format, which `open_dataset` reads back as an equal case."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import response_to_json
from assay.model.answers.approvals import approvals_to_json

if TYPE_CHECKING:
    from assay.model.case import Case, Turn


def case_record(case: Case) -> dict[str, Any]:
    """Return a case as a JSON object, without recorded verdicts, which datasets do not hold."""
    whole = {
        "variables": case.variables,
        "parameters": case.parameters,
        "contexts": list(case.contexts),
        "choices": list(case.choices),
        "category": case.category,
        "tags": list(case.tags),
        "expected": case.expected,
        "assertions": [asdict(check) for check in case.assertions],
        "thresholds": case.thresholds,
        "weight": case.weight if case.weight != 1.0 else None,
        "human_labels": case.human_labels,
        "metadata": case.metadata,
        "approvals": approvals_to_json(case.approvals),
        "recorded": _recorded(case),
    }
    is_single = len(case.turns) == 1
    turns = _turn_record(case.turns[0]) if is_single else {"turns": [_turn_record(turn) for turn in case.turns]}
    return {"id": case.case_id, **turns, **_without_empty(whole)}


def _turn_record(turn: Turn) -> dict[str, Any]:
    return _without_empty(
        {
            "input": turn.input,
            "history": [_without_empty(asdict(message)) for message in turn.history],
            "references": list(turn.references),
            "expected_sources": list(turn.expected_sources),
            "expected_tools": [asdict(tool) for tool in turn.expected_tools],
        }
    )


def _recorded(case: Case) -> Any:
    recordings: list[Any] = [[response_to_json(answer) for answer in turns] for turns in case.recordings]
    repeats = [{"turns": turns} if case.has_recorded_turns else turns[-1] for turns in recordings]
    return repeats if len(repeats) > 1 else next(iter(repeats), None)


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value not in (None, "", [], {})}
