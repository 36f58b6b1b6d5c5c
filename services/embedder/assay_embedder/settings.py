"""The settings of an operator, as flags and environment variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.local_stack.model_files import is_folder
from assay.process.settings import ServiceSettings, path, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_MODEL = "all-MiniLM-L6-v2"
MAX_TEXTS = 512
PRECISIONS = ("exact", "fast", "auto")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,3})?")


@dataclass(frozen=True, kw_only=True)
class Settings(ServiceSettings):
    """How one embedder process runs."""

    service = "embedder"
    description = "Turns texts into vectors over gRPC."

    listen: str = setting("127.0.0.1:7071", "address to serve at: unix:/path or host:port")
    models: tuple[str, ...] = setting(
        (DEFAULT_MODEL,), "model to load at the start, the default first", flag="model", metavar="NAME|DIR"
    )
    allow_models: tuple[str, ...] = setting(
        (), "further models that requests may name; they are loaded then", metavar="PATTERN"
    )
    max_models: int = setting(
        4, "maximum number of models in memory; of those loaded on request the least recently used makes room"
    )
    model_memory_mib: int = setting(0, "maximum memory of the weights of all models, in MiB; 0 for no limit", least=0)
    device: str = setting("auto", "device of the models: auto, cpu, cuda or cuda:N")
    precision: str = setting("exact", "precision of the vectors", choices=PRECISIONS)
    max_batch_tokens: int = setting(
        0, "maximum word pieces per run of the model; 0 chooses by device and precision", least=0
    )
    queue_limit: int = setting(4_096, "maximum texts of one scope in the queue of one model", least=MAX_TEXTS)
    queue_tokens: int = setting(
        1_000_000, "maximum word pieces of one scope in the queue of one model, estimated", least=1
    )
    threads: int = setting(
        0, "maximum threads per model on a CPU; 0 for the processors that the process may use", least=0
    )
    cache_mib: int = setting(256, "memory for vectors of texts embedded before, in MiB; 0 for none", least=0)
    cache_dir: Path | None = setting(None, "folder for vectors that outlive the process", read=path)
    cache_disk_mib: int = setting(512, "maximum size of the file in --cache-dir, in MiB; 0 for none", least=0)
    stream_in_flight: int = setting(16, "maximum requests in flight per stream", least=1)

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of values that do not go together, each with its flag."""
        if not _DEVICE.fullmatch(self.device):
            yield Problem(f"must be auto, cpu, cuda or cuda:N, not {self.device!r}", "--device")
        if not self.models:
            yield Problem("names no model; give at least one", "--model")
        if len(set(self.models)) < len(self.models):
            yield Problem("names a model twice", "--model")
        if self.max_models < len(self.models):
            yield Problem("is less than the number of models to load", "--max-models")

    def allows(self, name: str) -> bool:
        """Return whether a request may name this model."""
        if name in self.models:
            return True
        if ".." in Path(name).parts:
            return False
        if not Path(name).is_absolute() and is_folder(name):
            return False
        # A pattern that is no path itself, such as *, means models of the hub and no folders of this machine.
        patterns = [
            pattern for pattern in self.allow_models if Path(pattern).is_absolute() or not Path(name).is_absolute()
        ]
        return any(fnmatchcase(name, pattern) for pattern in patterns)
