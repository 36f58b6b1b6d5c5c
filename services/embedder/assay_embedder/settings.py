"""What an operator may set, by flag or by environment variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.runtime.logs import LogSettings
from assay.runtime.settings_flags import SettingsFlags, flag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DEFAULT_MODEL = "all-MiniLM-L6-v2"
MAX_TEXTS = 512
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one embedder process runs.

    Args:
        listen: Where to listen: "unix:/path" or "host:port".
        models: Names or folders of the models to load at the start, the default first.
        allow_models: Patterns of further models that a request may name; they are loaded then.
        max_models: Models in memory at once.
        device: "auto", "cpu" or "cuda".
        precision: Number format of the weights.
        max_batch_tokens: Word pieces computed at once, padding included; 0 chooses by device.
        queue_limit: Texts that may wait per model, at least as many as one request may hold.
        threads: Threads of the arithmetic on a CPU; 0 leaves the choice to the library.
        stream_in_flight: Requests of one stream that are worked on at once.
        grace_s: Grace period of running calls after SIGTERM, in seconds.
        reflection: Whether tools may ask for the contract.
        exit_with_lock: The process ends when no other process holds this file's lock; None: it stays.
        log: What this process logs.
    """

    listen: str = "127.0.0.1:7071"
    models: tuple[str, ...] = (DEFAULT_MODEL,)
    allow_models: tuple[str, ...] = ()
    max_models: int = 4
    device: str = "auto"
    precision: str = "float32"
    max_batch_tokens: int = 0
    queue_limit: int = 4_096
    threads: int = 0
    stream_in_flight: int = 16
    grace_s: float = 10.0
    reflection: bool = True
    exit_with_lock: Path | None = None
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        checks = [
            (not self.listen, "listen", "is empty; give unix:/path or host:port"),
            (not self.models, "model", "names no model; give at least one"),
            (len(set(self.models)) < len(self.models), "model", "names a model twice"),
            (self.device not in DEVICES, "device", f"is {self.device}; use one of {', '.join(DEVICES)}"),
            (
                self.precision not in PRECISIONS,
                "precision",
                f"is {self.precision}; use one of {', '.join(PRECISIONS)}",
            ),
            (self.max_models < len(self.models), "max_models", "is less than the number of models to load"),
            (self.max_batch_tokens < 0, "max_batch_tokens", "is negative; use 0 to choose by device"),
            (self.queue_limit < MAX_TEXTS, "queue_limit", f"is below {MAX_TEXTS}, which one request may hold"),
            (self.threads < 0, "threads", "is negative; use 0 to leave the choice to the library"),
            (self.stream_in_flight < 1, "stream_in_flight", "is below 1"),
            (self.grace_s < 0, "grace_s", "is negative"),
        ]
        problems = [Problem(message, field=flag(field)) for wrong, field, message in checks if wrong]
        if problems:
            raise InvalidInputError(problems, reason="INVALID_SETTINGS")

    def allows(self, name: str) -> bool:
        """Return whether a request may name this model."""
        if name in self.models:
            return True
        if ".." in Path(name).parts:
            return False
        # A pattern that is no path itself, such as *, means models of the hub and no folders of this machine.
        patterns = [each for each in self.allow_models if Path(each).is_absolute() or not Path(name).is_absolute()]
        return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings from command line flags, else environment variables, else defaults.

    Args:
        arguments: The command line without the program's name.
        environment: `--max-models` is also ASSAY_EMBEDDER_MAX_MODELS, and so on; lists are comma-separated.

    Raises:
        InvalidInputError: All problems, each with its flag.
        SystemExit: Help or the version was asked for.
    """
    return _flags(environment).read(arguments, _settings)


def _settings(given: dict[str, Any]) -> Settings:
    models = given.pop("model") or (DEFAULT_MODEL,)
    return Settings(models=models, **given)


def _flags(environment: Mapping[str, str]) -> SettingsFlags:
    flags = SettingsFlags("embedder", "Turns texts into vectors over gRPC.", "max_models", environment)
    defaults = Settings()

    def add(name: str, text: str, kind: Callable[[str], Any] = str) -> None:
        flags.add(name, text, kind, getattr(defaults, name))

    add("listen", "unix:/path or host:port")
    flags.several("model", "NAME|DIR", "model to load at the start", shown=DEFAULT_MODEL)
    flags.several("allow_models", "PATTERN", "further models that requests may name")
    add("max_models", "maximum number of models in memory", int)
    add("device", "device of the models: auto, cpu or cuda")
    add("precision", "number format of the weights: float32, bfloat16 or float16")
    add("max_batch_tokens", "word pieces computed at once; 0 chooses by device", int)
    add("queue_limit", "maximum texts in the queue of one model", int)
    add("threads", "threads per model on a CPU; 0 leaves the choice to the library", int)
    add("stream_in_flight", "maximum requests in flight per stream", int)
    add("grace_s", "grace period of running calls after SIGTERM, in seconds", float)
    add("exit_with_lock", "stop when no other process holds this file's shared lock", Path)
    flags.switch("reflection", "serve gRPC reflection")
    return flags
