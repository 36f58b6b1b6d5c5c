"""Files of people's labels, and the options that name a judge: read whole, refused with every problem at once."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import DatasetError, InvalidInputError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.model_price import ModelPrice
from assay.model.run import RowResult
from assay.statistics.corrected_rate import HUMAN_VERDICT, RANDOM, UNKNOWN, WEIGHTED, Drawing
from assay_cli.commands.judge.access import JudgeName, judge_access, judge_name
from assay_cli.commands.judge.baseline import read_baseline
from assay_cli.commands.judge.labels import Labels, check_scale, read_items
from assay_cli.commands.judge.rubrics import AskedRubric, known_rubric, passing_of
from assay_cli.commands.judge.sample import Drawn, _write, draw

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OPTIONS: dict[str, Any] = dict.fromkeys(
    (
        "address",
        "provider",
        "model",
        "base_url",
        "key_variable",
        "replay",
        "prices",
        "spec",
        "judge_name",
        "spend_cap",
        "temperature",
        "max_tokens",
    )
)
OPTIONS["concurrency"] = 8


def read(tmp_path: Path, text: str, name: str = "labels.jsonl") -> Labels:
    """Return the labels of a file with this text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_items(path)


@pytest.mark.parametrize(
    ("human", "kind", "people"),
    [
        (4, "scores", (4.0,)),
        ("4.5", "scores", (4.5,)),
        ([4, None, "5"], "scores", (4.0, 5.0)),
        ("Pass", "labels", ("pass",)),
        (True, "labels", ("pass",)),
        (["no", "good"], "labels", ("fail", "pass")),
    ],
)
def test_what_people_say_of_one_answer(tmp_path: Path, human: object, kind: str, people: tuple[object, ...]) -> None:
    """Scores, or pass and fail in whatever words."""
    labels = read(tmp_path, json.dumps({"question": "q", "answer": "a", "human": human}))
    assert (labels.kind, labels.items[0].people) == (kind, people)


@pytest.mark.parametrize(
    ("human", "label"), [("a", "a"), (1, "a"), ("output_2", "b"), ("second", "b"), ("Tie", "tie"), (0, "tie")]
)
def test_what_people_say_of_two(tmp_path: Path, human: object, label: str) -> None:
    """The better one by any usual name."""
    record = {"instruction": "", "input": "q", "output_1": "x", "output_2": "y", "preference": human}
    labels = read(tmp_path, json.dumps(record))
    assert (labels.kind, labels.items[0].people, labels.items[0].second) == ("pairs", (label,), "y")


def test_other_names_and_further_people(tmp_path: Path) -> None:
    """Columns of several people, an empty cell for one who did not label, an empty answer."""
    labels = read(tmp_path, "query,response,expected,human_a,human_b\nq1,,r,1,\nq2,x,,4,5\n", "labels.csv")
    assert [(item.name, item.answer, item.reference, item.people) for item in labels.items] == [
        ("#1", "", "r", (1.0,)),
        ("#2", "x", None, (4.0, 5.0)),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"answer": "a", "human": 1}', "labels.jsonl:1: question: is missing; also read: input"),
        ('{"question": "q", "human": 1}', "labels.jsonl:1: answer: is missing"),
        ('{"question": "q", "answer": "a"}', "labels.jsonl:1: human: is missing: a person's label"),
        ('{"question": " ", "answer": "a", "human": 1}', "labels.jsonl:1: question: is empty"),
        ('{"question": "q", "answer": ["a"], "human": 1}', "labels.jsonl:1: answer: must be a string"),
        ('{"question": "q", "answer": "a", "human": "well"}', 'must be a score, or pass or fail, not "well"'),
        ('{"question": "q", "answer": "a", "human": 1, "contexts": 3}', "contexts: must be a string or a list"),
        ('{"question": "q", "answer_a": "a", "human": "a"}', "labels.jsonl:1: answer_b: is missing"),
        ('{"question": "q", "answer_a": "a", "answer_b": "b", "human": "c"}', "a, b or tie, not"),
        ('{"question": "q\\u0000", "answer": "a", "human": 1}', "holds the character NUL"),
        ('[1]', "is not an object with question, answer and human"),
        ("nothing", "unknown file type"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_record(tmp_path: Path, text: str, problem: str) -> None:
    """Its line, its field, what to do."""
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, text, "labels.jsonl" if problem != "unknown file type" else "labels.txt")
    assert problem in caught.value.message


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """The problems of every record are reported, including labels of another kind than the file's."""
    lines = [
        '{"id": "x", "question": "q", "answer": "a", "human": "pass"}',
        '{"id": "x", "question": "q", "answer": "a", "human": 3}',
        '{"question": "q", "answer": "a", "human": "fail", "human_2": "perhaps"}',
    ]
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, "\n".join(lines))
    assert [problem.line for problem in caught.value.problems] == [2, 2, 3]
    assert caught.value.problems[2].field == "human_2"
    with pytest.raises(DatasetError, match="there is no such file"):
        read_items(tmp_path / "nowhere.jsonl")


