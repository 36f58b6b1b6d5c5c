"""`assay validate`: every problem of a spec and its dataset, and nothing started or called."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.datasets.choices import FORMAT_NAMES
from assay.errors import AssayError, InvalidInputError, Problem, count_problems
from assay.model.command_options import command_line
from assay.model.run_settings import AgentSettings
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean, json_text, without_commands
from assay_cli.exit_status import EXIT_INFRASTRUCTURE
from assay_cli.options.cases import selection_options
from assay_cli.options.shared import (
    bad_case_option,
    check_address,
    dataset_overrides,
    debug_option,
    format_option,
    json_option,
    map_option,
    prices_option,
    say_what_is_left_out,
    use_prices,
)
from assay_cli.output.streams import agent_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.datasets import DatasetInfo
    from assay.model.run_settings import CaseSelection, MetricSettings, RunSettings
    from assay.specs.model import Spec


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), default=".")
@click.option("--dataset", type=click.Path(path_type=Path), help="Dataset to check; default: the spec's.")
@selection_options
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a value of the spec, e.g. agent.timeout=5s; repeatable.",
)
@format_option
@map_option
@bad_case_option
@prices_option
@click.option(
    "--server",
    metavar="HOST:PORT",
    envvar="ASSAY_SERVER",
    callback=check_address,
    help="Orchestrator that will run SPEC: its environment variables count, not those here; default: the local stack.",
)
@json_option
@debug_option
def validate(
    spec: Path,
    dataset: Path | None,
    selection: CaseSelection,
    overrides: tuple[str, ...],
    dataset_format: str | None,
    mapping: tuple[str, ...],
    on_bad_case: str | None,
    prices: Path | None,
    server: str | None,
    as_json: bool,
) -> int:
    """Check SPEC, its dataset, and the code of its agent and metrics; say what was recognised, or every problem.

    SPEC is a file or a folder with an assay.yaml; the default is this folder. The whole dataset is checked, whatever
    cases are selected, except with --limit or --quick alone.

    \b
        assay validate
        assay validate assay.yaml --set repeats=3
    """
    from assay.client.variants import name_of
    from assay.local_stack.stack import environment_for
    from assay.reports.words.judging_text import judge_line
    from assay.specs.loader import find_spec_file, load_spec
    from assay.specs.variants import has_variants, load_variants

    found = _Findings()
    use_prices(prices, server)
    spec = find_spec_file(spec)
    overrides = (*overrides, *dataset_overrides(dataset_format, mapping, on_bad_case))
    agent_environ, judge_environ = environment_for(server), environment_for(server, "judge")
    try:
        if has_variants(spec):
            environs = (agent_environ, judge_environ)
            specs = load_variants(spec, overrides=overrides, dataset=dataset, environs=environs)
        else:
            specs = [
                load_spec(
                    spec, overrides=overrides, dataset=dataset, environ=agent_environ, judge_environ=judge_environ
                )
            ]
    except InvalidInputError as error:
        found.problems += error.problems
        _find_more(found, spec, overrides, dataset)
        return _finish(found, as_json)
    settings = specs[0].settings
    found.lines.append(f"spec     {settings.name}: {', '.join(metric.name for metric in settings.metrics)}")
    if len(specs) > 1:
        found.lines.append(f"variants {', '.join(map(name_of, specs))}")
    _check_cases(found, specs, selection, spec, local=server is None)
    checks = found.info.checks if found.info is not None else ()
    judges = [one.settings.judge for one in specs if one.settings.judge is not None and one.needs_judge(checks)]
    lines = [judge_line(judge, os.environ if server is None else None).partition("  ") for judge in judges]
    found.lines += [f"{kind:<9}{who}" for kind, _, who in dict.fromkeys(lines)]
    hosted = [one for one in specs if one.settings.agent.is_hosted]
    while hosted:
        agent = hosted[0].settings.agent
        having = [one for one in hosted if one.settings.agent == agent]
        hosted = [one for one in hosted if one.settings.agent != agent]
        variants = [name_of(one) for one in having] if len(specs) > 1 else []
        if found.agent_opens(agent, having[0].base_dir, spec, variants, having[0].settings):
            found.lines.append(f"agent    {agent.target}: found")
    targets: dict[str, str] = {}
    for one in specs:
        new = {name: target for name, target in one.settings.function_targets.items() if name not in targets}
        targets |= new
        if new and found.metrics_open(one.settings.metrics, one.base_dir, spec):
            found.lines += [f"metric   {name}: {target} found" for name, target in new.items()]
    return _finish(found, as_json)


def _check_cases(found: _Findings, specs: Sequence[Spec], selection: CaseSelection, spec: Path, *, local: bool) -> None:
    """Check the dataset for each variant, and take in what it is.

    Args:
        found: Where findings go.
        specs: The spec, or one for each variant.
        selection: Which cases.
        spec: The spec's file.
        local: Whether the run will be on this machine, so that models are on its disk.
    """
    from assay.client.run_driver import check_inputs
    from assay.client.variants import check_variants
    from assay.datasets import open_dataset
    from assay.local_stack.model_files import model_problem

    checked = specs[0]
    assert checked.dataset is not None, "load_spec refuses a spec without a dataset"
    try:
        cases = open_dataset(
            checked.dataset,
            field_map=checked.dataset_map,
            encoding=checked.dataset_encoding,
            selection=selection,
            on_bad_case=checked.on_bad_case,
            format=checked.dataset_format,
        )
        info = check_inputs(checked, cases) if len(specs) == 1 else check_variants(specs, cases)
        if local:
            models = {model: None for one in specs for model in one.embedding_models(info.checks)}
            found.problems += [
                Problem(f"the embedding model {model!r} {problem}", file=str(spec), field="metrics")
                for model in models
                if (problem := model_problem(model))
            ]
        found.info = info
        fields = ", ".join(f"{name} <- {source}" for name, source in info.mapping.items())
        cases_text = _cases_text(info)
        found.lines.append(f"dataset  {info.name}: {cases_text}, {info.format}, {fields}")
        found.lines += [f"warning  {warning}" for warning in info.warnings]
        found.warnings += info.warnings
        found.left_out = info.left_out_count
        say_what_is_left_out(info)
    except InvalidInputError as error:
        found.problems += error.problems


def _cases_text(info: DatasetInfo) -> str:
    """Return how many cases a run would be over, of how many."""
    counted = info.selection
    if counted is None or counted.total_count is None:
        return count_text(info.case_count, "case")
    return f"{info.case_count:,} of {count_text(counted.total_count, 'case')}"


@dataclass
class _Findings:
    """What was found: problems, warnings, lines on what was recognised, the dataset, the traceback of failing code."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    agent_traceback: str = ""
    left_out: int = 0
    info: DatasetInfo | None = None

    def agent_opens(
        self,
        agent: AgentSettings,
        base_dir: Path,
        spec: Path,
        variants: Sequence[str] = (),
        settings: RunSettings | None = None,
    ) -> bool:
        """Take in what is wrong with the agent's code or program, for these variants; return whether nothing is."""
        from assay.agent_host.user_code import open_caller
        from assay.client.run_driver import check_questions

        def load() -> None:
            caller = open_caller(agent, base_dir)
            if self.info is not None:
                check_questions(caller, self.info, settings)

        return self._opens(load, spec, variants)

    def metrics_open(self, metrics: Sequence[MetricSettings], base_dir: Path, spec: Path) -> bool:
        """Take in what is wrong with metrics in Python code; return whether nothing is."""
        from assay.agent_host.metric_functions import load_metric_functions

        return self._opens(lambda: load_metric_functions(metrics, base_dir), spec)

    def _opens(self, load: Callable[[], object], spec: Path, variants: Sequence[str] = ()) -> bool:
        from assay.agent_host.loader import AgentImportError
        from assay.client.variants import problems_of_variants

        try:
            with agent_stdout():  # what it prints while it is imported is no result
                load()
        except InvalidInputError as error:
            named = problems_of_variants(dict.fromkeys(error.problems, variants))
            self.problems += [replace(problem, file=problem.file or str(spec)) for problem in named]
            if isinstance(error, AgentImportError):
                self.agent_traceback = self.agent_traceback or error.user_traceback
            return False
        return True


