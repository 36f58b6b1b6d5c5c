"""Options of a comparison: how runs are compared, and what makes it fail."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from assay_cli.options.groups import COMPARISON, combined

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

    from assay.comparison.decision import DecisionRules
    from assay.comparison.model import ComparisonSettings
    from assay.specs.model import Spec

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The values of the options.

    Args:
        settings: Settings of the comparison.
        rules: What makes a comparison fail.
    """

    settings: ComparisonSettings
    rules: DecisionRules


_options = combined(
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
        help="If a comparison decides nothing, print how many cases would detect a difference of D in the primary "
        "metric; default: --margin, else --max-drop.",
    ),
    click.option(
        "--cluster",
        metavar="KEY",
        default="",
        help="Group dependent cases: category, or tag:NAME for tags such as NAME:value; default: the specs' setting "
        "if all agree, else none.",
    ),
    click.option(
        "--adjust",
        metavar="NAME",
        default="holm",
        help="Adjustment of p-values for several tests: holm or bh; default: holm.",
    ),
    click.option("--alpha", type=float, default=0.05, help="Significance level of the tests; default: 0.05."),
    click.option("--seed", type=int, default=0, help="Seed of all random draws; default: 0."),
    click.option(
        "--fail-on",
        metavar="NAME",
        default="regression",
        help="Exit with 1 on: regression, inconclusive or never; default: regression.",
    ),
    click.option(
        "--max-drop",
        type=float,
        metavar="D",
        help="Exit with 1 if the primary metric drops by more than D, whatever the p-value and --fail-on; default: no "
        "limit.",
    ),
    click.option(
        "--max-drop-test",
        is_flag=True,
        help="With --max-drop: exit with 1 unless a one-sided bound at level 1 - alpha excludes a larger drop.",
    ),
    click.option("--strict", is_flag=True, help="Exit with 4 if anything is undecided."),
    click.option(
        "--allow-mismatch",
        is_flag=True,
        help="Print figures without a verdict for runs that must not be compared, and exit with 0.",
    ),
)


against_option = click.option(
    "--against",
    metavar="BASELINE",
    default="",
    help="Compare the finished run with this one, and fail on a regression: `baseline` (the spec's), the name of a "
    "baseline, a run or a results.json; default: no comparison.",
)
_NAMES = frozenset(COMPARISON) - {"cluster"}
"""Options without an effect on a run that is not compared; its clusters count for its own intervals too."""
_options_of_runs = combined(
    click.option(
        "--where",
        metavar="FILTER",
        default="",
        help="Compare only cases that match this filter; there is no verdict then; default: all cases.",
    ),
    click.option(
        "--all-pairs",
        is_flag=True,
        help="Decide every pair of runs, and adjust p-values over all pairs; default: only pairs with the baseline.",
    ),
)


def with_cluster(overrides: tuple[str, ...], options: CompareOptions) -> tuple[str, ...]:
    """Return the overrides of a spec with --cluster added, since it is a setting of the run too."""
    return (*overrides, f"cluster={json.dumps(options.settings.cluster)}") if options.settings.cluster else overrides


def clustered_as(spec: Spec, options: CompareOptions) -> CompareOptions:
    """Return the options for a run of a spec: with the spec's clusters, unless --cluster is given."""
    settings = replace(options.settings, cluster=options.settings.cluster or spec.settings.cluster)
    return CompareOptions(settings, options.rules)


def check_against(context: click.Context, against: str) -> None:
    """Check that a run can be compared with --against; refuse options of a comparison without it.

    Args:
        context: Context of the command.
        against: The value of --against; empty without it.

    Raises:
        click.UsageError: An option would have no effect.
        SetupError: A package that the comparison needs is missing.
    """
    if against:
        from assay.client.comparison.join import check_packages

        check_packages()
        return
    options = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _NAMES and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if options:
        says = "says" if len(options) == 1 else "say"
        raise click.UsageError(
            f"{' and '.join(options)} {says} how a run is compared: name the baseline with --against, or leave "
            f"{'it' if len(options) == 1 else 'them'} out"
        )


def compare_options(command: F) -> F:
    """Add the options of a comparison; the command gets them as `options`, checked."""
    return _options_of_runs(against_options(command))


def against_options(command: F) -> F:
    """Add the options of a comparison over all cases; the command gets them as `options`, checked."""

    @functools.wraps(command)
    def with_options(*args: Any, adjust: str, fail_on: str, **kwargs: Any) -> Any:
        from assay.comparison.decision import DecisionRules
        from assay.comparison.model import ComparisonSettings
        from assay.comparison.settings import check_settings

        settings = ComparisonSettings(**_taken(kwargs, ComparisonSettings))
        rules = DecisionRules(**_taken(kwargs, DecisionRules))
        settings, rules = check_settings(settings, rules, adjust=adjust, fail_on=fail_on, place=_option)
        return command(*args, options=CompareOptions(settings, rules), **kwargs)

    return _options(with_options)  # type: ignore[return-value]  # click passes what the command gets


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _taken(values: dict[str, Any], kind: type[DataclassInstance]) -> dict[str, Any]:
    """Remove the values that are named like the fields of a dataclass, and return them."""
    return {field.name: values.pop(field.name) for field in fields(kind) if field.name in values}