def test_the_name_of_a_judge() -> None:
    """Provider, model, and where it is; a key is sent to a named service only where one is named."""
    assert judge_name("openai:gpt-4o-mini") == JudgeName("openai", "gpt-4o-mini")
    there = judge_name("openai:llama3:8b@http://127.0.0.1:11434/v1/", "MY_KEY")
    assert there == JudgeName("openai", "llama3:8b", "http://127.0.0.1:11434/v1", "MY_KEY")
    assert str(there) == "openai:llama3:8b@http://127.0.0.1:11434/v1"
    for wrong in ("gpt-4o-mini", "openai:", "mistral:x"):
        with pytest.raises(InvalidInputError, match="PROVIDER:MODEL"):
            judge_name(wrong)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "--provider: is missing"),
        ({"provider": "opnai"}, "must be one of"),
        ({"provider": "openai"}, "--model: is missing"),
        ({"model": "m"}, "--provider: is missing"),
        ({"provider": "replay"}, "--replay: is missing"),
        ({"provider": "openai", "model": "m", "spend_cap": -1.0}, "--spend-cap: must be at least 0"),
        ({"provider": "openai", "model": "m", "spend_cap": float("nan")}, "--spend-cap: must be at least 0"),
        ({"address": "h:1", "prices": "p.yaml"}, "--prices: applies to a service that is started here"),
        ({"jury": ("openai:m", "openai:m")}, "names openai:m twice"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, Any], problem: str) -> None:
    """Said before anything is started."""
    with pytest.raises(InvalidInputError, match=problem):
        judge_access(**{**OPTIONS, **given})


def test_the_judge_of_a_spec_is_asked_as_the_run_asks_it(tmp_path: Path) -> None:
    """With its parameters, prices and cap; what the command says itself takes precedence."""
    file = tmp_path / "assay.yaml"
    file.write_text(
        "judge: {provider: openai, model: m, base_url: 'http://127.0.0.1:1/v1', temperature: 0, max_tokens: 99, "
        "spend_cap: 2, prices: {input: 0.15, output: 0.6}}"
    )
    access = judge_access(**{**OPTIONS, "spec": tmp_path})
    expected = JudgeName("openai", "m", "http://127.0.0.1:1/v1", "", 0.0, 99, ModelPrice(0.15, 0.6))
    assert (access.names, access.spend_cap_nano_usd) == ((expected,), 2 * 10**9)
    assert judge_access(**{**OPTIONS, "spec": file, "spend_cap": 1.0}).spend_cap_nano_usd == 10**9
    for given, text, problem in (
        ({"provider": "openai", "model": "m"}, "judge: {provider: openai, model: m}", "--spec: names the judge"),
        ({}, "name: x", "has no judge"),
        ({}, "judge: {provider: openai, model: m, prices: 3}", "assay.yaml:1: judge.prices: must be a mapping"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidInputError, match=problem):
            judge_access(**{**OPTIONS, "spec": file, **given})


def test_labels_beyond_a_rubrics_scale_show_the_scale_to_write(tmp_path: Path) -> None:
    """A rubric of one's own is from 0 to 1 unless it says otherwise."""
    labels = read(tmp_path, "\n".join(json.dumps({"question": "q", "answer": f"{n}", "human": n}) for n in range(1, 6)))
    rubric = AskedRubric("tone", ("warmth",), text="name: tone")
    with pytest.raises(DatasetError, match=r"into the rubric: scale: \{minimum: 0, maximum: 5\}; without one"):
        check_scale(labels, rubric)


def test_when_a_score_passes() -> None:
    """As the metric of a rubric says, or from the threshold that is given."""
    quality, answer = known_rubric("quality"), known_rubric("answer")
    assert quality is not None
    assert answer is not None
    by_quality, by_answer = passing_of(quality, None), passing_of(answer, None)
    assert by_quality is not None
    assert by_answer is not None
    assert (by_quality.label(4.0), by_quality.label(3.9)) == ("pass", "fail")
    assert (by_answer.label(0.75), by_answer.label(0.76)) == ("fail", "pass")
    assert answer.score({"accuracy": 0.9, "completeness": 0.6, "relevance": 0.9}) == pytest.approx(0.8)
    assert answer.score({"accuracy": 0.9, "completeness": 0.6, "relevance": 0.9, "overall_score": 0.5}) == 0.5
    assert answer.score({"accuracy": 0.9, "overall_score": 0.5}, "accuracy") == 0.9
    assert answer.score({}) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "save a baseline with --save first"), ("{", "is not a baseline"), ("[]", "is not a baseline"),
     ('{"schema": "assay/judge-baseline/1", "scores": 3}', "is damaged")],
)  # fmt: skip
def test_what_is_no_baseline(tmp_path: Path, text: str | None, problem: str) -> None:
    """Any invalid file is refused with a sentence."""
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInputError, match=problem):
        read_baseline(path)


