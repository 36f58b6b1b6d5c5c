"""Building a checked spec from YAML or a mapping."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.datasets.choices import FORMAT_NAMES, ON_BAD_CASE
from assay.errors import InvalidInputError, Problem, SpecError
from assay.gates.gates import parse_gate
from assay.metrics import METRICS, complete_parameters, count_problem, known_kind
from assay.metrics.formula import with_own_numbers
from assay.metrics.python import function_problem, names_function, own_name
from assay.metrics.rows.order import check_metrics
from assay.model.cluster_key import cluster_problem
from assay.model.command_options import COMMAND_KEYS, CommandOptions, command_line
from assay.model.labels import label_problems
from assay.model.limits import MAX_REPEATS, MAX_RUN_WEIGHT, MAX_TEAM_CHARS, MIN_RUN_WEIGHT
from assay.model.report_settings import ReportSettings
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.model.run_spec import FUNCTION_METRIC, MAX_ERRORS, TURN_SCORES
from assay.model.trace_settings import TRACES_KEY
from assay.parsing.fields import Fields
from assay.parsing.names import metric_name_problem, name_problem, unknown_name, writable
from assay.parsing.quantities import read_share
from assay.parsing.yaml_nodes import Lines, parse_yaml
from assay.specs.agents import ADAPTERS, IN_PROCESS_KEYS, check_agent, check_hosted
from assay.specs.approvals import check_approvals, read_spec_approvals
from assay.specs.dataset_keys import lift_dataset_keys
from assay.specs.grpc_options import GRPC_KEYS, read_ca_file
from assay.specs.judge_reader import JudgesReader, has_judge
from assay.specs.model import Spec, wants_verdicts
from assay.specs.overrides import apply_override, gate_on_left_out, select_metrics, set_value
from assay.specs.presets import PRESETS, preset_gates, preset_metrics, preset_reports
from assay.specs.prompt_options import PROMPT_KEYS, PROVIDERS, read_prompt_files
from assay.specs.reports import read_reports
from assay.specs.server_options import A2A_KEYS, ADK_SERVER_KEYS, HTTP_KEYS
from assay.specs.variables import missing_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.approvals import Approval

    Environs = tuple[Mapping[str, str] | None, Mapping[str, str] | None]
    """The environments of the agent and of the judge, as for `load_spec`."""

SPEC_FILE = "assay.yaml"
"""The spec's file name if only its folder is given."""

_KEYS = ("name", "preset", "dataset", "format", "map", "encoding", "on_bad_case", "agent", "metrics", "judge", "judges",
         "spend_cap", "gates", "repeats", "reports", "team", "weight", "max_agent_errors", "max_metric_errors",
         "turns", "labels", "note", "cluster", "approvals", "variants")  # fmt: skip
_AGENT_KEYS = ("adapter", "target", "timeout", "concurrency", "retries")
_OPTION_KEYS = {"http": HTTP_KEYS, "a2a": A2A_KEYS, "grpc": GRPC_KEYS, "command": COMMAND_KEYS, **IN_PROCESS_KEYS}
_OPTION_KEYS |= dict.fromkeys(PROVIDERS, PROMPT_KEYS)
_OPTION_KEYS["adk"] += ADK_SERVER_KEYS


def find_spec_file(path: Path) -> Path:
    """Return the spec's file: the path itself, or the assay.yaml in that folder.

    Raises:
        SpecError: The folder contains none.
    """
    if not path.is_dir():
        return path
    file = path / SPEC_FILE
    if file.is_file():
        return file
    folder = "this folder" if path == Path() else f"the folder {path}"
    message = f"there is no {SPEC_FILE} in {folder}: name the spec's file, or write one with `assay init PRESET`"
    raise SpecError([Problem(message, file=str(path.resolve()))])


