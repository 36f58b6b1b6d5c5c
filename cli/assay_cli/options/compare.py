"""Options that say how runs are compared, and what makes a comparison fail."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.comparison.decision import DecisionRules
    from assay.comparison.model import ComparisonSettings
    from assay.specs.model import Spec

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What the options say.

    Args:
        settings: How runs are compared.
        rules: What makes a comparison fail.
    """

    settings: ComparisonSettings
    rules: DecisionRules


_OPTIONS = (
    click.option(
        "--primary",
        metavar="METRIC",
        default="",
        help="Metric that decides, or pass_rate; default: exact match, else quality, else the first.",
    ),
    click.option(
        "--margin",
        type=float,
        metavar="D",
        help="Differences of the primary metric within ±D, in its unit, are equivalent; default: none.",
    ),
    click.option(
        "--difference",
        type=float,
        metavar="D",
        help="Say how many cases a difference of the primary metric of D needs where fewer decide nothing; default: "
        "--margin, else --max-drop.",
    ),
    click.option(
        "--cluster",
        metavar="KEY",
        default="",
        help="What cases share with others: category, or tag:NAME for tags such as NAME:value; default: what the specs "
        "of all runs say, else nothing.",
    ),
    click.option(
        "--adjust",
        metavar="NAME",
        default="holm",
        help="How p-values of several tests are adjusted: holm or bh; default: holm.",
    ),
    click.option("--alpha", type=float, default=0.05, help="Level of the tests; default: 0.05."),
    click.option("--seed", type=int, default=0, help="Seed of all random draws; default: 0."),
    click.option(
        "--fail-on",
        metavar="NAME",
        default="regression",
        help="What ends with 1: regression, inconclusive or never; default: regression.",
    ),
    click.option(
        "--max-drop",
        type=float,
        metavar="D",
        help="End with 1 where the primary metric drops by more than D, whatever the p-value and --fail-on; default: "
        "no such limit.",
    ),
    click.option(
        "--max-drop-test",
        is_flag=True,
        help="With --max-drop: end with 1 unless the values exclude a larger drop, by a one-sided bound of 1 - alpha.",
    ),
    click.option("--strict", is_flag=True, help="End with 4 where anything is undecided."),
    click.option(
        "--allow-mismatch",
        is_flag=True,
        help="Print figures, without a verdict, of runs that must not be compared, and end with 0.",
    ),
)


against_option = click.option(
    "--against",
    metavar="BASELINE",
    default="",
    help="Compare the run with this one when it ends, and fail on a regression: `baseline` for that of the "
    "spec, the name of a baseline, a run or a results.json; default: no comparison.",
)
_NAMES = frozenset(
    (
        "primary",
        "margin",
        "difference",
        "adjust",
        "alpha",
        "seed",
        "fail_on",
        "max_drop",
        "max_drop_test",
        "strict",
        "allow_mismatch",
    )
)
_OF_RUNS = (
    click.option(
        "--where",
        metavar="FILTER",
        default="",
        help="Only cases that meet this filter; the figures have no verdict then; default: all cases.",
    ),
    click.option(
        "--all-pairs",
        is_flag=True,
        help="Decide every pair of runs, and adjust p-values over all of them; default: those with the baseline.",
    ),
)


def with_cluster(overrides: tuple[str, ...], options: CompareOptions) -> tuple[str, ...]:
    """Return the overrides of a spec with what --cluster says: it is a setting of the run, too."""
    return (*overrides, f"cluster={json.dumps(options.settings.cluster)}") if options.settings.cluster else overrides


def clustered_as(spec: Spec, options: CompareOptions) -> CompareOptions:
    """Return how a run of a spec is compared: by its own clusters, unless the options say otherwise."""
    settings = replace(options.settings, cluster=options.settings.cluster or spec.settings.cluster)
    return CompareOptions(settings, options.rules)


def check_against(context: click.Context, against: str) -> None:
    """Raise where options say how a run is compared, and nothing names what it is compared with.

    Args:
        context: Of the command.
        against: What --against names; empty without it.

    Raises:
        click.UsageError: Such an option has no effect.
    """
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _NAMES and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if given and not against:
        says = "says" if len(given) == 1 else "say"
        raise click.UsageError(
            f"{' and '.join(given)} {says} how a run is compared: name the baseline with --against, or leave "
            f"{'it' if len(given) == 1 else 'them'} out"
        )


def compare_options(command: F) -> F:
    """Add the options of a comparison; the command gets them as `options`, checked."""
    with_options = against_options(command)
    for option in reversed(_OF_RUNS):
        with_options = option(with_options)
    return with_options


def against_options(command: F) -> F:
    """Add the options of a comparison over all cases; the command gets them as `options`, checked."""

    @functools.wraps(command)
    def with_options(
        *args: Any,
        primary: str,
        margin: float | None,
        difference: float | None,
        cluster: str,
        adjust: str,
        alpha: float,
        seed: int,
        fail_on: str,
        max_drop: float | None,
        max_drop_test: bool,
        strict: bool,
        allow_mismatch: bool,
        where: str = "",
        all_pairs: bool = False,
        **kwargs: Any,
    ) -> Any:
        from assay.comparison.decision import DecisionRules
        from assay.comparison.model import ComparisonSettings
        from assay.comparison.settings import check_settings

        settings, rules = check_settings(
            ComparisonSettings(
                primary,
                margin,
                cluster,
                alpha=alpha,
                seed=seed,
                where=where,
                all_pairs=all_pairs,
                difference=difference,
            ),
            DecisionRules(max_drop=max_drop, max_drop_test=max_drop_test, strict=strict, allow_mismatch=allow_mismatch),
            adjust=adjust,
            fail_on=fail_on,
            prefix="--",
        )
        return command(*args, options=CompareOptions(settings, rules), **kwargs)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options  # type: ignore[return-value]  # click passes what the command gets
