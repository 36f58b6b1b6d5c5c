"""The services' logs: one record per line, as text or JSON, whatever the values contain.

Messages have the form "ended run: run=%s state=%s". Text logs show them unchanged. In JSON, each name=%s is also a
field of the record, and so are the run, case, team and trace_id that the process is working on.
Secrets that the process has used are removed from every line.
"""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.telemetry.context import fields as context_fields
from assay.telemetry.tracing import trace_id
from assay.text.unsafe_text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from assay.process.redaction import Redactor

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_VALUE = re.compile(r"(?:\b([a-z_]+)=)?%(?:\(([a-z_]+)\))?[-#0 +]*\d*(?:\.\d+)?([a-zA-Z%])")
_OWN_FIELDS = ("time", "level", "logger", "message", "exception")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log settings of a process.

    Args:
        level: The least severe of LEVELS that is logged.
        format: One of FORMATS.
    """

    level: str = "info"
    format: str = "text"


class TextFormatter(logging.Formatter):
    """Formats a record as one line, whatever its values contain; traceback lines are indented."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, without secrets."""
        return redacted(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return escaped(super().formatMessage(record))

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Return a traceback in which no exception text can begin a line."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return a stack in which no text can begin a line."""
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """Formats a record as one ASCII JSON object: time (UTC), level, logger, message and its values by name."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **context_fields(),
            **({"trace_id": current} if (current := trace_id()) else {}),
            **_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return redacted(json.dumps(document))


def configure_logging(settings: LogSettings | None = None) -> None:
    """Log to stderr.

    Args:
        settings: None for the defaults, until the settings are read.
    """
    global _settings  # noqa: PLW0603 - logging itself is one for a process
    _settings = settings or LogSettings()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if _settings.format == "json" else TextFormatter())
    logging.basicConfig(level=_settings.level.upper(), handlers=[handler], force=True)


def log_settings() -> LogSettings:
    """Return this process's log settings, for processes that it starts."""
    return _settings


def keep_out_of_logs(values: Iterable[str], secrets: Iterable[str] = ()) -> None:
    """Redact values from this process's logs and from errors shown to callers, from now on.

    Values of fewer than 8 characters stay, because they may be ordinary words.

    Args:
        values: Values of variables, which may be keys or, for example, URLs.
        secrets: Pure secrets, whose beginnings are removed too.
    """
    global _kept_out, _redactor
    redacted = (_kept_out[0].union(values), _kept_out[1].union(secrets))
    if redacted != _kept_out:
        from assay.process.redaction import Redactor  # imported here: a start has no secret yet

        _kept_out, _redactor = redacted, Redactor(*redacted)


def redacted(text: str) -> str:
    """Return a text without the redacted values."""
    return text if _redactor is None else _redactor.redact_line(text)


_settings = LogSettings()
_kept_out: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
_redactor: Redactor | None = None


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the values of a record that its message names."""
    if not isinstance(record.msg, str) or not record.args:
        return {}
    by_key = record.args if isinstance(record.args, dict) else {}
    by_place = iter(() if by_key else record.args)
    fields: dict[str, Any] = {}
    for name, key, kind in _VALUE.findall(record.msg):
        if kind != "%":
            value = by_key.get(key) if key else next(by_place, None)
            if name and name not in _OWN_FIELDS:
                fields[name] = _plain(value)
    return fields


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _indented(text: str) -> str:
    # Split at line feeds alone: every other line end is escaped.
    return "\n".join(f"  {escaped(line)}" for line in text.split("\n"))
