"""`assay validate`: report every problem of a spec and its dataset, without starting or calling anything."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.datasets.choices import FORMAT_NAMES
from assay.errors import AssayError, InvalidInputError, Problem, count_problems
from assay.model.command_options import command_line
from assay.model.run_spec import AgentSpec
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean, without_commands
from assay_cli.exit_status import EXIT_INFRASTRUCTURE
from assay_cli.options.cases import selection_options
from assay_cli.options.shared import (
    bad_case_option,
    check_address,
    dataset_overrides,
    debug_option,
    format_option,
    json_option,
    list_left_out_records,
    map_option,
    overrides_option,
    prices_option,
    use_prices,
)
from assay_cli.output.documents import print_document, record
from assay_cli.output.streams import agent_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.datasets import DatasetInfo
    from assay.model.run_spec import CaseSelection, MetricSpec, RunSpec
    from assay.specs.model import Spec


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), default=".")
@click.option("--dataset", type=click.Path(path_type=Path), help="Dataset to check; default: the spec's.")
@selection_options
@overrides_option
@format_option
@map_option
@bad_case_option
@prices_option
@click.option(
    "--server",
    metavar="HOST:PORT",
    envvar="ASSAY_SERVER",
    callback=check_address,
    help="Orchestrator that will run SPEC; its environment variables count instead of the local ones; default: the "
    "local stack.",
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
    """Check SPEC, its dataset, and the code of its agent and metrics; report what was recognised, or every problem.

    SPEC is a file or a folder with an assay.yaml; the default is this folder. The whole dataset is checked, whatever
    cases are selected, except with --limit or --quick alone.

    \b
        assay validate
        assay validate assay.yaml --set repeats=3
    """
    from assay.client.variants import name_of
    from assay.local_stack.stack import environment_for
    from assay.reports.words.judging_text import judge_lines
    from assay.specs.loader import find_spec_file, load_spec
    from assay.specs.variants import has_variants, load_variants

    findings = _Findings()
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
        findings.problems += error.problems
        _find_more(findings, spec, overrides, dataset)
        return _finish(findings, as_json)
    settings = specs[0].settings
    findings.lines.append(f"spec     {settings.name}: {', '.join(metric.name for metric in settings.metrics)}")
    if len(specs) > 1:
        findings.lines.append(f"variants {', '.join(map(name_of, specs))}")
    _check_cases(findings, specs, selection, spec, local=server is None)
    checks = findings.info.checks if findings.info is not None else ()
    judged = [variant.settings for variant in specs if variant.needs_judge(checks)]
    environ = os.environ if server is None else None
    lines = [line.partition("  ") for settings in judged for line in judge_lines(settings, environ)]
    findings.lines += [f"{kind:<9}{who}" for kind, _, who in dict.fromkeys(lines)]
    hosted = [variant for variant in specs if variant.settings.agent.is_hosted]
    while hosted:
        agent = hosted[0].settings.agent
        having = [variant for variant in hosted if variant.settings.agent == agent]
        hosted = [variant for variant in hosted if variant.settings.agent != agent]
        variants = [name_of(variant) for variant in having] if len(specs) > 1 else []
        if findings.agent_opens(agent, having[0].base_dir, spec, variants, having[0].settings):
            findings.lines.append(f"agent    {agent.target}: found")
    targets: dict[str, str] = {}
    for variant in specs:
        new = {name: target for name, target in variant.settings.function_targets.items() if name not in targets}
        targets |= new
        if new and findings.metrics_open(variant.settings.metrics, variant.base_dir, spec):
            findings.lines += [f"metric   {name}: {target} found" for name, target in new.items()]
    return _finish(findings, as_json)


def _check_cases(
    findings: _Findings, specs: Sequence[Spec], selection: CaseSelection, spec: Path, *, local: bool
) -> None:
    """Check the dataset for every variant, and collect the findings.

    Args:
        findings: Collects the findings.
        specs: The spec, or one per variant.
        selection: Selection of cases.
        spec: Path of the spec.
        local: Whether the run will use this machine, and its models.
    """
    from assay.client.input_checks import check_inputs
    from assay.client.variants import check_variants
    from assay.local_stack.model_files import model_problem

    try:
        cases = specs[0].open_dataset(selection)
        info = check_inputs(specs[0], cases) if len(specs) == 1 else check_variants(specs, cases)
        if local:
            models = {model: None for variant in specs for model in variant.embedding_models(info.checks)}
            findings.problems += [
                Problem(f"the embedding model {model!r} {problem}", file=str(spec), field="metrics")
                for model in models
                if (problem := model_problem(model))
            ]
        findings.info = info
        fields = ", ".join(f"{name} <- {source}" for name, source in info.mapping.items())
        cases_text = _cases_text(info)
        findings.lines.append(f"dataset  {info.name}: {cases_text}, {info.format}, {fields}")
        findings.lines += [f"warning  {warning}" for warning in info.warnings]
        findings.warnings += info.warnings
        findings.left_out = info.left_out_count
        list_left_out_records(info)
    except InvalidInputError as error:
        findings.problems += error.problems


def _cases_text(info: DatasetInfo) -> str:
    """Return the number of selected cases, and of all cases."""
    counted = info.selection
    if counted is None or counted.total_count is None:
        return count_text(info.case_count, "case")
    return f"{info.case_count:,} of {count_text(counted.total_count, 'case')}"


@dataclass
class _Findings:
    """Findings: problems, warnings, recognised settings, the dataset, and the traceback of failing code."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    agent_traceback: str = ""
    left_out: int = 0
    info: DatasetInfo | None = None

    def agent_opens(
        self,
        agent: AgentSpec,
        base_dir: Path,
        spec: Path,
        variants: Sequence[str] = (),
        settings: RunSpec | None = None,
    ) -> bool:
        """Load the agent's code or program, and collect its problems for these variants; return whether it loads."""
        from assay.agent_host.user_code import open_caller
        from assay.client.input_checks import check_questions

        def load() -> None:
            caller = open_caller(agent, base_dir)
            if self.info is not None:
                check_questions(caller, self.info, settings)

        return self._opens(load, spec, variants)

    def metrics_open(self, metrics: Sequence[MetricSpec], base_dir: Path, spec: Path) -> bool:
        """Load the Python metrics, and collect their problems; return whether they load."""
        from assay.agent_host.metric_functions import load_metric_functions

        return self._opens(lambda: load_metric_functions(metrics, base_dir), spec)

    def _opens(self, load: Callable[[], object], spec: Path, variants: Sequence[str] = ()) -> bool:
        from assay.agent_host.loader import AgentImportError
        from assay.client.variants import problems_of_variants

        try:
            with agent_stdout():  # output during the import is not a result
                load()
        except InvalidInputError as error:
            named = problems_of_variants(dict.fromkeys(error.problems, variants))
            self.problems += [replace(problem, file=problem.file or str(spec)) for problem in named]
            if isinstance(error, AgentImportError):
                self.agent_traceback = self.agent_traceback or error.user_traceback
            return False
        return True


