"""Checks of a dataset against a spec, made while the dataset is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from assay.client.unfed_metrics import unfed_metrics
from assay.datasets.counts import CaseCounts
from assay.datasets.unused_fields import unscored_turns, unused_fields
from assay.errors import DatasetError, Problem, SpecError, further_problems
from assay.metrics.assertions import why_unmade
from assay.metrics.checks.unmade_checks import NO_JUDGE_FOR_IT, not_made
from assay.model.cluster_key import cluster_of, missing_cluster
from assay.specs.approvals import why_unusable
from assay.specs.doubtful_criteria import doubtful_criteria, missing_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.agent_host.protocol import Caller
    from assay.datasets import Dataset, DatasetInfo
    from assay.model.case import Case
    from assay.model.run_spec import RunSpec
    from assay.specs.model import Spec

_MOST_PROBLEMS = 50

TakeCase = Callable[["Case"], None]
"""Receives each case of a dataset while the dataset is checked."""


def check_inputs(spec: Spec, dataset: Dataset, take: TakeCase | None = None) -> DatasetInfo:
    """Read and check the whole dataset, before anything is started or called; return its description.

    Warnings cover data that no metric reads, metrics and checks that cannot be computed, and gates and thresholds that
    cannot fail or cannot hold.

    Args:
        spec: Spec of the run.
        dataset: The cases.
        take: Receives each case of the same pass, even if a later case is wrong.

    Raises:
        DatasetError: The dataset is wrong or does not fit the spec; lists every problem.
        SpecError: The checks need a judge that cannot be called.
    """
    checks = InputChecks(spec)
    return checks.finish(read_together(dataset, [*checks.takes, take]))


def read_together(dataset: Dataset, takes: Sequence[TakeCase | None]) -> DatasetInfo:
    """Check a dataset and pass each of its cases to all receivers in the same pass."""
    receivers = [take for take in takes if take is not None]
    if len(receivers) < 2:
        return dataset.check(*receivers)

    def take_all(case: Case) -> None:
        for take in receivers:
            take(case)

    return dataset.check(take_all)


class InputChecks:
    """The checks of a dataset for one spec.

    Args:
        spec: Spec of the run.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._checks = [check for make in (_clusters, _repeats, _prompts, _groups, _verdicts) if (check := make(spec))]

    @property
    def takes(self) -> list[TakeCase]:
        """The receivers of the cases; empty if the description of the dataset is enough."""
        return [check.take for check in self._checks]

    def finish(self, info: DatasetInfo) -> DatasetInfo:
        """Return the description of the dataset with the warnings of the checks.

        Args:
            info: Description of the dataset, whose cases the receivers have taken.

        Raises:
            DatasetError: The dataset does not fit the spec; lists every problem.
            SpecError: The checks need a judge that cannot be called, or no case has the cluster key.
        """
        spec = self._spec
        if spec.judge_problems and spec.needs_judge(info.checks):
            raise SpecError(spec.judge_problems)
        is_replay = spec.settings.agent.adapter == "replay"
        if is_replay and info.recorded_count < info.case_count:
            missing = info.case_count - info.recorded_count
            raise DatasetError(
                [
                    Problem(
                        f"the replay adapter needs a recorded answer in every case, and {missing} of {info.case_count} "
                        "have none: add a `recorded` field, or use another adapter",
                        file=info.name,
                    )
                ]
            )
        _check_approvals(spec, info)
        found = [warning for check in self._checks for warning in check.finish(info)]
        warnings = [
            *unused_fields(info.optional_fields, spec.settings.metrics, info.name),
            *_unmade(spec, info),
            *unfed_metrics(spec, info),
            *doubtful_criteria(spec),
            *found,
        ]
        if is_replay and spec.settings.turns != "last":
            warnings += unscored_turns(info.optional_fields, info.name)
        return dataclasses.replace(info, warnings=(*info.warnings, *warnings)) if warnings else info


class _CaseCheck(Protocol):
    """A check that reads every case."""

    def take(self, case: Case) -> None:
        """Read one case."""

    def finish(self, info: DatasetInfo) -> list[Problem]:
        """Return the warnings, after the last case.

        Raises:
            InvalidInputError: The cases do not fit the spec.
        """


