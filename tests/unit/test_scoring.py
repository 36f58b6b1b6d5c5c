"""Scoring without a run: every metric on answers that are there already."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.errors import DatasetError, InvalidInputError, SpecError
from assay.metrics import ALIASES_OF_METRICS, METRICS, complete_parameters, metric_kind
from assay.model.answers.agent_response import AgentResponse
from assay.model.answers.response_text import TEXT_KEYS
from assay.model.run import ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence


DOCS = Path(__file__).parents[2] / "docs"
GOOD_FACTS = {"sql": "SELECT name FROM events", "data_rows": 2}


def by_length(texts: Sequence[str]) -> list[list[float]]:
    """Return vectors that point the same way for texts of the same length."""
    return [[1.0, float(len(text))] for text in texts]


@pytest.mark.parametrize(
    ("metric", "answer", "reference", "fields", "value"),
    [
        ("exact_match", "Riyadh", "riyadh", {}, 1.0),
        ("exact-match", "Riyadh", ["Jeddah", "Riyadh"], {}, 1.0),
        ("exact_match", "a-b", "a b", {"strip_punctuation": True, "collapse_whitespace": True}, 0.0),
        ("exact_match", "", "x", {}, 0.0),
        ("rouge", "a b c", "a b d", {"measure": "rouge1"}, 2 / 3),
        ("retrieval_accuracy", "", None, {**GOOD_FACTS, "expected_table": "events"}, 1.0),
        ("retrieval", "", None, {"sql": None, "category": "out_of_scope"}, 1.0),
        ("fidelity", "يوجد 3 فعاليات مسجلة في مدينة الرياض", None, {"data_rows": 3}, 1.0),
        ("hit-rate", "", None, {"sources": ["A", "B"], "expected_sources": ["b"]}, 1.0),
        ("mrr", "", None, {"sources": ["A", {"title": "B"}], "expected_sources": "B"}, 0.5),
        ("coverage", "found it", None, {"retrieved": ["A"]}, 1.0),
        ("latency", "", None, {"latency_ms": 1500}, 1.5),
    ],
)
def test_metrics_score_one_answer(
    metric: str, answer: str, reference: Any, fields: dict[str, Any], value: float
) -> None:
    """Parameters, fields of the case and fields of the answer all reach the metric; names have short forms."""
    score = assay.score(metric, answer, reference, **fields)
    assert score.status is ScoreStatus.SCORED
    assert score.value == pytest.approx(value, abs=1e-9)


def test_an_answer_may_be_an_object() -> None:
    """An answer in the JSON shape of an answer is scored; its own fields go before those beside it."""
    answer = {"text": "", "sql": "SELECT 1 FROM events", "data_rows": 0}
    score = assay.score("retrieval_accuracy", answer, expected_table="events", data_rows=5)
    assert (score.value, score.detail["has_rows"]) == (1.0, False)


def test_an_agent_error_is_scored_as_in_a_run() -> None:
    """An answer with status error is a row of a failed agent."""
    score = assay.score("exact_match", {"error": "down"}, "x")
    assert (score.value, score.passed) == (0.0, False)


def test_missing_input_is_skipped_not_zero() -> None:
    """Without a reference there is no value."""
    score = assay.score("exact_match", "x")
    assert (score.status, score.value, score.reason) == (ScoreStatus.SKIPPED, None, "no_reference")


def test_a_function_of_the_callers_gives_the_vectors() -> None:
    """With embed nothing is started, and the default model's threshold does not apply to another model."""
    score = assay.score("similarity", "abc", "xyz", embed=by_length)
    assert score.value == pytest.approx(1.0)
    assert (score.passed, score.detail["model"]) == (None, "embed:by_length")
    assert assay.score("similarity", "abc", "xyz", embed=by_length, threshold=0.5).passed is True


def test_a_function_that_loses_a_vector_is_refused() -> None:
    """One vector per text: anything else would shift them."""
    with pytest.raises(InvalidInputError, match="1 vectors for 2 texts"):
        assay.score("similarity", "abc", "xyz", embed=lambda texts: [[1.0]])


def test_many_rows_are_embedded_together() -> None:
    """Calls hold at most 64 texts, and a text that several rows share is embedded once for them."""
    calls: list[int] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        calls.append(len(texts))
        assert len(set(texts)) == len(texts)
        return by_length(texts)

    rows = [{"answer": f"answer {i:03}", "reference": "the same for all"} for i in range(100)]
    scores = list(assay.score_many("similarity", rows, embed=embed))
    assert len(scores) == 100
    assert calls == [33, 33, 33, 5]