def _find_more(found: _Findings, path: Path, overrides: tuple[str, ...], dataset: Path | None) -> None:
    """Take in what is wrong with the dataset and the agent's code of a spec that is wrong itself."""
    from assay.parsing.yaml_nodes import parse_yaml
    from assay.specs.dataset_keys import lift_dataset_keys
    from assay.specs.overrides import apply_override

    try:
        data, _ = parse_yaml(path.read_text(encoding="utf-8-sig"), file=str(path), problems=[])
    except (OSError, UnicodeDecodeError):
        return
    if not isinstance(data, dict):
        return
    lift_dataset_keys(data, lambda field, message: None)  # which is reported already
    for override in overrides:
        apply_override(data, override, [])
    try:
        _check_dataset(data, dataset, path.parent)
    except InvalidInputError as error:
        found.problems += error.problems
    except AssayError:  # what this machine lacks is reported once the spec is right
        pass
    if metrics := _named_functions(data):
        found.metrics_open(metrics, path.parent, path)
    agent = data.get("agent")
    if not isinstance(agent, dict) or not isinstance(agent.get("adapter"), str):
        return
    target = command_line(agent.get("target"))
    if not isinstance(target, str) or any(problem.field == "agent.target" for problem in found.problems):
        return
    settings = AgentSettings(agent["adapter"], target)
    if settings.is_hosted:
        found.agent_opens(settings, path.parent, path)


