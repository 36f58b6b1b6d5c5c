"""Reading of the judges in a spec.

judge:
  provider: openai            # openai | anthropic | replay | none
  model: gpt-4o-mini
  rubric: rubrics/tone.yaml   # default of its judge_score metrics: a rubric of the judge service, or a file
  spend_cap: 2.50             # US dollars, for the whole run
  prices: {input: 0.15, output: 0.6}   # US dollars per million tokens; default: the judge service's table

or recorded verdicts instead of a judge (see `assay.judging.recorded_verdicts`):

judge: {replay: verdicts.jsonl}

or a jury, with the settings common to its judges written once:

judge:
  jury:
    - {provider: openai, model: gpt-4o-mini}
    - {provider: anthropic, model: claude-haiku-4-5}
  spend_cap: 2.50

or several judges, which metrics name; `judge` is the default beside them, and the first of `judges` without it:

judges:
  strict: {provider: anthropic, model: claude-haiku-4-5}
  fast: {provider: openai, model: gpt-4o-mini}
spend_cap: 5
metrics:
  - tone: {kind: judge_score, judge: strict, rubric: rubrics/tone.yaml}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.identity.quotas import nano_from_usd
from assay.judging.prices import price_problems
from assay.judging.recorded_verdicts import read_recorded_verdicts
from assay.model.run import JudgeModel, JudgeSpec
from assay.model.run_spec import DEFAULT_JUDGE
from assay.parsing.fields import Fields
from assay.parsing.names import unknown_name
from assay.providers.prices import price_from_mapping
from assay.specs.judging import (
    MAX_CAP_USD,
    MAX_JUDGES,
    MAX_TEXT_CHARS,
    ONE_RECORDING,
    RUBRIC_KIND,
    JudgePlace,
    check_judge,
    check_metric_judge,
    missing_key,
    recorded_rubric_problem,
    rubric_problems,
)

if TYPE_CHECKING:
    from assay.judging.recorded_verdicts import RecordedVerdicts
    from assay.model.model_price import ModelPrice
    from assay.model.run import MetricSpec

_KEYS = ("provider", "model", "base_url", "key_variable", "rubric", "temperature", "max_tokens", "timeout",
         "spend_cap", "concurrency", "canaries", "batch", "jury", "replay", "prices")  # fmt: skip
_CANARY_KEYS = ("share", "limit", "accept")
_OF_ONE = ("provider", "model", "base_url", "key_variable", "temperature", "max_tokens", "prices")
_WHO = ("provider", "model", "base_url", "key_variable", "prices")
_ELSEWHERE = {
    "record": "is an option of the command: assay run SPEC --record-verdicts FILE",
    "api_key": "is not written into a spec: name its environment variable, or secret://NAME, with key_variable",
}
_DEFAULTS = JudgeSpec()
_MODEL_DEFAULTS = JudgeModel("")


def has_judge(data: Mapping[str, Any]) -> bool:
    """Return whether a spec names a judge."""
    return bool(data.get("judge") or data.get("judges"))


class JudgesReader:
    """Reads the judges of a spec.

    Args:
        base_dir: The folder that file names are resolved against.
        problems: Receives the problems; a problem in another file names that file and line.
    """

    def __init__(self, base_dir: Path, problems: list[Problem]) -> None:
        self._base_dir = base_dir
        self.problems = problems
        self.judges: list[JudgeSpec] = []
        self.places: list[JudgePlace] = []
        """The path of each judge in the spec."""
        self.spend_cap_nano_usd: int | None = None
        self.recorded: RecordedVerdicts | None = None
        """The recorded verdicts that replace a judge, once read; None if a judge is asked."""
        self.rubrics: dict[str, tuple[str, str]] = {}
        """The default rubric of each judge by name: the rubric's name and its text."""
        self.recordings: dict[str, str] = {}
        """The file of recorded verdicts by the name of the judge that they replace."""

    def read(self, data: Mapping[str, Any]) -> None:
        """Read `judge`, `judges` and `spend_cap` of a spec."""
        before = len(self.problems)
        short, named = data.get("judge"), data.get("judges")
        if short not in (None, "none"):
            self._add(DEFAULT_JUDGE, short, "judge")
        if named is not None:
            self._named(named)
        self._read_cap(data)
        known = {problem.field for problem in self.problems[before:]}
        checked = [
            problem
            for judge, place in zip(self.judges, self.places, strict=True)
            for problem in check_judge(judge, place)
        ]
        self.problems += [problem for problem in checked if problem.field not in known]

    def complete(self, metrics: Mapping[str, MetricSpec]) -> tuple[MetricSpec, ...]:
        """Return the metrics, with the default rubrics of their judges; read the recorded verdicts by these rubrics.

        Args:
            metrics: The metrics of the spec by their paths.
        """
        for where, metric in metrics.items():  # without the defaults, whose problems are those of their judge
            self.problems += check_metric_judge(metric, self.judges, where)
        chosen = tuple(map(self._with_rubric, metrics.values()))
        for index, judge in enumerate(self.judges):
            if (name := self.recordings.get(judge.name)) is None:
                continue
            own = {metric.rubric: metric.rubric_yaml for metric in chosen if self._judge_of(metric) is judge}
            own.setdefault(*self.rubrics[judge.name])
            try:
                self.recorded = read_recorded_verdicts(self._base_dir / Path(name).expanduser(), own)
            except InvalidInputError as error:
                self.problems += error.problems
                continue
            model = ", ".join(self.recorded.judges)[:MAX_TEXT_CHARS]
            self.judges[index] = dataclasses.replace(judge, members=(JudgeModel("replay", model),))
        return chosen

    def unready(self, environ: Mapping[str, str]) -> list[Problem]:
        """Return the judges that lack a key, or a price under the spend cap.

        Args:
            environ: The environment of the judge service.
        """
        is_capped = self.spend_cap_nano_usd is not None
        return [
            problem
            for judge, place in zip(self.judges, self.places, strict=True)
            for problem in (
                *missing_key(judge, place, environ),
                *price_problems(judge, place.members, environ, is_capped=is_capped),
            )
        ]

    def rubric(self, value: object, where: str) -> tuple[str, str]:
        """Return the name of a rubric, and its text if it is from a file; both are empty without one.

        Args:
            value: The value in the spec.
            where: Its path.
        """
        if value is None:
            return "", ""
        if not isinstance(value, str) or not value.strip():
            message = f"must be the name of a rubric, or of a YAML file that holds one, not {value!r}"
            self.problems.append(Problem(message, where))
            return "", ""
        if "/" not in value and not value.endswith((".yaml", ".yml")):
            return value.strip(), ""
        path = self._base_dir / value
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            self.problems.append(Problem(f"the file {value} cannot be read: {error.strerror}", where))
            return "", ""
        except UnicodeDecodeError as error:
            message = f"the file {value} is not UTF-8 (byte {error.start}): save it as UTF-8"
            self.problems.append(Problem(message, where))
            return "", ""
        name, problems = rubric_problems(text, str(path), where)
        self.problems += problems
        return (name, text) if not problems else ("", "")

    def _named(self, value: object) -> None:
        if not isinstance(value, Mapping) or not value:
            self._say("judges", f"must be a mapping from names to judges, not {value!r}")
            return
        if len(value) > MAX_JUDGES:
            self._say("judges", f"has {len(value)} judges, more than {MAX_JUDGES}")
            return
        for name, entry in value.items():
            where = f"judges.{name}"
            if str(name) in {judge.name for judge in self.judges}:
                self._say(where, "is the name of the judge under `judge`: give one of them another name")
            elif entry in (None, "none"):
                self._say(where, "names no provider: name one, or remove the judge")
            else:
                self._add(str(name), entry, where)

    def _add(self, name: str, value: object, where: str) -> None:
        judge = _EntryReader(self, name, where).read(value)
        if judge is not None:
            self.judges.append(judge)
            self.places.append(JudgePlace.in_spec(judge, where))

    def _read_cap(self, data: Mapping[str, Any]) -> None:
        short = data.get("judge")
        of_judge = short.get("spend_cap") if isinstance(short, Mapping) else None
        if data.get("spend_cap") is not None and of_judge is not None:
            self._say("spend_cap", "is set twice: remove it here or under `judge`")
            return
        where, value = ("judge.spend_cap", of_judge) if of_judge is not None else ("spend_cap", data.get("spend_cap"))
        usd = Fields({"spend_cap": value}, lambda _, message: self._say(where, message)).number("spend_cap")
        if usd is None:
            return
        if not self.judges and where == "spend_cap":
            self._say(where, "is for a run with a judge: name one under `judge`, or remove it")
        elif not 0 <= usd <= MAX_CAP_USD:
            self._say(where, "must be a number of US dollars that is not negative, e.g. 2.50")
        else:
            self.spend_cap_nano_usd = nano_from_usd(usd)

    def _with_rubric(self, metric: MetricSpec) -> MetricSpec:
        judge = self._judge_of(metric)
        if metric.kind != RUBRIC_KIND or metric.rubric or judge is None:
            return metric
        rubric, rubric_yaml = self.rubrics.get(judge.name, ("", ""))
        return dataclasses.replace(metric, rubric=rubric, rubric_yaml=rubric_yaml)

    def _judge_of(self, metric: MetricSpec) -> JudgeSpec | None:
        return next((judge for judge in self.judges if metric.judge in ("", judge.name)), None)

    def _say(self, where: str, message: str) -> None:
        self.problems.append(Problem(message, where))


