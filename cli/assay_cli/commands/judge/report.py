"""A calibration and a drift as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.text.unsafe_text import clean
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.statistics.calibration import Calibration
    from assay.statistics.drift import Drift
    from assay.statistics.figure import Figure

_SHARES = {
    "accuracy", "pass_accuracy", "sensitivity", "specificity", "invalid_rate", "flip_rate", "first_position_rate",
}  # fmt: skip
_MEANINGS = {
    "invalid_rate": "items without a valid verdict",
    "accuracy": "same label as people",
    "kappa": "the same beyond chance (Cohen)",
    "quadratic_kappa": "the same, near misses count as such",
    "spearman": "same order as people",
    "alpha_nominal": "Krippendorff's alpha, labels",
    "alpha_ordinal": "Krippendorff's alpha, ranks",
    "alpha_interval": "Krippendorff's alpha, distances",
    "alpha_people": "the same of people among themselves",
    "mean_difference": "judge minus people; above 0 it is too kind",
    "mean_distance": "how far it is off",
    "pass_accuracy": "same side of the threshold as people",
    "pass_kappa": "that beyond chance (Cohen)",
    "sensitivity": "of what people pass, it passes",
    "specificity": "of what people fail, it fails",
    "flip_rate": "pairs where the order decides",
    "first_position_rate": "decided verdicts for the answer shown first",
}
_REASONS = {
    "one_label_only": "not computed: all the same",
    "constant": "not computed: one side never varies",
    "nothing_to_compare": "not computed: nothing to compare",
    "no_better_than_chance": "not computed: the judge is no better than chance",
    "labels_without_weights": "not computed: drawn by the judge's verdict, without weights",
}


def figure_text(name: str, figure: Figure) -> tuple[str, str]:
    """Return a figure's value and interval, or why there is none.

    Args:
        name: Its name; some are shares.
    """
    if figure.value is None:
        return "-", _REASONS.get(figure.reason, figure.reason)
    pattern = "{:.1%}" if name in _SHARES else "{:.3f}"
    interval = ""
    if figure.interval is not None:
        interval = "[" + ", ".join(pattern.format(end) for end in figure.interval) + "]"
    return pattern.format(figure.value), interval


def calibration_text(calibration: Calibration, heading: str) -> str:
    """Return a calibration: its figures, the table of labels, and how far to trust the judge.

    Args:
        calibration: What came of it.
        heading: Who judged.
    """
    left_out = calibration.n_items - calibration.n
    rows = [("figure", "value", "95 % interval", "n", "what it is")]
    for name, figure in calibration.figures.items():
        value, interval = figure_text(name, figure)
        mark = " *" if name == calibration.measure else ""
        rows.append((name + mark, value, interval, str(figure.n), _MEANINGS[name]))
    parts = [f"{clean(heading)}  {calibration.n} items" + (f", {left_out} left out" if left_out else ""), table(rows)]
    if calibration.confusion:
        parts.append(_confusion(calibration))
    trust = calibration.trust
    parts.append("\n".join([f"{trust.level.upper()}  {trust.sentence}", *(f"  - {each}" for each in trust.warnings)]))
    return "\n\n".join(parts)


def drift_text(found: Drift, changes: list[str]) -> str:
    """Return how a judge has changed.

    Args:
        found: The comparison.
        changes: What is different from the baseline besides scores, each a sentence.
    """
    lines = [f"note: {clean(change)}" for change in changes]
    counted = f"{found.n} items" + (f", {found.n_dropped} without a score on one side" if found.n_dropped else "")
    if found.drifted is None or found.mean is None or found.interval is None:
        return "\n".join([*lines, f"NOT COMPUTED  too few items have a score both times ({counted})"])
    low, high = found.interval
    lines.append(
        f"mean difference  {found.mean:+.3f} [{low:+.3f}, {high:+.3f}]   sign-flip p  {found.p_value:.4g}   "
        f"changed  {found.changed} of {counted}"
    )
    if found.drifted:
        way = "kinder" if found.mean > 0 else "stricter"
        lines.append(f"DRIFTED  it judges {way} than the baseline: calibrate it again before old and new are compared")
    elif found.caution:
        lines.append(f"NO ALARM  {found.caution}")
    else:
        lines.append(f"STEADY  a mean difference beyond {found.limit:.3g} (5 % of the scale) is excluded")
    return "\n".join(lines)


def _confusion(calibration: Calibration) -> str:
    rows = [("people \\ judge", *calibration.labels)]
    for label in calibration.labels:
        said = calibration.confusion.get(label, {})
        rows.append((label, *(str(said.get(other, 0)) for other in calibration.labels)))
    return table(rows)
