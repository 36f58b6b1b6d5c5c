"""A judge held against people's labels, and what is made of it."""

from __future__ import annotations

import json
import random

import pytest

from assay.statistics.calibration import (
    Calibration,
    Passing,
    calibrate_labels,
    calibrate_pairs,
    calibrate_scores,
    judges_alpha,
    majority,
)
from assay.statistics.corrected_rate import (
    DRAWING_UNKNOWN,
    JUDGE_VERDICT,
    LABELS_WITHOUT_WEIGHTS,
    RANDOM,
    UNKNOWN,
    WEIGHTED,
    Drawing,
)
from assay.statistics.figure import ONE_LABEL
from assay.statistics.pairs import PairJudgement

GOOD = Passing(4.0)
FIRST, SECOND = PairJudgement("first", "second"), PairJudgement("second", "first")


def scores(judge: list[float | None], people: list[list[float]]) -> Calibration:
    """Return a calibration on the scale from 1 to 5."""
    return calibrate_scores(judge, people, whole=True, passing=GOOD)


def test_the_worked_scores() -> None:
    """All figures of eight items at once."""
    calibration = scores([5, 4, 4, 3, 2, 5, 1, 3], [[5], [5], [4], [3], [3], [4], [1], [2]])
    values = {name: figure.value for name, figure in calibration.figures.items()}
    expected = {
        "kappa": 0.36, "quadratic_kappa": 0.855856, "spearman": 0.845679, "alpha_nominal": 0.4,
        "alpha_ordinal": 0.855324, "alpha_interval": 0.864865, "accuracy": 0.5, "invalid_rate": 0.0,
        "mean_difference": 0.0, "mean_distance": 0.5, "pass_kappa": 1.0, "sensitivity": 1.0, "specificity": 1.0,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert calibration.confusion["5"] == {"5": 1, "4": 1}
    assert calibration.trust.level == "tentative"
    assert "Only 8 items" in calibration.trust.warnings[0]


def test_the_worked_labels() -> None:
    """Kappa of passes against a threshold."""
    judge: list[float | None] = [5, 5, 5, 1, 1, 5, 1, 5, 5, 1]
    people = [["pass" if each else "fail"] for each in (1, 1, 0, 0, 0, 1, 0, 1, 1, 1)]
    calibration = calibrate_labels(judge, people, passing=GOOD)
    assert calibration.figures["kappa"].value == pytest.approx(0.583333, abs=1e-6)
    assert calibration.figures["sensitivity"].value == pytest.approx(5 / 6)
    assert calibration.figures["specificity"].value == 0.75
    assert calibration.confusion == {"pass": {"pass": 5, "fail": 1}, "fail": {"pass": 1, "fail": 3}}


def test_a_judge_as_good_as_people_is_trusted() -> None:
    """Enough items and near agreement: it may stand in for them, and the interval is told."""
    people: list[float] = [1, 2, 3, 4, 5] * 12
    judge: list[float | None] = [*people]
    for at in range(0, 60, 7):
        judge[at] = people[at] + (1 if people[at] < 5 else -1)
    calibration = scores(judge, [[each] for each in people])
    assert calibration.trust.level == "trusted"
    assert calibration.figures["alpha_interval"].interval is not None
    assert calibration.trust.warnings == ()
    json.dumps(calibration.document(), allow_nan=False)


def test_the_lower_end_of_alpha_decides_about_trust() -> None:
    """Alpha above 0.8 is not enough: not with 49 items, and not where it may as well be 0.6."""
    people: list[float] = [1, 2, 3, 4, 5] * 12
    few = scores([*people[:49]], [[each] for each in people[:49]])
    assert few.trust.level == "tentative"
    assert few.trust.warnings == ("Only 49 items have both a label and a verdict: label at least 50, better 100.",)
    close = [*[5.0] * 52, *[1.0] * 8]
    right = [["pass"]] * 53 + [["fail"]] * 7
    calibration = calibrate_labels(close, right, passing=GOOD)
    alpha = calibration.figures["alpha_nominal"]
    assert alpha.value is not None
    assert alpha.value > 0.9
    assert alpha.interval is not None
    assert alpha.interval[0] < 0.67
    assert calibration.trust.level == "tentative"
    assert "Alpha may be as low as" in calibration.trust.warnings[0]


def test_without_an_interval_trust_is_unknown() -> None:
    """Where hardly a draw has two labels, alpha has a value that says nothing."""
    calibration = calibrate_labels([5.0] * 39 + [1.0], [["pass"]] * 39 + [["fail"]], passing=GOOD)
    assert calibration.figures["alpha_nominal"].value == 1.0
    assert calibration.trust.level == "tentative"
    calibration = calibrate_labels([5.0] * 40, [["pass"]] * 39 + [["fail"]], passing=GOOD)
    assert calibration.figures["alpha_nominal"].value is not None
    assert calibration.figures["alpha_nominal"].interval is None
    assert calibration.trust.level == "unknown"
    assert "too much alike" in calibration.trust.sentence


def test_a_judge_who_guesses_is_not_hidden_by_people_who_agree() -> None:
    """Five people of one mind count as one rater."""
    generator = random.Random(5)
    people = [[float(generator.randint(1, 5))] * 5 for _ in range(60)]
    calibration = scores([float(generator.randint(1, 5)) for _ in people], people)
    assert calibration.figures["alpha_people"].value == 1.0
    assert calibration.trust.level == "untrusted"
    assert "Do not let it decide" in calibration.trust.sentence


def test_good_scores_with_a_threshold_at_the_wrong_place_are_tentative() -> None:
    """A judge that is a little stricter than people keeps their order but fails half of what they pass."""
    people: list[float] = [1, 2, 3, 4, 5] * 12
    calibration = scores([each - 0.6 for each in people], [[each] for each in people])
    assert calibration.figures["alpha_interval"].value == pytest.approx(0.91, abs=0.01)
    assert calibration.figures["sensitivity"].value == 0.5
    assert calibration.trust.level == "tentative"
    assert "do not gate on its pass rate" in calibration.trust.warnings[0]


def test_a_judge_that_passes_everything_is_no_better_than_chance() -> None:
    """Its specificity is 0: sensitivity and specificity add up to 1."""
    people = [["pass"]] * 19 + [["fail"]] * 3
    calibration = calibrate_labels([5.0] * 22, people, passing=GOOD)
    assert calibration.trust.level == "untrusted"
    assert "no better than chance" in calibration.trust.warnings[0]


def test_labels_that_are_all_the_same_tell_nothing() -> None:
    """Not 0 and not 1: unknown, and what to do."""
    calibration = scores([5.0] * 30, [[5.0]] * 30)
    assert (calibration.figures["kappa"].value, calibration.figures["kappa"].reason) == (None, ONE_LABEL)
    assert calibration.trust.level == "unknown"
    assert "add items" in calibration.trust.sentence
    nothing = scores([None], [[5.0]])
    assert nothing.trust.level == "unknown"
    assert nothing.figures["mean_difference"].value is None


def test_invalid_verdicts_are_counted_not_scored() -> None:
    """They leave the figures alone, and more than 5 % of them make a judge tentative."""
    people: list[float] = [1, 2, 3, 4, 5] * 12
    judge: list[float | None] = [*people]
    judge[:4] = [None] * 4
    calibration = scores(judge, [[each] for each in people])
    assert (calibration.n, calibration.n_items) == (56, 60)
    assert calibration.figures["alpha_interval"].value == 1.0
    assert calibration.figures["invalid_rate"].value == pytest.approx(4 / 60)
    assert calibration.trust.level == "tentative"


def test_people_who_disagree_cannot_calibrate_a_judge() -> None:
    """Their own alpha is told, and that it is too low."""
    generator = random.Random(3)
    people = [[float(generator.randint(1, 5)), float(generator.randint(1, 5))] for _ in range(40)]
    calibration = scores([sum(each) / 2 for each in people], people)
    assert any("People agree with each other only" in warning for warning in calibration.trust.warnings)


def test_pairs_with_places() -> None:
    """Flips and the preference for a place; a judge that goes by the place is tentative at best."""
    people = [["a"] if index % 2 else ["b"] for index in range(60)]
    fair = [FIRST if index % 2 else SECOND for index in range(60)]
    calibration = calibrate_pairs(fair, people)
    assert (calibration.figures["flip_rate"].value, calibration.figures["first_position_rate"].value) == (0.0, 0.5)
    assert calibration.trust.level == "trusted"
    biased = [PairJudgement("first", "tie") if index < 30 else each for index, each in enumerate(fair)]
    calibration = calibrate_pairs(biased, [["tie"]] * 30 + people[30:])
    assert calibration.figures["flip_rate"].value == 0.5
    assert calibration.trust.level == "tentative"
    assert "the place decides" in calibration.trust.warnings[0]


def test_a_jury_of_pairs_has_no_places() -> None:
    """Its majority is held against people; a divided one counts as no verdict."""
    calibration = calibrate_pairs([], [["a"], ["b"]], winners=["a", None])
    assert "flip_rate" not in calibration.figures
    assert calibration.figures["invalid_rate"].value == 0.5


def test_scores_without_whole_numbers_have_no_kappa_of_their_own() -> None:
    """On a scale of fractions chance agreement on the very same number means nothing; passes have a kappa."""
    judge: list[float | None] = [0.9, 0.85, 0.2, 0.1]
    calibration = calibrate_scores(
        judge, [[0.95], [0.8], [0.3], [0.0]], whole=False, passing=Passing(0.75, "more_than")
    )
    assert "kappa" not in calibration.figures
    assert calibration.figures["pass_kappa"].value == 1.0
    assert calibration.labels == ("pass", "fail")
    bare = calibrate_scores(judge, [[0.95], [0.8], [0.3], [0.0]], whole=False)
    assert (bare.labels, dict(bare.confusion)) == ((), {})


def test_judges_among_themselves() -> None:
    """Several judges have an alpha; people have a majority."""
    assert judges_alpha([[1, 2, 3], [1, 2, None], [1, 2, 3]], "interval").value == 1.0
    assert majority(["a"]) == "a"
    assert majority(["a", "b"]) is None
    assert majority([]) is None
    assert majority(["a", "b", "b"]) == "b"


def chosen_by_the_judge(drawing: Drawing) -> Calibration:
    """Return a calibration with 50 labels of what the judge passes and 50 of the rest.

    Of 100 rows the judge passes 72 of the 80 that people pass, and 6 of the others.
    """
    right = ["pass"] * 46 + ["fail"] * 4 + ["pass"] * 18 + ["fail"] * 32
    return calibrate_labels([5.0] * 50 + [1.0] * 50, [[each] for each in right], passing=GOOD, drawing=drawing)


def test_labels_drawn_by_the_judges_verdict_need_weights() -> None:
    """Without them there is neither a corrected rate nor an error rate of the judge; as if at random it would be 1."""
    plain = chosen_by_the_judge(Drawing(RANDOM)).corrected(780, 1000)
    assert plain.value == 1.0
    for how, reason in ((JUDGE_VERDICT, LABELS_WITHOUT_WEIGHTS), (UNKNOWN, DRAWING_UNKNOWN)):
        calibration = chosen_by_the_judge(Drawing(how))
        assert (calibration.corrected(780, 1000).value, calibration.corrected(780, 1000).reason) == (None, reason)
    assert chosen_by_the_judge(Drawing(JUDGE_VERDICT)).figures["sensitivity"].value is None
    weighted = chosen_by_the_judge(Drawing(WEIGHTED, (780 / 50,) * 50 + (220 / 50,) * 50))
    assert weighted.corrected(780, 1000).value == pytest.approx(0.78 - 0.78 * 4 / 50 + 0.22 * 18 / 50)
    assert weighted.document()["drawn"] == "weighted"


def test_error_rates_by_weight() -> None:
    """Sensitivity and specificity are those of all rows, not those of the labels."""
    calibration = chosen_by_the_judge(Drawing(WEIGHTED, (780 / 50,) * 50 + (220 / 50,) * 50)).figures
    passed, failed = calibration["sensitivity"], calibration["specificity"]
    assert passed.value == pytest.approx(46 * 15.6 / (46 * 15.6 + 18 * 4.4))
    assert failed.value == pytest.approx(32 * 4.4 / (32 * 4.4 + 4 * 15.6))
    assert (passed.n, failed.n) == (64, 36)
    assert failed.interval is not None
    assert failed.value is not None
    assert failed.interval[0] < failed.value < failed.interval[1]
