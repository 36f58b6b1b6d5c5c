"""The models of a process: loaded at the start, or on request where the operator allows it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError, InvalidInputError, Problem, SetupError, UnavailableError
from assay_embedder import models
from assay_embedder.admission import Load
from assay_embedder.batcher import Limits
from assay_embedder.devices import choose_device, devices_of, free_device_memory, is_gpu
from assay_embedder.embeddings import Embeddings, EmbedOptions
from assay_embedder.encoder import Encoder
from assay_embedder.instruments import MODELS
from assay_embedder.vector_cache import KeyMaker, ModelCache, VectorCache
from assay_embedder.workers import batch_tokens, workers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from assay_embedder.batcher import BatchReport, Statistics
    from assay_embedder.disk_cache import DiskCache
    from assay_embedder.embeddings import Embedded
    from assay_embedder.settings import Settings

QUEUE_CHARS = 32 * 1024 * 1024
_MIB = 1024 * 1024
_PROBES = ("warm-up", "In Zürich, 2 naïve agents ordered 東京 maps & Привет; it's e\u0301 \U0001f642 OK?")


class LoadedModel(Encoder, Protocol):
    """An encoder that says what it is."""

    @property
    def description(self) -> models.Description:
        """What it is."""


@dataclass(slots=True, eq=False)
class Served:
    """A model in memory, with cache and queue in front of it.

    Args:
        description: What it is.
        embeddings: Its vectors.
        users: Requests that have it now.
    """

    description: models.Description
    embeddings: Embeddings
    users: int = 0

    @property
    def statistics(self) -> Statistics:
        """What was done for it so far."""
        return self.embeddings.statistics

    async def embed(self, texts: Sequence[str], options: EmbedOptions = EmbedOptions()) -> Embedded:  # noqa: B008
        """Return the vectors of some texts; raises as `Embeddings.embed`."""
        return await self.embeddings.embed(texts, options)


class Registry:
    """Loads models and hands them out by name.

    Args:
        settings: Which models, where and how.
        load: Loads one; called in a thread.
        on_batch: Called before each run of a model.

    Raises:
        SetupError: The folder of the cache cannot be written.
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
        self._loads: dict[str, asyncio.Task[Served]] = {}
        self._waiting: Counter[str] = Counter()  # callers by the model that they wait for
        self._cache = VectorCache(settings.cache_mib * _MIB)
        self._disk = _disk_cache(settings)

    async def load_listed(self) -> None:
        """Load the models that the operator listed, and run each once, so that no caller waits for it.

        Raises:
            SetupError: One cannot be loaded, or they take more memory than models may.
        """
        for name in self._settings.models:
            await self._load(name)
        if self._is_over_memory():
            raise SetupError(
                f"The listed models take {self._model_bytes() / _MIB:.0f} MiB; raise --model-memory-mib, which is "
                f"{self._settings.model_memory_mib}, or list fewer.",
                reason="MODEL_MEMORY",
            )

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[Served]:
        """Give a model to one request, loading it first where that is allowed; it is not unloaded meanwhile.

        Args:
            name: The model's name; empty for the default, the first listed.

        Raises:
            InvalidInputError: No such model here (reason MODEL_NOT_FOUND), or none more fits
                (reason MODEL_LIMIT_REACHED).
            UnavailableError: A listed model is not loaded yet (reason NOT_READY).
        """
        served = await self.get(name)
        served.users += 1
        try:
            yield served
        finally:
            served.users -= 1

    async def get(self, name: str) -> Served:
        """Return a model as `use` gives it; it may be unloaded when the caller waits for something else."""
        name = name or self._settings.models[0]
        if name in self._served:
            self._served[name] = self._served.pop(name)  # the most recently used last
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

    async def delete_scope(self, scope: str) -> tuple[dict[str, int], dict[str, int]]:
        """Delete the cached vectors of a scope; return by place how many that were, and how many are left.

        Raises:
            UnavailableError: The file of the cache cannot be written.
        """
        deleted, remaining = {"memory": self._cache.delete_scope(scope)}, {"memory": 0}
        if self._disk is not None:
            deleted["disk"], remaining["disk"] = await asyncio.to_thread(self._disk.delete_scope, scope)
        return deleted, remaining

    async def aclose(self) -> None:
        """End all loads and workers."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        await asyncio.gather(*(served.embeddings.aclose() for served in self._served.values()))
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)

    async def _load(self, name: str) -> Served:
        """Wait for a load that outlives its callers: a thread that loads cannot be stopped when a deadline passes."""
        if name not in self._loads:
            self._loads[name] = load = asyncio.create_task(self._load_once(name))
            load.add_done_callback(lambda done: self._end_load(name, done))
        self._waiting[name] += 1
        try:
            return await asyncio.shield(self._loads[name])
        finally:
            self._waiting[name] -= 1

    def _end_load(self, name: str, load: asyncio.Task[Served]) -> None:
        del self._loads[name]
        if not load.cancelled():
            load.exception()  # seen, also where no caller waits for it any more

    async def _load_once(self, name: str) -> Served:
        async with self._loading:  # one at a time: loading takes all cores and much memory
            if name not in self._served:
                await self._make_room(name)
                self._served[name] = await self._loaded(name)
                MODELS.series().set(len(self._served))
                await self._keep_memory_limit(name)
            return self._served[name]

    async def _make_room(self, name: str) -> None:
        """Unload a model where as many are loaded as may be."""
        while name not in self._settings.models and len(self._served) >= self._settings.max_models:
            if not await self._unload_one(besides=name):
                message = f"{len(self._served)} models are loaded and in use, the most this server takes"
                raise _wrong_model(message, "MODEL_LIMIT_REACHED")

    async def _keep_memory_limit(self, name: str) -> None:
        """Unload other models than this one while all take too much memory, and this one where that is not enough."""
        while name not in self._settings.models and self._is_over_memory():
            if await self._unload_one(besides=name):
                continue
            size_mib = self._served[name].description.weight_bytes / _MIB
            await self._unload(name)
            message = (
                f"takes {size_mib:.0f} MiB, and models that stay take {self._model_bytes() / _MIB:.0f} of the "
                f"{self._settings.model_memory_mib} MiB that models may take here"
            )
            raise _wrong_model(message, "MODEL_LIMIT_REACHED")

    async def _unload_one(self, *, besides: str) -> bool:
        """Unload the model that was not used for longest; return False where none may be unloaded."""
        for name, served in self._served.items():
            is_needed = name in self._settings.models or served.users or self._waiting[name]
            if name != besides and not is_needed:
                await self._unload(name)
                return True
        return False

    async def _unload(self, name: str) -> None:
        served = self._served.pop(name)
        MODELS.series().set(len(self._served))
        await served.embeddings.aclose()
        await asyncio.to_thread(free_device_memory)

    def _model_bytes(self) -> int:
        return sum(served.description.weight_bytes for served in self._served.values())

    def _is_over_memory(self) -> bool:
        limit = self._settings.model_memory_mib * _MIB
        return bool(limit) and self._model_bytes() > limit

    async def _loaded(self, name: str) -> Served:
        device = await asyncio.to_thread(choose_device, self._settings.device)
        devices = await asyncio.to_thread(devices_of, device)
        encoders = [await asyncio.to_thread(self._loaded_on, name, each) for each in devices]
        # Each is run once, so that no caller waits for what a first run takes.
        identities = [await asyncio.to_thread(_identity, encoder) for encoder in encoders]
        description = replace(encoders[0].description, device=device)
        limits = Limits(
            max_tokens=description.max_tokens,
            batch_tokens=self._settings.max_batch_tokens or batch_tokens(device, description.precision),
            queue=Load(self._settings.queue_limit, QUEUE_CHARS, self._settings.queue_tokens),
            divides=not is_gpu(device),
        )
        embeddings = Embeddings(
            description,
            workers_of(encoders, devices, self._settings.threads),
            limits,
            cache=ModelCache(KeyMaker(identities[0]), self._cache, self._disk),
            on_batch=self._on_batch,
        )
        return Served(description, embeddings)

    def _loaded_on(self, name: str, device: str) -> LoadedModel:
        return self._load_model(name, device=device, precision=self._settings.precision)


def _identity(model: LoadedModel) -> tuple[str, ...]:
    """Run a model on a few texts; return all that distinguishes its vectors.

    The weights alone do not: another tokenizer, another way of pooling or another processor gives other vectors.
    """
    tokens = model.tokenize(_PROBES)
    digest = hashlib.blake2b(repr([list(each.ids) for each in tokens]).encode())
    digest.update(model.encode(tokens).astype("<f4").tobytes())
    about = model.description
    made_by = (about.revision, about.precision, about.engine, about.prefix)
    return (*made_by, str(about.dimension), str(about.max_tokens), digest.hexdigest())


def _disk_cache(settings: Settings) -> DiskCache | None:
    if settings.cache_dir is None:
        return None
    from assay_embedder.disk_cache import DiskCache  # most embedders have none, and no need of SQLite

    return DiskCache(settings.cache_dir, settings.cache_disk_mib * _MIB)


def _wrong_model(message: str, reason: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, field="model")], reason=reason)
