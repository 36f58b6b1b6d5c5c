"""`assay judge calibrations`: the calibrations that an orchestrator keeps for its runs."""

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
    """List and delete stored calibrations: how far judges agree with people."""


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

    found = run_async(main())
    if as_json:
        print_document([dataclasses.asdict(each) for each in found])
    elif not found:
        click.echo("there is no calibration: `assay judge calibrate` makes and stores one")
    else:
        rows = [_row(each) for each in found]
        click.echo(table([("id", "rubric", "judge", "trust", "alpha", "answers", "calibrated"), *rows]))
    return 0


@calibrations.command("delete")
@click.argument("calibration_id", metavar="ID")
@server_option
@debug_option
def delete(calibration_id: str, server: str | None) -> int:
    """Delete the calibration ID; reports of runs then say that their judge has none."""
    from assay.client.calibrations import delete_calibration

    async def main() -> JudgeCalibration:
        async with connect(server) as (client, _):
            return await delete_calibration(client, calibration_id)

    found = run_async(main())
    click.echo(f"deleted calibration {found.calibration_id}: {_rubric(found)}, {clean(found.judge)}")
    return 0


def _row(found: JudgeCalibration) -> tuple[str, ...]:
    alpha = "-" if found.alpha is None else f"{found.alpha:.2f}"
    if found.low is not None and found.high is not None:
        alpha += f" [{found.low:.2f}, {found.high:.2f}]"
    moment = found.calibrated_at[:19].replace("T", " ")
    return (found.calibration_id, _rubric(found), clean(found.judge), found.trust, alpha, str(found.n), moment)


def _rubric(found: JudgeCalibration) -> str:
    return clean(f"{found.rubric} {found.criterion}".strip())
