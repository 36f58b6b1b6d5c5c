"""Rules for the `judge` part of a spec, shared by the client and the orchestrator.

judge:
  provider: openai            # openai | anthropic | replay | none
  model: gpt-4o-mini
  rubric: rubrics/tone.yaml   # a rubric of the judge service, or a file of one's own; for judge_score
  spend_cap: 2.50             # US dollars
  prices: {input: 0.15, output: 0.6}   # US dollars per million tokens; default: the judge service's table

or recorded verdicts instead of a judge (see `assay.judging.recorded_verdicts`):

judge: {replay: verdicts.jsonl}

or a jury, with the settings common to its judges written once:

judge:
  jury:
    - {provider: openai, model: gpt-4o-mini}
    - {provider: anthropic, model: claude-haiku-4-5}
  spend_cap: 2.50
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.http.addresses import dial_problem
from assay.judging.recorded_verdicts import ANSWER, read_recorded_verdicts
from assay.judging.rubric_file import read_rubric
from assay.metrics.quality import RUBRIC as QUALITY
from assay.model.run import JudgeSpec
from assay.parsing.fields import Fields
from assay.parsing.names import unknown_name
from assay.parsing.secret_references import SCHEME, form_problem
from assay.providers.own_services import KEY_VARIABLES
from assay.providers.prices import price_from_mapping, price_number_problems
from assay.specs.urls import http_parts

if TYPE_CHECKING:
    from assay.judging.recorded_verdicts import RecordedVerdicts
    from assay.model.model_price import ModelPrice

NO_JUDGE = "no judge configured: name one under `judge` in the spec, such as {provider: openai, model: gpt-4o-mini}"
"""The message for a metric that needs a verdict in a run without a judge."""

_PROVIDERS = ("openai", "anthropic", "replay")
_KEYS = ("provider", "model", "base_url", "key_variable", "rubric", "temperature", "max_tokens", "timeout",
         "spend_cap", "concurrency", "canaries", "batch", "jury", "replay", "prices")  # fmt: skip
_CANARY_KEYS = ("share", "limit", "accept")
_OF_ONE = ("provider", "model", "base_url", "key_variable", "temperature", "max_tokens", "prices")
_WHO = ("provider", "model", "base_url", "key_variable", "prices")
_MOST_JUDGES = 9
_ELSEWHERE = {
    "record": "is an option of the command: assay run SPEC --record-verdicts FILE",
    "api_key": "is not written into a spec: name its environment variable, or secret://NAME, with key_variable",
}
_DEFAULTS = JudgeSpec("")
_MAX_TEXT_CHARS = 300
_LINE = f"must be one line of at most {_MAX_TEXT_CHARS} characters"
_MAX_TOKENS = 100_000
_MAX_CONCURRENCY = 200
_MAX_SPEND_USD = 1_000_000.0


def check_judge(judge: JudgeSpec) -> list[Problem]:
    """Return the problems of a judge's settings."""
    where = [f"judge.jury[{place}]" if judge.others else "judge" for place in range(len(judge.judges))]
    problems = [problem for at, juror in zip(where, judge.judges, strict=True) for problem in _check_one(juror, at)]
    cap = judge.spend_cap_usd
    checks = [
        (not 1 <= judge.timeout_s <= 3600, "timeout", "must be a duration from 1s to 1h, e.g. 2m"),
        (cap is not None and not 0 <= cap <= _MAX_SPEND_USD, "spend_cap",
         "must be a number of US dollars that is not negative, e.g. 2.50"),
        (not 1 <= judge.concurrency <= _MAX_CONCURRENCY, "concurrency",
         f"must be a whole number from 1 to {_MAX_CONCURRENCY}"),
        (not 0 <= judge.canary_rate <= 1, "canaries", "must be a share of the cases from 0 to 1, e.g. 0.05"),
        (not 0 <= judge.canary_limit <= 1, "canaries.limit", "must be a rate of wrong verdicts from 0 to 1, e.g. 0.1"),
        (not _is_line(judge.rubric), "rubric", _LINE),
        (judge.batch and any(juror.provider == "replay" for juror in judge.judges), "batch",
         "is not for recorded verdicts, which cost nothing: remove it"),
        (len(judge.judges) > _MOST_JUDGES, "jury", f"has more than {_MOST_JUDGES} judges"),
        *(_checks_of_recorded(judge) if judge.recorded_file else ()),
    ]  # fmt: skip
    problems += [Problem(message, f"judge.{field}") for wrong, field, message in checks if wrong]
    asked = [(juror.identity, juror.temperature, juror.max_tokens) for juror in judge.judges]
    problems += [
        Problem(f"is the same judge as jury[{asked.index(juror)}]: a jury needs different judges", where[place])
        for place, juror in enumerate(asked)
        if asked.index(juror) < place
    ]
    if judge.rubric_yaml:
        problems += _rubric_problems(judge.rubric_yaml, "")[1]
    return problems


