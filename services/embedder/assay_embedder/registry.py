"""The models of a process: loaded at the start, or on request if the operator allows it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from assay.errors import AssayError, InvalidInputError, Problem, SetupError, UnavailableError
from assay_embedder.caches.vector_cache import KeyMaker, ModelCache, VectorCache
from assay_embedder.embeddings import Embeddings, EmbedOptions
from assay_embedder.instruments import MODELS
from assay_embedder.models import loading
from assay_embedder.models.devices import choose_device, devices_of, free_device_memory, is_gpu
from assay_embedder.models.encoder import Encoder
from assay_embedder.models.folders import explained, not_loaded
from assay_embedder.queues.admission import Load
from assay_embedder.queues.batcher import Limits
from assay_embedder.queues.workers import batch_tokens, workers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from assay_embedder.caches.disk_cache import DiskCache
    from assay_embedder.embeddings import Embedded
    from assay_embedder.queues.batcher import BatchReport, Statistics
    from assay_embedder.settings import Settings

T = TypeVar("T")

QUEUE_CHARS = 32 * 1024 * 1024
_MIB = 1024 * 1024
_PROBES = ("warm-up", "In Zürich, 2 naïve agents ordered 東京 maps & Привет; it's e\u0301 \U0001f642 OK?")


class LoadedModel(Encoder, Protocol):
    """An encoder with a description."""

    @property
    def description(self) -> loading.Description:
        """Its description."""


@dataclass(slots=True, eq=False)
class Served:
    """A model in memory, with cache and queue in front of it.

    Args:
        description: What it is.
        embeddings: Its vectors.
        users: Requests that have it now.
    """

    description: loading.Description
    embeddings: Embeddings
    users: int = 0

    @property
    def statistics(self) -> Statistics:
        """Counts of its requests and runs."""
        return self.embeddings.statistics

    async def embed(self, texts: Sequence[str], options: EmbedOptions = EmbedOptions()) -> Embedded:  # noqa: B008
        """Return the vectors of some texts; raises as `Embeddings.embed`."""
        return await self.embeddings.embed(texts, options)


class Registry:
    """Loads models and hands them out by name.

    Args:
        settings: Which models, where and how.
        load: Loads one; called in a thread.
        find: Finds one that a request names, before another is unloaded for it; called in a thread.
        on_batch: Called before each run of a model.

    Raises:
        SetupError: The folder of the cache cannot be written.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[..., LoadedModel] = loading.load,
        find: Callable[[str], loading.Found] = loading.find,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._settings = settings
        self._load_model = load
        self._find_model = find
        self._on_batch = on_batch
        self._served: dict[str, Served] = {}
        self._loading = asyncio.Lock()
        self._loads: dict[str, asyncio.Task[Served]] = {}
        self._waiting: Counter[str] = Counter()  # callers by the model that they wait for
        self._cache = VectorCache(settings.cache_mib * _MIB)
        self._disk = _disk_cache(settings)

    async def load_listed(self) -> None:
        """Load the models that the operator listed, and run each once so that no caller pays for a first run.

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
        """Lend a model to one request, loading it first if that is allowed; it is not unloaded meanwhile.

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
        """Return a model as `use` does, but without keeping it loaded while the caller waits for something else."""
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

    def listed(self) -> list[tuple[str, loading.Description | None]]:
        """Return the names of all listed or loaded models, the default first, with the descriptions of loaded ones."""
        names = dict.fromkeys([*self._settings.models, *self._served])
        return [(name, self._served[name].description if name in self._served else None) for name in names]

    async def delete_scope(self, scope: str) -> tuple[dict[str, int], dict[str, int]]:
        """Delete the cached vectors of a scope; return the numbers of deleted and remaining ones by place.

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
            if not self._waiting[name]:
                del self._waiting[name]  # whatever names are asked for, no more is kept than waits

    def _end_load(self, name: str, load: asyncio.Task[Served]) -> None:
        del self._loads[name]
        if not load.cancelled():
            load.exception()  # seen, also where no caller waits for it any more

    async def _load_once(self, name: str) -> Served:
        async with self._loading:  # one at a time: loading takes all cores and much memory
            if name not in self._served:
                options: dict[str, Any] = {}
                if name not in self._settings.models:
                    model = await _in_thread(self._find_model, name)
                    self._require_memory(model.weight_bytes)
                    options["folder"] = model.folder
                await self._make_room(name)
                self._served[name] = await self._loaded(name, options)
                MODELS.series().set(len(self._served))
                await self._keep_memory_limit(name)
            return self._served[name]

    async def _make_room(self, name: str) -> None:
        """Unload a model if the maximum number is loaded."""
        while name not in self._settings.models and len(self._served) >= self._settings.max_models:
            if not await self._unload_one(besides=name):
                message = f"{len(self._served)} models are loaded and in use, the most this server takes"
                raise _wrong_model(message, "MODEL_LIMIT_REACHED")

    def _require_memory(self, size_bytes: int) -> None:
        """Raise if the models that stay leave too little memory for another."""
        stay = sum(served.description.weight_bytes for name, served in self._served.items() if self._stays(name))
        limit = self._settings.model_memory_mib * _MIB
        if limit and stay + size_bytes > limit:
            raise self._too_large(size_bytes, stay)

    async def _keep_memory_limit(self, name: str) -> None:
        """Unload other models until the memory limit holds, and this one if that is not enough."""
        while name not in self._settings.models and self._is_over_memory():
            if await self._unload_one(besides=name):
                continue
            size_bytes = self._served[name].description.weight_bytes
            await self._unload(name)
            raise self._too_large(size_bytes, self._model_bytes())

    def _too_large(self, size_bytes: int, stay_bytes: int) -> InvalidInputError:
        message = (
            f"takes {size_bytes / _MIB:.0f} MiB, and models that stay take {stay_bytes / _MIB:.0f} of the "
            f"{self._settings.model_memory_mib} MiB that models may take here"
        )
        return _wrong_model(message, "MODEL_LIMIT_REACHED")

    async def _unload_one(self, *, besides: str) -> bool:
        """Unload the least recently used model; return False if none may be unloaded."""
        for name in self._served:
            if name != besides and not self._stays(name):
                await self._unload(name)
                return True
        return False

    def _stays(self, name: str) -> bool:
        return name in self._settings.models or self._served[name].users > 0 or self._waiting[name] > 0

    async def _unload(self, name: str) -> None:
        served = self._served.pop(name)
        MODELS.series().set(len(self._served))
        await served.embeddings.aclose()
        del served
        await asyncio.to_thread(_free_memory)

    def _model_bytes(self) -> int:
        return sum(served.description.weight_bytes for served in self._served.values())

    def _is_over_memory(self) -> bool:
        limit = self._settings.model_memory_mib * _MIB
        return bool(limit) and self._model_bytes() > limit

    async def _loaded(self, name: str, options: Mapping[str, Any]) -> Served:
        device = await asyncio.to_thread(choose_device, self._settings.device)
        devices = await asyncio.to_thread(devices_of, device)
        load = partial(self._load_model, name, precision=self._settings.precision, **options)
        encoders = [await _in_thread(partial(load, device=each)) for each in devices]
        # Each is run once, so that no caller waits for what a first run takes.
        identities = [await _in_thread(_identity, name, encoder) for encoder in encoders]
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


async def _in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a daemon thread, which lets the process end however long the call takes; return its result."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("T", value))

    def call() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = function(*arguments)
        except StopIteration as error:  # which no future takes
            failure = RuntimeError(str(error))
        except BaseException as error:  # noqa: BLE001 - the boundary of a task: raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle, value, failure)
        del value, failure  # an error has this frame in its traceback, and with it all that was loaded

    threading.Thread(target=call, name="embedder-load", daemon=True).start()
    return await result


def _free_memory() -> None:
    """Free a model's memory: a library may hold it in a reference cycle, and torch in its pool on a GPU."""
    gc.collect()
    free_device_memory()


