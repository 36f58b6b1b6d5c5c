"""Rules for the `judge` part of a spec, the same for the client and the orchestrator.

judge:
  provider: openai            # openai | anthropic | replay | none
  model: gpt-4o-mini
  rubric: rubrics/tone.yaml   # a rubric of the judge service, or a file of one's own; for judge_score
  spend_cap: 2.50             # US dollars
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.durations import read_duration_s
from assay.errors import InvalidInputError, Problem
from assay.names import unknown_name
from assay.results import JudgeSettings
from assay.rubric_file import read_rubric

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NO_JUDGE", "JudgeReader", "check_judge", "key_variable_of", "missing_key"]

NO_JUDGE = "no judge configured: name one under `judge` in the spec, such as {provider: openai, model: gpt-4o-mini}"
"""What is said where a metric needs a verdict and the run has no judge."""

_PROVIDERS = ("openai", "anthropic", "replay")
_OWN_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_KEYS = ("provider", "model", "base_url", "key_variable", "rubric", "temperature", "max_tokens", "timeout",
         "spend_cap", "concurrency", "canaries")  # fmt: skip
_LATER_KEYS = ("batch",)
_ELSEWHERE = {
    "record": "is a setting of the judge service: set ASSAY_JUDGE_RECORD to a file where it is started",
    "replay": "is a setting of the judge service: set ASSAY_JUDGE_REPLAY to a file where it is started",
    "prices": "are a setting of the judge service: set ASSAY_JUDGE_PRICES to a file where it is started",
    "api_key": "is not written into a spec: name the environment variable that holds it with key_variable",
}
_DEFAULTS = JudgeSettings("")
_MAX_TEXT_CHARS = 300
_MAX_TOKENS = 100_000
_MAX_CONCURRENCY = 200
_MAX_SPEND_USD = 1_000_000.0


def check_judge(judge: JudgeSettings) -> list[Problem]:
    """Return everything that is wrong with how answers are to be judged."""
    known = judge.provider in _PROVIDERS
    asks = judge.provider in _OWN_KEYS
    temperature, cap = judge.temperature, judge.spend_cap_usd
    checks = [
        (not known, "provider", unknown_name("provider", judge.provider, (*_PROVIDERS, "none"))),
        (asks and not judge.model.strip(), "model", "is missing: name the model that judges"),
        (known and not asks and bool(judge.base_url), "base_url", f"has no meaning for {judge.provider}: remove it"),
        (bool(judge.base_url) and not _is_url(judge.base_url), "base_url",
         f"must be an http or https URL without a user, a query or a fragment, not {judge.base_url!r}"),
        (temperature is not None and not 0 <= temperature <= 2, "temperature", "must be a number from 0 to 2"),
        (not 1 <= judge.max_tokens <= _MAX_TOKENS, "max_tokens",
         f"must be a whole number from 1 to {_MAX_TOKENS:,}"),
        (not 1 <= judge.timeout_s <= 3600, "timeout", "must be a duration from 1s to 1h, e.g. 2m"),
        (cap is not None and not 0 <= cap <= _MAX_SPEND_USD, "spend_cap",
         "must be a number of US dollars that is not negative, e.g. 2.50"),
        (not 1 <= judge.concurrency <= _MAX_CONCURRENCY, "concurrency",
         f"must be a whole number from 1 to {_MAX_CONCURRENCY}"),
        (not 0 <= judge.canary_rate <= 1, "canaries", "must be a share of the cases from 0 to 1, e.g. 0.05"),
    ]  # fmt: skip
    checks += [
        (len(text) > _MAX_TEXT_CHARS or not (not text or text.isprintable()), field,
         f"must be one line of at most {_MAX_TEXT_CHARS} characters")
        for field, text in (("model", judge.model), ("key_variable", judge.key_variable), ("rubric", judge.rubric))
    ]  # fmt: skip
    problems = [Problem(message, f"judge.{field}") for wrong, field, message in checks if wrong]
    if judge.rubric_yaml:
        problems += _rubric_problems(judge.rubric_yaml, "")[1]
    return problems


def key_variable_of(judge: JudgeSettings) -> str:
    """Return the environment variable that the judge's key is in; empty where none is sent."""
    return judge.key_variable or ("" if judge.base_url else _OWN_KEYS.get(judge.provider, ""))


