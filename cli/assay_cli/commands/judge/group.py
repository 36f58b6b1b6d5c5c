"""`assay judge`: how far a judge can be trusted, and whether it still judges as it did."""

from __future__ import annotations

import click

from assay_cli.commands import LazyGroup

_COMMANDS = {
    "calibrate": (
        "assay_cli.commands.judge.calibrate:calibrate",
        "Compare a judge with human labels: agreement, errors, how far to trust it.",
    ),
    "calibrations": (
        "assay_cli.commands.judge.calibrations:calibrations",
        "List and delete stored calibrations: how far judges agree with people.",
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
        "Judge a frozen set of answers again and say whether the judge has moved.",
    ),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def judge() -> None:
    """Find out how far a judge can be trusted, and whether it still judges as it did."""
