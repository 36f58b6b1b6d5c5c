"""Rules for the judges of a run, shared by the client and the orchestrator; `judge_reader` reads them from a spec."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.http.addresses import dial_problem
from assay.identity.quotas import NANO
from assay.judging.recorded_verdicts import ANSWER
from assay.judging.rubric_file import read_rubric
from assay.metrics import METRICS
from assay.metrics.quality import RUBRIC as QUALITY
from assay.parsing.names import unknown_name
from assay.parsing.secret_references import SCHEME, form_problem
from assay.providers.own_services import KEY_VARIABLES
from assay.providers.prices import price_number_problems
from assay.specs.urls import http_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import JudgeModel, JudgeSpec, MetricSpec, RunSpec

NO_JUDGE = "no judge configured: name one under `judge` in the spec, such as {provider: openai, model: gpt-4o-mini}"
"""The message for a metric that needs a verdict in a run without a judge."""

ONE_RECORDING = "is the second judge with recorded verdicts: put the verdicts into one file, under one judge"
PROVIDERS = ("openai", "anthropic", "replay")
MAX_TEXT_CHARS = 300
MAX_JUDGES = 20
_MAX_MEMBERS = 9
_REQUEST_NAMES = {
    "canaries": "canary_rate",
    "canaries.limit": "canary_limit",
    "jury": "members",
    "replay": "recorded_file",
    "timeout": "timeout_ms",
}
_LINE = f"must be one line of at most {MAX_TEXT_CHARS} characters"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_MAX_TOKENS = 100_000
_MAX_CONCURRENCY = 200
MAX_CAP_USD = 1_000_000
RUBRIC_KIND = "judge_score"
"""The kind of metric whose rubric a spec may choose."""


@dataclass(frozen=True, slots=True)
class JudgePlace:
    """The paths of a judge in a spec or a request, for problems.

    Args:
        judge: The path of the judge.
        members: The paths of its members.
        is_request: Whether the paths are those of a request.
    """

    judge: str
    members: tuple[str, ...]
    is_request: bool = False

    def at(self, field: str) -> str:
        """Return the path of a field of the judge, which the spec names."""
        return f"{self.judge}.{_REQUEST_NAMES.get(field, field) if self.is_request else field}"

    @classmethod
    def in_spec(cls, judge: JudgeSpec, where: str) -> JudgePlace:
        """Return the paths in a spec, where a judge of one model has no list of members."""
        jury = tuple(f"{where}.jury[{index}]" for index in range(len(judge.members)))
        return cls(where, jury if judge.is_jury else (where,))

    @classmethod
    def in_request(cls, judge: JudgeSpec, index: int) -> JudgePlace:
        """Return the paths in a request; `index` is the judge's place in the run."""
        where = f"judges[{index}]"
        return cls(where, tuple(f"{where}.members[{member}]" for member in range(len(judge.members))), is_request=True)


def check_judges(spec: RunSpec) -> list[Problem]:
    """Return the problems of a run's judges and spend cap, and of the metrics that use the judges."""
    if len(spec.judges) > MAX_JUDGES:
        return [Problem(f"has {len(spec.judges)} judges, more than {MAX_JUDGES}", "judges")]
    problems = [
        problem
        for index, judge in enumerate(spec.judges)
        for problem in check_judge(judge, JudgePlace.in_request(judge, index))
    ]
    names = [judge.name for judge in spec.judges]
    problems += [
        Problem(f"{name} is listed twice", f"judges[{index}].name")
        for index, name in enumerate(names)
        if names.index(name) != index
    ]
    recorded = [index for index, judge in enumerate(spec.judges) if judge.recorded_file]
    problems += [Problem(ONE_RECORDING, f"judges[{index}].recorded_file") for index in recorded[1:]]
    for index, metric in enumerate(spec.metrics):
        problems += check_metric_judge(metric, spec.judges, f"metrics[{index}]")
    return problems + check_cap(spec.spend_cap_nano_usd, "spend_cap_nano_usd")


def check_cap(nano_usd: int | None, where: str) -> list[Problem]:
    """Return the problem of a spend cap."""
    if nano_usd is None or 0 <= nano_usd <= MAX_CAP_USD * NANO:
        return []
    return [Problem(f"must be at most {MAX_CAP_USD * NANO:,}, {MAX_CAP_USD:,} US dollars", where)]


