"""Trust in a judge, as a word and a sentence, from its agreement with people.

The measure is Krippendorff's alpha of judge and people: interval for scores, nominal for labels and pairs.

    trusted     alpha is at least 0.8, and the lower end of its 95 % interval at least 0.67
    tentative   alpha is at least 0.667
    untrusted   alpha is less, or the judge separates what people pass from what they fail no better than chance
    unknown     alpha or its interval cannot be computed

Fewer than 50 items, more than 5 % invalid verdicts, a position bias, or a kappa below 0.667 of passes and fails make it
tentative at best: even if scores agree well, the threshold may divide them at another point than people do.

Source of 0.8 and 0.667: K. Krippendorff, "Content Analysis", 2004, chapter 11. The other bounds are Assay's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.thresholds import exceeds, meets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.statistics.figure import Figure

TRUSTED_ALPHA = 0.8
TENTATIVE_ALPHA = 0.667
LEAST_ALPHA = 0.67
LEAST_ITEMS = 50
MOST_INVALID = 0.05

_WORDS = {
    "trusted": "May stand in for people on material like this",
    "tentative": "Good for tentative conclusions only: look at rows by hand before a decision rests on it",
    "untrusted": "Do not let it decide: it does not judge as people do",
    "unknown": "Cannot be said how far it may be trusted",
}
_WHY_UNKNOWN = {
    "one_label_only": "all labels and verdicts are the same, so that agreement and chance look alike: "
    "add items that people judge differently",
    "nothing_to_compare": "no item has both a label and a valid verdict",
}
_NO_INTERVAL = (
    "the items are too few or too much alike for an interval of alpha: add items that people judge differently"
)


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust in a judge.

    Args:
        level: "trusted", "tentative", "untrusted" or "unknown".
        sentence: The sentence for people.
        warnings: Further sentences.
    """

    level: str
    sentence: str
    warnings: tuple[str, ...] = ()


def judge_trust(figures: Mapping[str, Figure], measure: str) -> Trust:
    """Return the trust in a judge.

    Args:
        figures: All figures of a calibration, by name.
        measure: The name of the alpha that decides.
    """
    alpha = figures[measure]
    guesses = _guesses(figures)
    if alpha.value is None or alpha.interval is None:
        why = _NO_INTERVAL if alpha.value is not None else _WHY_UNKNOWN.get(alpha.reason, alpha.reason)
        return Trust("unknown", f"{_WORDS['unknown']}: {why}.", (*guesses, *_warnings(figures)))
    limits = list(_limits(figures, alpha.n))
    low, high = alpha.interval
    if guesses or not meets(alpha.value, TENTATIVE_ALPHA):
        level = "untrusted"
    elif meets(alpha.value, TRUSTED_ALPHA) and meets(low, LEAST_ALPHA) and not limits:
        level = "trusted"
    else:
        level = "tentative"
    if meets(alpha.value, TRUSTED_ALPHA) and not meets(low, LEAST_ALPHA):
        limits.append(f"Alpha may be as low as {low:.2f}, and {LEAST_ALPHA:g} is required: label more items.")
    agreement = f"alpha {alpha.value:.2f} [{low:.2f}, {high:.2f}] with people on {alpha.n} items"
    return Trust(level, f"{_WORDS[level]} ({agreement}).", (*guesses, *limits, *_warnings(figures)))


def _limits(figures: Mapping[str, Figure], n: int) -> list[str]:
    """Return the sentences on what makes a judge tentative at best."""
    limits = []
    if n < LEAST_ITEMS:
        limits.append(f"Only {n} items have both a label and a verdict: label at least {LEAST_ITEMS}, better 100.")
    invalid = figures["invalid_rate"].value
    if invalid is not None and exceeds(invalid, MOST_INVALID):
        limits.append(f"{invalid:.1%} of its verdicts are missing or invalid: read their reasons.")
    passes = figures.get("pass_kappa")
    if passes is not None and passes.value is not None and not meets(passes.value, TENTATIVE_ALPHA):
        limits.append(
            f"At this threshold its passes and fails agree with people's only to kappa {passes.value:.2f}: "
            "do not gate on its pass rate; another threshold may divide as people do."
        )
    place = figures.get("first_position_rate")
    if place is not None and place.interval is not None and not place.interval[0] <= 0.5 <= place.interval[1]:
        low, high = place.interval
        limits.append(
            f"It chose the answer shown first in {place.value:.0%} [{low:.0%}, {high:.0%}] of its decided verdicts: "
            "the place decides. Never use it in one order only."
        )
    return limits


def _guesses(figures: Mapping[str, Figure]) -> tuple[str, ...]:
    rates = [figures[name].value for name in ("sensitivity", "specificity") if name in figures]
    known = [rate for rate in rates if rate is not None]
    if len(known) == 2 and sum(known) <= 1 + 1e-12:
        return ("It passes what people fail as often as what they pass: no better than chance.",)
    return ()


def _warnings(figures: Mapping[str, Figure]) -> list[str]:
    people = figures.get("alpha_people")
    if people is not None and people.value is not None and not meets(people.value, TENTATIVE_ALPHA):
        return [f"People agree with each other only to alpha {people.value:.2f}: no judge can be held to such labels."]
    return []
