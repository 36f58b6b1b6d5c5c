"""What a run does and what it came to, as the JSON that the store keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

from assay.model.canary_summary import CanarySummary, CanaryTally
from assay.model.run import (
    AgentSettings,
    CaseSelection,
    DatasetReading,
    GateOutcome,
    GateResult,
    GroupSummary,
    JudgeSettings,
    JudgingSummary,
    JurorSummary,
    JuryAgreement,
    LatencySummary,
    MetricSettings,
    MetricSummary,
    RunSettings,
    RunSummary,
)
from assay.model.run_settings import MAX_ERRORS
from assay.verdict.run_verdict import run_verdict


def settings_to_json(settings: RunSettings) -> dict[str, Any]:
    """Return the settings as a JSON object."""
    return dataclasses.asdict(settings)


def settings_from_json(data: dict[str, Any]) -> RunSettings:
    """Return the settings that `settings_to_json` wrote."""
    reading, judge, selection = data.get("dataset"), data.get("judge"), data.get("selection")
    return RunSettings(
        name=data["name"],
        agent=AgentSettings(**data["agent"]),
        metrics=tuple(MetricSettings(**metric) for metric in data["metrics"]),
        gates=tuple(data["gates"]),
        repeats=data["repeats"],
        preset=data["preset"],
        dataset=DatasetReading(**{**reading, "warnings": tuple(reading["warnings"])}) if reading is not None else None,
        judge=_judge_from_json(judge) if judge is not None else None,
        team=data.get("team", ""),
        weight=data.get("weight", 1.0),
        max_agent_errors=data.get("max_agent_errors", MAX_ERRORS),
        max_metric_errors=data.get("max_metric_errors", MAX_ERRORS),
        turns=data.get("turns", "last"),  # as versions that stored nothing scored, which all of a run's rows are to be
        labels=data.get("labels", {}),
        note=data.get("note", ""),
        selection=_selection_from_json(selection) if selection is not None else None,
    )


def _selection_from_json(data: dict[str, Any]) -> CaseSelection:
    lists = {name: tuple(data[name]) for name in ("cases", "tags", "categories")}
    return CaseSelection(**{**data, **lists})


def _judge_from_json(data: dict[str, Any]) -> JudgeSettings:
    return JudgeSettings(**{**data, "others": tuple(map(_judge_from_json, data.get("others", ())))})


def summary_to_json(summary: RunSummary) -> dict[str, Any]:
    """Return the summary as a JSON object."""
    return dataclasses.asdict(summary)


def summary_from_json(data: dict[str, Any]) -> RunSummary:
    """Return the summary that `summary_to_json` wrote; one of an older version gets the verdict of this version."""
    gates = tuple(GateResult(**{**gate, "outcome": GateOutcome(gate["outcome"])}) for gate in data["gates"])
    judging = data.get("judging")
    if judging is not None:
        canaries = judging.get("canaries")
        if canaries is not None:
            kinds = tuple(CanaryTally(**each) for each in canaries["kinds"])
            canaries = CanarySummary(**{**canaries, "kinds": kinds})
        jury = {
            "jurors": tuple(JurorSummary(**each) for each in judging.get("jurors", ())),
            "agreement": tuple(JuryAgreement(**each) for each in judging.get("agreement", ())),
        }
        fingerprints = tuple(judging["fingerprints"])
        judging = JudgingSummary(**{**judging, **jury, "fingerprints": fingerprints, "canaries": canaries})
    summary = RunSummary(
        **{
            **data,
            "judging": judging,
            "metrics": tuple(MetricSummary(**metric) for metric in data["metrics"]),
            "latency": LatencySummary(**data["latency"]),
            "gates": gates,
            "categories": tuple(GroupSummary(**group) for group in data.get("categories", ())),
            "tags": tuple(GroupSummary(**group) for group in data.get("tags", ())),
        }
    )
    if "agent_errors" in data:
        return summary
    return dataclasses.replace(summary, overall_status=run_verdict(summary).status.value)
