"""None"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.testing.hostile_verdicts import FAMILIES
from assay.testing.injections import INJECTIONS, obey
from assay.text.inline_thoughts import split_thoughts
from assay_judge.model import Material
from assay_judge.verdicts.parser import InvalidVerdictError, read_verdict, verdict_schema
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.rubric_registry import BUILT_IN

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric


ID = "0123456789abcdef0123456789abcdef"
QUALITY: dict[str, Any] = {"verdict_id": ID, "reasoning": "It is right.", "score": 4}
ANSWER: dict[str, Any] = {
    "verdict_id": ID, "reasoning": "Two facts are missing.",
    "accuracy": 0.9, "completeness": 0.8, "relevance": 0.9, "overall_score": 0.85,
}  # fmt: skip
TEXT = json.dumps(QUALITY)
PAIR: dict[str, Any] = {"verdict_id": ID, "reasoning": "The first is right.", "winner": "first"}


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        (json.dumps(QUALITY), {"score": 4.0}),
        (json.dumps({**QUALITY, "score": 4.0}), {"score": 4.0}),
        ("\n  " + json.dumps(QUALITY, indent=2) + "\r\n", {"score": 4.0}),
        (json.dumps(dict(reversed(QUALITY.items()))), {"score": 4.0}),
        (json.dumps({**QUALITY, "reasoning": "{\"score\": 1} </think> ``` \U0001f642"}), {"score": 4.0}),
        (json.dumps({**QUALITY, "confidence": 0.9, "pass": True, "": None}), {"score": 4.0}),
        (json.dumps({"summary": "Right.", **QUALITY, "notes": ["a", {"score": 1}], "more": "x"}), {"score": 4.0}),
        (f"```json\n{TEXT}\n```", {"score": 4.0}),
        (f"\n```\r\n  {json.dumps(QUALITY, indent=2)}\r\n```\n", {"score": 4.0}),
        (f"```JSON \n\n{TEXT}\n\n  ```", {"score": 4.0}),
        (f"<think>I see {{\"score\": 1}} and ```.</think>\n\n{TEXT}", {"score": 4.0}),
        (f"<think>\n\n</think>```json\n{TEXT}\n```", {"score": 4.0}),
        (f"<think>A draft: {TEXT}</think>{TEXT}", {"score": 4.0}),
        (f"It is right.</think>{TEXT}", {"score": 4.0}),
        (f"It is right.\n</think>\n```json\n{TEXT}\n```", {"score": 4.0}),
        (f"<thinking>Right.</thinking>\n{TEXT}", {"score": 4.0}),
        (f"[THINK]Right.[/THINK]{TEXT}", {"score": 4.0}),
        (f"<|channel|>analysis<|message|>Right.<|end|><|start|>assistant<|channel|>final<|message|>{TEXT}",
         {"score": 4.0}),
        (f"````json\n{TEXT}\n````", {"score": 4.0}),
        (f"~~~\n{TEXT}\n~~~", {"score": 4.0}),
        (f"```json5\n{TEXT}\n```", {"score": 4.0}),
        (f"<|begin_of_box|>{TEXT}<|end_of_box|>", {"score": 4.0}),
        (f"\ufeff{TEXT}", {"score": 4.0}),
        (TEXT.replace(QUALITY["reasoning"], "One.\n\tTwo."), {"score": 4.0}),
    ],
)  # fmt: skip
def test_one_valid_object_is_a_verdict(reply: str, scores: dict[str, float]) -> None:
    """Spaces around it, keys that were not asked for, their order and what its reasons quote do not matter.

    It may stand in one whole code fence, and after one thinking block.
    """
    assert read_verdict(reply, BUILT_IN["quality"], ID).scores == scores


def test_an_overall_score_may_be_left_to_be_derived() -> None:
    """A null or missing overall score is no score of the judge's, and none is derived here."""
    parts = {"accuracy": 0.9, "completeness": 0.8, "relevance": 0.9}
    without = {key: value for key, value in ANSWER.items() if key != "overall_score"}
    for given_ in (without, {**ANSWER, "overall_score": None}):
        assert read_verdict(json.dumps(given_), BUILT_IN["answer"], ID).scores == parts
    with pytest.raises(InvalidVerdictError):
        read_verdict(json.dumps({**ANSWER, "overall_score": 1.2}), BUILT_IN["answer"], ID)


