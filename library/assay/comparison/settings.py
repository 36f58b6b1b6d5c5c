"""Validation of a comparison's settings and rules: all problems at once, before anything is read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from assay.comparison.model import Adjustment, ComparisonSettings, FailOn
from assay.errors import InvalidInputError, Problem
from assay.model.cluster_key import cluster_problem
from assay.model.limits import LARGEST_INTEGER
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import StrEnum

    from assay.comparison.decision import DecisionRules

E = TypeVar("E", bound="StrEnum")


def check_settings(
    settings: ComparisonSettings, rules: DecisionRules, *, adjust: str, fail_on: str, place: Callable[[str], str] = str
) -> tuple[ComparisonSettings, DecisionRules]:
    """Return settings and rules with `adjust`, `fail_on` and the chosen difference in them.

    Without an explicit difference, the margin or else the allowed drop is the chosen difference.

    Args:
        settings: The settings without the adjustment.
        rules: The rules without `fail_on`.
        adjust: A value of `Adjustment`.
        fail_on: A value of `FailOn`.
        place: Returns where the caller gives a setting or rule, by its name, such as "--max-drop" for "max_drop".

    Raises:
        InvalidInputError: A setting is invalid; the error lists every problem.
    """
    problems: list[Problem] = []

    def problem(message: str, name: str) -> None:
        problems.append(Problem(message, place(name)))

    sizes = (("margin", settings.margin), ("difference", settings.difference), ("max_drop", rules.max_drop))
    for name, value in sizes:
        if value is not None and not (math.isfinite(value) and value >= 0):
            problem(f"must be a number from 0, not {value!r}", name)
        if value == 0 and name != "max_drop":
            problem("must be above 0: no difference is smaller", name)
    if rules.max_drop_test and rules.max_drop is None:
        problem(
            f"needs {place('max_drop')}, the drop that has to be excluded: add it, or leave this one out",
            "max_drop_test",
        )
    _check_shares(settings, problem)
    if not 0 <= settings.seed <= LARGEST_INTEGER:
        problem(f"must be from 0 to {LARGEST_INTEGER}, not {settings.seed!r}", "seed")
    if wrong := cluster_problem(settings.cluster):
        problem(wrong, "cluster")
    adjustment, failing = _member(Adjustment, adjust), _member(FailOn, fail_on)
    if adjustment is None:
        problem(unknown_name("adjustment", adjust, [choice.value for choice in Adjustment]), "adjust")
    if failing is None:
        problem(unknown_name("choice", fail_on, [choice.value for choice in FailOn]), "fail_on")
    if settings.where:
        problems += _filter_problems(settings.where, place("where"))
    if problems or adjustment is None or failing is None:
        raise InvalidInputError(problems)
    difference = next((size for size in (settings.difference, settings.margin, rules.max_drop) if size), None)
    return replace(settings, adjust=adjustment, difference=difference), replace(rules, fail_on=failing)


def _check_shares(settings: ComparisonSettings, problem: Callable[[str, str], None]) -> None:
    for name, share, bound in (("alpha", settings.alpha, 0.5), ("power", settings.power, 1)):
        if not 0 < share < bound:
            problem(f"must be above 0 and below {bound}, not {share!r}", name)


def _member(members: type[E], value: str) -> E | None:
    return next((member for member in members if member.value == value), None)


def _filter_problems(where: str, name: str) -> Sequence[Problem]:
    from assay.filters.row_text import parse_row_filter

    try:
        parse_row_filter(where, where=name)
    except InvalidInputError as error:
        return error.problems
    return ()