class _EntryReader:
    """Reads one judge of a spec.

    Args:
        owner: The reader of the spec's judges.
        name: The judge's name.
        where: Its path in the spec.
    """

    def __init__(self, owner: JudgesReader, name: str, where: str) -> None:
        self._owner = owner
        self._problems = owner.problems
        self._name = name
        self._path = self._where = where

    def read(self, value: object) -> JudgeSpec | None:
        """Return the judge; None if there is none, or if it cannot be read."""
        if isinstance(value, list):
            value = {"jury": value}
        if not isinstance(value, Mapping):
            self._say("", f"must be a mapping such as {{provider: openai, model: gpt-4o-mini}}, not {value!r}")
            return None
        if "replay" in value:
            return self._recorded(value)
        if self._path != DEFAULT_JUDGE and "spend_cap" in value:
            self._say("spend_cap", "is for the whole run: write it at the top level of the spec")
        return self._jury(value) if "jury" in value else self._single(value)

    def _jury(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        jury, shared = value["jury"], {key: setting for key, setting in value.items() if key != "jury"}
        if not isinstance(jury, list) or len(jury) < 2 or not all(isinstance(entry, Mapping) for entry in jury):
            self._say("jury", "must be a list of two judges or more, such as {provider: openai, model: gpt-4o-mini}")
            return None
        for key in _WHO:
            if shared.pop(key, None) is not None:
                self._say(key, "is another one for each judge: write it into the list under jury")
        self._known(shared)
        common = {key: setting for key, setting in shared.items() if key in _OF_ONE}
        members: list[JudgeModel | None] = []
        for index, entry in enumerate(jury):
            self._where = f"{self._path}.jury[{index}]"
            elsewhere = [key for key in entry if key in _KEYS and key not in _OF_ONE]
            for key in elsewhere:
                message = "is for the whole jury: write it once, beside `jury`"
                self._problems.append(Problem(message, f"{self._where}.{key}"))
            own = {key: setting for key, setting in entry.items() if key not in elsewhere}
            members.append(self._member({**common, **own}))
        self._where = self._path
        judge = self._with_settings(shared, ())
        complete = [member for member in members if member is not None]
        return dataclasses.replace(judge, members=tuple(complete)) if len(complete) == len(members) else None

    def _single(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        member = self._member(value)
        if member is None:
            return None
        return self._with_settings(value, (member,))

    def _recorded(self, value: Mapping[Any, Any]) -> JudgeSpec | None:
        """Return the settings for recorded verdicts in place of a judge; the verdicts are read with the rubrics."""
        for key in self._known(value):
            if key in _KEYS and key not in ("replay", "rubric"):
                self._say(key, "is for a judge that is asked: remove it, or remove `replay`")
        if value.get("provider", "replay") != "replay":
            self._say("provider", "is for a judge that is asked: remove it, or remove `replay`")
        name = value["replay"]
        if not isinstance(name, str) or not name.strip():
            self._say("replay", f"must be a file of recorded verdicts, not {name!r}")
            return None
        if self._owner.recordings:
            self._say("replay", ONE_RECORDING)
            return None
        self._owner.recordings[self._name] = name
        self._default_rubric(value)
        rubric, text = self._owner.rubrics[self._name]
        if problem := recorded_rubric_problem(rubric, text):
            self._say("rubric", problem)
            self._owner.rubrics[self._name] = "", ""
        file = Path(name).expanduser().name
        return JudgeSpec(self._name, (JudgeModel("replay"),), canary_rate=0.0, recorded_file=file)

    def _member(self, value: Mapping[Any, Any]) -> JudgeModel | None:
        """Return a single judge's model, or that of a member of a jury."""
        known = self._known(value)
        provider = value.get("provider")
        in_jury = self._where != self._path
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
        fields = Fields(value, self._say)
        return JudgeModel(
            provider=provider,
            model=fields.text("model"),
            base_url=fields.text("base_url").rstrip("/"),
            key_variable=fields.text("key_variable"),
            temperature=fields.number("temperature"),
            max_tokens=fields.whole("max_tokens", _MODEL_DEFAULTS.max_tokens),
            prices=self._prices(value.get("prices")),
        )

    def _with_settings(self, value: Mapping[Any, Any], members: tuple[JudgeModel, ...]) -> JudgeSpec:
        """Return the judge with the settings common to its members."""
        self._default_rubric(value)
        fields = Fields(value, self._say)
        return JudgeSpec(
            name=self._name,
            members=members,
            timeout_s=fields.duration_s("timeout", _DEFAULTS.timeout_s, 1, 3600, "a duration from 1s to 1h, e.g. 2m"),
            concurrency=fields.whole("concurrency", _DEFAULTS.concurrency),
            **self._canaries(value.get("canaries")),
            batch=fields.flag("batch"),
        )

    def _default_rubric(self, value: Mapping[Any, Any]) -> None:
        self._owner.rubrics[self._name] = self._owner.rubric(value.get("rubric"), f"{self._path}.rubric")

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

    def _say(self, key: str, message: str) -> None:
        where = self._path if key.partition(".")[0] in _KEYS and key not in _OF_ONE else self._where
        self._problems.append(Problem(message, f"{where}.{key}" if key else where))