def test_labels_say_how_they_were_drawn(tmp_path: Path) -> None:
    """A column of probabilities or weights, or the user; equal ones are a drawing at random."""
    weighted = read(tmp_path, "question,answer,human,probability\nq,a,pass,0.25\nq,b,fail,1\n", "labels.csv")
    assert weighted.drawing(None) == weighted.drawing("random") == Drawing(WEIGHTED, (4.0, 1.0))
    same = read(tmp_path, "question,answer,human,weight\nq,a,pass,3\nq,b,fail,3\n", "labels.csv")
    assert same.drawing(None) == same.drawing("judge-verdict") == Drawing(RANDOM)
    bare = read(tmp_path, "question,answer,human\nq,a,pass\nq,b,fail\n", "labels.csv")
    assert bare.drawing(None) == Drawing(UNKNOWN)
    assert bare.drawing("human-verdict") == Drawing(HUMAN_VERDICT)


def test_wrong_weights_are_refused_together(tmp_path: Path) -> None:
    """A probability is above 0 and at most 1, and no record may lack it."""
    values: list[dict[str, Any]] = [
        {"probability": 0},
        {"probability": 1.5},
        {"weight": -1},
        {},
        {"probability": 0.5, "weight": 2},
    ]
    text = "\n".join(json.dumps({"question": "q", "answer": "a", "human": 3, **value}) for value in values)
    with pytest.raises(DatasetError) as refused:
        read(tmp_path, text)
    sentences = [str(problem) for problem in refused.value.problems]
    for line, part in enumerate(
        (
            "probability: must be a probability above 0, up to 1, not 0",
            "probability: must be a probability above 0, up to 1, not 1.5",
            "weight: must be a number above 0, not -1",
            "probability: is missing: other records give their probability of being drawn",
            "weight: and probability say the same in two ways",
        ),
        1,
    ):
        assert part in sentences[line - 1]
        assert f":{line}:" in sentences[line - 1]


def row(number: int, text: str = "fine", **values: Any) -> RowResult:
    """Return a row with an answer."""
    status = values.pop("status", AgentStatus.SUCCESS)
    return RowResult(
        f"c{number}", number, 1, "", status, None, (), 1.0, "", input=f"q{number}", references=("right",),
        response=AgentResponse(status=status, text=text), **values,
    )  # fmt: skip


async def drawn(rows: list[RowResult], count: int, seed: int = 0) -> Drawn:
    """Return a sample of rows."""

    async def listed() -> AsyncIterator[RowResult]:
        for each in rows:
            yield each

    return await draw(listed(), count, seed)


async def test_answers_are_drawn_at_random_with_a_seed() -> None:
    """A seed draws the same answers in order and with equal chances; rows without an answer never."""
    rows = [row(number, status=AgentStatus.ERROR if number == 3 else AgentStatus.SUCCESS) for number in range(21)]
    first, again, other = [await drawn(rows, 5, seed) for seed in (1, 1, 2)]
    assert (first.rows, first.total, first.left_out) == (again.rows, 20, 1)
    assert first.rows != other.rows
    assert [each.case_index for each in first.rows] == sorted(each.case_index for each in first.rows)
    assert {record["probability"] for record in first.records()} == {0.25}
    often: Counter[str] = Counter()
    for seed in range(400):
        often.update(each.case_id for each in (await drawn(rows, 5, seed)).rows)
    assert len(often) == 20
    assert all(70 <= count <= 130 for count in often.values())  # 100 expected, standard deviation 8.7
    assert len((await drawn(rows, 100)).rows) == 20


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
async def test_a_sample_is_read_as_labels_once_people_filled_it_in(tmp_path: Path, name: str) -> None:
    """Its answers are those of the run, though a spreadsheet would take one for a formula."""
    texts = ["=1+1", "two\nlines", "- a list", "-5"]
    sampled = await drawn([row(number, text) for number, text in enumerate(texts)], 9)
    path = tmp_path / name
    _write(path, sampled)
    with pytest.raises(DatasetError, match="a person's label"):
        read_items(path)
    text = path.read_text()
    assert ("'=1+1" in text) is (name == "labels.csv")
    path.write_text(text.replace("right,,1.0", "right,4,1.0").replace('"human": null', '"human": 4'))
    labels = read_items(path)
    assert [item.answer for item in labels.items] == texts
    assert (labels.items[0].question, labels.items[0].reference, labels.items[0].people) == ("q0", "right", (4.0,))
    assert labels.drawing(None) == Drawing(RANDOM)