def load_spec(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    dataset: Path | None = None,
    metrics: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    judge_environ: Mapping[str, str] | None = None,
) -> Spec:
    """Return the spec in a YAML file.

    Args:
        path: The file, or a folder with an assay.yaml.
        overrides: Changes in the form "key=value".
        dataset: A dataset that replaces the spec's.
        metrics: The names of the metrics to compute; None for all.
        environ: The environment that the agent will be called from, in which every variable of the spec must be set;
            None if it is on another machine.
        judge_environ: The judge's environment, likewise.

    Raises:
        SpecError: The spec is invalid; holds every problem, with file and line.
    """
    reader = SpecReader(read_spec_file(path), (environ, judge_environ))
    return reader.read(overrides, dataset, metrics)


@dataclass(frozen=True, slots=True)
class SpecFile:
    """The unchecked contents of a spec.

    Args:
        data: The parsed contents.
        folder: The folder that relative names are resolved against.
        path: The file; None if the spec is a mapping.
        lines: The line of every value.
        problems: Values that are valid YAML but not accepted by Assay.
    """

    data: dict[str, Any]
    folder: Path
    path: Path | None = None
    lines: Lines = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of_mapping(cls, data: Mapping[str, Any], folder: Path | None = None) -> SpecFile:
        """Return a spec given as a mapping, which is copied: reading a spec changes it.

        Raises:
            SpecError: It is nested too deep.
        """
        try:
            return cls(copy.deepcopy(dict(data)), folder or Path.cwd())
        except RecursionError:
            raise SpecError("the spec is nested too deep") from None

    def problem(self, field_name: str, message: str) -> Problem:
        """Return a problem of a field with the file and the line of the field, or of the nearest one around it."""
        line, around = self.lines.get(field_name), field_name
        while line is None and around:
            around = around.rpartition(".")[0]
            line = self.lines.get(around) if around else None
        return Problem(message, field_name, "" if self.path is None else str(self.path), line)


