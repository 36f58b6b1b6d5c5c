"""The settings of a run: the part of a spec that is sent to the orchestrator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.model.baseline import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.approvals import Approval
    from assay.model.code_identity import CodeIdentity
    from assay.model.model_price import ModelPrice
    from assay.model.stopping import StoppingSettings

MAX_ERRORS = 0.05
"""Default of the largest share of rows that may fail."""

CANARY_LIMIT = 0.1
"""Default of the judge's largest error rate on canaries."""

DEFAULT_JUDGE = "judge"
"""The name of a judge that the spec does not name."""

TURN_SCORES = ("mean", "worst", "last")
"""How a conversation's value follows from its turns: their mean, the worst, or the last."""

FUNCTION_METRIC = "python"
"""The kind of metrics that are functions on the user's side."""

HOSTED = "hosted"
"""The adapter of an agent on the client's side, and the kind of its metrics, on the wire."""
ORCHESTRATOR_ADAPTERS = ("http", "grpc", "openai", "anthropic", "adk", "a2a", "replay")
"""The adapters that the orchestrator calls or reads itself; every other one is run by a client."""
UNREADABLE = "unreadable"
"""The adapter of a run whose settings cannot be read."""

_PROMPT_ADAPTERS = frozenset({"openai", "anthropic"})
_URL_ADAPTERS = frozenset({"http", "a2a"})
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """How a run calls its agent; times are in seconds.

    Args:
        adapter: One of `ORCHESTRATOR_ADAPTERS`, or what a client runs, such as "python" or "command".
        target: What the adapter calls or runs.
        timeout_s: Timeout of one attempt.
        concurrency: Maximum number of questions in flight.
        retries: Attempts after a failed one.
        options: The adapter's own options.
    """

    adapter: str
    target: str = ""
    timeout_s: float = 30.0
    concurrency: int = 16
    retries: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_hosted(self) -> bool:
        """Whether the agent is code on the user's side, so that a client answers the run's questions.

        An ADK agent is hosted if its target names an object, and not if the target is a server's URL.
        """
        if self.adapter == "adk":
            return not self.is_called_by_url
        return self.adapter not in (*ORCHESTRATOR_ADAPTERS, UNREADABLE, "")

    @property
    def fills_prompt(self) -> bool:
        """Whether the agent is a provider's model, asked with a prompt that is filled from the case."""
        return self.adapter in _PROMPT_ADAPTERS

    @property
    def is_called_by_url(self) -> bool:
        """Whether the orchestrator calls the target, a URL, over HTTP."""
        return self.adapter in _URL_ADAPTERS or (self.adapter == "adk" and _URL.match(self.target) is not None)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric that a run computes.

    Args:
        name: Its name in the run.
        kind: The kind of metric; by default its name.
        is_optional: Whether the verdict ignores it if it cannot be computed.
        judge: The name of the judge whose verdicts it uses; empty for the run's first judge.
        rubric: The rubric of its verdicts; empty for the kind's own.
        rubric_yaml: The text of a user's own rubric.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    is_optional: bool = False
    judge: str = ""
    rubric: str = ""
    rubric_yaml: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.name)

    @property
    def is_function(self) -> bool:
        """Whether it is a function on the user's side, which a client computes."""
        return self.kind == FUNCTION_METRIC


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model that judges, and its parameters.

    Args:
        provider: "openai", "anthropic" or "replay".
        model: The model's id; for "replay" the recorded judge, empty if there is only one.
        base_url: The service's URL; empty for the provider's own.
        key_variable: The judge service's environment variable with the key, or secret://TEAM/NAME. Empty for the
            provider's usual variable at its own service, and for no key at any other.
        temperature: Sampling temperature, 0 to 2; None for the judge service's default.
        max_tokens: Maximum tokens of a verdict.
        prices: The model's prices; None for the judge service's own table.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    temperature: float | None = None
    max_tokens: int = 2_048
    prices: ModelPrice | None = None

    @property
    def identity(self) -> str:
        """The model's short name, e.g. "openai:gpt-4o-mini"."""
        where = f"@{self.base_url}" if self.base_url else ""
        return f"{self.provider}:{self.model}{where}" if self.model else self.provider


@dataclass(frozen=True, slots=True)
class JudgeSpec:
    """A judge of a run's answers: a model, or a jury of several.

    Args:
        name: Its name in the run.
        members: The model, or the different models of a jury.
        timeout_s: Timeout of a verdict, in seconds.
        concurrency: Maximum number of verdicts of each member in flight.
        canary_rate: Share of the cases for which the judge also grades an answer of known quality.
        canary_limit: Maximum rate of wrong verdicts on canaries, for each side of at least 20.
        accepts_canaries: Whether failed canaries do not affect the run's verdict.
        batch: Whether verdicts are requested through the provider's batch API.
        recorded_file: The file of recorded verdicts that came with the cases, for display; empty if a judge is asked.
            With it, the only member is "replay", and its model names the judge of the verdicts.
        sample_offset: Added to the number of the repeat in requests for verdicts: another offset gets new verdicts on
            the same answers.
    """

    name: str = DEFAULT_JUDGE
    members: tuple[JudgeModel, ...] = ()
    timeout_s: float = 120.0
    concurrency: int = 16
    canary_rate: float = 0.05
    canary_limit: float = CANARY_LIMIT
    accepts_canaries: bool = False
    batch: bool = False
    recorded_file: str = ""
    sample_offset: int = 0

    @property
    def is_jury(self) -> bool:
        """Whether several models judge."""
        return len(self.members) > 1

    @property
    def identity(self) -> str:
        """The short name of the model, e.g. "openai:gpt-4o-mini"; for a jury, those of all members."""
        return " + ".join(member.identity for member in self.members)


