"""Settings of a service. Each is declared once: flag, environment variable, default, bounds and help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name
from assay.process.logs import FORMATS, LEVELS, LogSettings
from assay.rpc.addresses import is_local
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from assay.rpc.tls import ServerFiles

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    """The declaration of a setting, without its default."""

    text: str
    read: Callable[[str], Any] | None
    flag: str
    least: float | None
    above: float | None
    most: float | None
    choices: Sequence[str]
    metavar: str
    also: str
    home: str
    in_place_of: str
    is_secret: bool

    def problem(self, value: Any) -> str:
        """Return the problem of a value; empty if it is valid."""
        if self.choices and value not in self.choices:
            return f"must be {_either(self.choices)}, not {value!r}"
        if value is None or isinstance(value, (str, tuple, Mapping, Path)):
            return ""
        too_small = (self.least is not None and not value >= self.least) or (
            self.above is not None and not value > self.above
        )
        return f"must be {self._range()}" if too_small or (self.most is not None and not value <= self.most) else ""

    def _range(self) -> str:
        if self.above is not None:
            return f"above {self.above:,g}" + (f" and at most {self.most:,g}" if self.most is not None else "")
        if self.most is None:
            return f"at least {self.least:,g}"
        return f"from {self.least:,g} to {self.most:,g}"


def setting(
    default: Any,
    text: str,
    *,
    read: Callable[[str], Any] | None = None,
    flag: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    metavar: str = "",
    also: str = "",
    home: str = "",
    in_place_of: str = "",
    is_secret: bool = False,
) -> Any:
    """Return a field of a service's settings.

    Args:
        default: Its value if neither flag nor variable sets it. Its type determines how a text is read; a bool is a
            switch, a tuple a repeatable flag.
        text: Its meaning, with the unit, for the help and the documentation.
        read: Converts a text to its value, if the default's type does not determine how; raises ValueError with a
            description of valid input.
        flag: Its flag, e.g. "model"; empty to use the field's name.
        least: Lowest value.
        above: Exclusive lower bound.
        most: Highest value.
        choices: All valid values.
        metavar: The placeholder for a repeatable flag's value in the help.
        also: A further environment variable for it.
        home: Its default for a process, as a path below ASSAY_HOME (~/.assay); Settings created in code use `default`.
        in_place_of: The setting whose variables are ignored if this one has a flag; using both flags is refused.
        is_secret: Whether help and repr must hide it.
    """
    metadata = _Declaration(
        text=text, read=read, flag=flag, least=least, above=above, most=most, choices=choices, metavar=metavar,
        also=also, home=home, in_place_of=in_place_of, is_secret=is_secret,
    )  # fmt: skip
    given: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    return field(**given, repr=not is_secret, metadata={_Declaration: metadata})


def path(text: str) -> Path:
    """Read the path of a file or folder; ~ is the home folder."""
    if not text:
        raise ValueError("is empty: give a path")
    return Path(text).expanduser()


def listed(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def flag_of(name: str) -> str:
    """Return the flag of a setting: `max_models` is --max-models."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The settings of every service; each service adds its own. All invalid values are refused at once."""

    service: ClassVar[str]
    """What comes after `assay serve`."""
    description: ClassVar[str]
    """What the service does, a sentence."""

    listen: str = setting("127.0.0.1:0", "address to serve at: unix:/path or host:port")
    grace_s: float = setting(10.0, "grace period of running calls after SIGTERM, in seconds", least=0)
    reflection: bool = setting(True, "serve gRPC reflection")
    health_listen: str = setting(
        "", "further address that serves health alone, without TLS, for probes; empty for none"
    )
    metrics_listen: str = setting(
        "", "address that serves metrics for Prometheus, host:port, without TLS; empty for none"
    )
    traces: bool = setting(
        False, "send spans to the OpenTelemetry collector at OTEL_EXPORTER_OTLP_ENDPOINT; also ASSAY_TRACES",
        also="ASSAY_TRACES",
    )  # fmt: skip
    tls_cert: Path | None = setting(
        None, "certificate chain to serve with, PEM; read again when the file changes", read=path
    )
    tls_key: Path | None = setting(None, "private key of --tls-cert, PEM, without a passphrase", read=path)
    tls_client_ca: Path | None = setting(
        None, "authorities whose clients alone may connect (mutual TLS), PEM", read=path
    )
    insecure: bool = setting(
        False, "serve at an address that other machines reach without TLS, or to callers without an identity"
    )
    exit_with_lock: Path | None = setting(None, "stop when no other process holds this file's shared lock", read=path)
    exit_idle_s: float = setting(
        0.0, "with --exit-with-lock, seconds to wait idle for another process before stopping", least=0
    )
    log_level: str = setting("info", "least severe records to log", choices=LEVELS, read=str.lower)
    log_format: str = setting("text", "format of log records", choices=FORMATS, read=str.lower)

    def __post_init__(self) -> None:
        problems = [
            Problem(message, flag_of(name))
            for name, attribute, declared in _declared(type(self))
            if (message := declared.problem(getattr(self, attribute.name)))
        ]
        if not self.listen:
            problems.append(Problem("is empty; give unix:/path or host:port", "--listen"))
        problems += self._exposure_problems()
        problems += self.problems()
        if problems:
            raise InvalidInputError(problems, reason="INVALID_SETTINGS")

    def _exposure_problems(self) -> Iterator[Problem]:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "--tls-cert" if self.tls_cert is None else "--tls-key"
            yield Problem("is missing: certificate and key are given together", missing)
        elif self.tls_client_ca is not None and self.tls_cert is None:
            yield Problem("needs --tls-cert and --tls-key", "--tls-client-ca")
        elif not self.insecure and self.listen and self.is_exposed and not is_local(self.listen):
            lacks = [] if self.tls_cert is not None else ["TLS (--tls-cert, --tls-key)"]
            lacks += [] if self.knows_callers else [self.caller_settings]
            if lacks:
                yield Problem(
                    f"is an address that other machines reach: it needs {' and '.join(lacks)}, or --insecure on a "
                    "network whose every user may do everything",
                    "--listen",
                )

    caller_settings: ClassVar[str] = "known clients (--tls-client-ca)"
    """By which settings callers are known."""

    @property
    def is_exposed(self) -> bool:
        """Whether the service serves more than health checks."""
        return True

    @property
    def knows_callers(self) -> bool:
        """Whether every caller has an identity."""
        return self.tls_client_ca is not None

    @property
    def server_tls(self) -> ServerFiles | None:
        """The files of TLS; None for plain connections."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        from assay.rpc.tls import ServerFiles  # imported here: reading settings does without gRPC

        return ServerFiles(self.tls_cert, self.tls_key, self.tls_client_ca)

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of values that do not fit together, with their flags."""
        yield from ()

    @property
    def log(self) -> LogSettings:
        """The log settings."""
        return LogSettings(self.log_level, self.log_format)

    @classmethod
    def read(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Return the settings from command line flags, else environment variables, else defaults.

        Args:
            arguments: The command line without the program's name.
            environment: The judge's `--grace-s` is also ASSAY_JUDGE_GRACE_S, and so on; lists in variables are
                comma-separated. An empty variable counts as unset.

        Raises:
            InvalidInputError: Settings are invalid; lists every problem with its flag or variable.
            SystemExit: Help or the version was requested.
        """
        reader = _Reader(cls, environment)
        values, problems = reader.read(arguments)
        try:
            built = cls(**values)
        except InvalidInputError as error:
            raise InvalidInputError([*problems, *error.problems], reason="INVALID_SETTINGS") from None
        if problems:
            raise InvalidInputError(problems, reason="INVALID_SETTINGS")
        return built


def _declared(settings: type[ServiceSettings]) -> Iterator[tuple[str, Field[Any], _Declaration]]:
    """Yield each setting's flag name, field and declaration."""
    for attribute in fields(settings):
        declared: _Declaration = attribute.metadata[_Declaration]
        yield declared.flag or attribute.name, attribute, declared


class _Reader:
    """Reads the flags and variables of a service."""

    def __init__(self, settings: type[ServiceSettings], environment: Mapping[str, str]) -> None:
        self._settings = list(_declared(settings))
        self._prefix = f"ASSAY_{settings.service.upper()}_"
        self._environment = environment
        self._home = environment.get("ASSAY_HOME") or "~/.assay"
        self._parser = _Parser(
            prog=f"assay serve {settings.service}",
            description=settings.description,
            epilog=f"Every flag is also an environment variable: --grace-s is {self._variable('grace_s')}; lists are "
            "comma-separated there.",
        )
        self._parser.add_argument("--version", action="version", version=__version__)
        for name, attribute, declared in self._settings:
            self._add(name, attribute, declared)

    def _add(self, name: str, attribute: Field[Any], declared: _Declaration) -> None:
        text = declared.text + (f": {_either(declared.choices)}" if declared.choices else "")
        options: dict[str, Any] = {}
        if isinstance(attribute.default, bool):
            options = {"action": argparse.BooleanOptionalAction}
        elif _is_repeated(attribute, declared):
            options = {"action": "append", "metavar": declared.metavar}
            text += "; repeatable"
        text += f" (default: {self._shown(name, attribute, declared) or 'none'})"
        # Values are read afterwards, all of them, whatever is wrong with one.
        self._parser.add_argument(flag_of(name), default=argparse.SUPPRESS, help=text.replace("%", "%%"), **options)

    def _shown(self, name: str, attribute: Field[Any], declared: _Declaration) -> str:
        """Return the effective default, as the help shows it."""
        if declared.is_secret:
            return ""
        text = self._text_of(name, declared)
        if text is not None:
            return text
        default = self._default(attribute, declared)
        if isinstance(default, bool):
            return "on" if default else "off"
        if isinstance(default, tuple):
            return ", ".join(default)
        return "" if default is None or default is MISSING else str(default)

    def _default(self, attribute: Field[Any], declared: _Declaration) -> Any:
        return path(f"{self._home}/{declared.home}") if declared.home else attribute.default

    def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
        """Return the given values by field, and the problems; unreadable values are left out."""
        known, unknown = self._parser.parse_known_args(arguments)
        given = vars(known)
        problems = self._unknown(unknown) + self._replace(given)
        values: dict[str, Any] = {}
        for name, attribute, declared in self._settings:
            where, text = flag_of(name), given.get(name)
            if text is None:
                where, text = self._variable(name), self._text_of(name, declared)
            try:
                if text is not None:
                    values[attribute.name] = _value(text, attribute, declared)
                elif declared.home:
                    values[attribute.name] = self._default(attribute, declared)
            except ValueError as error:
                problems.append(Problem(str(error), where))
                if declared.home:
                    values[attribute.name] = self._default(attribute, declared)
        return values, problems

    def _replace(self, given: dict[str, Any]) -> list[Problem]:
        """Clear the settings that another setting's flag replaces; return the problems of two such flags."""
        problems = []
        for name, _, declared in self._settings:
            if name in given and (other := declared.in_place_of):
                if given.get(other):
                    problems.append(Problem(f"stands in place of {flag_of(other)}: give one of the two", flag_of(name)))
                given[other] = ""
        return problems

    def _text_of(self, name: str, declared: _Declaration) -> str | None:
        names = (self._variable(name), declared.also)
        return next((self._environment[name] for name in names if self._environment.get(name)), None)

    def _variable(self, name: str) -> str:
        return self._prefix + name.upper()

    def _unknown(self, words: Sequence[str]) -> list[Problem]:
        """Return the problems of leftover arguments; a word after an unknown flag counts as its value."""
        flags = [flag_of(name) for name, _, _ in self._settings]
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


def _is_repeated(attribute: Field[Any], declared: _Declaration) -> bool:
    return isinstance(attribute.default, tuple) and declared.read is None


def _value(given: Any, attribute: Field[Any], declared: _Declaration) -> Any:
    """Return a setting's value: a switch or repeatable flag as argparse parsed it, a text as its reader converts it."""
    if isinstance(given, bool):
        return given
    if isinstance(given, list):
        return tuple(given)
    if declared.read is not None:
        return declared.read(given)
    if isinstance(attribute.default, tuple):
        return listed(given)
    return _READERS[type(attribute.default)](given)


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, not {text[:60]!r}") from None


def number(text: str) -> float:
    """Read a finite number."""
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


_READERS: Mapping[type, Callable[[str], Any]] = {bool: _truth, int: _whole_number, float: number, str: str}
