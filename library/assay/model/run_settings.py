"""What a run does: the part of a spec that travels to the orchestrator."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.model.baseline import MAX_NAME_CHARS
from assay.model.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.approvals import Approval
    from assay.model.code_identity import CodeIdentity
    from assay.model.model_price import ModelPrice
    from assay.model.stopping import StoppingSettings

MAX_ERRORS = 0.05
"""Largest share of the rows that may fail where a spec says nothing."""

CANARY_LIMIT = 0.1
"""Largest rate of wrong verdicts on canaries with which a run is still believed, where a spec says nothing."""

TURN_SCORES = ("mean", "worst", "last")
"""What the value of a conversation may be: the mean over its turns, that of the worst, or of the last alone."""

FUNCTION_METRIC = "python"
"""The kind of metric that is a function on the user's side."""

_HOSTED_ADAPTERS = frozenset({"python", "command", *FRAMEWORKS})
_PROMPT_ADAPTERS = frozenset({"openai", "anthropic"})
_URL_ADAPTERS = frozenset({"http", "a2a"})
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How a run reaches its agent; times in seconds."""

    adapter: str
    target: str = ""
    timeout_s: float = 30.0
    concurrency: int = 16
    retries: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_hosted(self) -> bool:
        """Whether the agent is code on the user's side: a client answers the questions of such a run.

        An ADK agent is one where its target names an object, and none where it is the URL of a server.
        """
        return self.adapter in _HOSTED_ADAPTERS and not self.is_called_by_url

    @property
    def fills_prompt(self) -> bool:
        """Whether the agent is a model of a provider, asked with a prompt that is filled from the case."""
        return self.adapter in _PROMPT_ADAPTERS

    @property
    def is_called_by_url(self) -> bool:
        """Whether the target is a URL, which the orchestrator calls over HTTP."""
        return self.adapter in _URL_ADAPTERS or (self.adapter == "adk" and _URL.match(self.target) is not None)


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """One metric that a run computes.

    Args:
        name: Its name in this run.
        metric: The kind of metric; empty where the name says it.
        is_optional: Whether the run may end without it: where it cannot be computed, the verdict leaves it out.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""
    is_optional: bool = False

    @property
    def kind(self) -> str:
        """The kind of metric."""
        return self.metric or self.name

    @property
    def is_function(self) -> bool:
        """Whether it is a function on the user's side: a client computes it."""
        return self.kind == FUNCTION_METRIC


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Who judges the answers of a run, how, and for how much.

    Args:
        provider: "openai", "anthropic" or "replay".
        model: The model's id; of "replay" the judge as recorded, empty where only one was.
        base_url: Where the service is; empty for the provider's own.
        key_variable: Environment variable of the judge service that holds the key, or secret://TEAM/NAME; empty for the
            provider's usual variable at its own service, and for no key at any other.
        rubric: The rubric of `judge_score`; empty for "answer".
        rubric_yaml: That rubric's text, where it is the user's own.
        temperature: Sampling temperature, 0 to 2; None for the judge service's default.
        max_tokens: Most tokens of a verdict.
        timeout_s: How long one verdict may take.
        spend_cap_usd: Most that the run may spend on judging; None for no cap.
        concurrency: Most verdicts in flight.
        canary_rate: Share of the cases for which the judge is also asked about an answer whose worth is known.
        canary_limit: Largest rate of wrong verdicts on canaries, for each side of at least 20.
        accepts_canaries: Whether failed canaries leave the run's verdict as it is.
        batch: Whether verdicts are asked for through the provider's batch API.
        recorded_file: The file whose recorded verdicts came with the cases, for people; empty where a judge is asked.
            The provider is "replay" then, and the model says who gave the verdicts.
        sample_offset: Added to the number of the repeat where verdicts are asked for: with another number the same
            answers get verdicts of their own.
        others: Further judges, who with this one are a jury. Of each only who it is and how it is asked counts:
            provider, model, base_url, key_variable, temperature, max_tokens, prices; all else is what it is here.
        prices: What the model costs; None for what the judge service's own table says.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    rubric: str = ""
    rubric_yaml: str = ""
    temperature: float | None = None
    max_tokens: int = 2_048
    timeout_s: float = 120.0
    spend_cap_usd: float | None = None
    concurrency: int = 16
    canary_rate: float = 0.05
    canary_limit: float = CANARY_LIMIT
    accepts_canaries: bool = False
    batch: bool = False
    others: tuple[JudgeSettings, ...] = ()
    recorded_file: str = ""
    sample_offset: int = 0
    prices: ModelPrice | None = None

    @property
    def judges(self) -> tuple[JudgeSettings, ...]:
        """Each judge as if there were no other; they have what is said for all of them in common."""
        one = dataclasses.replace(self, others=())
        asked = ("provider", "model", "base_url", "key_variable", "temperature", "max_tokens", "prices")
        return one, *(
            dataclasses.replace(one, **{name: getattr(other, name) for name in asked}) for other in self.others
        )

    @property
    def identity(self) -> str:
        """The judge in one word, e.g. "openai:gpt-4o-mini"; of a jury, the first."""
        where = f"@{self.base_url}" if self.base_url else ""
        return f"{self.provider}:{self.model}{where}" if self.model else self.provider