def read_spec_file(path: Path) -> SpecFile:
    """Return the unchecked contents of a spec's file.

    Args:
        path: The file, or a folder with an assay.yaml.

    Raises:
        SpecError: The file cannot be read or is not a mapping; holds every problem.
    """
    problems: list[Problem] = []
    path = find_spec_file(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError([Problem("there is no such file: check the name, or write one", file=str(path))]) from None
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {error.strerror}", file=str(path))]) from None
    except UnicodeDecodeError as error:
        raise SpecError([Problem(f"is not UTF-8 (byte {error.start}): save it as UTF-8", file=str(path))]) from None
    data, lines = parse_yaml(text, file=str(path), problems=problems)
    if problems and data is None:
        raise SpecError(problems)
    if not isinstance(data, dict):
        raise SpecError([Problem("must be a mapping with `dataset` and `agent`", file=str(path))])
    return SpecFile(data, path.parent, path, lines, tuple(problems))


def spec_from_mapping(
    data: Mapping[str, Any],
    *,
    base_dir: Path | None = None,
    overrides: Sequence[str] = (),
    dataset: Path | None = None,
    metrics: Sequence[str] | None = None,
    needs_dataset: bool = True,
    needs_agent: bool = True,
    environ: Mapping[str, str] | None = None,
    judge_environ: Mapping[str, str] | None = None,
) -> Spec:
    """Return the spec in a mapping that has the shape of the YAML file.

    Args:
        data: The spec.
        base_dir: The folder that relative names are resolved against; None for the current one.
        overrides: Changes in the form "key=value".
        dataset: A dataset that replaces the spec's.
        metrics: The names of the metrics to compute; None for all.
        needs_dataset: Whether a missing dataset is a problem.
        needs_agent: Whether a missing agent is a problem; otherwise, a Python agent is assumed.
        environ: As for `load_spec`.
        judge_environ: As for `load_spec`.

    Raises:
        SpecError: The spec is invalid; holds every problem.
    """
    reader = SpecReader(SpecFile.of_mapping(data, base_dir), (environ, judge_environ))
    return reader.read(overrides, dataset, metrics, needs_dataset=needs_dataset, needs_agent=needs_agent)


class SpecReader:
    """Reads a spec and collects its problems.

    Args:
        file: The spec; its data is changed.
        environs: The environments of agent and judge, as for `load_spec`.
        variant: The variant's values by path in the spec; None if there are no variants.
    """

    def __init__(self, file: SpecFile, environs: Environs, *, variant: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._data = file.data
        self._fields = Fields(file.data, self._report)
        self._base_dir = file.folder
        self._problems = list(file.problems)
        self._environ, self._judge_environ = environs
        self._variant = variant
        self._problems_of_judges: list[Problem] = []
        self._judges = JudgesReader(file.folder, self._problems_of_judges)
        self._judge_problems: tuple[Problem, ...] = ()

    def read(
        self,
        overrides: Sequence[str],
        dataset: Path | None,
        metrics: Sequence[str] | None,
        *,
        needs_dataset: bool = True,
        needs_agent: bool = True,
    ) -> Spec:
        """Return the checked spec.

        Raises:
            SpecError: The spec is invalid; holds every problem.
        """
        data = self._data
        lift_dataset_keys(data, self._report)
        preset = self._fill_preset()
        own_name = data.get("name", self._default_name())
        for override in overrides:
            apply_override(data, override, self._problems)
        self._vary()
        lines = self._lines_by_name()
        if standard := bool(preset) and data.get("metrics") == preset_metrics(preset):
            data["metrics"] = preset_metrics(preset, judged=has_judge(data))
        left_out = select_metrics(data, metrics) if metrics is not None else []
        fields = self._fields
        fields.unknown(_KEYS)
        self._judges.read(data)
        chosen = self._judged(self._metrics())
        repeats = fields.whole("repeats", 1, 1, MAX_REPEATS)
        spec = Spec(
            settings=RunSpec(
                name=self._name(),
                agent=self._agent(needs_agent),
                metrics=chosen,
                gates=self._gates({metric.name: metric.kind for metric in chosen}, repeats, left_out)
                if "gates" in data or not preset
                else preset_gates(preset, chosen, standard=standard, judged=has_judge(data)),
                repeats=repeats,
                preset=preset,
                judges=tuple(self._judges.judges),
                spend_cap_nano_usd=self._judges.spend_cap_nano_usd,
                team=self._team(),
                weight=fields.number("weight", 1.0, MIN_RUN_WEIGHT, MAX_RUN_WEIGHT) or 1.0,
                max_agent_errors=self._share("max_agent_errors"),
                max_metric_errors=self._share("max_metric_errors"),
                turns=fields.choice("turns", TURN_SCORES),
                labels=self._labels(),
                note=self._note(),
                cluster=self._cluster(),
                approvals=self._approvals(),
            ),
            dataset=self._dataset(dataset, needs_dataset),
            dataset_map=self._map(),
            dataset_encoding=fields.text("encoding") or None,
            dataset_format=self._format(),
            on_bad_case=fields.choice("on_bad_case", ON_BAD_CASE),
            reports=self._reports(preset),
            base_dir=self._base_dir.absolute(),  # an agent may change the current folder
            recorded_verdicts=self._judges.recorded,
            judge_problems=self._judge_problems,
            lines=lines,
            source=self._file.path,
        )
        self._take(check_approvals(spec.settings))
        if self._problems:
            raise SpecError(self._problems)
        return spec if spec.settings.name == own_name else self._named_otherwise(spec, own_name)

    def _vary(self) -> None:
        """Apply the variant's values to the spec; a spec with variants cannot be run by itself."""
        if self._variant is None:
            if "variants" in self._data:
                self._report("variants", "are run and compared by `assay compare`: run that, or remove them")
            return
        self._data.pop("variants", None)
        for key, value in self._variant.items():
            set_value(self._data, key, copy.deepcopy(value), self._problems, key)

    def _lines_by_name(self) -> dict[str, int]:
        """Return the lines of the file, with metrics by name: selecting metrics changes their positions."""
        lines = {path: line for path, line in self._file.lines.items() if not path.startswith("metrics[")}
        listed = self._data.get("metrics")
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            name = next(iter(item), "") if isinstance(item, dict) else own_name(item) if names_function(item) else item
            place = f"metrics[{index}]"
            for path, line in self._file.lines.items():
                if path in (place, f"{place}.{name}") or path.startswith(f"{place}.{name}."):
                    lines[f"metrics.{name}{path.removeprefix(place).removeprefix(f'.{name}')}"] = line
        return lines

    def _report(self, field: str, message: str) -> None:
        self._problems.append(self._file.problem(field, message))

    def _take(self, problems: Sequence[Problem]) -> None:
        for problem in problems:
            self._report(problem.field, problem.message)

    def _fill_preset(self) -> str:
        name = self._data.get("preset", "")
        if not name:
            return ""
        if not isinstance(name, str) or name not in PRESETS:
            self._report("preset", unknown_name("preset", name, PRESETS))
            self._data.setdefault("metrics", ["latency"])  # so that a mistake is reported only once
            return ""
        if "metrics" not in self._data:
            self._data["metrics"] = preset_metrics(name)
        return name

    def _default_name(self) -> str:
        return (writable(self._base_dir.resolve().name) or "run")[:200]

    def _named_otherwise(self, spec: Spec, own_name: object) -> Spec:
        """Return a spec renamed by an option, together with the name in its file if that is valid."""
        name = str(own_name).strip()
        if name == spec.settings.name or name_problem(name, 200):
            return spec
        return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, spec_name=name))

    def _name(self) -> str:
        default = self._default_name()
        name = self._data.get("name", default)
        if not isinstance(name, str | int) or isinstance(name, bool) or not 1 <= len(str(name).strip()) <= 200:
            self._report("name", f"must be a string of 1 to 200 characters, not {name!r}")
            return default
        if problem := name_problem(str(name).strip(), 200):
            self._report("name", problem)
        return str(name).strip()

    def _team(self) -> str:
        team = self._fields.text("team")
        if problem := name_problem(team, MAX_TEAM_CHARS, required=False):
            self._report("team", problem)
        return team

    def _labels(self) -> dict[str, str]:
        value = self._data.get("labels")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(
            isinstance(text, str | int | float) and not isinstance(text, bool) for text in value.values()
        ):
            self._report("labels", "must be a mapping of keys to texts, e.g. {branch: main}")
            return {}
        labels = {str(key): str(text) for key, text in value.items()}
        self._take(label_problems(labels, ""))
        return labels

    def _approvals(self) -> tuple[Approval, ...]:
        value = self._data.get("approvals")
        if value is None:
            return ()
        approvals, problems = read_spec_approvals(value)
        self._take(problems)
        return approvals

    def _cluster(self) -> str:
        key = self._fields.text("cluster")
        if problem := cluster_problem(key):
            self._report("cluster", problem)
        return key

    def _note(self) -> str:
        note = self._fields.text("note")
        self._take(label_problems({}, note))
        return note

    def _share(self, key: str) -> float:
        value = self._data.get(key, MAX_ERRORS)
        share = read_share(value)
        if share is None:
            self._report(key, f"must be a share of the rows such as 0.05 or 5%, not {value!r}")
            return MAX_ERRORS
        return share

    def _format(self) -> str | None:
        value = self._fields.text("format") or None
        if value is not None and value not in FORMAT_NAMES:
            self._report("format", unknown_name("format", value, FORMAT_NAMES))
            return None
        return value

    def _dataset(self, override: Path | None, needed: bool) -> Path | None:
        if override is not None:
            return override
        value = self._data.get("dataset")
        if value is None and needed:
            self._report("dataset", "is missing: name the dataset's file")
        elif isinstance(value, list):
            self._report(
                "dataset",
                f"must be a file name, not a list of {len(value)}: write the cases to a file such as cases.jsonl, or "
                "pass them to `assay.evaluate` as `dataset`",
            )
        elif value is not None and (not isinstance(value, str) or not value.strip()):
            self._report("dataset", f"must be a file name, not {value!r}")
        elif value is not None:
            return self._base_dir / Path(value).expanduser()
        return None

    def _map(self) -> dict[str, str]:
        value = self._data.get("map")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self._report("map", "must be a mapping of Assay's field names to the dataset's, e.g. {input: frage}")
            return {}
        return {str(key): item for key, item in value.items()}

    def _agent(self, needed: bool) -> AgentSpec:
        value = self._data.get("agent")
        if value is None and not needed:
            value = {"adapter": "python", "target": "caller:agent"}
        if not isinstance(value, dict):
            self._report(
                "agent",
                "is missing: say how to reach the agent, e.g. {adapter: python, target: 'agent:answer'}"
                if value is None
                else f"must be a mapping with `adapter`, not {value!r}",
            )
            return AgentSpec("replay")
        adapter = value.get("adapter")
        if not isinstance(adapter, str):
            message = "must be a string" if adapter is not None else f"is missing: {', '.join(ADAPTERS)}"
            self._report("agent.adapter", message)
            return AgentSpec("replay")
        return self._known_agent(adapter, value)

    def _known_agent(self, adapter: str, value: dict[str, Any]) -> AgentSpec:
        if "approvals" in value:
            self._report("agent.approvals", "belongs beside `agent`, not in it: move it out one level")
            value = {key: item for key, item in value.items() if key != "approvals"}
        option_keys = (*_OPTION_KEYS.get(adapter, ()), TRACES_KEY)
        known = (*_AGENT_KEYS, *option_keys)
        options = {key: item for key, item in value.items() if key in option_keys}
        concurrency = 16
        if adapter == "command":
            value = {**value, "target": command_line(value.get("target"))}
            chosen = CommandOptions.from_options(options, [])
            # Each process answers one question at a time, as programs do that read a line and write one.
            concurrency = chosen.processes if chosen.mode == "stream" else concurrency
        fields = Fields(value, lambda key, message: self._report(f"agent.{key}", message))
        fields.unknown(known, "field of agent")
        read_files = read_prompt_files if adapter in PROVIDERS else read_ca_file
        problems = read_files(options, self._base_dir)
        self._take(problems)
        agent = AgentSpec(
            adapter=adapter,
            target=fields.text("target"),
            timeout_s=fields.duration_s("timeout", 30.0, 0.001, 3600, "a duration from 1ms to 1h, e.g. 30s or 500ms"),
            concurrency=fields.whole("concurrency", concurrency, 1, 1000),
            retries=fields.whole("retries", 2, 0, 10),
            options=options,
        )
        # An unreadable file is already reported; its missing text need not be reported again.
        reported = {problem.field for problem in problems}
        problems = [problem for problem in check_agent(agent) + check_hosted(agent) if problem.field not in reported]
        if not problems and self._environ is not None:
            problems = missing_variables(agent, self._environ)
        self._take(problems)
        return agent

    def _metrics(self) -> dict[str, MetricSpec]:
        """Return the metrics by their paths in the spec."""
        value = self._data.get("metrics")
        if value is None:
            self._report("metrics", "is missing: list at least one metric, or choose a preset")
            return {}
        if not isinstance(value, list) or not value:
            self._report("metrics", "must be a list with at least one metric")
            return {}
        if problem := count_problem("metrics", len(value)):
            self._report("metrics", problem)
            return {}
        names: set[str] = set()
        paths: dict[str, MetricSpec] = {}
        for index, item in enumerate(value):
            metric = self._metric(item, f"metrics[{index}]")
            if metric is not None and metric.name in names:
                self._report(f"metrics[{index}]", f"{metric.name} is listed twice")
            elif metric is not None:
                names.add(metric.name)
                paths[f"metrics[{index}].{metric.name}"] = metric
        listed = [next(iter(item), "") if isinstance(item, dict) else item for item in value]
        self._take(check_metrics(paths, others=[str(name) for name in listed if name not in names]))
        return paths

    def _metric(self, item: object, where: str) -> MetricSpec | None:
        entry: Any
        if isinstance(item, str):
            name, entry = (own_name(item), {"function": item}) if names_function(item) else (item, {})
        elif isinstance(item, dict) and len(item) == 1:
            name, entry = next(iter(item.items()))
            entry = {} if entry is None else entry
            where = f"{where}.{name}"
        else:
            self._report(where, "must be a metric's name or a mapping of one name to its parameters")
            return None
        if not isinstance(entry, dict):
            self._report(where, f"must be a mapping of parameters, not {entry!r}")
            return None
        # `{formula: …}` is short for `{kind: formula, formula: …}`, `{function: …}` for `{kind: python, function: …}`.
        implied = {"formula": "formula", "function": FUNCTION_METRIC}
        kind = entry.get("kind", next((kind for key, kind in implied.items() if key in entry), name))
        is_optional = Fields(entry, lambda key, message: self._report(f"{where}.{key}", message)).flag("optional")
        # As for `assay score`: `exact-match` is exact_match, and `similarity` a semantic_similarity of that name.
        if isinstance(kind, str) and (known := known_kind(kind)):
            name, kind = known if name == kind and "-" in kind else name, known
        judged_keys = ("judge", "rubric") if kind in METRICS and METRICS[kind].info.needs_judge else ()
        parameters = {key: value for key, value in entry.items() if key not in ("kind", "optional", *judged_keys)}
        if kind == "formula":
            parameters = with_own_numbers(parameters)
        if problem := metric_name_problem(name if isinstance(name, str) and isinstance(kind, str) else ""):
            self._report(where, problem)
            return None
        try:
            complete = complete_parameters(kind, parameters, where=where)
            if kind == FUNCTION_METRIC and (problem := function_problem(complete)):
                raise InvalidInputError([Problem(problem, f"{where}.function")])
            judge, rubric, rubric_yaml = self._judge_of(entry, where) if judged_keys else ("", "", "")
            return MetricSpec(name, complete, kind, is_optional, judge, rubric, rubric_yaml)
        except InvalidInputError as error:
            self._take(error.problems)
            return None

    def _judge_of(self, entry: Mapping[str, Any], where: str) -> tuple[str, str, str]:
        """Return the judge of a metric, and its rubric with the rubric's text."""
        judge = entry.get("judge", "")
        if not isinstance(judge, str):
            self._report(f"{where}.judge", f"must be the name of a judge under `judges`, not {judge!r}")
            judge = ""
        return judge, *self._judges.rubric(entry.get("rubric"), f"{where}.rubric")

    def _gates(self, metrics: Mapping[str, str], repeats: int, left_out: Sequence[str]) -> tuple[str, ...]:
        value = self._data.get("gates", [])
        if not isinstance(value, list):
            self._report("gates", "must be a list of conditions, e.g. ['pass_rate >= 0.85']")
            return ()
        if problem := count_problem("gates", len(value)):
            self._report("gates", problem)
            return ()
        gates = []
        for index, item in enumerate(value):
            where = f"gates[{index}]"
            if not isinstance(item, str):
                self._report(where, f"must be a string such as 'pass_rate >= 0.85', not {item!r}")
                continue
            try:
                gates.append(parse_gate(item, metrics=metrics, repeats=repeats).expression)
            except InvalidInputError as error:
                self._report(where, gate_on_left_out(item, left_out, metrics) or error.problems[0].message)
        return tuple(gates)

    def _reports(self, preset: str) -> tuple[ReportSettings, ...]:
        if "reports" not in self._data:
            return preset_reports(preset)
        problems: list[Problem] = []
        reports = read_reports(self._data["reports"], problems)
        self._take(problems)
        return reports

    def _judged(self, metrics: Mapping[str, MetricSpec]) -> tuple[MetricSpec, ...]:
        """Return the metrics, by their paths, with the default rubrics of their judges."""
        chosen = self._judges.complete(metrics)
        problems = self._problems_of_judges
        if not problems and self._judge_environ is not None:
            unready = self._judges.unready(self._judge_environ)
            if wants_verdicts(chosen, ()):
                problems += unready
            elif wants_verdicts(chosen, None):
                # Only the cases tell whether any of their checks is judged.
                self._judge_problems = tuple(self._file.problem(unmet.field, unmet.message) for unmet in unready)
        self._problems += [problem for problem in problems if problem.file]  # the rubric's own problems, with its lines
        self._take([problem for problem in problems if not problem.file])
        return chosen
