"""`assay judge`: calibration, drift and prices of judges."""

from __future__ import annotations

import click

from assay_cli.commands import Group
from assay_cli.commands.judge.calibrate import calibrate
from assay_cli.commands.judge.calibrations import calibrations
from assay_cli.commands.judge.drift import drift
from assay_cli.commands.judge.prices import prices
from assay_cli.commands.judge.sample import sample


@click.group(cls=Group)
def judge() -> None:
    """Measure how far a judge can be trusted, and whether it has drifted."""


for _command in (calibrate, calibrations, sample, prices, drift):
    judge.add_command(_command)
