"""`assay judge calibrate`: compare a judge, or a jury, with human labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.errors import AssayError, InvalidInputError, Problem
from assay.text.unsafe_text import clean
from assay_cli.commands.judge.access import gathered, judge_access, judge_options
from assay_cli.exit_status import EXIT_GATE, EXIT_INFRASTRUCTURE, with_status
from assay_cli.options.groups import JUDGE, GroupedCommand
from assay_cli.options.shared import check_address, connect, debug_option, json_option, run_async
from assay_cli.output.documents import print_document

if TYPE_CHECKING:
    from assay_cli.commands.judge.outcome import Outcome

_LEVELS = ("unknown", "untrusted", "tentative", "trusted")


_GROUPS = {
    "Common": (
        "labels",
        "jury",
        "rubric",
        "criterion",
        "threshold",
        "observed",
        "drawn",
        "require",
        "store",
        "no_store",
    ),
    "Judge": JUDGE,
}


@click.command(cls=GroupedCommand, groups=_GROUPS)
@click.option(
    "--labels", metavar="FILE", required=True, help="Dataset of answers, or pairs of answers, with human labels."
)
@judge_options
@click.option("--judge-model", "jury", multiple=True, metavar="PROVIDER:MODEL[@URL]",
              help="Judge to compare; repeatable: several are compared one by one and as a jury.")  # fmt: skip
@click.option(
    "--rubric", metavar="NAME|FILE", help="Rubric: quality, answer, pairwise, or a YAML file; default: quality."
)
@click.option(
    "--criterion", metavar="NAME", help="Criterion that counts; default: the overall score, or the mean of all."
)
@click.option("--threshold", type=float, help="Lowest score that passes; default: the metric's.")
@click.option(
    "--observed", metavar="PASSED/TOTAL", help="Pass rate of a run to correct for the judge's errors; default: none."
)
@click.option(
    "--drawn",
    type=click.Choice(["random", "human-verdict", "judge-verdict"]),
    help="How the labelled answers were drawn; default: from the column probability, else unknown.",
)
@click.option(
    "--require", type=click.Choice(_LEVELS[1:]), help="Exit with 1 below this level of trust; default: any level."
)
@click.option(
    "--store",
    metavar="HOST:PORT",
    envvar="ASSAY_SERVER",
    callback=check_address,
    help="Orchestrator that stores the calibration for its runs; default: $ASSAY_SERVER, else the local one.",
)
@click.option("--no-store", is_flag=True, help="Do not store the calibration.")
@json_option
@debug_option
def calibrate(
    labels: str,
    jury: tuple[str, ...],
    rubric: str | None,
    criterion: str | None,
    threshold: float | None,
    observed: str | None,
    drawn: str | None,
    require: str | None,
    store: str | None,
    no_store: bool,
    as_json: bool,
    **judge: Any,
) -> int:
    """Compare a judge with human labels: agreement, errors, level of trust, and cost.

    A record of the file has question and answer, or answer_a and answer_b; optionally reference and contexts; and
    human: a score on the rubric's scale, pass or fail, or a, b or tie. Labels of several people are a list, or columns
    human_1, human_2. Pairs are judged in both orders.

    The calibration is stored, and reports of runs with the same judge and rubric cite it.

    --observed corrects a pass rate only if the file or --drawn says how the answers were drawn: at random (`assay judge
    sample` writes such a file), by the human verdict, or with a column probability.

    \b
        assay judge calibrate --labels labels.csv --provider openai --model gpt-4o-mini
        assay judge calibrate --labels pairs.jsonl --judge-model openai:gpt-4o-mini --judge-model anthropic:...
    """
    from assay_cli.commands.judge.labels import read_items
    from assay_cli.commands.judge.outcome import CalibrationRequest, calibrated

    problems: list[Problem] = []
    access = gathered(lambda: judge_access(jury, **judge), problems)
    counts = gathered(lambda: None if observed is None else _observed(observed), problems)
    items = gathered(lambda: read_items(Path(labels)), problems)
    if problems or access is None or items is None:
        raise InvalidInputError(problems)
    request = CalibrationRequest(items, rubric, criterion, threshold, counts, items.drawing(drawn))
    outcome = run_async(calibrated(access, request))
    stored = not (no_store or outcome.bill.unavailable) and run_async(_kept(outcome, store))
    if as_json:
        print_document("calibration", {**outcome.document(), "stored": stored})
    else:
        click.echo(outcome.text())
        if stored:
            click.echo("stored  runs of this judge and rubric will cite this calibration")
    return _status(outcome, require, as_json=as_json)


async def _kept(outcome: Outcome, store: str | None) -> bool:
    """Store a calibration; a failure is only a warning, since the figures were paid for."""
    calibration = outcome.storable()
    if calibration is None:
        return False
    from assay.client.calibrations import set_calibration

    try:
        async with connect(store) as (client, _):
            await set_calibration(client, calibration)
    except AssayError as error:
        click.echo(f"warning: the calibration was not stored: {clean(str(error))}", err=True)
        return False
    return True


def _status(outcome: Outcome, require: str | None, *, as_json: bool) -> int:
    bill = outcome.bill
    for reason, count in bill.failed.most_common():
        click.echo(f"{count} of {bill.verdicts} verdicts: {reason}: {clean(bill.messages[reason])}", err=True)
    if bill.unavailable:
        click.echo("error: incomplete: run the command again; finished verdicts are not paid for again", err=True)
        return EXIT_INFRASTRUCTURE
    if outcome.decisive.n == 0:
        click.echo("error: nothing to compare: no item has both a label and a valid verdict", err=True)
        return EXIT_INFRASTRUCTURE
    level = outcome.decisive.trust.level
    if require is None:
        return 0
    is_enough = _LEVELS.index(level) >= _LEVELS.index(require)
    status = EXIT_INFRASTRUCTURE if level == "unknown" else 0 if is_enough else EXIT_GATE
    if not as_json:
        word = {0: "PASS", EXIT_GATE: "FAIL"}.get(status, "INCOMPLETE")
        click.echo(with_status(f"verdict  {word}  trust is {level}, at least {require} is required", status))
    return status


def _observed(text: str) -> tuple[int, int]:
    passed, slash, total = text.partition("/")
    if not (slash and passed.strip().isdecimal() and total.strip().isdecimal() and 0 < int(total) >= int(passed)):
        raise InvalidInputError([Problem(f"must be PASSED/TOTAL, such as 160/200, not {text[:40]!r}", "--observed")])
    return int(passed), int(total)
