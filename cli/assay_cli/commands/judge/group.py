"""`assay judge`: calibration, drift and prices of judges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.providers.prices import read_prices
from assay.text.unsafe_text import clean, shorten
from assay_cli.commands import Group
from assay_cli.commands.judge.calibrate import calibrate
from assay_cli.commands.judge.drift import drift
from assay_cli.commands.judge.sample import sample
from assay_cli.options.shared import call_orchestrator, client_options, json_client_options
from assay_cli.output.documents import print_listing
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.model.judge_calibration import JudgeCalibration

_HEAD = ("provider", "model", "input", "output")
_NAME_CHARS = 60


@click.group(cls=Group)
def judge() -> None:
    """Measure how far a judge can be trusted, and whether it has drifted."""


for _command in (calibrate, sample, drift):
    judge.add_command(_command)


@judge.command()
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Price list to show; default: Assay's.")
@click.option("--provider", metavar="NAME", help="Only this provider's models; default: all.")
def prices(prices: Path | None, provider: str | None) -> int:
    """List the prices of models, in US dollars per million tokens.

    Assay's list covers the providers' own services. A model at another base_url has a price only if your own file lists
    it.
    """
    entries = [entry for entry in read_prices(prices) if provider in (None, entry.get("provider"))]
    rows = [
        (
            *(shorten(str(entry.get(name, "*")), _NAME_CHARS) for name in _HEAD[:2]),
            *(f"{entry[name]:g}" for name in _HEAD[2:]),
        )
        for entry in entries
    ]
    click.echo(table([_HEAD, *rows], text_columns=2))
    return 0


@judge.group(cls=Group)
def calibrations() -> None:
    """List and delete stored calibrations."""


@calibrations.command("list")
@json_client_options
def list_(as_json: bool, server: str | None) -> int:
    """List the calibrations, newest first."""
    from assay.client.calibrations import list_calibrations

    stored = call_orchestrator(server, list_calibrations)
    head = ("id", "rubric", "judge", "trust", "alpha", "answers", "calibrated")
    none = "no calibrations yet: `assay judge calibrate` stores one"
    print_listing("calibrations", stored, head, _row, as_json=as_json, if_empty=none)
    return 0


@calibrations.command("delete")
@click.argument("calibration_id", metavar="ID")
@client_options
def delete(calibration_id: str, server: str | None) -> int:
    """Delete the calibration ID; reports then say that the judge has none."""
    from assay.client.calibrations import delete_calibration

    calibration = call_orchestrator(server, lambda client: delete_calibration(client, calibration_id))
    click.echo(f"deleted calibration {calibration.calibration_id}: {_rubric(calibration)}, {clean(calibration.judge)}")
    return 0


def _row(calibration: JudgeCalibration) -> tuple[str, ...]:
    alpha = "-" if calibration.alpha is None else f"{calibration.alpha:.2f}"
    if calibration.interval is not None:
        alpha += " [{:.2f}, {:.2f}]".format(*calibration.interval)
    moment = calibration.calibrated_at[:19].replace("T", " ")
    return (
        calibration.calibration_id,
        _rubric(calibration),
        clean(calibration.judge),
        calibration.trust,
        alpha,
        str(calibration.answer_count),
        moment,
    )


def _rubric(calibration: JudgeCalibration) -> str:
    return clean(f"{calibration.rubric} {calibration.criterion}".strip())