def _find_more(findings: _Findings, path: Path, overrides: tuple[str, ...], dataset: Path | None) -> None:
    """Collect the problems of the dataset and the code of an invalid spec."""
    from assay.parsing.yaml_nodes import parse_yaml
    from assay.specs.agents import ADAPTERS
    from assay.specs.dataset_keys import lift_dataset_keys
    from assay.specs.overrides import apply_override

    try:
        data, _ = parse_yaml(path.read_text(encoding="utf-8-sig"), file=str(path), problems=[])
    except (OSError, UnicodeDecodeError):
        return
    if not isinstance(data, dict):
        return
    lift_dataset_keys(data, lambda field, message: None)  # reported already
    for override in overrides:
        apply_override(data, override, [])
    try:
        _check_dataset(data, dataset, path.parent)
    except InvalidInputError as error:
        findings.problems += error.problems
    except AssayError:  # missing packages are reported once the spec is valid
        pass
    if metrics := _named_functions(data):
        findings.metrics_open(metrics, path.parent, path)
    agent = data.get("agent")
    if not isinstance(agent, dict) or not isinstance(agent.get("adapter"), str):
        return
    target = command_line(agent.get("target"))
    if not isinstance(target, str) or any(problem.field == "agent.target" for problem in findings.problems):
        return
    settings = AgentSpec(agent["adapter"], target)
    if settings.is_hosted and settings.adapter in ADAPTERS:
        findings.agent_opens(settings, path.parent, path)


def _named_functions(data: dict[str, Any]) -> list[MetricSpec]:
    """Return the Python metrics of an invalid spec at their positions; other metrics get no kind."""
    from assay.metrics import complete_parameters
    from assay.metrics.python import function_problem, names_function, own_name
    from assay.model.run_spec import FUNCTION_METRIC, MetricSpec

    metrics = []
    listed = data.get("metrics")
    for item in listed if isinstance(listed, list) else ():
        name, entry = next(iter(item.items()), ("", None)) if isinstance(item, dict) else (item, {"function": item})
        target = entry.get("function") if isinstance(entry, dict) else None
        name = own_name(name) if names_function(name) else str(name)
        settings = MetricSpec(name, {}, "none")
        with contextlib.suppress(InvalidInputError):  # reported already
            if names_function(target) and not function_problem({"function": target}):
                parameters = complete_parameters(FUNCTION_METRIC, {"function": target}, where=name)
                settings = MetricSpec(name, parameters, FUNCTION_METRIC)
        metrics.append(settings)
    return metrics if any(metric.is_function for metric in metrics) else []


def _check_dataset(data: dict[str, Any], dataset: Path | None, base_dir: Path) -> None:
    """Check the dataset of an invalid spec, as far as its settings are clear."""
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


def _finish(findings: _Findings, as_json: bool) -> int:
    problems = findings.problems
    if as_json:
        document = {
            "valid": not problems,
            "problems": list(map(record, problems)),
            "warnings": list(map(record, findings.warnings)),
            "agent_traceback": findings.agent_traceback or None,
        }
        print_document("validation", document)
        return 2 if problems else EXIT_INFRASTRUCTURE if findings.left_out else 0
    for line in findings.lines:
        click.echo(without_commands(clean(line)))
    if problems:
        click.echo(f"{count_text(count_problems(problems), 'problem')}:", err=True)
        for problem in problems:
            click.echo(without_commands(f"  {clean(str(problem))}"), err=True)
        if findings.agent_traceback:
            click.echo(without_commands(clean(findings.agent_traceback, keep_lines=True)), err=True)
        return 2
    if findings.left_out:
        click.echo("incomplete: a run would leave out the bad records listed above", err=True)
        return EXIT_INFRASTRUCTURE
    click.echo("valid")
    return 0