@dataclass(frozen=True, slots=True)
class SpendCap:
    """A cap on a run's spending on judging, in billionths of a US dollar; None for no cap."""

    nano_usd: int | None = None


@dataclass(frozen=True, slots=True)
class DatasetReading:
    """How a file of cases, or cases in memory, were read at the start of a run.

    Args:
        file: The file's name without its folder; "records" for cases in memory.
        format: Shape and container, e.g. "prompt-benchmark/json".
        sha256: Hash of the file's bytes; empty for cases in memory.
        mapping: The file's own field names, by canonical field.
        skipped_count: Records that the file itself marks as no cases.
        left_out_count: Invalid records, which were left out.
        warnings: Warnings of the reader.
        checks: Number of checks in the cases, by type.
        copy_count: Cases that repeat an earlier one: equal question, variables, history, references and approvals.
        first_copy: The first such copy, e.g. "record 2 repeats record 1"; empty without one.
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
    """The cases of a dataset that a run covers; a case must meet every condition.

    Args:
        cases: Ids of cases, or patterns of ids with `*`, `?` and `[...]`; a case must match one.
        tags: A case must have one of them.
        categories: A case must be in one of them.
        failed_of: A run in which the case must have a row that failed or has an error: its id, a unique beginning of
            the id, or "latest"; the id once it is stored.
        limit: Maximum number of these cases, from the first; None for all.
        matched_count: Cases that meet the conditions, before the limit; None until the dataset is read, and if the file
            ends in an error after the limit.
        total_count: Cases in the whole dataset, unchecked after a limit without conditions; None as for matched_count.
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
        """Whether there is any condition besides the limit."""
        return bool(self.cases or self.tags or self.categories or self.failed_of)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The settings of a run: the part of a spec that is sent to the orchestrator.

    Args:
        name: The display name.
        agent: How the agent is called.
        metrics: The metrics, in report order.
        gates: The expressions that decide the exit status.
        repeats: Number of repeats of each case.
        preset: The spec's preset, or empty.
        dataset: How the client read the cases; None if it did not report it.
        judges: The judges of answers, each with another name; the first is the default of metrics. Without judges,
            metrics that need a verdict are skipped.
        spend_cap_nano_usd: Maximum spending on judging, over all judges, in billionths of a US dollar; None for no cap.
        team: The run's team, at most 64 characters; teams share the workers by weight.
        weight: The run's weight among its team's runs, 0.01 to 100.
        max_agent_errors: Maximum share of rows whose agent may fail; beyond it the run is incomplete.
        max_metric_errors: Maximum share of the rows a metric should score on which it may fail.
        turns: How a metric values a conversation, one of TURN_SCORES.
        labels: Keys and values to find the run by; `assay.model.labels` has their bounds.
        note: A remark for readers; may be empty.
        selection: The selected cases of the dataset; None for all.
        group_id: The run's group of variants, at most 64 characters; empty for none.
        stopping: The rule to stop early together with the other run of its group; None to ask all cases.
        spec_name: The spec's name if it differs from the run's; otherwise empty.
        source_run_id: The run whose stored answers are scored; empty if an agent is asked.
        code: The identity of the agent's code; None if the client did not report it.
        cluster: The key of clusters of cases, "category" or "tag:NAME", which intervals then count. Empty for copies
            alone, which always count as one.
        approvals: Scripted decisions for stops of the agent; a case's own approvals replace them.
    """

    name: str
    agent: AgentSpec
    metrics: Sequence[MetricSpec]
    gates: Sequence[str] = ()
    repeats: int = 1
    preset: str = ""
    dataset: DatasetReading | None = None
    judges: tuple[JudgeSpec, ...] = ()
    spend_cap_nano_usd: int | None = None
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
        """The name of the spec's baseline."""
        return (self.spec_name or self.name)[:MAX_NAME_CHARS].strip()

    @property
    def functions(self) -> tuple[MetricSpec, ...]:
        """The metrics that are functions on the user's side."""
        return tuple(metric for metric in self.metrics if metric.is_function)

    @property
    def needs_host(self) -> bool:
        """Whether the agent or a metric is code on the user's side, so that the run needs a client."""
        return self.agent.is_hosted or bool(self.functions)

    @property
    def function_targets(self) -> dict[str, str]:
        """The targets of the functions, by metric; the client that computes them must have the same."""
        return {metric.name: str(metric.parameters.get("function") or "") for metric in self.functions}

    def judge_of(self, metric: MetricSpec) -> JudgeSpec | None:
        """Return the judge whose verdicts a metric uses; None without one."""
        return next((judge for judge in self.judges if metric.judge in ("", judge.name)), None)
