"""`assay judge calibrations`: list and delete the calibrations that an orchestrator stores."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from assay.text.unsafe_text import clean
from assay_cli.commands import Group
from assay_cli.options.shared import connect, debug_option, json_option, print_document, run_async, server_option
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.model.judge_calibration import JudgeCalibration


@click.group(cls=Group)
def calibrations() -> None:
    """List and delete stored calibrations."""


@calibrations.command("list")
@json_option
@server_option
@debug_option
def list_(as_json: bool, server: str | None) -> int:
    """List the calibrations, newest first."""
    from assay.client.calibrations import list_calibrations

    async def main() -> list[JudgeCalibration]:
        async with connect(server) as (client, _):
            return await list_calibrations(client)

    stored = run_async(main())
    if as_json:
        print_document([dataclasses.asdict(calibration) for calibration in stored])
    elif not stored:
        click.echo("no calibrations yet: `assay judge calibrate` stores one")
    else:
        rows = [_row(calibration) for calibration in stored]
        click.echo(table([("id", "rubric", "judge", "trust", "alpha", "answers", "calibrated"), *rows]))
    return 0


@calibrations.command("delete")
@click.argument("calibration_id", metavar="ID")
@server_option
@debug_option
def delete(calibration_id: str, server: str | None) -> int:
    """Delete the calibration ID; reports then say that the judge has none."""
    from assay.client.calibrations import delete_calibration

    async def main() -> JudgeCalibration:
        async with connect(server) as (client, _):
            return await delete_calibration(client, calibration_id)

    calibration = run_async(main())
    click.echo(f"deleted calibration {calibration.calibration_id}: {_rubric(calibration)}, {clean(calibration.judge)}")
    return 0


def _row(calibration: JudgeCalibration) -> tuple[str, ...]:
    alpha = "-" if calibration.alpha is None else f"{calibration.alpha:.2f}"
    if calibration.low is not None and calibration.high is not None:
        alpha += f" [{calibration.low:.2f}, {calibration.high:.2f}]"
    moment = calibration.calibrated_at[:19].replace("T", " ")
    return (
        calibration.calibration_id,
        _rubric(calibration),
        clean(calibration.judge),
        calibration.trust,
        alpha,
        str(calibration.n),
        moment,
    )


def _rubric(calibration: JudgeCalibration) -> str:
    return clean(f"{calibration.rubric} {calibration.criterion}".strip())