def _named_functions(data: dict[str, Any]) -> list[MetricSettings]:
    """Return the metrics in Python code of a spec that is wrong, each at its place; others are of no kind."""
    from assay.metrics import complete_parameters
    from assay.metrics.python import names_function, own_name
    from assay.model.run_settings import FUNCTION_METRIC, MetricSettings

    found = []
    listed = data.get("metrics")
    for item in listed if isinstance(listed, list) else ():
        name, given = next(iter(item.items()), ("", None)) if isinstance(item, dict) else (item, {"metric": item})
        target = given.get("metric") if isinstance(given, dict) else None
        name = own_name(name) if names_function(name) else str(name)
        settings = MetricSettings(name, {}, "none")
        with contextlib.suppress(InvalidInputError):  # which is reported already
            if names_function(target):
                parameters = complete_parameters(FUNCTION_METRIC, {"function": target}, where=name)
                settings = MetricSettings(name, parameters, FUNCTION_METRIC)
        found.append(settings)
    return found if any(metric.is_function for metric in found) else []


def _check_dataset(data: dict[str, Any], dataset: Path | None, base_dir: Path) -> None:
    """Check the dataset that a spec names, as far as the spec says clearly what it is."""
    from assay.datasets import open_dataset

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


def _finish(found: _Findings, as_json: bool) -> int:
    problems = found.problems
    if as_json:
        document = {
            "valid": not problems,
            "problems": [asdict(problem) for problem in problems],
            "warnings": [asdict(warning) for warning in found.warnings],
            "agent_traceback": found.agent_traceback or None,
        }
        click.echo(json_text(document, indent=1))
        return 2 if problems else EXIT_INFRASTRUCTURE if found.left_out else 0
    for line in found.lines:
        click.echo(without_commands(clean(line)))
    if problems:
        click.echo(f"{count_text(count_problems(problems), 'problem')}:", err=True)
        for problem in problems:
            click.echo(without_commands(f"  {clean(str(problem))}"), err=True)
        if found.agent_traceback:
            click.echo(without_commands(clean(found.agent_traceback, keep_lines=True)), err=True)
        return 2
    if found.left_out:
        click.echo("incomplete: a run would leave out the bad records that are listed above", err=True)
        return EXIT_INFRASTRUCTURE
    click.echo("valid")
    return 0
