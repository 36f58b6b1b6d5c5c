"""`assay judge drift`: judge frozen answers again and compare the scores with a saved baseline."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.errors import InvalidInputError, Problem
from assay.model.interval import Interval
from assay.text.unsafe_text import clean
from assay_cli.commands.judge.access import gathered, judge_access, judge_options
from assay_cli.exit_status import EXIT_GATE, EXIT_INFRASTRUCTURE, with_status
from assay_cli.options.groups import JUDGE, GroupedCommand
from assay_cli.options.shared import debug_option, json_option, run_async
from assay_cli.output.documents import print_document

if TYPE_CHECKING:
    from assay.statistics.drift import Drift
    from assay_cli.commands.judge.access import JudgeAccess
    from assay_cli.commands.judge.baseline import Baseline
    from assay_cli.commands.judge.calls import Bill
    from assay_cli.commands.judge.labels import Labels

BUILT_IN_ANCHORS = Path(__file__).with_name("anchors.jsonl")
"""Answers of varied quality to varied questions. Never change them: old baselines would become useless."""


_GROUPS = {"Common": ("anchors", "baseline", "save", "rubric", "criterion"), "Judge": JUDGE}


@click.command(cls=GroupedCommand, groups=_GROUPS)
@click.option("--anchors", metavar="FILE", help="Dataset of the frozen answers; default: a small set of Assay's own.")
@click.option("--baseline", metavar="FILE", required=True, help="File of the baseline.")
@click.option("--save", is_flag=True, help="Save these verdicts as the baseline; the file must not exist.")
@judge_options
@click.option(
    "--rubric",
    metavar="NAME|FILE",
    default="quality",
    help="Rubric: quality, answer, or a YAML file; default: quality.",
)
@click.option(
    "--criterion", metavar="NAME", help="Criterion that counts; default: the overall score, or the mean of all."
)
@json_option
@debug_option
def drift(
    anchors: str | None,
    baseline: str,
    save: bool,
    rubric: str,
    criterion: str | None,
    as_json: bool,
    **judge: Any,
) -> int:
    """Judge frozen answers again and test whether the judge has drifted since the baseline was saved.

    Every verdict is requested again, bypassing caches. Drift is a sign-flip p-value below 0.05. Without drift, the
    command says whether these anchors exclude a mean difference beyond 5 % of the scale, or else how many would. Exit
    status: 0 no drift detected, 1 drift, 3 not computed.

    \b
        assay judge drift --baseline judge.json --provider openai --model gpt-4o-mini --save
        assay judge drift --baseline judge.json --provider openai --model gpt-4o-mini
    """
    from assay_cli.commands.judge.baseline import read_baseline
    from assay_cli.commands.judge.labels import read_items

    problems: list[Problem] = []
    path = Path(baseline)
    access = gathered(lambda: judge_access(**judge), problems)
    if access is not None and len(access.names) > 1:
        problems.append(Problem("names a jury, but drift is measured for one judge: name it with --provider", "--spec"))
    items = gathered(lambda: read_items(Path(anchors) if anchors else BUILT_IN_ANCHORS, labelled=False), problems)
    old = None if save else gathered(lambda: read_baseline(path), problems)
    if save and path.exists():
        problems.append(Problem("exists already: remove it to start over, or leave out --save to compare", "--baseline",
                                baseline))  # fmt: skip
    if problems or access is None or items is None:
        raise InvalidInputError(problems)
    new, bill = run_async(_judged(access, items, rubric, criterion, old))
    for reason, count in bill.failed.most_common():
        click.echo(f"{count} of {bill.verdicts} verdicts: {reason}: {clean(bill.messages[reason])}", err=True)
    if old is None:
        return _saved(path, new, bill, as_json=as_json)
    return _compared(old, new, bill, as_json=as_json)


async def _judged(
    access: JudgeAccess, items: Labels, reference: str, criterion: str | None, old: Baseline | None
) -> tuple[Baseline, Bill]:
    from assay.parsing.names import unknown_name
    from assay_cli.commands.judge.access import open_judge
    from assay_cli.commands.judge.baseline import baseline_of, check_comparable
    from assay_cli.commands.judge.calls import JudgeClient
    from assay_cli.commands.judge.labels import check_scale

    async with open_judge(access) as stub:
        client = JudgeClient(stub, access)
        rubric = await client.rubric(reference)
        check_scale(items, rubric)
        if criterion is not None and criterion not in rubric.criteria:
            raise InvalidInputError([Problem(unknown_name("criterion", criterion, rubric.criteria), "--criterion")])
        if old is not None:
            check_comparable(old, items, rubric, criterion)
        name = access.names[0] if access.names else None
        # Cached verdicts would hide a change that the provider made under an old model name.
        sample = 0 if access.replays else secrets.randbits(32)
        judged = await client.judge_all(items.items, rubric, name, sample)
    return baseline_of(judged, items, rubric, criterion), client.bill


def _saved(path: Path, new: Baseline, bill: Bill, *, as_json: bool) -> int:
    from assay.reports.atomic import atomic_writer

    valid = sum(score is not None for score in new.scores.values())
    if bill.unavailable or valid <= len(new.scores) / 2:
        click.echo(
            f"error: nothing was saved: only {valid} of {len(new.scores)} anchors have a valid verdict", err=True
        )
        return EXIT_INFRASTRUCTURE
    with atomic_writer(path, option="--baseline") as file:
        json.dump(new.document(), file, ensure_ascii=False, allow_nan=False, indent=1)
        file.write("\n")
    if as_json:
        print_document(
            "saved-judge-baseline", {"saved": str(path), "baseline": new.document(), "bill": bill.document()}
        )
    else:
        click.echo(f"saved {valid} scores of {clean(new.judge)} to {clean(str(path))}\n{bill.sentence()}")
    return 0


def _compared(old: Baseline, new: Baseline, bill: Bill, *, as_json: bool) -> int:
    from assay.statistics.drift import find_drift
    from assay_cli.commands.judge.baseline import changes_of
    from assay_cli.commands.judge.report import drift_text

    drift = find_drift(old.scores, new.scores, width=new.maximum - new.minimum)
    changes = changes_of(old, new)
    if as_json:
        print_document("drift", _document(drift, changes, old, new, bill))
    else:
        click.echo(f"judge  {clean(new.judge)}  rubric {new.rubric}  baseline of {old.saved_at}")
        click.echo(f"{drift_text(drift, changes)}\n{bill.sentence()}")
    status = EXIT_INFRASTRUCTURE if drift.drifted is None else EXIT_GATE if drift.drifted else 0
    if not as_json:
        steady = f"NO ALARM  {drift.caution}" if drift.caution else "STEADY"
        word = {0: steady, EXIT_GATE: "DRIFTED"}.get(status, "NOT COMPUTED")
        click.echo(with_status(f"verdict  {word}", status))
    return status


def _document(drift: Drift, changes: list[str], old: Baseline, new: Baseline, bill: Bill) -> dict[str, Any]:
    return {
        "drifted": drift.drifted,
        "reason": drift.reason or None,
        "item_count": drift.n,
        "dropped_count": drift.n_dropped,
        "mean_difference": drift.mean,
        "interval": None if drift.interval is None else Interval(*drift.interval)._asdict(),
        "p_value": drift.p_value,
        "limit": drift.limit,
        "anchors_needed": drift.items_needed,
        "message": drift.caution or None,
        "changed_count": drift.changed,
        "notes": changes,
        "baseline": old.document(),
        "present": new.document(),
        "bill": bill.document(),
    }
