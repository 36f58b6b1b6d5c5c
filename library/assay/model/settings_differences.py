"""The differences between the settings of two runs, by their names in a spec."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from assay.model.answers.approvals import approvals_to_json
from assay.model.run_spec import DEFAULT_JUDGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run_spec import AgentSpec, JudgeSpec, RunSpec

_PLAIN = (
    "name",
    "gates",
    "repeats",
    "preset",
    "weight",
    "max_agent_errors",
    "max_metric_errors",
    "turns",
    "note",
    "cluster",
)
_SELECTED_BY = ("cases", "tags", "categories", "failed_of", "limit")
_SPEC_NAMES = {"timeout_s": "timeout"}
_SPEC_NAMES |= {
    "canary_rate": "canaries.share",
    "canary_limit": "canaries.limit",
    "accepts_canaries": "canaries.accept",
}
_MISSING = object()


def differing_settings(settings: RunSpec, other: RunSpec) -> list[str]:
    """Return the names of the settings that differ, such as "gates", "agent.timeout" and "metrics.rouge".

    The team, the group and the agent's code are not compared because they are not part of a spec. Of the dataset, its
    content and how it was read count; "selection" covers everything that selects cases.
    """
    ours, theirs = dict(_named(settings)), dict(_named(other))
    names = dict.fromkeys([*ours, *theirs])
    return [name for name in names if ours.get(name, _MISSING) != theirs.get(name, _MISSING)]


def _named(settings: RunSpec) -> Iterator[tuple[str, Any]]:
    """Yield every setting with its JSON value."""
    yield from ((name, _json(getattr(settings, name))) for name in _PLAIN)
    yield "labels", _json(dict(settings.labels))
    yield "approvals", _json(approvals_to_json(settings.approvals))
    yield from _of_agent(settings.agent)
    for metric in settings.metrics:
        yield f"metrics.{metric.name}", _json(dataclasses.asdict(metric))
    yield "spend_cap", settings.spend_cap_nano_usd
    for judge in settings.judges:
        yield from _of_judge(judge)
    if settings.dataset is not None:
        read = settings.dataset
        yield "dataset", _json([read.file, read.format, read.sha256, dict(read.mapping)])
    chosen = settings.selection
    selected = {name: value for name in _SELECTED_BY if (value := getattr(chosen, name, None))}
    yield "selection", _json(selected)


def _of_judge(judge: JudgeSpec) -> Iterator[tuple[str, Any]]:
    where = judge.name if judge.name == DEFAULT_JUDGE else f"judges.{judge.name}"
    for name, value in dataclasses.asdict(judge).items():
        if name != "members":
            yield f"{where}.{_SPEC_NAMES.get(name, name)}", _json(value)
    for index, member in enumerate(judge.members):
        path = f"{where}.jury[{index}]" if judge.is_jury else where
        yield from ((f"{path}.{name}", _json(value)) for name, value in dataclasses.asdict(member).items())


def _of_agent(agent: AgentSpec) -> Iterator[tuple[str, Any]]:
    for name in ("adapter", "target", "timeout_s", "concurrency", "retries"):
        yield f"agent.{_SPEC_NAMES.get(name, name)}", _json(getattr(agent, name))
    yield from ((f"agent.{name}", _json(value)) for name, value in agent.options.items())


def _json(value: Any) -> Any:
    """Return a value after a round trip through JSON, which makes lists and tuples alike."""
    return json.loads(json.dumps(value, default=str))