def test_long_texts_are_cut_and_travel_in_calls_of_bounded_size() -> None:
    """A call holds no more than about a megabyte, whatever the texts."""
    sizes: list[int] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        sizes.append(sum(map(len, texts)))
        return by_length(texts)

    rows = [{"answer": str(i) + "x" * 200_000, "reference": "y"} for i in range(4)]
    list(assay.score_many("similarity", rows, embed=embed))
    assert max(sizes) <= 262_144
    assert len(sizes) > 1


def test_a_composite_reads_scores_that_a_row_brings_along() -> None:
    """What a composite needs comes with the row, or is computed; without either the row is skipped."""
    row = {"answer": "x", "sources": ["A"], "expected_sources": ["A"], "usage": {"total_tokens": 1000}}
    results = list(assay.score_many("combined", [{**row, "scores": {"judge_score": 0.85}}, row]))
    assert results[0].value == pytest.approx(0.7836612789)
    assert results[1].status is ScoreStatus.SKIPPED
    read = assay.score("combined_score", {"text": "a b", **{k: row[k] for k in ("sources", "usage")}}, "a b",
                       expected_sources=["A"], judge="exact_match")  # fmt: skip
    assert read.value == pytest.approx(1.0)


def test_several_calls_share_a_scorer() -> None:
    """A scorer sums up what it has scored."""
    with assay.Scorer("exact_match") as scorer:
        assert [scorer.score(answer, "a").value for answer in ("a", "b", "A")] == [1.0, 0.0, 1.0]
        summary = scorer.summary()
    assert (summary.scored_count, summary.passed_count, summary.meets_threshold) == (3, 2, False)


@pytest.mark.parametrize(
    ("call", "messages"),
    [
        (lambda: assay.score("exact_mach", "a"), ["did you mean 'exact_match'"]),
        (lambda: assay.score("exact_match", "a", "b", strip_punctation=True), ["did you mean 'strip_punctuation'"]),
        (lambda: assay.score("hit_rate", "a", parameters={"k": 0, "q": 1}), ["hit_rate.k", "hit_rate.q"]),
        (lambda: assay.score("mrr", "a", sorces=[], categry="x"), ["'sources'", "'category'"]),
        (lambda: assay.score("latency", "a", latency_ms="x"), ["answer: is not a valid recorded answer: latency_ms"]),
        (lambda: assay.score("exact_match", ["a"], b"a"), ["answer: must be a string", "reference: must be a string"]),
        (lambda: assay.score("exact_match", "a", "b\0"), ["holds the character NUL"]),
        (lambda: assay.score("exact_match", "a", "\ud800"), ["half a character"]),
        (lambda: assay.score("similarity", "a", "b", embed=by_length, embedder="x:1"), ["choose one"]),
        (lambda: assay.score_many("rouge", [{"answer": ["a"]}, {"question": "q"}]), ["record 1, recorded"]),
        (lambda: assay.score_many("rouge", [{"question": "q"}]), ["1 of 1 records have no answer"]),
        (lambda: assay.score_many("rouge", []), ["holds no cases"]),
    ],
)
def test_wrong_input_is_refused_with_every_problem(call: Any, messages: list[str]) -> None:
    """Before anything is scored, every problem is told with its place."""
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert all(message in caught.value.message for message in messages), caught.value.message


def test_an_answers_broken_characters_are_replaced_as_in_a_run() -> None:
    """NUL and half characters in an answer become U+FFFD; the answer is still scored."""
    assert assay.score("exact_match", "a\0\ud800", "a\ufffd\ufffd").value == 1.0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", '{"answer": "a", "reference": "a"}\n{"answer": "b", "reference": "a"}\n'),
        ("rows.csv", "question,answer,reference\nq1,a,a\nq2,b,a\n"),
        ("rows.json", '[{"query": "q", "answer": "a", "output": "a"}, {"query": "r", "answer": "b", "output": "c"}]'),
        ("rows.yaml", "- {input: q, actual_output: a, expected: a}\n- {input: r, recorded: {text: b}, expected: a}\n"),
    ],
)  # fmt: skip
def test_a_file_of_any_format_is_scored(tmp_path: Path, name: str, content: str) -> None:
    """Datasets with recorded answers are the input, with or without questions."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    scores, summary = assay.score_file("exact_match", path)
    assert [score.value for score in scores] == [1.0, 0.0]
    assert (summary.value, summary.scored_count, summary.meets_threshold) == (0.5, 2, False)


def test_fields_of_an_answer_may_stand_beside_it_in_a_table(tmp_path: Path) -> None:
    """Cells that hold numbers and lists are read as such; a status that is none of an answer's is left alone."""
    path = tmp_path / "rows.csv"
    path.write_text(
        'answer,sql,data_rows,expected_table,status\nx,"SELECT a, b FROM t",3,t,open\ny,,0,t,success\n',
        encoding="utf-8",
    )
    scores, _ = assay.score_file("retrieval_accuracy", path)
    assert [score.detail["points"] for score in scores] == [3, 0]


