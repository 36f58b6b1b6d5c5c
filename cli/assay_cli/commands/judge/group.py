"""`assay judge`: calibration, drift and prices of judges."""

from __future__ import annotations

import click

from assay_cli.commands import LazyGroup

_COMMANDS = {
    "calibrate": (
        "assay_cli.commands.judge.calibrate:calibrate",
        "Compare a judge with human labels: agreement, errors, level of trust.",
    ),
    "calibrations": (
        "assay_cli.commands.judge.calibrations:calibrations",
        "List and delete stored calibrations.",
    ),
    "sample": (
        "assay_cli.commands.judge.sample:sample",
        "Draw answers of a run at random, for people to label.",
    ),
    "prices": (
        "assay_cli.commands.judge.prices:prices",
        "List the prices of models, in US dollars per million tokens.",
    ),
    "drift": (
        "assay_cli.commands.judge.drift:drift",
        "Judge frozen answers again and test whether the judge has drifted.",
    ),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def judge() -> None:
    """Measure how far a judge can be trusted, and whether it has drifted."""
