"""The types that the functions of `assay` and the methods of `assay.Client` take and return.

Importing this module imports most of the package; `import assay` alone does not.
"""

from assay.agent_host.protocol import Caller, MetricCaller
from assay.client.api.evaluation import RunSource
from assay.client.api.runs import Runs
from assay.comparison.allowed_drop import AllowedDrop
from assay.comparison.decision import ComparisonDecision, DecisionOutcome
from assay.comparison.mismatch import Mismatch, MismatchReason
from assay.comparison.model import (
    Adjustment,
    Change,
    ClassicalTest,
    Comparison,
    ComparisonSettings,
    ErrorComparison,
    Estimate,
    FlippedCase,
    Matching,
    MetricComparison,
    NoiseFloor,
    OmnibusTest,
    PairComparison,
    PassTable,
    RandomDraws,
    RunRef,
    Side,
    Variant,
    WorstCase,
)
from assay.comparison.recommendation import Confidence, RankedVariant, VariantRecommendation
from assay.comparison.stopping_outcome import StoppingOutcome
from assay.comparison.verdict import ComparisonVerdict
from assay.filters.pages import CaseDetail, ResultPage, RowFacets, RunPage
from assay.filters.row_filter import RowOutcome
from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Attempt,
    Source,
    ToolCall,
    Usage,
)
from assay.model.answers.approvals import Approval, Decision, UnusedApproval
from assay.model.answers.interrupts import DecisionKind, InterruptKind
from assay.model.by_metric import ByMetric
from assay.model.canary_summary import CanaryKind, CanaryRate, CanarySummary, CanaryTally
from assay.model.case import Assertion, Case, ExpectedTool, RecordedVerdict, Turn
from assay.model.code_identity import CodeIdentity
from assay.model.dependent_cases import DependentCases
from assay.model.interval import Interval
from assay.model.judge_calibration import JudgeCalibration
from assay.model.judgement import Judgement, JudgementCall, JudgementStatus
from assay.model.judging_summary import JudgingSummary, JurorSummary, JuryAgreement
from assay.model.metric_call import MetricOutcome
from assay.model.model_price import ModelPrice
from assay.model.run import (
    AttemptOutcome,
    DatasetRef,
    Deletion,
    GateOutcome,
    GateResult,
    GateSource,
    GroupSummary,
    LatencySummary,
    MetricSummary,
    PauseCause,
    RepeatRate,
    RepeatSummary,
    RepeatVariance,
    RowAttempt,
    RowResult,
    Run,
    RunCounts,
    RunState,
    RunSummary,
    RunVerdict,
    ScoreStatus,
    StateChanged,
    ThresholdRule,
    TurnResult,
    WeightedSummary,
)
from assay.model.run_spec import AgentSpec, DatasetReading, JudgeModel, JudgeSpec, MetricSpec, RunSpec, SpendCap
from assay.model.run_summary import Recommendation, Remedy
from assay.model.stopping import StoppedEarly, StoppingRule, StoppingSettings
from assay.model.stored_dataset import StoredDataset
from assay.model.views import RowView, RunView
from assay.reports.words.selected_cases import SelectedCases
from assay.scoring.scorer import RowScore
from assay.scoring.vectors import EmbedFunction

__all__ = [
    "Adjustment",
    "AgentError",
    "AgentErrorKind",
    "AgentResponse",
    "AgentSpec",
    "AgentStatus",
    "AllowedDrop",
    "Approval",
    "Assertion",
    "Attempt",
    "AttemptOutcome",
    "ByMetric",
    "Caller",
    "CanaryKind",
    "CanaryRate",
    "CanarySummary",
    "CanaryTally",
    "Case",
    "CaseDetail",
    "Change",
    "ClassicalTest",
    "CodeIdentity",
    "Comparison",
    "ComparisonDecision",
    "ComparisonSettings",
    "ComparisonVerdict",
    "Confidence",
    "DatasetReading",
    "DatasetRef",
    "Decision",
    "DecisionKind",
    "DecisionOutcome",
    "Deletion",
    "DependentCases",
    "EmbedFunction",
    "ErrorComparison",
    "Estimate",
    "ExpectedTool",
    "FlippedCase",
    "GateOutcome",
    "GateResult",
    "GateSource",
    "GroupSummary",
    "InterruptKind",
    "Interval",
    "JudgeCalibration",
    "JudgeModel",
    "JudgeSpec",
    "Judgement",
    "JudgementCall",
    "JudgementStatus",
    "JudgingSummary",
    "JurorSummary",
    "JuryAgreement",
    "LatencySummary",
    "Matching",
    "Message",
    "MetricCaller",
    "MetricComparison",
    "MetricOutcome",
    "MetricSpec",
    "MetricSummary",
    "Mismatch",
    "MismatchReason",
    "ModelPrice",
    "NoiseFloor",
    "OmnibusTest",
    "PairComparison",
    "PassTable",
    "PauseCause",
    "RandomDraws",
    "RankedVariant",
    "Recommendation",
    "RecordedVerdict",
    "Remedy",
    "RepeatRate",
    "RepeatSummary",
    "RepeatVariance",
    "ResultPage",
    "RowAttempt",
    "RowFacets",
    "RowOutcome",
    "RowResult",
    "RowScore",
    "RowView",
    "Run",
    "RunCounts",
    "RunPage",
    "RunRef",
    "RunSource",
    "RunSpec",
    "RunState",
    "RunSummary",
    "RunVerdict",
    "RunView",
    "Runs",
    "ScoreStatus",
    "SelectedCases",
    "Side",
    "Source",
    "SpendCap",
    "StateChanged",
    "StoppedEarly",
    "StoppingOutcome",
    "StoppingRule",
    "StoppingSettings",
    "StoredDataset",
    "ThresholdRule",
    "ToolCall",
    "Turn",
    "TurnResult",
    "UnusedApproval",
    "Usage",
    "Variant",
    "VariantRecommendation",
    "WeightedSummary",
    "WorstCase",
]