def test_a_file_says_which_field_is_the_answer(tmp_path: Path) -> None:
    """A mapping goes before every name, and wrong files are refused with line and field."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"said": "a", "answer": "a"}\n', encoding="utf-8")
    scores, _ = assay.score_file("exact_match", path, field_map={"recorded": "said", "references": "answer"})
    assert scores[0].value == 1.0
    path.write_text('{"answer": "a"}\n{"answer": {"text": 1, "data_rows": -1}}\n', encoding="utf-8")
    with pytest.raises(
        DatasetError, match=re.escape("rows.jsonl:2: record 2, recorded: is not a valid recorded answer")
    ):
        assay.score_file("exact_match", path)


@given(st.lists(st.tuples(st.text("ab ", max_size=4), st.text("ab ", max_size=4)), min_size=1, max_size=80))
def test_rows_are_scored_as_each_alone(pairs: list[tuple[str, str]]) -> None:
    """Scoring many rows gives what scoring each by itself gives, in the same order."""
    rows = [{"answer": answer, "reference": reference} for answer, reference in pairs]
    many = list(assay.score_many("exact_match", rows))
    assert many == [assay.score("exact_match", answer, reference) for answer, reference in pairs]


class Array(list[Any]):
    """What numpy's arrays and numbers and pandas' columns have: their content as Python has it."""

    def tolist(self) -> Any:
        """Return the content; of an array without dimensions, one value."""
        return self[0] if len(self) == 1 else list(self)


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("5", 5, 1.0),
        (5, "5", 1.0),
        (2.5, 2.5, 1.0),
        ("true", True, 1.0),
        ("5", Array([5]), 1.0),
        ("5", Array(["4", 5]), 1.0),
        (Array([5]), ["4", 5.0, Array([5])], 1.0),
        ("5", {5, 6}, 1.0),
        ("5", range(5), 0.0),
        ("5", None, None),
        (AgentResponse(text="5"), ("5",), 1.0),
    ],
)
def test_numbers_and_arrays_are_answers_and_references(answer: object, reference: object, value: float | None) -> None:
    """As people have them in a notebook: a number is its text, an array several references."""
    assert assay.score("exact_match", answer, reference).value == value


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"a": 1}, "reference: must be a string or a number, or a list of these, not an object"),
        (b"5", "not bytes"),
        ([10**5000], "not a number"),
        (float("nan"), "not nan: leave it out where there is none"),
        ([["5"]], "reference[0]: must be a string or a number"),
        ([None], "reference[0]:"),
        (object(), "not object"),
    ],
)
def test_what_is_no_reference_is_refused(reference: object, message: str) -> None:
    """With a sentence: neither a mapping's keys nor the numbers of bytes are references."""
    with pytest.raises(assay.AssayError, match=re.escape(message)):
        assay.score("exact_match", "5", reference)


def test_scores_of_many_rows_are_a_list() -> None:
    """They can be counted, indexed and read twice."""
    scores = assay.score_many("exact_match", ({"answer": str(n), "reference": "1"} for n in range(3)))
    assert [score.value for score in scores[1:]] == [1.0, 0.0]
    assert len(scores) == 3


def test_short_names_mean_metrics_and_hide_none() -> None:
    """A short name is never that of a metric, and every metric answers to its name with `-`."""
    assert not ALIASES_OF_METRICS.keys() & METRICS.keys()
    assert all(metric_kind(name.upper().replace("_", "-")) == name for name in METRICS)
    with pytest.raises(SpecError, match="unknown metric"):
        metric_kind("")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_defines_itself(name: str) -> None:
    """The definition that people are shown names formula or rule, agent errors and missing input; the example holds."""
    text = " ".join((inspect.getdoc(sys.modules[METRICS[name].__module__]) or "").lower().split())
    assert " = " in text or " when " in text, "no formula or rule"
    assert "agent error" in text, "says nothing of agent errors"
    assert re.search("skipped|without|missing", text), "says nothing of missing input"
    info = METRICS[name].info
    complete_parameters(name, dict(info.example), where=name)
    assert info.title
    assert info.summary.endswith(".")


