"""Variants of a spec: the same evaluation with different agent settings, for a comparison."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import Problem, SpecError
from assay.model.labels import VARIANT_LABEL
from assay.parsing.fields import Fields
from assay.parsing.names import name_problem
from assay.specs.loader import SpecFile, SpecReader, read_spec_file
from assay.specs.model import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.specs.loader import Environs

MAX_VARIANTS = 20
"""Maximum number of variants per spec."""

_MAX_NAME_CHARS = 100
_REPLACED = {"prompt": "prompt_file", "system": "system_file"}
"""Agent settings that replace each other."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a spec.

    Args:
        name: Its name in the comparison.
        values: Its values by path in the spec, e.g. {"agent.prompt_file": "terse.md"}.
        where: Its origin, for display, e.g. "--prompts terse.md"; empty for the spec.
    """

    name: str
    values: Mapping[str, Any]
    where: str = ""


def has_variants(path: Path) -> bool:
    """Return whether the spec in a file lists variants.

    Raises:
        SpecError: The file cannot be read.
    """
    return "variants" in read_spec_file(path).data


def load_variants(
    spec: Path | Mapping[str, Any],
    *,
    variants: Sequence[Variant] = (),
    overrides: Sequence[str] = (),
    dataset: Path | None = None,
    environs: Environs = (None, None),
) -> list[Spec]:
    """Return a checked spec for each variant of a spec, in order.

    Args:
        spec: The spec's file, a folder with an assay.yaml, or a mapping in the shape of the file, whose relative names
            are resolved against the current folder.
        variants: Variants that replace those of the spec.
        overrides: Changes to all of them in the form "key=value"; a variant's own values take precedence.
        dataset: A dataset that replaces the spec's.
        environs: The environments of agent and judge, as for `load_spec`.

    Raises:
        SpecError: A spec is invalid; holds every problem, with file and line.
    """
    file = read_spec_file(spec) if isinstance(spec, Path) else SpecFile.of_mapping(spec)
    problems = list(file.problems)
    chosen = list(variants) or _listed(file, problems)
    problems += _name_problems(chosen) if variants else []
    specs: list[Spec] = []
    by_variant: list[list[Problem]] = []
    for index, variant in enumerate(chosen):
        varied = dataclasses.replace(file, data=copy.deepcopy(_varied(file.data, variant)), problems=())
        own: list[Problem] = []
        try:
            read = SpecReader(varied, environs, variant=variant.values).read(overrides, dataset, None)
            specs.append(_marked(read, variant))
        except SpecError as error:
            own = list(error.problems)
        by_variant.append([_placed(problem, file, index, variant) for problem in own])
    problems += shared_first(by_variant, lambda index, problem: _of_variant(problem, index, chosen[index]))
    if problems:
        raise SpecError(problems)
    return specs


def shared_first(by_variant: Sequence[Sequence[Problem]], name: Callable[[int, Problem], Problem]) -> list[Problem]:
    """Return the problems of several variants: common ones once, then those of each variant with its name.

    Args:
        by_variant: The problems of each variant.
        name: Returns a problem of the variant at a position, with the variant's name.
    """
    shared = [problem for problem in by_variant[0] if all(problem in own for own in by_variant)] if by_variant else []
    named = [name(index, problem) for index, own in enumerate(by_variant) for problem in own if problem not in shared]
    return [*shared, *dict.fromkeys(named)]


def _varied(data: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """Return the spec without values that the variant replaces under another name: `prompt` by `prompt_file`."""
    agent = data.get("agent")
    if not isinstance(agent, dict):
        return data
    pairs = [
        pair for written, alternative in _REPLACED.items() for pair in ((written, alternative), (alternative, written))
    ]
    replaced = {alternative for written, alternative in pairs if f"agent.{written}" in variant.values}
    return {**data, "agent": {key: value for key, value in agent.items() if key not in replaced}}


def _marked(spec: Spec, variant: Variant) -> Spec:
    labels = {**spec.settings.labels, VARIANT_LABEL: variant.name}
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, labels=labels))


def _listed(file: SpecFile, problems: list[Problem]) -> list[Variant]:
    """Return the variants in a spec; append problems to `problems`."""
    value = file.data.get("variants")
    if not isinstance(value, list) or not 2 <= len(value) <= MAX_VARIANTS:
        message = f"must be a list of 2 to {MAX_VARIANTS} variants, each {{name: …, set: {{…}}}}"
        if value is None:
            message = "is missing: list what is compared, e.g. [{name: terse, set: {agent.prompt_file: terse.md}}, …]"
        problems.append(file.problem("variants", message))
        return []
    variants: dict[str, Variant] = {}
    for index, item in enumerate(value):
        variant = _variant(file, problems, item, f"variants[{index}]")
        if variant is not None and variant.name in variants:
            problems.append(file.problem(f"variants[{index}].name", f"{variant.name!r} is the name of two variants"))
        elif variant is not None:
            variants[variant.name] = variant
    return list(variants.values()) if len(variants) == len(value) else []


def _variant(file: SpecFile, problems: list[Problem], item: object, where: str) -> Variant | None:
    def report(key: str, message: str) -> None:
        problems.append(file.problem(f"{where}.{key}", message))

    if not isinstance(item, dict):
        problems.append(file.problem(where, "must be a mapping of `name` and `set`"))
        return None
    before = len(problems)
    Fields(item, report).unknown(("name", "set"), "field of a variant")
    name, values = item.get("name"), item.get("set", {})
    shown = str(name) if isinstance(name, str | int | float) and not isinstance(name, bool) else ""
    if problem := name_problem(shown, _MAX_NAME_CHARS):
        report("name", problem if name is not None else "is missing: name the variant")
    if not isinstance(values, dict):
        report("set", "must be a mapping such as {agent.prompt_file: terse.md}")
        return None
    for key in values:
        if str(key).partition(".")[0] != "agent":
            report(
                f"set.{key}",
                "is not of the agent: variants differ in `agent` and what is below it; all else is the same for all, "
                "or their rows could not be compared",
            )
    return Variant(shown, values) if len(problems) == before else None


def _name_problems(variants: Sequence[Variant]) -> list[Problem]:
    """Return the problems of names and number of variants that are not from a spec."""
    problems = [
        Problem(problem, variant.where)
        for variant in variants
        if (problem := name_problem(variant.name, _MAX_NAME_CHARS))
    ]
    if not 2 <= len(variants) <= MAX_VARIANTS:
        problems.append(
            Problem(f"gives {len(variants)} variant(s): 2 to {MAX_VARIANTS} are compared", variants[0].where)
        )
    return problems


def _placed(problem: Problem, file: SpecFile, index: int, variant: Variant) -> Problem:
    """Return a problem at the variant's value if that is the cause."""
    for key in variant.values:
        if problem.field == key or problem.field.startswith((f"{key}.", f"{key}[")):
            if variant.where:
                return Problem(problem.message, variant.where)
            field = f"variants[{index}].set.{problem.field}"
            line = file.lines.get(field) or file.lines.get(f"variants[{index}].set.{key}")
            return Problem(problem.message, field, str(file.path or ""), line)
    return problem


def _of_variant(problem: Problem, index: int, variant: Variant) -> Problem:
    """Return a problem that only some variants have, with its variant."""
    if problem.field.startswith("variants[") or problem.field == variant.where:
        return problem
    whose = variant.where or f"variants[{index}]"
    return dataclasses.replace(problem, field=f"{whose}: {problem.field}")
