"""Why a score fails: every metric and every check says what was expected and what came, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.metrics import METRICS, build_metric, complete_parameters
from assay.metrics.checks.answer_checks import CHECKS
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, check_verdict
from assay.metrics.checks.similar_checks import SIMILAR_CHECKS
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.explanations import MAX_MESSAGE_CHARS, answer_sentence, score_message
from assay.metrics.core.info import DEFAULT_MODEL
from assay.metrics.core.row_verdict import row_message
from assay.metrics.core.score import EmbeddingEvidence, JudgeEvidence, Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentResponse, AgentStatus, Source, ToolCall, Usage
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.judgement import Judgement, JudgementStatus
from assay.model.metric_call import MetricOutcome
from assay.model.run import MetricSpec, Score

if TYPE_CHECKING:
    from collections.abc import Mapping

NEAR = EmbeddingEvidence(np.array([1.0, 0.0], dtype=np.float32), {"wanted": 0.25})
BAD = {"reasoning": "it invents", "accuracy": 0.25, "completeness": 0.25, "relevance": 0.25}
CODE = re.compile(r"\b[a-z]+_[a-z_]+\b")
"""A code in place of words; names of metrics and of fields of a formula are none."""
REFERENCE = Turn("q", references=("wanted",))
GIVEN = AgentResponse(text="given")


@dataclass(frozen=True)
class Failure:
    """A row that fails by a metric, and what the sentence must hold of both sides."""

    expected: str
    actual: str
    turn: Turn = REFERENCE
    response: AgentResponse = GIVEN
    parameters: Mapping[str, Any] = field(default_factory=dict)
    case: Mapping[str, Any] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)

    def score(self, kind: str) -> Score:
        """The score of the metric."""
        given = {**({"judge_score": {}} if kind == "combined_score" else {}), kind: self.parameters}
        metrics = [
            build_metric(MetricSpec(name, complete_parameters(name, parameters, where="m")))
            for name, parameters in given.items()
        ]
        case = Case("c", (self.turn,), **self.case)
        return score_row(metrics, Row(case, self.response, {EmbeddingSettings(DEFAULT_MODEL): NEAR}, **self.row))[-1]


FOUND = AgentResponse(text="given", sources=(Source(id="faq#7"), Source(id="faq#2"), Source(title="faq#1")))
WANTED_SOURCE = Turn("q", expected_sources=("faq#9",))
LOW = JudgeEvidence(BAD)
FAILURES: dict[str, Failure] = {
    "semantic_similarity": Failure("0.75", "0.25"),
    "rouge": Failure("0.5", "0", parameters={"threshold": 0.5}),
    "exact_match": Failure('"wanted"', '"given"'),
    "contains": Failure('"wanted"', '"given"', parameters={"values": ["wanted"]}),
    "regex": Failure(r'"\d+ tenders"', '"given"', parameters={"pattern": r"\d+ tenders"}),
    "json_schema": Failure("integer", "'x'", response=AgentResponse(text='{"n": "x"}'),
                           parameters={"schema": {"properties": {"n": {"type": "integer"}}}}),
    "assertions": Failure("wanted", "given", case={"assertions": (Assertion("equals", "wanted"),)}),
    "tool_calls": Failure('search({"q": "x"})', 'search({"q": "y"})',
                          Turn("q", expected_tools=(ExpectedTool("search", {"q": "x"}, "subset"),)),
                          AgentResponse(text="t", tool_calls=(ToolCall("search", arguments_json='{"q": "y"}'),))),
    "retrieval_accuracy": Failure("events", "SELECT 1", response=AgentResponse(text="t", sql="SELECT 1"),
                                  case={"expected": {"expected_table": "events"}}),
    "generation_fidelity": Failure("more than 30", '"given"'),
    "sources": Failure("faq#9", "faq#7", response=FOUND, parameters={"required": ["faq#9"]}),
    "hit_rate": Failure("faq#9", "faq#7, faq#2, faq#1", WANTED_SOURCE, FOUND),
    "mrr": Failure("faq#9", "faq#7, faq#2, faq#1", WANTED_SOURCE, FOUND),
    "quality": Failure("3", "1 is below", parameters={"threshold": 3},
                       row={"verdicts": {"quality": JudgeEvidence(
                           {"score": 1, "reasoning": "it invents"},
                           judgement=Judgement("j", "r", JudgementStatus.VALID, reasoning="it invents"))}}),
    "judge_score": Failure("0.75", "0.25", row={"verdicts": {"structured": LOW}}),
    "combined_score": Failure("9", "0.125", WANTED_SOURCE,
                              AgentResponse(text="t", sources=(Source(id="faq#9"),), usage=Usage(total_tokens=1000)),
                              case={"thresholds": {"combined_score": 9.0}}, row={"verdicts": {"structured": LOW}}),
    "coverage": Failure("nothing was retrieved", "given"),
    "satisfaction": Failure("0.9", "0.", response=AgentResponse(text="given", latency_ms=1.0),
                            parameters={"threshold": 0.9}),
    "latency": Failure("2 s", "3.5 s", response=AgentResponse(text="t", latency_ms=3500.0),
                       parameters={"threshold": 2}),
    "tokens": Failure("10 tokens", "99 tokens", response=AgentResponse(text="t", usage=Usage(total_tokens=99)),
                      parameters={"threshold": 10}),
    "cost": Failure("0.01 USD", "0.5 USD", response=AgentResponse(text="t", usage=Usage(cost_usd=0.5)),
                    parameters={"threshold": 0.01}),
    "formula": Failure("3", "2 is below", parameters={"formula": "answer_words + 1", "threshold": 3}),
    "python": Failure("expected true", "returned false", parameters={"function": "m:f"},
                      row={"outcomes": {"python": MetricOutcome(0.0, is_boolean=True, reasoning="no")}}),
}  # fmt: skip
NO_VALUE_OF_A_ROW = {"consistency"}


@pytest.mark.parametrize("kind", sorted(set(METRICS) - NO_VALUE_OF_A_ROW))
def test_every_metric_says_what_was_expected_and_what_came(kind: str) -> None:
    """A new metric needs an entry in FAILURES."""
    failure = FAILURES[kind]
    score = failure.score(kind)
    assert score.passed is not True
    assert score.value is not None
    message = score.message
    assert failure.expected in message
    assert failure.actual in message
    assert not [word for word in CODE.findall(message) if word != "answer_words"]
    if score.passed is False:
        assert row_message(failure.response, [score]) == f"{kind}: {message}"


ANSWER = AgentResponse(
    text="given",
    latency_ms=3500.0,
    usage=Usage(cost_usd=0.5),
    finish_reason="length",
    tool_calls=(ToolCall("read"),),
)
BROKEN: dict[str, tuple[Assertion, str, str]] = {
    "equals": (Assertion("equals", "wanted"), '"wanted"', '"given"'),
    "contains": (Assertion("contains", "wanted"), '"wanted"', '"given"'),
    "icontains": (Assertion("icontains", "wanted"), '"wanted"', '"given"'),
    "contains-all": (Assertion("contains-all", ["wanted", "given"]), '"wanted"', '"given"'),
    "contains-any": (Assertion("contains-any", ["wanted"]), '"wanted"', '"given"'),
    "icontains-all": (Assertion("icontains-all", ["wanted"]), '"wanted"', '"given"'),
    "icontains-any": (Assertion("icontains-any", ["wanted"]), '"wanted"', '"given"'),
    "starts-with": (Assertion("starts-with", "wanted"), '"wanted"', '"given"'),
    "regex": (Assertion("regex", "want.d"), '"want.d"', '"given"'),
    "is-json": (Assertion("is-json"), "JSON", '"given"'),
    "contains-json": (Assertion("contains-json", {"required": ["n"]}), '"n"', '"given"'),
    "levenshtein": (Assertion("levenshtein", "wanted wanted"), '"wanted wanted"', '"given"'),
    "rouge-n": (Assertion("rouge-n", "wanted"), "0.75", '"given"'),
    "latency": (Assertion("latency", threshold=1000.0), "1000 ms", "3500 ms"),
    "cost": (Assertion("cost", threshold=0.01), "0.01 USD", "0.5 USD"),
    "word-count": (Assertion("word-count", {"min": 3, "max": 5}), "3 to 5", "1 word"),
    "trajectory:tool-used": (Assertion("trajectory:tool-used", "search"), "search", "called read"),
    "trajectory:tool-sequence": (
        Assertion("trajectory:tool-sequence", ["search", "read"]),
        "search, read",
        "called read",
    ),
    "tool-call-f1": (Assertion("tool-call-f1", ["search"]), "search", "called read"),
    "finish-reason": (Assertion("finish-reason", "stop"), '"stop"', '"length"'),
    "similar": (Assertion("similar", "wanted"), "0.75", "0.25"),
    "similar:cosine": (Assertion("similar:cosine", "wanted"), "0.75", "0.25"),
    "similar:dot": (Assertion("similar:dot", "far"), "0.75", "similarity 0"),
    "similar:euclidean": (Assertion("similar:euclidean", "far"), "0.75", "distance 1.41"),
    **{kind: (Assertion(kind, "is polite"), "expected at least", "gave 0.1") for kind in JUDGED_CHECKS},
}
EVIDENCE = EmbeddingEvidence(
    np.array([1.0, 0.0], dtype=np.float32), {"wanted": 0.25}, {"far": np.array([0.0, 1.0], dtype=np.float32)}
)


def made(check: Assertion, answer: AgentResponse) -> Score:
    """The score of a case with one check."""
    metric = build_metric(MetricSpec("assertions", complete_parameters("assertions", {}, where="m")))
    case = Case("c", (Turn("q"),), assertions=(check,), contexts=("a passage",))
    verdict = JudgeEvidence(
        {"score": 0.1, "reasoning": "it is rude"},
        judgement=Judgement("j", "r", JudgementStatus.VALID, reasoning="it is rude"),
    )
    verdicts = {check_verdict(0): verdict}
    return score_row([metric], Row(case, answer, {EmbeddingSettings(DEFAULT_MODEL): EVIDENCE}, verdicts))[0]


@pytest.mark.parametrize("kind", [*CHECKS, *SIMILAR_CHECKS, *JUDGED_CHECKS])
def test_every_check_says_what_was_expected_and_what_came(kind: str) -> None:
    """A new check needs an entry in BROKEN."""
    check, expected, actual = BROKEN[kind]
    score = made(check, ANSWER)
    assert score.passed is False
    for message in (score.detail["checks"][0]["message"], row_message(ANSWER, [score])):
        assert expected in message
        assert actual in message
    assert score.detail["checks"][0]["reason"] == "does_not_hold"


@pytest.mark.parametrize(
    "check", [Assertion("contains", "giv", negate=True), Assertion("trajectory:tool-used", "read", negate=True)]
)
def test_a_check_that_should_not_hold_says_so(check: Assertion) -> None:
    """A negated check names its value and the answer."""
    message = score_message(made(check, ANSWER))
    assert str(check.value) in message
    assert "holds, and should not" in message or "called 1 time" in message


def test_long_and_hostile_texts_are_short_and_clean() -> None:
    """Texts are cut around their difference, without control characters."""
    common = "x" * 5_000
    sentence = answer_sentence(f"{common}\x1b[2J given\n{common}", [f"{common} wanted {common}"])
    assert "given" in sentence
    assert '"…' in sentence
    assert "wanted" in sentence
    assert len(sentence) < MAX_MESSAGE_CHARS
    assert "\x1b" not in sentence
    score = Failure('"', '"', response=AgentResponse(text="y" * 5_000), parameters={"values": ["z" * 5_000] * 20})
    assert len(score.score("contains").message) <= MAX_MESSAGE_CHARS


def test_an_agent_error_is_not_explained_by_metrics() -> None:
    """The row says what the agent raised; its scores say that there is no answer."""
    failed = AgentResponse(status=AgentStatus.ERROR)
    score = Failure("", "", response=failed).score("exact_match")
    assert (score.reason, score.message) == ("agent_error", "")
    assert score_message(score) == "the agent failed, so there is no answer to score"
