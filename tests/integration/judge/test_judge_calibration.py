"""Calibration and drift over the real wire, against a scripted provider that judges by the answer it is shown."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError
from assay.statistics.corrected_rate import JUDGE_VERDICT, UNKNOWN, Drawing
from assay.testing.judges import says, user_of
from assay.testing.providers import ProviderRequest, Reply
from assay_cli.commands.judge.access import JudgeAccess, JudgeName, open_judge
from assay_cli.commands.judge.baseline import baseline_of
from assay_cli.commands.judge.calls import JudgeClient
from assay_cli.commands.judge.drift import BUILT_IN_ANCHORS
from assay_cli.commands.judge.labels import Labels, read_items
from assay_cli.commands.judge.outcome import CalibrationRequest, Outcome, calibrated
from assay_cli.commands.judge.rubrics import AskedRubric, known_rubric, listed_rubric
from assay_judge.verdicts.rubric_registry import BUILT_IN
from assay_judge.wire import rubric_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORKED = list(zip([5, 4, 4, 3, 2, 5, 1, 3], [5, 5, 4, 3, 3, 4, 1, 2], strict=True))


def shown(request: ProviderRequest, part: str = "answer") -> str:
    """Return a part of the material that a judge is shown."""
    found = re.search(rf"<<{part} (\w+)>>\n(.*?)\n<<end of {part} \1>>", user_of(request), re.DOTALL)
    assert found is not None
    return found[2]


def by_answer(request: ProviderRequest) -> Reply:
    """Give the score that stands at the end of the answer."""
    return says({"reasoning": "As it says.", "score": int(shown(request).rsplit(" ", 1)[1])})(request)


def by_place(request: ProviderRequest) -> Reply:
    """Prefer whatever is shown first."""
    return says({"reasoning": "The first.", "winner": "first"})(request)


def by_length(request: ProviderRequest) -> Reply:
    """Prefer the longer answer, wherever it is shown."""
    first, second = (len(shown(request, f"{place} answer")) for place in ("first", "second"))
    return says({"reasoning": "Longer.", "winner": "first" if first > second else "second"})(request)


def labelled(tmp_path: Path, records: list[dict[str, Any]]) -> Labels:
    """Return the labels of a file with these records."""
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return read_items(path)


def worked(tmp_path: Path) -> Labels:
    """Return eight items on which judge and people are known."""
    return labelled(tmp_path, [{"question": f"q{n}", "answer": f"answer {n}: {said}", "human": right}
                               for n, (said, right) in enumerate(WORKED)])  # fmt: skip


def pairs(tmp_path: Path) -> Labels:
    """Return sixty pairs of which people prefer the longer one."""
    return labelled(tmp_path, [{"question": f"q{n}", "answer_a": "long enough", "answer_b": "no", "human": "a"} if n % 2
                               else {"question": f"q{n}", "answer_a": "no", "answer_b": "long enough", "human": "b"}
                               for n in range(60)])  # fmt: skip


async def outcome(tmp_path: Path, labels: Labels, *names: JudgeName, **asked: Any) -> Outcome:
    """Return a calibration through the first service of a test."""
    access = JudgeAccess(f"unix:{tmp_path}/0.sock", names)
    options = {"rubric": None, "criterion": None, "threshold": None, "observed": None, **asked}
    return await calibrated(access, CalibrationRequest(labels, **options))


async def test_the_worked_scores_through_the_wire(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Verdicts become the known figures; the cost is told, and a second time nothing is paid."""
    judge = await start(by_answer)
    found = await outcome(tmp_path, worked(tmp_path))
    values = {name: figure.value for name, figure in found.single[0].figures.items()}
    assert values["kappa"] == pytest.approx(0.36, abs=1e-6)
    assert values["quadratic_kappa"] == pytest.approx(0.855856, abs=1e-6)
    assert values["alpha_interval"] == pytest.approx(0.864865, abs=1e-6)
    assert found.bill.cost_usd == pytest.approx(8 * 0.00195)
    assert len(judge.provider.requests) == 8
    again = await outcome(tmp_path, worked(tmp_path), observed=(160, 200))
    assert len(judge.provider.requests) == 8
    assert (again.bill.cached, again.bill.cost_usd) == (8, 0.0)
    assert again.corrected is not None
    assert again.corrected.reason == "too_few_of_a_kind"  # four passed and four failed
    document = json.loads(json.dumps(again.document(), allow_nan=False))
    assert document["judges"][0]["calibration"]["trust"]["level"] == "tentative"
    assert len(document["judges"][0]["fingerprints"]) == 1
    text = again.text()
    assert "TENTATIVE" in text
    assert "$0.0000  (8 verdicts, 0 calls, 0 tokens, 8 cached)" in text


