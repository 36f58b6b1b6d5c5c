"""Settings of a service: flags, environment variables, defaults; all problems are reported at once."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name
from assay.runtime.logs import FORMATS, LEVELS, LogSettings
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_LISTS = "; lists are comma-separated there"


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting, and how its text is read."""

    name: str
    default: Any
    read: Callable[[str], Any]
    also: str = ""


class SettingsFlags:
    """The flags of one service; every flag is also an environment variable, and wins over it.

    Args:
        service: What comes after `assay serve`.
        description: What the service does, a sentence.
        example: A setting, for the sentence about variables.
        environment: `--max-models` of the embedder is also ASSAY_EMBEDDER_MAX_MODELS, and so on. A variable that is
            empty is not set.
    """

    def __init__(self, service: str, description: str, example: str, environment: Mapping[str, str]) -> None:
        self._prefix = f"ASSAY_{service.upper()}_"
        self._environment = environment
        self._settings: list[_Setting] = []
        self._parser = _Parser(
            prog=f"assay serve {service}",
            description=description,
            epilog=f"Every flag is also an environment variable: {flag(example)} is {self._variable(example)}{_LISTS}.",
        )
        self._parser.add_argument("--version", action="version", version=__version__)
        self.add("log_level", f"least severe records to log: {_either(LEVELS)}", _one_of(LEVELS), LogSettings().level)
        self.add("log_format", f"format of log records: {_either(FORMATS)}", _one_of(FORMATS), LogSettings().format)

    def add(
        self,
        name: str,
        text: str,
        kind: Callable[[str], Any] = str,
        default: Any = None,
        *,
        shown: str | None = None,
        also: str = "",
    ) -> None:
        """Add a setting of one value.

        Args:
            name: The setting; `max_models` is --max-models.
            text: What it means, for the help.
            kind: Makes its value of a text; raises ValueError with what is due instead.
            default: Its value where neither flag nor variable gives one.
            shown: The default as the help shows it; None for the value that is in force.
            also: A further environment variable that is read.
        """
        setting = _Setting(name, default, kind, also)
        self._settings.append(setting)
        value = self._text_of(setting) or default
        text += _default(shown if shown is not None else "" if value is None else str(value))
        # Values are read afterwards, all of them, whatever is wrong with one.
        self._parser.add_argument(flag(name), default=argparse.SUPPRESS, help=text)

    def several(self, name: str, metavar: str, text: str, *, shown: str = "") -> None:
        """Add a setting of any number of texts: the flag is given several times, a variable holds commas."""
        setting = _Setting(name, (), listed)
        self._settings.append(setting)
        text += "; repeatable" + _default(self._text_of(setting) or shown)
        self._parser.add_argument(flag(name), action="append", metavar=metavar, default=argparse.SUPPRESS, help=text)

    def switch(self, name: str, text: str) -> None:
        """Add a setting that is on unless --no-NAME says otherwise."""
        setting = _Setting(name, True, _truth)
        self._settings.append(setting)
        text += _default(self._text_of(setting) or "on")
        self._parser.add_argument(
            flag(name), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
        )

    def read(self, arguments: Sequence[str], build: Callable[[dict[str, Any]], T]) -> T:
        """Return what `build` makes of the settings, by name, and of `log`, what the process logs.

        Raises:
            InvalidInputError: Everything that is wrong, each with its flag or variable; and what `build` finds, be it
                in the lines of a ValueError.
            SystemExit: Help or the version was asked for.
        """
        known, unknown = self._parser.parse_known_args(arguments)
        given = vars(known)
        problems = self._unknown(unknown)
        values = {setting.name: self._value(setting, given, problems) for setting in self._settings}
        values["log"] = LogSettings(values.pop("log_level"), values.pop("log_format"))
        try:
            built = build(values)
        except InvalidInputError as error:
            raise InvalidInputError([*problems, *error.problems], reason="INVALID_SETTINGS") from None
        except ValueError as error:
            problems += [Problem(line) for line in str(error).splitlines()]
            raise InvalidInputError(problems, reason="INVALID_SETTINGS") from None
        if problems:
            raise InvalidInputError(problems, reason="INVALID_SETTINGS")
        return built

    def _value(self, setting: _Setting, given: Mapping[str, Any], problems: list[Problem]) -> Any:
        where, found = flag(setting.name), given.get(setting.name)
        if isinstance(found, list):
            return tuple(found)
        if isinstance(found, bool):
            return found
        if found is None:
            where, found = self._variable(setting.name), self._text_of(setting)
        if found is None:
            return setting.default
        try:
            return _READERS.get(setting.read, setting.read)(found)
        except ValueError as error:
            problems.append(Problem(str(error), where))
            return setting.default

    def _text_of(self, setting: _Setting) -> str | None:
        names = (self._variable(setting.name), setting.also)
        return next((self._environment[name] for name in names if self._environment.get(name)), None)

    def _variable(self, name: str) -> str:
        return self._prefix + name.upper()

    def _unknown(self, words: Sequence[str]) -> list[Problem]:
        """Return what is wrong with what is left over; a word behind a flag that is none is taken for its value."""
        flags = [flag(setting.name) for setting in self._settings]
        wrong = [word.partition("=")[0] for word in words if word.startswith("-")]
        problems = [Problem(unknown_name("flag", word, flags)) for word in wrong]
        if words and not wrong:
            problems.append(Problem(f"{words[0][:60]!r} belongs to no flag: leave it out"))
        return problems


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InvalidInputError(message, reason="INVALID_SETTINGS")


def _default(shown: str) -> str:
    """Return how the help shows a default."""
    return f" (default: {shown or 'none'})".replace("%", "%%")


def flag(name: str) -> str:
    """Return the flag of a setting: `max_models` is --max-models."""
    return "--" + name.replace("_", "-")


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"must be {_either(choices)}, not {text[:60]!r}")
        return text.lower()

    return read


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, not {text[:60]!r}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a number, not {text[:60]!r}")
    return value


def _truth(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"must be true or false, not {text[:60]!r}")


_READERS: dict[Callable[[str], Any], Callable[[str], Any]] = {int: _whole_number, float: _number}
