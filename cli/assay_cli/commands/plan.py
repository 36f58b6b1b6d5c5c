"""`assay plan`: compute how many cases and repeats a comparison needs, and their cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem
from assay.text.unsafe_text import clean
from assay_cli.options.shared import json_client_options, run_async
from assay_cli.output.documents import print_document, record
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.comparison.planning import Plan, RowCost, Variation
    from assay.reports.document.report import Report

_EFFORT = ("agent calls", "judge calls", "tokens", "cost", "time")


@click.command(
    epilog="\b\nExamples:\n  assay plan latest --difference 0.05\n"
    "  assay plan before/results.json after/results.json --metric quality --difference 0.2"
)
@click.argument("run")
@click.argument("other", required=False)
@click.option(
    "--difference", type=float, required=True, metavar="D", help="Difference to detect, in the metric's unit."
)
@click.option(
    "--metric",
    metavar="NAME",
    default="",
    help="Metric that decides, or pass_rate; default: exact match, else quality, else the first.",
)
@click.option("--alpha", type=float, default=0.05, help="Significance level of the test; default: 0.05.")
@click.option("--power", type=float, default=0.8, help="Power of the test; default: 0.8.")
@click.option(
    "--correlation",
    type=float,
    default=0.5,
    help="Correlation between the variants' values of a case, 0 to 1, if only one run is given; default: 0.5.",
)
@click.option(
    "--cluster",
    metavar="KEY",
    default="",
    help="Group dependent cases: category, or tag:NAME for tags such as NAME:value; sizes then count clusters; "
    "default: none.",
)
@json_client_options
def plan(
    run: str,
    other: str | None,
    difference: float,
    metric: str,
    alpha: float,
    power: float,
    correlation: float,
    cluster: str,
    as_json: bool,
    server: str | None,
) -> int:
    """Compute how many cases and repeats detect a difference between two variants, and their cost.

    RUN is an earlier run of the agent: a results.json, or a stored run. OTHER is a run of another variant over the same
    cases, about as different as the next variant will be; it allows the difference per case to be measured.
    """
    from assay.comparison.planning import plan as make_plan
    from assay.model.cluster_key import cluster_problem

    bounds = {
        "--difference": (difference, 0.0, math.inf),
        "--alpha": (alpha, 0.0, 0.5),
        "--power": (power, 0.0, 1.0),
    }
    wrong = [
        Problem(f"must be above {low:g}{f' and below {high:g}' if high < math.inf else ''}, not {value!r}", name)
        for name, (value, low, high) in bounds.items()
        if not low < value < high
    ]
    if not 0 <= correlation < 1:
        wrong.append(Problem(f"must be from 0 and below 1, not {correlation!r}", "--correlation"))
    if problem := cluster_problem(cluster):
        wrong.append(Problem(problem, "--cluster"))
    if wrong:
        raise InvalidInputError(wrong)
    runs = [run, *([other] if other else [])]
    variation, cost = run_async(_learned(runs, metric, correlation=correlation, cluster=cluster, server=server))
    sample_plan = make_plan(variation, difference, cost, alpha=alpha, power=power)
    if as_json:
        print_document("plan", record(sample_plan))
        return 0
    for line in plan_lines(sample_plan):
        click.echo(line)
    return 0


async def _learned(
    runs: list[str], metric: str, *, correlation: float, cluster: str, server: str | None
) -> tuple[Variation, RowCost]:
    """Return a metric's variation over earlier runs, and the cost of a row of the first run."""
    from assay.client.comparison.join import reports_of
    from assay.comparison.cases import is_shared
    from assay.comparison.facts import default_primary, facts_of
    from assay.comparison.model import PASS_RATE
    from assay.comparison.planning import variation_of
    from assay.model.cluster_key import missing_cluster
    from assay.parsing.names import unknown_name

    async with reports_of(runs, server) as reports:
        metrics = facts_of(reports[0].head).metrics
        name = metric or default_primary(metrics)
        if name != PASS_RATE and name not in metrics:
            raise InvalidInputError([Problem(unknown_name("metric", name, [PASS_RATE, *metrics]), "--metric")])
        clusters = _clusters(reports[0], cluster) if cluster else None
        if clusters is not None and not any(map(is_shared, clusters.values())):
            raise InvalidInputError(f"--cluster: {missing_cluster(cluster, ' of the runs')}")
        values = (_values(report, name) for report in reports)
        variation = variation_of(name, *values, correlation=correlation, cluster=cluster, clusters=clusters)
        return variation, _cost(reports[0])