@pytest.mark.parametrize("rubric", ["quality", "answer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_member_of_a_hostile_family_becomes_a_score(family: str, rubric: str) -> None:
    """A thousand mutations over each rubric's families are all refused; none is read as any score."""
    verdict = QUALITY if rubric == "quality" else ANSWER
    for seed in range(60):
        reply = FAMILIES[family](random.Random(seed), dict(verdict))
        with pytest.raises(InvalidVerdictError):
            read_verdict(reply, BUILT_IN[rubric], ID)


@pytest.mark.parametrize("rubric", BUILT_IN.values(), ids=lambda rubric: rubric.name)
def test_nothing_that_an_obedient_judge_says_is_a_verdict(rubric: Rubric) -> None:
    """Ten replies of an obedient judge to each of 240 injections, with the right id, give no verdict."""
    for answer in INJECTIONS:
        prompt = build_prompt(rubric, Material("Capital of France?", answer))
        for reply in obey(prompt.call, prompt.user):
            with pytest.raises(InvalidVerdictError):
                read_verdict(reply, rubric, prompt.verdict_id)


def test_there_are_at_least_seventy_families() -> None:
    """The corpus does not shrink."""
    assert len(FAMILIES) >= 70


@pytest.mark.parametrize("winner", ["A", "", None, 1, True, ["first"], "First", "first ", {"first": 1}])
def test_a_winner_is_one_of_three_words(winner: object) -> None:
    """Anything else is no verdict."""
    for reply in (json.dumps(PAIR), f"<think>…</think>\n```json\n{json.dumps({**PAIR, 'pass': 1})}\n```"):
        assert read_verdict(reply, BUILT_IN["pairwise"], ID).winner == "first"
    with pytest.raises(InvalidVerdictError):
        read_verdict(json.dumps({**PAIR, "winner": winner}), BUILT_IN["pairwise"], ID)


@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from(list('{}[]",:0123456789.eE-+ \n\\trufalsn')))
def test_what_survives_a_change_of_a_character_is_what_it_says(at: int, length: int, character: str) -> None:
    """A changed reply is refused, or is one strict object with the returned scores."""
    reply = json.dumps(ANSWER)
    at %= len(reply)
    changed = reply[:at] + character + reply[at + length :]
    try:
        verdict = read_verdict(changed, BUILT_IN["answer"], ID)
    except InvalidVerdictError:
        return
    data = json.loads(changed, strict=False)  # texts of models have line breaks in them
    assert data["verdict_id"] == ID
    for name, score in verdict.scores.items():
        assert data[name] == score
        assert 0 <= score <= 1


def test_reasons_can_be_stored_and_are_cut() -> None:
    """Lone surrogates, which no wire takes, are replaced; very long reasons end with a mark."""
    reply = json.dumps({**QUALITY, "reasoning": "x" * 30_000}).replace("xxx", "\\ud800", 1)
    reasoning = read_verdict(reply, BUILT_IN["quality"], ID).reasoning
    reasoning.encode()
    assert len(reasoning) == 20_000
    assert reasoning.endswith("[…]")


def test_messages_quote_nothing_of_the_reply() -> None:
    """Messages, which go back to the judge, quote nothing of a reply, because it may hold orders."""
    with pytest.raises(InvalidVerdictError) as caught:
        read_verdict(json.dumps({**QUALITY, "obey me": 1, "score": "obey"}), BUILT_IN["quality"], ID)
    assert "obey" not in str(caught.value)


def test_the_schema_asks_for_reasons_first_and_names_no_id() -> None:
    """A schema that held the id would let constrained decoding fill it in for any reply."""
    schema = verdict_schema(BUILT_IN["answer"])
    assert list(schema["properties"])[:2] == ["verdict_id", "reasoning"]
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "enum" not in schema["properties"]["verdict_id"]
    assert "const" not in schema["properties"]["verdict_id"]


VERDICTS: dict[str, dict[str, Any]] = {
    "quality": {"verdict_id": ID, "reasoning": "It is right.", "score": 4},
    "answer": {"verdict_id": ID, "reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.7,
               "overall_score": 0.85},
}  # fmt: skip
pieces = st.one_of(st.sampled_from(list('{}[]",:0123456789.eE-+ \n\\')), st.text(max_size=3))
changes = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 4), pieces), max_size=3)


def changed(text: str, edits: list[tuple[int, int, str]]) -> str:
    for at, length, piece in edits:
        at %= len(text) + 1
        text = text[:at] + piece + text[at + length :]
    return text


@given(st.sampled_from(list(FAMILIES)), st.sampled_from(list(VERDICTS)), st.integers(0, 2**32), changes)
def test_a_changed_member_is_refused_or_is_what_it_says(
    family: str, rubric: str, seed: int, edits: list[tuple[int, int, str]]
) -> None:
    """A changed reply may be valid by chance; its scores are then exactly those in it."""
    reply = changed(FAMILIES[family](random.Random(seed), dict(VERDICTS[rubric])), edits)
    try:
        verdict = read_verdict(reply, BUILT_IN[rubric], ID)
    except InvalidVerdictError:
        return
    reply = split_thoughts(reply)[1]
    pairs: list[tuple[str, Any]] = json.loads(reply[reply.index("{") : reply.rindex("}") + 1], object_pairs_hook=list)
    data = dict(pairs)
    assert len(data) == len(pairs)
    assert data.pop("verdict_id") == ID
    asked = BUILT_IN[rubric]
    for name, score in verdict.scores.items():
        assert type(data[name]) in (int, float)
        assert data[name] == score
        assert asked.minimum <= score <= asked.maximum
