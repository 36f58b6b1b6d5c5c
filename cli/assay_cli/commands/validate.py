"""`assay validate`: every problem of a spec and its dataset, and nothing started or called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.datasets import FORMAT_NAMES, open_dataset
from assay.errors import AssayError, InvalidInputError, Problem
from assay.evaluation import check_inputs
from assay.local.stack import environment_for
from assay.spec.loading import load_spec
from assay.spec.overrides import apply_override
from assay.yaml_nodes import parse_yaml
from assay_cli.failures import EXIT_INFRASTRUCTURE
from assay_cli.options import (
    bad_case_option,
    dataset_overrides,
    debug_option,
    format_option,
    json_option,
    map_option,
    say_what_is_left_out,
)
from assay_cli.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["validate"]


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--dataset", type=click.Path(path_type=Path), help="A dataset in place of the spec's.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of the spec.")
@format_option
@map_option
@bad_case_option
@click.option(
    "--server",
    metavar="HOST:PORT",
    envvar="ASSAY_SERVER",
    help="Where it is to run: environment variables that SPEC names are that machine's, and not looked for here.",
)
@json_option
@debug_option
def validate(
    spec: Path,
    dataset: Path | None,
    overrides: tuple[str, ...],
    dataset_format: str | None,
    mapping: tuple[str, ...],
    on_bad_case: str | None,
    server: str | None,
    as_json: bool,
    debug: bool,
) -> int:
    """Check SPEC, its dataset and its agent's code; say what was recognised, or every problem at once."""
    problems: list[Problem] = []
    left_out = 0
    overrides = (*overrides, *dataset_overrides(dataset_format, mapping, on_bad_case))
    lines: list[str] = []
    try:
        checked = load_spec(spec, overrides=overrides, dataset=dataset, environ=environment_for(server))
    except InvalidInputError as error:
        return _finish([*error.problems, *_further_problems(spec, overrides, dataset)], lines, as_json)
    settings = checked.settings
    lines.append(f"spec     {settings.name}: {', '.join(metric.name for metric in settings.metrics)}")
    assert checked.dataset is not None, "load_spec refuses a spec without a dataset"
    try:
        cases = open_dataset(
            checked.dataset,
            field_map=checked.dataset_map,
            encoding=checked.dataset_encoding,
            on_bad_case=checked.on_bad_case,
            format=checked.dataset_format,
        )
        info = check_inputs(checked, cases)
        fields = ", ".join(f"{name} <- {source}" for name, source in info.mapping.items())
        lines.append(f"dataset  {info.name}: {info.case_count} cases, {info.format}, {fields}")
        lines += [f"warning  {warning}" for warning in info.warnings]
        left_out = info.left_out_count
        say_what_is_left_out(info)
    except InvalidInputError as error:
        problems += error.problems
    if settings.agent.adapter == "python":
        try:
            _check_code(settings.agent.target, checked.base_dir)
            lines.append(f"agent    {settings.agent.target}: found")
        except InvalidInputError as error:
            problems += error.problems
    return _finish(problems, lines, as_json, left_out)


def _further_problems(path: Path, overrides: tuple[str, ...], dataset: Path | None) -> list[Problem]:
    """Return what is wrong with the dataset and the agent's code of a spec that is wrong itself."""
    try:
        data, _ = parse_yaml(path.read_text(encoding="utf-8-sig"), file=str(path), problems=[])
    except (OSError, UnicodeDecodeError):
        return []
    if not isinstance(data, dict):
        return []
    for override in overrides:
        apply_override(data, override, [])
    problems: list[Problem] = []
    agent = data.get("agent")
    checks: list[Callable[[], None]] = [lambda: _check_dataset(data, dataset, path.parent)]
    if isinstance(agent, dict) and agent.get("adapter") == "python" and isinstance(agent.get("target"), str):
        checks.append(lambda: _check_code(agent["target"], path.parent))
    for check in checks:
        try:
            check()
        except InvalidInputError as error:
            problems += error.problems
        except AssayError:  # what this machine lacks is told once the spec is right
            pass
    return problems


def _check_dataset(data: dict[str, Any], dataset: Path | None, base_dir: Path) -> None:
    """Check the dataset that a spec names, as far as the spec says clearly what it is."""
    name, mapping = data.get("dataset"), data.get("map") or {}
    encoding, dataset_format = data.get("encoding"), data.get("format")
    if dataset is None and isinstance(name, str) and name.strip():
        dataset = base_dir / Path(name).expanduser()
    is_clear = isinstance(mapping, dict) and all(isinstance(source, str) for source in mapping.values())
    is_clear = is_clear and isinstance(encoding, str | None) and dataset_format in (None, *FORMAT_NAMES)
    if dataset is None or not is_clear:
        return
    field_map = {str(key): source for key, source in mapping.items()}
    skips = data.get("on_bad_case") == "skip"
    open_dataset(
        dataset,
        field_map=field_map,
        encoding=encoding,
        on_bad_case="skip" if skips else "refuse",
        format=dataset_format,
    ).check()


def _check_code(target: str, base_dir: Path) -> None:
    from assay.hosting.loading import load_agent

    load_agent(target, base_dir)


def _finish(problems: list[Problem], lines: list[str], as_json: bool, left_out: int = 0) -> int:
    if as_json:
        found = [
            {"message": problem.message, "field": problem.field, "file": problem.file, "line": problem.line}
            for problem in problems
        ]
        click.echo(json.dumps({"valid": not problems, "problems": found}, ensure_ascii=False, indent=1))
        return 2 if problems else EXIT_INFRASTRUCTURE if left_out else 0
    for line in lines:
        click.echo(clean(line))
    if problems:
        click.echo(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}:", err=True)
        for problem in problems:
            click.echo(f"  {clean(str(problem))}", err=True)
        return 2
    if left_out:
        click.echo("incomplete: a run would leave out the wrong records that are listed above", err=True)
        return EXIT_INFRASTRUCTURE
    click.echo("valid")
    return 0
