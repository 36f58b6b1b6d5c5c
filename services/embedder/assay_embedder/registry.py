"""The models of a process: loaded at the start, or on request where the operator allows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError, InvalidInputError, Problem, UnavailableError
from assay_embedder import models
from assay_embedder.batcher import Batcher, Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay_embedder.batcher import BatchReport, Embedded
    from assay_embedder.settings import Settings

_BATCH_TOKENS = {"cpu": 1_024, "cuda": 32_768}  # larger ones gain nothing on a CPU


class LoadedModel(Encoder, Protocol):
    """An encoder that says what it is."""

    @property
    def description(self) -> models.Description:
        """What it is."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model in memory, with the queue in front of it."""

    description: models.Description
    batcher: Batcher

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of some texts, in order; raises as `Batcher.embed`."""
        return await self.batcher.embed(texts)


class Registry:
    """Loads models and hands them out by name.

    Args:
        settings: Which models, where and how.
        load: Loads one; called in a thread.
        on_batch: Passed on to every batcher.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[..., LoadedModel] = models.load,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._settings = settings
        self._load_model = load
        self._on_batch = on_batch
        self._served: dict[str, Served] = {}
        self._loading = asyncio.Lock()

    async def load_listed(self) -> None:
        """Load the models that the operator listed, and run each once, so that no caller waits for it.

        Raises:
            SetupError: One cannot be loaded.
        """
        for name in self._settings.models:
            served = await self._load(name)
            await served.embed(["warm-up"])

    async def get(self, name: str) -> Served:
        """Return a model, loading it first where that is allowed.

        Args:
            name: The model's name; empty for the default, the first listed.

        Raises:
            InvalidInputError: No such model here (reason MODEL_NOT_FOUND), or none more fits
                (reason MODEL_LIMIT_REACHED).
            UnavailableError: A listed model is not loaded yet (reason NOT_READY).
        """
        name = name or self._settings.models[0]
        if name in self._served:
            return self._served[name]
        if name in self._settings.models:
            raise UnavailableError(f"The model {name} is still being loaded; ask again.", reason="NOT_READY")
        if not self._settings.allows(name):
            listed = ", ".join(self._settings.models)
            raise _wrong_model(f'"{name}" is not served here; use one of: {listed}', "MODEL_NOT_FOUND")
        try:
            return await self._load(name)
        except InvalidInputError:
            raise
        except AssayError as error:
            raise _wrong_model(error.message, "MODEL_NOT_FOUND") from error

    def listed(self) -> list[tuple[str, models.Description | None]]:
        """Return the names of all models that are listed or loaded, the default first, with what is known."""
        names = dict.fromkeys([*self._settings.models, *self._served])
        return [(name, self._served[name].description if name in self._served else None) for name in names]

    async def aclose(self) -> None:
        """End all workers."""
        async with self._loading:
            await asyncio.gather(*(served.batcher.aclose() for served in self._served.values()))

    async def _load(self, name: str) -> Served:
        async with self._loading:  # one at a time: loading takes all cores and much memory
            if name not in self._served:
                if len(self._served) >= self._settings.max_models:
                    message = f"{len(self._served)} models are loaded already, the most this server takes"
                    raise _wrong_model(message, "MODEL_LIMIT_REACHED")
                self._served[name] = await self._loaded(name)
            return self._served[name]

    async def _loaded(self, name: str) -> Served:
        device = await asyncio.to_thread(models.choose_device, self._settings.device)
        model = await asyncio.to_thread(self._load_model, name, device=device, precision=self._settings.precision)
        batcher = Batcher(
            model,
            max_batch_tokens=self._settings.max_batch_tokens or _BATCH_TOKENS[device.partition(":")[0]],
            queue_limit=self._settings.queue_limit,
            on_batch=self._on_batch,
        )
        return Served(model.description, batcher)


def _wrong_model(message: str, reason: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, field="model")], reason=reason)