def recorded_rubric_problem(rubric: str, rubric_yaml: str) -> str:
    """Return why recorded verdicts cannot be by a rubric; empty if they can."""
    if rubric and not rubric_yaml and rubric != ANSWER:
        return f"must be a YAML file beside `replay`: no judge service is asked for {rubric!r}"
    is_taken = bool(rubric_yaml) and rubric == QUALITY
    return f"has the name of another rubric, {QUALITY}: give yours another name" if is_taken else ""


def check_metric_judge(metric: MetricSpec, judges: Sequence[JudgeSpec], where: str) -> list[Problem]:
    """Return the problems of a metric's judge and rubric."""
    values = {"judge": metric.judge, "rubric": metric.rubric or metric.rubric_yaml}
    if not any(values.values()) or metric.kind not in METRICS:
        return []
    if not METRICS[metric.kind].info.needs_judge:
        message = f"is for metrics that need verdicts, and {metric.kind} needs none: remove it"
        return [Problem(message, f"{where}.{name}") for name, value in values.items() if value]
    problems = []
    names_of_judges = [judge.name for judge in judges]
    if metric.judge and metric.judge not in names_of_judges:
        none = f"names the judge {metric.judge}, and the spec has no judge"
        message = unknown_name("judge", metric.judge, names_of_judges) if judges else none
        problems.append(Problem(message, f"{where}.judge"))
    if not (metric.rubric or metric.rubric_yaml):
        return problems
    judge = next((judge for judge in judges if metric.judge in ("", judge.name)), None)
    replays = judge is not None and bool(judge.recorded_file)
    unusable = recorded_rubric_problem(metric.rubric, metric.rubric_yaml) if replays else ""
    checks = [
        (metric.kind != RUBRIC_KIND, f"is for {RUBRIC_KIND}, and {metric.kind} has a rubric of its own: remove it"),
        (not _is_line(metric.rubric), _LINE),
        (bool(unusable), unusable),
    ]  # fmt: skip
    problems += [Problem(message, f"{where}.rubric") for wrong, message in checks if wrong]
    return problems + (rubric_problems(metric.rubric_yaml, "", f"{where}.rubric")[1] if metric.rubric_yaml else [])


def check_judge(judge: JudgeSpec, place: JudgePlace) -> list[Problem]:
    """Return the problems of a judge's settings."""
    members = list(zip(judge.members, place.members, strict=True))
    problems = [problem for member, where in members for problem in _check_member(member, where)]
    checks = [
        (not _NAME.fullmatch(judge.name), "name", "must have 1 to 60 letters, digits, `_` and `-`"),
        (not judge.members, "members", "is missing: name the model that judges"),
        (not 1 <= judge.timeout_s <= 3600, "timeout", "must be a duration from 1s to 1h, e.g. 2m"),
        (not 1 <= judge.concurrency <= _MAX_CONCURRENCY, "concurrency",
         f"must be a whole number from 1 to {_MAX_CONCURRENCY}"),
        (not 0 <= judge.canary_rate <= 1, "canaries", "must be a share of the cases from 0 to 1, e.g. 0.05"),
        (not 0 <= judge.canary_limit <= 1, "canaries.limit", "must be a rate of wrong verdicts from 0 to 1, e.g. 0.1"),
        (judge.batch and any(member.provider == "replay" for member in judge.members), "batch",
         "is not for recorded verdicts, which cost nothing: remove it"),
        (len(judge.members) > _MAX_MEMBERS, "jury", f"has more than {_MAX_MEMBERS} judges"),
        *(_checks_of_recorded(judge) if judge.recorded_file else ()),
    ]  # fmt: skip
    problems += [Problem(message, place.at(field)) for wrong, field, message in checks if wrong]
    asked = [(member.identity, member.temperature, member.max_tokens) for member in judge.members]
    return problems + [
        Problem(f"is the same judge as jury[{asked.index(member)}]: a jury needs different judges", where)
        for index, (member, (_, where)) in enumerate(zip(asked, members, strict=True))
        if asked.index(member) < index
    ]


