"""Text of calibrations and drift checks."""

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
    "quadratic_kappa": "the same, weighted by distance",
    "spearman": "same order as people",
    "alpha_nominal": "Krippendorff's alpha, labels",
    "alpha_ordinal": "Krippendorff's alpha, ranks",
    "alpha_interval": "Krippendorff's alpha, distances",
    "alpha_people": "the same among people",
    "mean_difference": "judge minus people; above 0 is too lenient",
    "mean_distance": "mean absolute error",
    "pass_accuracy": "same side of the threshold as people",
    "pass_kappa": "the same beyond chance (Cohen)",
    "sensitivity": "share passed, of answers that people pass",
    "specificity": "share failed, of answers that people fail",
    "flip_rate": "pairs decided by their order",
    "first_position_rate": "decided verdicts for the first answer shown",
}
_REASONS = {
    "one_label_only": "not computed: all values are equal",
    "constant": "not computed: one side never varies",
    "nothing_to_compare": "not computed: nothing to compare",
    "no_better_than_chance": "not computed: the judge is no better than chance",
    "labels_without_weights": "not computed: drawn by the judge's verdict, without weights",
}


def figure_text(name: str, figure: Figure) -> tuple[str, str]:
    """Return a figure's value and interval, or the reason for its absence.

    Args:
        name: Name of the figure; some are shares.
    """
    if figure.value is None:
        return "-", _REASONS.get(figure.reason, figure.reason)
    pattern = "{:.1%}" if name in _SHARES else "{:.3f}"
    interval = ""
    if figure.interval is not None:
        interval = "[" + ", ".join(pattern.format(end) for end in figure.interval) + "]"
    return pattern.format(figure.value), interval


def calibration_text(calibration: Calibration, heading: str) -> str:
    """Return the text of a calibration: figures, table of labels, and level of trust.

    Args:
        calibration: The calibration.
        heading: First line, with the judge.
    """
    left_out = calibration.n_items - calibration.n
    rows = [("figure", "value", "95 % interval", "n", "meaning")]
    for name, figure in calibration.figures.items():
        value, interval = figure_text(name, figure)
        mark = " *" if name == calibration.measure else ""
        rows.append((name + mark, value, interval, str(figure.n), _MEANINGS[name]))
    parts = [f"{clean(heading)}  {calibration.n} items" + (f", {left_out} left out" if left_out else ""), table(rows)]
    if calibration.confusion:
        parts.append(_confusion(calibration))
    trust = calibration.trust
    parts.append(
        "\n".join([f"{trust.level.upper()}  {trust.sentence}", *(f"  - {warning}" for warning in trust.warnings)])
    )
    return "\n\n".join(parts)


def drift_text(drift: Drift, changes: list[str]) -> str:
    """Return the text of a drift check.

    Args:
        drift: The comparison.
        changes: Other differences from the baseline, one sentence each.
    """
    lines = [f"note: {clean(change)}" for change in changes]
    counted = f"{drift.n} items" + (f", {drift.n_dropped} without a score on one side" if drift.n_dropped else "")
    if drift.drifted is None or drift.mean is None or drift.interval is None:
        return "\n".join([*lines, f"NOT COMPUTED  too few items have both scores ({counted})"])
    low, high = drift.interval
    lines.append(
        f"mean difference  {drift.mean:+.3f} [{low:+.3f}, {high:+.3f}]   sign-flip p  {drift.p_value:.4g}   "
        f"changed  {drift.changed} of {counted}"
    )
    if drift.drifted:
        way = "kinder" if drift.mean > 0 else "stricter"
        lines.append(
            f"DRIFTED  the judge is {way} than the baseline: calibrate it again before you compare old and new runs"
        )
    elif drift.caution:
        lines.append(f"NO ALARM  {drift.caution}")
    else:
        lines.append(f"STEADY  a mean difference beyond {drift.limit:.3g} (5 % of the scale) is excluded")
    return "\n".join(lines)


def _confusion(calibration: Calibration) -> str:
    rows = [("people \\ judge", *calibration.labels)]
    for label in calibration.labels:
        counts = calibration.confusion.get(label, {})
        rows.append((label, *(str(counts.get(column, 0)) for column in calibration.labels)))
    return table(rows)
