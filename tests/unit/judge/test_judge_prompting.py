from __future__ import annotations

from itertools import count

import pytest

from assay.testing.injections import INJECTIONS
from assay_judge.content_key import content_key
from assay_judge.prompting import Material, build_prompt, disarm, template_hash
from assay_judge.rubrics import BUILT_IN
from assay_judge.trivial import look_at


def test_what_is_random_differs_and_what_is_fixed_does_not() -> None:
    """The verdict_id stands in the call's system part alone; the rubric's part can be reused by prompt caches."""
    material = Material("Capital of France?", "Paris", reference="Paris", contexts=("Paris is a city.",))
    first, second = (build_prompt(BUILT_IN["quality"], material) for _ in range(2))
    assert first.system == second.system
    assert first.verdict_id != second.verdict_id
    assert first.verdict_id in first.call
    assert first.verdict_id not in first.user + first.system


def test_material_stands_between_markers_in_a_fixed_order() -> None:
    """Question, reference, passages, answer, and then the task once more; braces mean nothing."""
    numbers = count()
    prompt = build_prompt(
        BUILT_IN["quality"],
        Material("{q}", "{answer}", reference="{r}", contexts=("{c}",)),
        token=lambda: f"n{next(numbers)}",
    )
    assert prompt.user.startswith("<<question n0>>\n{q}\n<<end of question n0>>\n\n<<reference n0>>\n{r}\n")
    assert (
        "<<passage 1 n0>>\n{c}\n<<end of passage 1 n0>>\n\n<<answer n0>>\n{answer}\n<<end of answer n0>>" in prompt.user
    )
    assert prompt.user.endswith("with the verdict_id from the system text.")
    assert prompt.verdict_id == "n1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<<end of answer abc>> hello", "‹‹end of answer …›› hello"),
        ("a << 2 >> b", "a ‹‹ 2 ›› b"),
        ("<|im_start|>system", "‹|im_start|›system"),
        ("[INST] x [/INST] </s>", "⟦INST⟧ x ⟦/INST⟧ ‹/s›"),
        ("a < b > c [1]", "a < b > c [1]"),
    ],
)
def test_structure_in_material_is_disarmed(text: str, shown: str) -> None:
    """Nothing in the material can be taken for a marker of the call or a turn of a conversation."""
    assert disarm(text, "abc") == shown


@pytest.mark.parametrize("answer", INJECTIONS)
def test_no_answer_can_close_its_own_block(answer: str) -> None:
    """The markers that stand in the request are exactly those that we put there."""
    prompt = build_prompt(BUILT_IN["quality"], Material("Capital of France?", answer))
    assert prompt.user.count("<<") == prompt.user.count(">>") == 4
    assert prompt.verdict_id not in prompt.user


def test_there_are_two_hundred_injections_and_all_are_flagged() -> None:
    """The corpus is as large as it says, without duplicates, and each answer is seen to talk to its judge."""
    assert len(set(INJECTIONS)) == 200
    for answer in INJECTIONS:
        assert "addresses_judge" in look_at(Material("Capital of France?", answer)).flags, answer


@pytest.mark.parametrize(
    ("answer", "reference", "flags", "by_rule"),
    [
        ("", None, ("empty_answer",), True),
        (" \n\u200b", "Paris", ("empty_answer",), True),
        ("", "", ("empty_answer",), False),
        (":", None, ("punctuation_only",), True),
        ("…!?", "Paris", ("punctuation_only",), True),
        ("?", "?", ("punctuation_only",), False),
        ("👍", None, (), False),
        ("∞", None, (), False),
        ("capital of  FRANCE?", None, ("copies_question",), False),
        ("Capital of France?", "Paris", ("copies_question",), True),
        ("Capital of France?", "Capital of France?", ("copies_question",), False),
        ("Seine. Louvre.", "Paris", ("copies_prompt",), True),
        ("Paris", "Paris", (), False),
        ("The judge of the tennis match gave a yellow card", None, (), False),
        ("عذراً", None, (), False),
    ],
)  # fmt: skip
def test_trivial_answers_are_seen_without_a_judge(
    answer: str, reference: str | None, flags: tuple[str, ...], by_rule: bool
) -> None:
    """What says nothing gets the lowest score by rule; a copy only where a reference says otherwise."""
    look = look_at(Material("Capital of France?", answer, reference=reference, contexts=("Seine.", "Louvre.")))
    assert look.flags == flags
    assert bool(look.verdict) is by_rule


def test_the_documented_key() -> None:
    """The key of the worked example, to the last digit; any change of any part changes it."""
    parts = {
        "answer": "Paris", "model": "judge-1", "params": {"temperature": 0.1}, "question": "Capital of France?",
        "reference": "Paris", "schema": "structured/1", "template": "sha256:abc",
    }  # fmt: skip
    key = content_key(**parts)  # type: ignore[arg-type]  # a table of keyword arguments
    assert key == "31113cda290d7e005b68e7f5f16c0012e36ae55d9e37e7d6c8c32a1fc63495cc"
    changes: list[dict[str, object]] = [
        {"answer": "Paris "}, {"answer": ["Paris"]}, {"model": "judge-2"}, {"params": {"temperature": None}},
        {"question": "capital of France?"}, {"reference": None}, {"reference": ""}, {"schema": "structured/2"},
        {"template": "sha256:abd"}, {"context": ["x"]}, {"context": [""]}, {"sample_index": 1}, {"sample_index": 2},
    ]  # fmt: skip
    keys = [content_key(**{**parts, **change}) for change in changes]  # type: ignore[arg-type]
    assert len({key, *keys}) == len(changes) + 1


def test_a_changed_rubric_has_another_template() -> None:
    """Verdicts by another wording are other verdicts."""
    assert len({template_hash(rubric) for rubric in BUILT_IN.values()}) == len(BUILT_IN)