def _checks_of_recorded(judge: JudgeSpec) -> list[tuple[bool, str, str]]:
    """Return the checks for recorded verdicts in place of a judge: whether it is a problem, the field, the message."""
    is_alone = [member.provider for member in judge.members] == ["replay"]
    return [
        (not _is_line(judge.recorded_file), "replay", _LINE),
        (not is_alone, "replay", "takes the place of a judge: name no other one"),
        (judge.canary_rate > 0, "canaries", "is for a judge that is asked: remove it"),
    ]


def _check_member(judge: JudgeModel, where: str) -> list[Problem]:
    """Return the problems of a model and its parameters."""
    known = judge.provider in PROVIDERS
    asks = judge.provider in KEY_VARIABLES
    temperature = judge.temperature
    checks = [
        (not known, "provider", unknown_name("provider", judge.provider, (*PROVIDERS, "none"))),
        (asks and not judge.model.strip(), "model", "is missing: name the model that judges"),
        (known and not asks and bool(judge.base_url), "base_url", f"has no meaning for {judge.provider}: remove it"),
        (bool(judge.base_url) and not _is_url(judge.base_url), "base_url",
         f"must be an http or https URL without a user, a query or a fragment, not {judge.base_url!r}"),
        (bool(problem := judge.base_url and _is_url(judge.base_url) and dial_problem(judge.base_url)), "base_url",
         f"{problem}: {judge.base_url!r}"),
        (temperature is not None and not 0 <= temperature <= 2, "temperature", "must be a number from 0 to 2"),
        (not 1 <= judge.max_tokens <= _MAX_TOKENS, "max_tokens",
         f"must be a whole number from 1 to {_MAX_TOKENS:,}"),
        (not _is_line(judge.model), "model", _LINE),
        (not _is_line(judge.key_variable), "key_variable", _LINE),
        (bool(unusable := _reference_problem(judge.key_variable)), "key_variable", unusable),
    ]  # fmt: skip
    problems = [Problem(message, f"{where}.{field}") for wrong, field, message in checks if wrong]
    if judge.prices is None:
        return problems
    price_problems = price_number_problems(dataclasses.asdict(judge.prices))
    return problems + [Problem(message, f"{where}.prices.{name}") for name, message in price_problems]


def _reference_problem(key: str) -> str:
    return form_problem(key.removeprefix(SCHEME)) if key.startswith(SCHEME) else ""


def _is_line(text: str) -> bool:
    return len(text) <= MAX_TEXT_CHARS and (not text or text.isprintable())


def key_variable_of(judge: JudgeModel) -> str:
    """Return the environment variable of the judge's key; empty if no key is sent, or the key is a secret."""
    if judge.key_variable.startswith(SCHEME):
        return ""
    return judge.key_variable or ("" if judge.base_url else KEY_VARIABLES.get(judge.provider, ""))


def missing_key(judge: JudgeSpec, place: JudgePlace, environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each member whose key is unset or empty.

    Args:
        judge: Settings that passed their own checks.
        place: The judge's place in the spec.
        environ: The environment of the judge service.
    """
    problems = []
    for member, where in zip(judge.members, place.members, strict=True):
        name = key_variable_of(member)
        if name and not environ.get(name):
            message = f"the environment variable {name} is not set: set it to the judge's key, then start again"
            problems.append(Problem(message, f"{where}.{'key_variable' if member.key_variable else 'provider'}"))
    return problems


def rubric_problems(text: str, file: str, where: str) -> tuple[str, list[Problem]]:
    """Return the name of a user's own rubric, and its problems.

    Args:
        text: The rubric as YAML.
        file: Its file; empty if unknown.
        where: The path of the rubric in a spec or a request, for problems without a file.
    """
    try:
        rubric = read_rubric(text, file=file, field="" if file else where)
    except InvalidInputError as error:
        return "", error.problems
    if rubric.compares:
        message = "compares two answers: a run needs one that scores a single answer"
        return rubric.name, [Problem(message, "compares" if file else where, file)]
    return rubric.name, []


def _is_url(text: str) -> bool:
    parts = http_parts(text)
    return (
        parts is not None
        and "@" not in parts.netloc
        and not (parts.query or parts.fragment)
        and text.isascii()
        and text.isprintable()
        and " " not in text
    )