def _checks_of_recorded(judge: JudgeSpec) -> list[tuple[bool, str, str]]:
    """Return the checks for recorded verdicts in place of a judge: whether it is a problem, the field, the message."""
    is_named = bool(judge.rubric) and not judge.rubric_yaml and judge.rubric != ANSWER
    return [
        (not _is_line(judge.recorded_file), "replay", _LINE),
        (judge.provider != "replay" or bool(judge.others), "replay", "takes the place of a judge: name no other one"),
        (judge.canary_rate > 0, "canaries", "is for a judge that is asked: remove it"),
        (is_named, "rubric", f"must be a YAML file beside `replay`: no judge service is asked for {judge.rubric!r}"),
        (bool(judge.rubric_yaml) and judge.rubric == QUALITY, "rubric",
         f"has the name of another rubric, {QUALITY}: give yours another name"),
    ]  # fmt: skip


def _check_one(judge: JudgeSpec, where: str) -> list[Problem]:
    """Return the problems of a single judge's model and parameters."""
    known = judge.provider in _PROVIDERS
    asks = judge.provider in KEY_VARIABLES
    temperature = judge.temperature
    checks = [
        (not known, "provider", unknown_name("provider", judge.provider, (*_PROVIDERS, "none"))),
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
    return len(text) <= _MAX_TEXT_CHARS and (not text or text.isprintable())


def key_variable_of(judge: JudgeSpec) -> str:
    """Return the environment variable of the judge's key; empty if no key is sent, or the key is a secret."""
    if judge.key_variable.startswith(SCHEME):
        return ""
    return judge.key_variable or ("" if judge.base_url else KEY_VARIABLES.get(judge.provider, ""))


def missing_key(judge: JudgeSpec, environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem if the judge's key is unset or empty.

    Args:
        judge: Settings that passed their own checks.
        environ: The environment of the judge service.
    """
    problems = []
    for place, juror in enumerate(judge.judges):
        name = key_variable_of(juror)
        if name and not environ.get(name):
            message = f"the environment variable {name} is not set: set it to the judge's key, then start again"
            where = f"judge.jury[{place}]" if judge.others else "judge"
            problems.append(Problem(message, f"{where}.{'key_variable' if juror.key_variable else 'provider'}"))
    return problems


class JudgeReader:
    """Reads the `judge` of a spec.

    Args:
        base_dir: The folder that file names are resolved against.
        problems: Receives the problems; a problem in another file names that file and line.
    """

    def __init__(self, base_dir: Path, problems: list[Problem]) -> None:
        self._base_dir = base_dir
        self._problems = problems
        self._where = "judge"
        self.recorded: RecordedVerdicts | None = None
        """The recorded verdicts that replace a judge, once read; None if a judge is asked."""

    def read(self, value: object) -> JudgeSpec | None:
        """Return the judge; None if there is none."""
        if value in (None, "none"):
            return None
        if isinstance(value, list):
            value = {"jury": value}
        if not isinstance(value, Mapping):
            self._say("", f"must be a mapping such as {{provider: openai, model: gpt-4o-mini}}, not {value!r}")
            return None
        before = len(self._problems)
        if "replay" in value:
            judge = self._recorded(value)
        else:
            judge = self._jury(value) if "jury" in value else self._one(value)
        if judge is not None:
            known = {problem.field for problem in self._problems[before:]}
            self._problems += [problem for problem in check_judge(judge) if problem.field not in known]
        return judge

    def _jury(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        jury, shared = value["jury"], {key: setting for key, setting in value.items() if key != "jury"}
        if not isinstance(jury, list) or len(jury) < 2 or not all(isinstance(entry, Mapping) for entry in jury):
            self._say("jury", "must be a list of two judges or more, such as {provider: openai, model: gpt-4o-mini}")
            return None
        for key in _WHO:
            if shared.pop(key, None) is not None:
                self._say(key, "is another one for each judge: write it into the list under jury")
        common = {key: setting for key, setting in shared.items() if key in _OF_ONE}
        judges: list[JudgeSpec | None] = []
        for place, entry in enumerate(jury):
            self._where = f"judge.jury[{place}]"
            elsewhere = [key for key in entry if key in _KEYS and key not in _OF_ONE]
            for key in elsewhere:
                self._problems.append(
                    Problem("is for the whole jury: write it once, beside `jury`", f"{self._where}.{key}")
                )
            own = {key: setting for key, setting in entry.items() if key not in elsewhere}
            judges.append(self._one({**(common if judges else shared), **own}))
        self._where = "judge"
        first, *others = judges
        if first is None or None in others:
            return None
        return dataclasses.replace(first, others=tuple(entry for entry in others if entry is not None))

    def _recorded(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        """Return the settings for recorded verdicts in place of a judge."""
        for key in self._known(value):
            if key in _KEYS and key not in ("replay", "rubric"):
                self._say(key, "is for a judge that is asked: remove it, or remove `replay`")
        if value.get("provider", "replay") != "replay":
            self._say("provider", "is for a judge that is asked: remove it, or remove `replay`")
        name = value["replay"]
        if not isinstance(name, str) or not name.strip():
            self._say("replay", f"must be a file of recorded verdicts, not {name!r}")
            return None
        rubric, rubric_yaml = self._rubric(value.get("rubric"))
        path = self._base_dir / Path(name).expanduser()
        try:
            self.recorded = read_recorded_verdicts(path, rubric_yaml)
        except InvalidInputError as error:
            self._problems += error.problems
            return None
        return JudgeSpec(
            provider="replay",
            model=", ".join(self.recorded.judges)[:_MAX_TEXT_CHARS],
            rubric=rubric,
            rubric_yaml=rubric_yaml,
            canary_rate=0.0,
            recorded_file=path.name,
        )

    def _one(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        """Return a single judge, or a judge of a jury; the first one carries the common settings."""
        known = self._known(value)
        provider = value.get("provider")
        in_jury = self._where != "judge"
        if provider == "none" and not known and not in_jury:
            return None
        if not isinstance(provider, str):
            is_missing = "is missing" if provider is None else "must be a string"
            self._say("provider", f"{is_missing}: openai, anthropic, replay{'' if in_jury else ' or none'}")
            return None
        if provider == "none":
            message = "is none, so that nothing else may be set: remove the rest, or name a provider"
            self._say("provider", "is none: name a provider, or remove it from the jury" if in_jury else message)
            return None
        rubric, rubric_yaml = self._rubric(value.get("rubric"))
        fields = Fields(value, self._say)
        return JudgeSpec(
            provider=provider,
            model=fields.text("model"),
            base_url=fields.text("base_url").rstrip("/"),
            key_variable=fields.text("key_variable"),
            rubric=rubric,
            rubric_yaml=rubric_yaml,
            temperature=fields.number("temperature"),
            max_tokens=fields.whole("max_tokens", _DEFAULTS.max_tokens),
            timeout_s=fields.duration_s("timeout", _DEFAULTS.timeout_s, 1, 3600, "a duration from 1s to 1h, e.g. 2m"),
            spend_cap_usd=fields.number("spend_cap"),
            concurrency=fields.whole("concurrency", _DEFAULTS.concurrency),
            **self._canaries(value.get("canaries")),
            batch=fields.flag("batch"),
            prices=self._prices(value.get("prices")),
        )

    def _prices(self, value: object) -> ModelPrice | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self._say("prices", f"must be a mapping such as {{input: 2.5, output: 10}}, in US dollars per million "
                                f"tokens, not {value!r}")  # fmt: skip
            return None
        return price_from_mapping(value, f"{self._where}.prices", self._problems)

    def _canaries(self, value: object) -> dict[str, Any]:
        """Return the canary settings by name; a plain number is the share of the cases."""
        if value is None:
            return {}
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"share": value}
        if not isinstance(value, Mapping):
            example = "{share: 0.05, limit: 0.1, accept: false}"
            self._say("canaries", f"must be a share of the cases such as 0.05, or {example}, not {value!r}")
            return {}
        fields = Fields(value, lambda key, message: self._say(f"canaries.{key}", message))
        fields.unknown(_CANARY_KEYS, "field of canaries")
        return {
            "canary_rate": fields.number("share", _DEFAULTS.canary_rate),
            "canary_limit": fields.number("limit", _DEFAULTS.canary_limit),
            "accepts_canaries": fields.flag("accept"),
        }

    def _known(self, value: Mapping[Any, Any]) -> list[str]:
        """Report unknown keys; return the keys set besides the provider."""
        for key in value:
            if key in _ELSEWHERE:
                self._say(str(key), _ELSEWHERE[key])
            elif key not in _KEYS:
                self._say(str(key), unknown_name("field of judge", key, _KEYS))
        return [key for key in value if key != "provider"]

    def _rubric(self, value: object) -> tuple[str, str]:
        """Return the rubric's name, and its text if it is from a file."""
        if value is None:
            return "", ""
        if not isinstance(value, str) or not value.strip():
            self._say("rubric", f"must be the name of a rubric, or of a YAML file that holds one, not {value!r}")
            return "", ""
        if "/" not in value and not value.endswith((".yaml", ".yml")):
            return value.strip(), ""
        path = self._base_dir / value
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            self._say("rubric", f"the file {value} cannot be read: {error.strerror}")
            return "", ""
        except UnicodeDecodeError as error:
            self._say("rubric", f"the file {value} is not UTF-8 (byte {error.start}): save it as UTF-8")
            return "", ""
        name, problems = _rubric_problems(text, str(path))
        self._problems += problems
        return (name, text) if not problems else ("", "")

    def _say(self, key: str, message: str) -> None:
        where = "judge" if key.partition(".")[0] in _KEYS and key not in _OF_ONE else self._where
        self._problems.append(Problem(message, f"{where}.{key}" if key else where))


def _rubric_problems(text: str, file: str) -> tuple[str, list[Problem]]:
    """Return the name of a user's own rubric, and its problems."""
    try:
        rubric = read_rubric(text, file=file, field="" if file else "judge.rubric")
    except InvalidInputError as error:
        return "", error.problems
    if rubric.compares:
        message = "compares two answers: a run needs one that scores a single answer"
        return rubric.name, [Problem(message, "compares" if file else "judge.rubric", file)]
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