def _clusters(report: Report, key: str) -> dict[str, str]:
    from assay.comparison.cases import own_or_shared

    return {
        row["case_id"]: own_or_shared(key, row["case_id"], row["category"] or "", row["tags"]) for row in report.rows()
    }


def _values(report: Report, metric: str) -> Iterator[tuple[str, float | None]]:
    from assay.comparison.model import PASS_RATE
    from assay.reports.comparison.document.compared_run import values_of

    names = [metric]
    for row in report.rows():
        if metric == PASS_RATE:
            yield row["case_id"], None if row["passed"] is None else float(row["passed"])
        else:
            yield row["case_id"], values_of(row, names)[metric]


def _cost(report: Report) -> RowCost:
    from assay.comparison.planning import RowCost
    from assay.comparison.row_pace import Pace
    from assay.reports.comparison.document.compared_run import values_of

    judging = report.head["summary"].get("judging") or {}
    tokens: list[float] = []
    money: list[float] = []
    calls = 0
    pace = Pace()
    for row in report.rows():
        usage = values_of(row, ["tokens", "cost"])
        tokens += [usage["tokens"]] if usage["tokens"] is not None else []
        money += [usage["cost"]] if usage["cost"] is not None else []
        calls += max(1, len(row.get("turns") or ()))
        pace.take(row["started_at"], row["duration_ms"], row["latency_ms"])
    rows = max(1, report.row_count)
    prices = [price for price in (math.fsum(money) if money else None, judging.get("cost_usd")) if price is not None]
    return RowCost(
        agent_calls=calls / rows,
        judge_calls=(judging.get("asked_count") or 0) / rows,
        tokens=math.fsum(tokens) / len(tokens) if tokens else None,
        cost_usd=math.fsum(prices) / rows if prices else None,
        time_s=pace.row_s(report.head["config"]["agent"].get("concurrency") or 1),
    )


def plan_lines(sample_plan: Plan) -> Iterator[str]:
    """Yield a plan as lines of clean text."""
    if sample_plan.message:
        yield clean(f"{sample_plan.message}.")
        return
    variation = sample_plan.variation
    clustered = ""
    if variation.clusters is not None:
        clustered = f" in {variation.clusters:,} clusters by {clean(variation.cluster)}"
    yield (
        f"{clean(variation.metric)}: {variation.mean:.4g} over {variation.n:,} cases{clustered}; a difference of "
        f"{sample_plan.difference:g} is detected with a chance of {sample_plan.power:.0%} at a level of "
        f"{sample_plan.alpha:g} by"
    )
    yield ""
    in_clusters = ("clusters",) if variation.clusters is not None else ()
    head = ("repeats", "cases", "at upper limit", *in_clusters, "rows of both", *_EFFORT)
    rows = [
        (
            str(size.repeats),
            _number(size.cases),
            _number(size.cases_upper),
            *(_number(size.clusters) for _ in in_clusters),
            _number(size.rows),
            _number(size.agent_calls),
            _number(size.judge_calls),
            _number(size.tokens),
            "-" if size.cost_usd is None else f"${size.cost_usd:,.2f}",
            _time(size.time_s),
            "-" if size.detectable is None else f"{size.detectable:.3g}",
        )
        for size in sample_plan.sizes
        if size.cases is not None or size.cases_upper is not None
    ]
    yield table([(*head, f"detectable with {variation.n:,} cases"), *rows])
    yield ""
    for note in sample_plan.notes:
        yield f"note: {note}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