async def test_a_rate_is_corrected_only_where_the_drawing_is_known(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Else the sentence says what to do; and labels that hardly come from these rows are doubted."""
    await start(by_answer)
    unknown = await outcome(tmp_path, halves(tmp_path), observed=(160, 200), drawing=Drawing(UNKNOWN))
    assert "as people would -  withheld: it is not known how the labelled answers were drawn" in unknown.text()
    assert unknown.document()["corrected_pass_rate"]["reason"] == "drawing_unknown"
    chosen = await outcome(tmp_path, halves(tmp_path), observed=(160, 200), drawing=Drawing(JUDGE_VERDICT))
    assert "add a column probability" in chosen.document()["corrected_pass_rate"]["message"]
    right = await outcome(tmp_path, halves(tmp_path), observed=(120, 200))
    assert right.corrected is not None
    assert right.corrected.value == pytest.approx(0.6)  # it passes and fails exactly what people do
    assert "by this calibration: alpha 1.00 [" in right.text()
    assert "warning" not in right.text()
    doubted = await outcome(tmp_path, halves(tmp_path), observed=(190, 200))
    assert "warning: the judge passes 50% of the labelled answers and 95% of the rows" in doubted.text()


def halves(tmp_path: Path) -> Labels:
    """Return forty items, half of which pass."""
    return labelled(tmp_path, [{"question": f"q{n}", "answer": f"answer {n}: {score}", "human": score}
                               for n, score in enumerate([1, 2, 4, 5] * 10)])  # fmt: skip


async def test_invalid_verdicts_are_counted_with_their_reason(tmp_path: Path, start: Callable[..., Any]) -> None:
    """What is no verdict is left out of every figure, never a 0."""
    await start(lambda request: Reply("no verdict") if "q3" in user_of(request) else by_answer(request))
    found = await outcome(tmp_path, worked(tmp_path))
    assert found.bill.failed == {"invalid_verdict": 1}
    assert found.bill.unavailable == 0
    assert (found.single[0].n, found.single[0].figures["invalid_rate"].value) == (7, 1 / 8)


async def test_a_judge_that_goes_by_the_place_is_found(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Pairs are asked in both orders: every pair flips, nobody wins, and the report warns."""
    judge = await start(by_place)
    found = await outcome(tmp_path, pairs(tmp_path))
    figures = found.single[0].figures
    assert len(judge.provider.requests) == 120
    assert (figures["flip_rate"].value, figures["first_position_rate"].value) == (1.0, 1.0)
    assert found.single[0].trust.level == "untrusted"
    assert "the place decides" in found.text()


async def test_a_judge_that_chooses_as_people_do_is_trusted(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Same choice in both orders, and people's."""
    await start(by_length)
    found = await outcome(tmp_path, pairs(tmp_path))
    assert found.single[0].trust.level == "trusted"
    assert found.single[0].figures["flip_rate"].value == 0.0


async def test_a_jury_of_two_judges(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Each judge has figures of its own, the jury those of the mean; where one is missing there is no jury."""

    def two(request: ProviderRequest) -> Reply:
        if request.body["model"] == "kind":
            return says({"reasoning": "Nice.", "score": 5})(request)
        return Reply("?") if "q0" in user_of(request) else by_answer(request)

    judge = await start(two)
    names = [JudgeName("openai", model, judge.provider.openai_url) for model in ("fair", "kind")]
    found = await outcome(tmp_path, worked(tmp_path), *names)
    assert [each.name.split("@")[0] for each in found.judged] == ["openai:fair", "openai:kind"]
    assert found.mean(1) == 5.0
    assert found.jury is not None
    assert found.jury.n == 7
    assert found.jury.figures["mean_difference"].value == pytest.approx(
        sum((said + 5) / 2 - right for said, right in WORKED[1:]) / 7
    )
    assert found.jury_alpha is not None
    assert found.jury_alpha.value is not None
    assert found.jury_alpha.value < 0.2
    assert "jury  2 judges" in found.text()


async def test_a_jury_of_pairs_decides_by_majority(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Two of three outvote the one that goes by the place."""
    judge = await start(lambda request: (by_place if request.body["model"] == "place" else by_length)(request))
    names = [JudgeName("openai", model, judge.provider.openai_url) for model in ("one", "other", "place")]
    found = await outcome(tmp_path, pairs(tmp_path), *names)
    assert [each.trust.level for each in found.single] == ["trusted", "trusted", "untrusted"]
    assert found.decisive.trust.level == "trusted"


async def test_what_does_not_fit_is_said_before_anyone_is_asked(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Scores off the scale with their lines, an unknown criterion, a rubric of the other kind."""
    judge = await start(by_answer)
    labels = labelled(tmp_path, [{"question": "q", "answer": "a", "human": 7}, {"question": "q", "answer": "a",
                                                                             "human": 0}])  # fmt: skip
    with pytest.raises(InvalidInputError) as caught:
        await outcome(tmp_path, labels, criterion="scor")
    said = [str(problem) for problem in caught.value.problems]
    assert "labels.jsonl:1: human: 7 is not on the scale of 'quality', 1 to 5" in said[0]
    assert "write pass and fail" in said[1]
    assert "did you mean 'score'?" in said[2]
    with pytest.raises(InvalidInputError, match="scores one answer"):
        await outcome(tmp_path, pairs(tmp_path), rubric="quality")
    with pytest.raises(InvalidInputError, match="unknown rubric 'nice'"):
        await outcome(tmp_path, worked(tmp_path), rubric="nice")
    assert judge.provider.requests == []


async def test_a_rubric_of_ones_own_needs_a_threshold_for_passes(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Where no metric says lowest passing score an answer passes the user does, on the rubric's scale."""
    (tmp_path / "tone.yaml").write_text(
        "name: tone\ndescription: Whether it is friendly.\nscale: {minimum: 0, maximum: 10, whole: true}\n"
        "criteria: [{name: warmth, description: Whether it is warm.}, {name: respect, description: Whether it is.}]\n"
    )
    labels = labelled(tmp_path, [{"question": f"q{n}", "answer": f"a {n}", "human": n > 4} for n in range(10)])

    def warmly(request: ProviderRequest) -> Reply:
        return says({"reasoning": "Hm.", "warmth": int(shown(request)[2:]), "respect": 10})(request)

    await start(warmly)
    with pytest.raises(InvalidInputError, match="lowest passing score"):
        await outcome(tmp_path, labels, rubric=str(tmp_path / "tone.yaml"))
    with pytest.raises(InvalidInputError, match="from 0 to 10"):
        await outcome(tmp_path, labels, rubric=str(tmp_path / "tone.yaml"), threshold=11)
    found = await outcome(tmp_path, labels, rubric=str(tmp_path / "tone.yaml"), threshold=5, criterion="warmth")
    assert found.single[0].figures["kappa"].value == 1.0
    mean = await outcome(tmp_path, labels, rubric=str(tmp_path / "tone.yaml"), threshold=5)
    assert mean.single[0].figures["specificity"].value == 0.0  # the mean with 10 is never below 5


async def test_the_judge_of_a_run_can_be_calibrated(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Temperature and max_tokens enter the fingerprint; they are asked of the service's own judge and of another."""
    judge = await start(says({"reasoning": "Hm.", "score": 4}), cache=False)
    labels = labelled(tmp_path, [{"question": "q", "answer": f"a{n}", "human": 4} for n in range(3)])
    for name in ([], [JudgeName("openai", "judge-1", judge.provider.openai_url, "JUDGE_KEY")]):
        access = JudgeAccess(f"unix:{tmp_path}/0.sock", tuple(name), temperature=0.0, max_tokens=777)
        await calibrated(access, CalibrationRequest(labels, None, None, None, None))
    sent = [(one.body["temperature"], one.body["max_tokens"]) for one in judge.provider.requests]
    assert sent == [(0, 777)] * 6


async def test_a_spend_cap_ends_what_it_would_pass(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Verdicts that the cap leaves no money for are missing with that reason."""
    judge = await start(by_answer)
    access = JudgeAccess(f"unix:{tmp_path}/0.sock", spend_cap_nano_usd=0)
    found = await calibrated(access, CalibrationRequest(worked(tmp_path), None, None, None, None))
    assert found.bill.failed == {"spend_cap_reached": 8}
    assert found.single[0].trust.level == "unknown"
    assert judge.provider.requests == []


async def test_drift_asks_past_the_cache(tmp_path: Path, start: Callable[..., Any]) -> None:
    """The same anchors are judged anew: a provider that has changed under an old name shows."""
    bias = [0]

    def human(request: ProviderRequest) -> Reply:
        right = next(score for answer, score in answers.items() if answer == shown(request))
        return says({"reasoning": "So.", "score": max(1, right + bias[0])})(request)

    anchors = read_items(BUILT_IN_ANCHORS, labelled=False)
    answers = {item.answer: int(item.people[0]) for item in read_items(BUILT_IN_ANCHORS).items}
    judge = await start(human)
    rubric = known_rubric("quality")
    assert rubric is not None
    async with open_judge(access := JudgeAccess(f"unix:{tmp_path}/0.sock")) as stub:
        client = JudgeClient(stub, access)
        old = baseline_of(await client.judge_all(anchors.items, rubric, None, 1), anchors, rubric, None)
        bias[0] = -1
        new = baseline_of(await client.judge_all(anchors.items, rubric, None, 2), anchors, rubric, None)
    assert len(judge.provider.requests) == 2 * len(anchors.items)
    assert (old.anchors, old.fingerprints) == (new.anchors, new.fingerprints)
    assert old.scores == {item.name: answers[item.answer] for item in anchors.items}
    assert any(score != old.scores[name] for name, score in new.scores.items())


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_clients_know_the_built_in_rubrics_as_they_are(name: str) -> None:
    """What a command knows without asking is what the service lists."""
    listed: AskedRubric = listed_rubric(name, [rubric_message(BUILT_IN[name])])
    known = known_rubric(name)
    assert known is not None
    if listed.compares:
        assert (known.compares, known.criteria) == (True, listed.criteria)
    else:
        assert known == listed