def _identity(name: str, model: LoadedModel) -> tuple[str, ...]:
    """Run a model on a few texts; return everything that distinguishes its vectors; raise SetupError if it cannot run.

    The weights alone do not: another tokenizer, another way of pooling, another version of the code or another
    processor gives other vectors. Processors of different kinds have the same description: the texts show them.
    """
    with explained(name):
        tokens = model.tokenize(_PROBES)
        vectors = model.encode(tokens)
    if not np.isfinite(vectors).all():
        raise not_loaded(name, "its weights are damaged: they give vectors that are not finite")
    if (vectors == vectors[0]).all():
        raise not_loaded(name, "its weights are damaged: they give every text the same vector")
    digest = hashlib.blake2b(repr([list(each.ids) for each in tokens]).encode())
    digest.update(vectors.astype("<f4").tobytes())
    description = model.description
    made_by = (
        description.revision,
        description.configuration,
        description.precision,
        description.engine,
        description.prefix,
    )
    return (*made_by, str(description.dimension), str(description.max_tokens), digest.hexdigest())


def _disk_cache(settings: Settings) -> DiskCache | None:
    if settings.cache_dir is None or not settings.cache_disk_mib:
        return None
    from assay_embedder.caches.disk_cache import DiskCache  # most embedders have none, and no need of SQLite

    return DiskCache(settings.cache_dir, settings.cache_disk_mib * _MIB)


def _wrong_model(message: str, reason: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, field="model")], reason=reason)