class _ClusterCheck:
    """Refuses a cluster key that no case has: every case would be its own cluster."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._has_key = False

    def take(self, case: Case) -> None:
        self._has_key = self._has_key or bool(cluster_of(self._spec.settings.cluster, case.category, case.tags))

    def finish(self, info: DatasetInfo) -> list[Problem]:
        if not self._has_key:
            raise SpecError([self._spec.place("cluster", missing_cluster(self._spec.settings.cluster))])
        return []


class _RepeatCheck:
    """Refuses recorded answers that are fewer than the repeats; warns where one stands for all of them."""

    def __init__(self, settings: RunSpec) -> None:
        self._settings = settings
        self._single_count = 0
        self._short_count = 0
        self._short: list[tuple[str, int]] = []

    def take(self, case: Case) -> None:
        count = len(case.recordings)
        self._single_count += count <= 1
        if 1 < count < self._settings.repeats:
            self._short_count += 1
            if len(self._short) < _MOST_PROBLEMS:
                self._short.append((case.case_id, count))

    def finish(self, info: DatasetInfo) -> list[Problem]:
        repeats = self._settings.repeats
        problems = [
            Problem(
                f"holds {count} recorded answers, and the run has {repeats} repeats: record as many, or one for all",
                f"case {case_id}",
                file=info.name,
            )
            for case_id, count in self._short
        ]
        if problems:
            raise DatasetError([*problems, *further_problems(self._short_count - len(problems), file=info.name)])
        is_compared = any(metric.kind == "consistency" for metric in self._settings.metrics)
        if not self._single_count or not is_compared:
            return []
        share = f"{self._single_count:,} of {info.case_count:,} cases have a single recorded answer"
        return [Problem(f"{share}, which all repeats share: consistency is always 1 there", file=info.name)]


class _PromptCheck:
    """Refuses cases that lack a variable of the spec's prompt."""

    def __init__(self, settings: RunSpec) -> None:
        from assay.specs.prompt_options import PromptOptions

        agent = settings.agent
        self._templates = PromptOptions.from_options(agent.adapter, agent.options, []).templates
        self._count = 0
        self._problems: list[tuple[str, str]] = []

    def take(self, case: Case) -> None:
        from assay.specs.prompt_template import case_problems

        for message in case_problems(self._templates, case):
            self._count += 1
            if len(self._problems) < _MOST_PROBLEMS:
                self._problems.append((case.case_id, message))

    def finish(self, info: DatasetInfo) -> list[Problem]:
        problems = [
            Problem(f"does not fit the prompt: {message}", f"case {case_id}", file=info.name)
            for case_id, message in self._problems
        ]
        if problems:
            raise DatasetError([*problems, *further_problems(self._count - len(problems), file=info.name)])
        return []


class _GroupCheck:
    """Warns of gates on a category or tag that no case has."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._counts = CaseCounts()

    def take(self, case: Case) -> None:
        self._counts.add(case)

    def finish(self, info: DatasetInfo) -> list[Problem]:
        counts = self._counts
        if counts.uncounted_categories or counts.uncounted_tags:
            return []
        return list(missing_groups(self._spec, {"category": counts.categories, "tag": counts.tags}))


def _clusters(spec: Spec) -> _CaseCheck | None:
    return _ClusterCheck(spec) if spec.settings.cluster else None


def _repeats(spec: Spec) -> _CaseCheck | None:
    is_repeated = spec.settings.agent.adapter == "replay" and spec.settings.repeats > 1
    return _RepeatCheck(spec.settings) if is_repeated else None


def _prompts(spec: Spec) -> _CaseCheck | None:
    return _PromptCheck(spec.settings) if spec.settings.agent.fills_prompt else None


def _groups(spec: Spec) -> _CaseCheck | None:
    has_groups = any(gate.startswith(("category.", "tag.")) for gate in spec.settings.gates)
    return _GroupCheck(spec) if has_groups else None


def _verdicts(spec: Spec) -> _CaseCheck | None:
    return spec.recorded_verdicts.coverage(spec.settings.metrics) if spec.recorded_verdicts is not None else None


def _check_approvals(spec: Spec, info: DatasetInfo) -> None:
    """Refuse cases with approvals if the agent cannot receive them."""
    if info.approvals_count and (unusable := why_unusable(spec.settings.agent)):
        message = f"{info.approvals_count:,} of {info.case_count:,} cases have `approvals`: {unusable}"
        raise DatasetError([Problem(message, file=info.name)])


def _unmade(spec: Spec, info: DatasetInfo) -> Iterator[Problem]:
    """Yield a warning about checks that no answer can satisfy or fail, such as judged checks without a judge."""
    if not any(metric.kind == "assertions" for metric in spec.settings.metrics):
        return
    reasons = {kind: why_unmade(kind, has_judge=bool(spec.settings.judges)) for kind in info.checks}
    unmade = {kind: {why: info.checks[kind]} for kind, why in reasons.items() if why}
    if reason := not_made(unmade, sum(info.checks.values())):
        remedy = ". Name a judge under `judge` in the spec" if NO_JUDGE_FOR_IT in reasons.values() else ""
        yield Problem(
            f"{reason}; rows with such a check are undecided, and the run is INCOMPLETE{remedy}", file=info.name
        )


def check_questions(agent: Caller | None, info: DatasetInfo, settings: RunSpec | None = None) -> None:
    """Refuse cases without a question, and approvals, if the agent receives only the question.

    Args:
        agent: Caller of the agent in this process; None if the orchestrator calls it.
        info: Description of the dataset.
        settings: Settings of the run; None to check only the agent.

    Raises:
        DatasetError: A case has variables but no question, or approvals that the agent does not receive.
        SpecError: The spec has approvals that the agent does not receive.
    """
    asks_with_text = getattr(agent, "asks_with_text", False)
    if asks_with_text and settings is not None and settings.agent.adapter == "python":
        # An adapter of a framework asks with the text, and resumes the agent itself.
        remedy = "the agent receives the question alone: name its parameter `request` to receive them, or remove them"
        if settings.approvals:
            raise SpecError([Problem(remedy, "approvals")])
        if info.approvals_count:
            remedy = f"{info.approvals_count:,} of {info.case_count:,} cases have `approvals`, and {remedy}"
            raise DatasetError([Problem(remedy, file=info.name)])
    if info.textless_count and asks_with_text:
        message = (
            f"{info.textless_count:,} of {info.case_count:,} cases have variables and no question, and the agent "
            "receives the question alone: name its parameter `request` to receive the variables too, or map a "
            "field to `input`"
        )
        raise DatasetError([Problem(message, file=info.name)])