@dataclass(frozen=True, slots=True)
class SpendCap:
    """A cap on what a run may spend on judging, in US dollars; None for no cap."""

    usd: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetReading:
    """What a file of cases, or cases in memory, were recognised as when a run began.

    Args:
        file: The file's name, without its folder; "records" for cases in memory.
        format: Shape and container, e.g. "prompt-benchmark/json".
        sha256: Of the file's bytes; empty for cases in memory.
        mapping: Canonical field to the file's own name for it.
        skipped_count: Records that are no cases because the file says so.
        left_out_count: Records that were wrong and were left out.
        warnings: What was odd.
        checks: Checks that the cases bring along, by type.
        copy_count: Cases that repeat an earlier one: equal question, variables, history, references and approvals.
        first_copy: The first of them and what it repeats, e.g. "record 2 repeats record 1"; empty without one.
        approvals_count: Cases with approvals of their own.
    """

    file: str
    format: str
    sha256: str
    mapping: Mapping[str, str] = field(default_factory=dict)
    skipped_count: int = 0
    left_out_count: int = 0
    warnings: Sequence[str] = ()
    checks: Mapping[str, int] = field(default_factory=dict)
    copy_count: int = 0
    first_copy: str = ""
    approvals_count: int = 0


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """Which cases of a dataset a run is over: those that meet every condition that is given.

    Args:
        cases: Ids of cases, or patterns of ids with `*`, `?` and `[...]`; one of them must fit.
        tags: A case must have one of them.
        categories: A case must be of one of them.
        failed_of: A run: the case must have a row in it that failed or has an error. Its id, a unique beginning of the
            id, or "latest"; the id where it is stored.
        limit: Only the first so many of these cases; None for all.
        matched_count: Cases that meet the conditions, before the limit; None until the dataset is read, and where the
            file breaks off after the limit.
        total_count: Cases of the whole dataset, not checked after a limit without conditions; None as before.
    """

    cases: Sequence[str] = ()
    tags: Sequence[str] = ()
    categories: Sequence[str] = ()
    failed_of: str = ""
    limit: int | None = None
    matched_count: int | None = None
    total_count: int | None = None

    @property
    def has_conditions(self) -> bool:
        """Whether anything but the limit is given."""
        return bool(self.cases or self.tags or self.categories or self.failed_of)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run does: the part of a spec that travels to the orchestrator.

    Args:
        name: For people.
        agent: How the agent is reached.
        metrics: In report order.
        gates: What decides the exit code.
        repeats: How often each case is run.
        preset: The preset that the spec was built on, or empty.
        dataset: How the client read the cases; None where it did not say.
        judge: The judge of answers; None without one: metrics that need a verdict are then skipped.
        team: Whose run it is, at most 64 characters: teams share the workers by their weights.
        weight: How much the run has beside other runs of its team, 0.01 to 100.
        max_agent_errors: Largest share of the rows whose agent may fail; with more the run is incomplete.
        max_metric_errors: Largest share of the rows that a metric should have scored on which it may fail.
        turns: What a metric's value of a conversation is, one of TURN_SCORES.
        labels: What the run is found by, as keys and values; see `assay.model.labels` for their bounds.
        note: A remark for people; may be empty.
        selection: Which cases of the dataset the run is over; None for all of them.
        group_id: The group of variants to which the run belongs, at most 64 characters; empty for none.
        stopping: By which rule it stops early with the other run of its group; None where it asks all cases.
        spec_name: The spec's own name, where the run has another one; empty where it is that of the run.
        source_run_id: The run whose stored answers are scored; empty where an agent is asked.
        code: Which code the agent is; None where the client did not say.
        cluster: What cases share with others, "category" or "tag:NAME": intervals then count clusters. Empty for
            nothing but copies, which always count once.
        approvals: What is decided where the agent stops to wait for a person; a case with its own has those alone.
    """

    name: str
    agent: AgentSettings
    metrics: Sequence[MetricSettings]
    gates: Sequence[str] = ()
    repeats: int = 1
    preset: str = ""
    dataset: DatasetReading | None = None
    judge: JudgeSettings | None = None
    team: str = ""
    weight: float = 1.0
    max_agent_errors: float = MAX_ERRORS
    max_metric_errors: float = MAX_ERRORS
    turns: str = TURN_SCORES[0]
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    selection: CaseSelection | None = None
    group_id: str = ""
    stopping: StoppingSettings | None = None
    spec_name: str = ""
    source_run_id: str = ""
    code: CodeIdentity | None = None
    cluster: str = ""
    approvals: tuple[Approval, ...] = ()

    @property
    def baseline_name(self) -> str:
        """The name of its spec's baseline."""
        return (self.spec_name or self.name)[:MAX_NAME_CHARS].strip()

    @property
    def functions(self) -> tuple[MetricSettings, ...]:
        """The metrics that are functions on the user's side."""
        return tuple(metric for metric in self.metrics if metric.is_function)

    @property
    def needs_host(self) -> bool:
        """Whether agent or metrics are code on the user's side, so that the run needs a client."""
        return self.agent.is_hosted or bool(self.functions)

    @property
    def function_targets(self) -> dict[str, str]:
        """Where the functions are, by metric: the client that computes them must have the same."""
        return {metric.name: str(metric.parameters.get("function", "")) for metric in self.functions}