def missing_key(judge: JudgeSettings, environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem where the judge's key is not set, or is empty.

    Args:
        judge: Settings without problems of their own.
        environ: The environment of the judge service.
    """
    name = key_variable_of(judge)
    if not name or environ.get(name):
        return []
    message = f"the environment variable {name} is not set: set it to the judge's key, then start again"
    return [Problem(message, "judge.key_variable" if judge.key_variable else "judge.provider")]


class JudgeReader:
    """Reads the `judge` of a spec.

    Args:
        base_dir: Folder that names of files start from.
        problems: Takes what is wrong; one of another file names that file and its own line.
    """

    def __init__(self, base_dir: Path, problems: list[Problem]) -> None:
        self._base_dir = base_dir
        self._problems = problems

    def read(self, value: object) -> JudgeSettings | None:
        """Return who judges; None for nobody."""
        if value in (None, "none"):
            return None
        if not isinstance(value, Mapping):
            self._say("", f"must be a mapping such as {{provider: openai, model: gpt-4o-mini}}, not {value!r}")
            return None
        known = self._known(value)
        provider = value.get("provider")
        if provider == "none" and not known:
            return None
        if not isinstance(provider, str):
            is_missing = "is missing" if provider is None else "must be a text"
            self._say("provider", f"{is_missing}: openai, anthropic, replay or none")
            return None
        if provider == "none":
            self._say("provider", "is none, so that nothing else may be set: remove the rest, or name a provider")
            return None
        rubric, rubric_yaml = self._rubric(value.get("rubric"))
        before = len(self._problems)
        judge = JudgeSettings(
            provider=provider,
            model=self._text(value, "model"),
            base_url=self._text(value, "base_url").rstrip("/"),
            key_variable=self._text(value, "key_variable"),
            rubric=rubric,
            rubric_yaml=rubric_yaml,
            temperature=self._number(value, "temperature"),
            max_tokens=self._whole(value, "max_tokens", _DEFAULTS.max_tokens),
            timeout_s=self._duration(value.get("timeout")),
            spend_cap_usd=self._number(value, "spend_cap"),
            concurrency=self._whole(value, "concurrency", _DEFAULTS.concurrency),
            canary_rate=_DEFAULTS.canary_rate if (rate := self._number(value, "canaries")) is None else rate,
        )
        told = {problem.field for problem in self._problems[before:]}
        self._problems += [problem for problem in check_judge(judge) if problem.field not in told]
        return judge

    def _known(self, value: Mapping[Any, Any]) -> list[str]:
        """Report the keys that there are not; return those set besides the provider."""
        for key in value:
            if key in _LATER_KEYS:
                self._say(str(key), "is not part of this version: remove it")
            elif key in _ELSEWHERE:
                self._say(str(key), _ELSEWHERE[key])
            elif key not in _KEYS:
                self._say(str(key), unknown_name("field of judge", key, _KEYS))
        return [key for key in value if key != "provider"]

    def _rubric(self, value: object) -> tuple[str, str]:
        """Return the rubric's name, and its text where it is a file's."""
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

    def _text(self, value: Mapping[str, Any], key: str) -> str:
        found = value.get(key, "")
        if not isinstance(found, str):
            self._say(key, f"must be a text, not {found!r}")
            return ""
        return found

    def _number(self, value: Mapping[str, Any], key: str) -> float | None:
        found = value.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            self._say(key, f"must be a number, not {found!r}")
            return None
        return float(found)

    def _whole(self, value: Mapping[str, Any], key: str, default: int) -> int:
        found = value.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int):
            self._say(key, f"must be a whole number, not {found!r}")
            return default
        return found

    def _duration(self, value: object) -> float:
        if value is None:
            return _DEFAULTS.timeout_s
        seconds = read_duration_s(value)
        if math.isnan(seconds):
            self._say("timeout", f"must be a duration from 1s to 1h, e.g. 2m, not {value!r}")
            return _DEFAULTS.timeout_s
        return seconds

    def _say(self, key: str, message: str) -> None:
        self._problems.append(Problem(message, f"judge.{key}" if key else "judge"))


def _rubric_problems(text: str, file: str) -> tuple[str, list[Problem]]:
    """Return the name of a rubric of the user's own, and what is wrong with it."""
    try:
        rubric = read_rubric(text, file=file, field="" if file else "judge.rubric")
    except InvalidInputError as error:
        return "", error.problems
    if rubric.compares:
        message = "compares two answers: a run needs one that scores a single answer"
        return rubric.name, [Problem(message, "compares" if file else "judge.rubric", file)]
    return rubric.name, []


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
            and not (parts.query or parts.fragment)
            and text.isascii()
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        return False