def test_a_function_is_scored_in_a_run() -> None:
    """Scoring without a run refuses a metric in Python code, and says where it is computed."""
    with pytest.raises(InvalidInputError, match="python: is a function of your own: call it, or name"):
        assay.score("python", "answer", function="metrics:helpfulness")


@pytest.mark.parametrize("name", [name for name in METRICS if name != "python"])
def test_every_metric_takes_an_empty_answer(name: str) -> None:
    """No metric raises on an answer that is nothing at all."""
    example = METRICS[name].info.example
    assert assay.score(name, "", "reference", parameters=example, embed=by_length).metric == name


def test_the_guides_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of the guide runs, in order, with the files that the guide shows."""
    text = (DOCS / "scoring.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "json":
            lines = [json.loads(line) for line in block.splitlines()]
            (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {"__name__": "guide"})  # the guide's own code


def test_the_guide_names_every_short_name() -> None:
    """The guide's table of short names is the code's."""
    text = (DOCS / "scoring.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|$", text, re.MULTILINE))
    assert listed == dict(ALIASES_OF_METRICS)


@pytest.mark.parametrize("cosine", [0.1, 0.3, 0.7, 0.9])
def test_vectors_of_a_function_keep_their_precision(tmp_path: Path, cosine: float) -> None:
    """Consistency compares the numbers that `embed` returned, not their values rounded to float32."""
    vectors = {"a": [1.0, 0.0], "b": [cosine, math.sqrt(1.0 - cosine**2)]}
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"answer": "a", "reference": "a"}\n{"answer": "b", "reference": "a"}\n')
    _, summary = assay.score_file("consistency", rows, embed=lambda texts: [vectors[text] for text in texts])
    assert summary.value == pytest.approx(cosine, abs=1e-12)


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_the_text_of_an_answer_has_the_names_that_it_has_in_a_run(tmp_path: Path, key: str) -> None:
    """One answer, rows and recorded answers of a file are read alike."""
    assert assay.score("exact_match", {key: "x"}, "x").value == 1.0
    assert [found.value for found in assay.score_many("exact_match", [{"answer": {key: "x"}, "reference": "x"}])] == [1]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"question": "q", "recorded": {key: "x"}, "reference": "x"}))
    assert assay.score_file("exact_match", rows)[1].value == 1.0


def test_an_answer_without_a_text_is_wrong_input() -> None:
    """It is refused with the names of its fields, never scored as an empty answer."""
    with pytest.raises(InvalidInputError, match="no text found; its fields are 'reply'"):
        assay.score("exact_match", {"reply": "x"}, "x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("accuracy", "did you mean 'exact_match'?"),
        ("BLEU", "did you mean 'rouge'?"),
        ("bert-score", "did you mean 'semantic_similarity'?"),
        ("faithfulness", "judge_score with a rubric that asks for it does that"),
        ("Answer Relevancy", "judge_score with a rubric that asks for it does that"),
        ("exact_mach", "did you mean 'exact_match'?"),
    ],
)
def test_names_of_other_tools_lead_to_a_metric(name: str, message: str) -> None:
    """By `assay score` and in a spec; `accuracy` is no misspelt `retrieval_accuracy`."""
    with pytest.raises(SpecError, match=f"unknown metric '{name}'; {re.escape(message)}"):
        metric_kind(name)
    with pytest.raises(SpecError, match=re.escape(message)):
        complete_parameters(name, {}, where="metrics[0]")


ROWS = """{"answer": "a", "reference": "a"}
{"answer": "b", "reference": "c", "skip": true}
{"answer": "x", "weight": "heavy"}
"""


def test_a_file_that_is_scored_warns_where_it_was_named(tmp_path: Path) -> None:
    """What was skipped, and what was left out because it is wrong, is told; the category can be filtered."""
    file = tmp_path / "rows.jsonl"
    file.write_text(ROWS)
    with pytest.warns(assay.DatasetWarning) as caught:
        scores, _ = assay.score_file("exact_match", file, on_bad_case="skip")
    assert [score.value for score in scores] == [1.0]
    sentences = [str(warning.message) for warning in caught]
    assert len(sentences) == 3
    assert any("1 record is skipped" in text for text in sentences)
    assert any("rows.jsonl:3" in text and "weight" in text for text in sentences)
    assert {warning.filename for warning in caught} == {__file__}


def test_a_file_with_wrong_records_is_refused_unless_they_may_be_left_out(tmp_path: Path) -> None:
    """Nothing is scored of a file that is wrong, unless the caller says so."""
    file = tmp_path / "rows.jsonl"
    file.write_text(ROWS)
    with pytest.raises(assay.AssayError, match="weight"):
        assay.score_file("exact_match", file)
