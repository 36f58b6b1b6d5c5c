"""The packed forward pass on a GPU: one kernel per step for texts of any length, and graphs for small batches."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from assay_embedder.models.architecture import UnknownArchitectureError
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.packed.gpu_attention import Kernel, choose_kernel
from assay_embedder.models.packed.linear import PlainLinear
from assay_embedder.models.packed.network import Engine, PackedNetwork, type_ids

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor

    from assay_embedder.models.architecture import Architecture

logger = logging.getLogger(__name__)

_SMALL_GRAPHS = (32, 64, 128, 256, 512, 1_024, 2_048, 4_096)  # such batches take as long as the starts of their kernels
_LARGE_GRAPHS = (8_192, 16_384, 32_768)  # of these the starts keep other threads of Python from running
_LARGE_GRAPH_FILL = 0.75
_LARGE_GRAPH_WINDOW = 512  # kernels of attention are started for the longest text that may be there, for all texts
_ROWS_PER_TEXT = 16
_GRAPH_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def choose_engine(device: str, dtype: torch.dtype) -> Engine:
    """Return how to compute on a GPU.

    Args:
        device: "cuda" or "cuda:N".
        dtype: Number format of products.
    """
    if dtype == torch.float32:
        # Else the environment of some images has products computed with 10 bits of each number's 23.
        torch.set_float32_matmul_precision("highest")
    return Engine(f"packed CUDA {str(dtype).removeprefix('torch.')}", torch.device(device), dtype, PlainLinear)


class GpuNetwork(PackedNetwork):
    """An encoder of the BERT or RoBERTa family, on a GPU.

    Kernels choose by the count of rows, so that a text's vector has other bits in another batch. Several threads may
    use it at once; what they compute overlaps where each has a stream of its own.

    Args:
        architecture: What the folder describes.
        engine: How to compute.

    Raises:
        SetupError: The weights are damaged.
        KeyError: A tensor is missing.
        UnknownArchitectureError: Nothing computes attention on this GPU.
    """

    def __init__(self, architecture: Architecture, engine: Engine) -> None:
        super().__init__(architecture, engine)
        kernel = choose_kernel(engine.device, engine.dtype)
        if kernel is None:
            raise UnknownArchitectureError("this torch has no attention for texts of any lengths on this GPU")
        self._kernel: Kernel = kernel
        with torch.inference_mode():
            # One row for each pair of a type and a position: one look-up instead of two.
            self._places = (self._types[:, None] + self._positions).flatten(0, 1)
        self._position_count = len(self._positions)
        self._graphs: list[_Graph] = []
        self._replaying = threading.Lock()  # graphs compute in the same memory: one at a time, until it is read
        del self._types, self._positions
        if engine.device.type == "cuda":
            self._graphs = self._captured()

    def embed(self, batch: Sequence[Tokens]) -> Tensor:
        """Return one vector per text, shape (texts, dimension), float32, in memory of the host."""
        lengths = [len(tokens.ids) for tokens in batch]
        with self._on_device():
            graph = next((each for each in self._graphs if each.fits(sum(lengths), len(batch))), None)
            return self._computed(batch, lengths) if graph is None else self._replayed(graph, batch, lengths)

    def _computed(self, batch: Sequence[Tokens], lengths: Sequence[int]) -> Tensor:
        rows = sum(lengths)
        staged = self._staging(rows, len(batch))
        self._stage(staged.numpy(), rows, batch, lengths)
        return _downloaded(self._run(staged.to(self.engine.device, non_blocking=True), rows, max(lengths)))

    def _replayed(self, graph: _Graph, batch: Sequence[Tokens], lengths: Sequence[int]) -> Tensor:
        staged = self._staging(graph.rows, graph.texts)
        self._stage(staged.numpy(), graph.rows, batch, lengths)
        with self._replaying:
            graph.staged.copy_(staged, non_blocking=True)
            graph.kernels.replay()
            return _downloaded(graph.vectors[: len(batch)])

    def _staging(self, rows: int, texts: int) -> Tensor:
        """Return host memory for a batch: word pieces, their positions and the bounds of texts, int32."""
        return torch.empty(2 * rows + texts + 1, dtype=torch.int32, pin_memory=self.engine.device.type == "cuda")

    def _stage(self, staged: NDArray[np.int32], rows: int, batch: Sequence[Tokens], lengths: Sequence[int]) -> None:
        """Write a batch into the memory of `_staging`; fill unused rows and texts with zeros."""
        used = sum(lengths)
        ids, places, bounds = staged[:rows], staged[rows : 2 * rows], staged[2 * rows :]
        ids[:used], ids[used:] = self.ids_of(batch), 0
        positions = self.positions_of(ids[:used], lengths)
        places[:used], places[used:] = positions + type_ids(batch) * self._position_count, 0
        bounds[0], bounds[1 : len(batch) + 1], bounds[len(batch) + 1 :] = 0, np.cumsum(lengths), used

    def _run(self, staged: Tensor, rows: int, longest: int) -> Tensor:
        """Return one vector per text, shape (texts, dimension), float32.

        Args:
            staged: A batch as `_stage` wrote it, on the device.
            rows: Its rows.
            longest: Tokens of the longest text, or more.
        """
        ids, places, bounds = staged[:rows], staged[rows : 2 * rows], staged[2 * rows :]
        embedded = self._norm(functional.embedding(ids, self._words) + functional.embedding(places, self._places))
        attend = partial(self._attended, bounds=bounds, longest=longest)
        return self._pooled_by(self.after_layers(embedded, attend), bounds)

    def _attended(self, projected: Tensor, bounds: Tensor, longest: int) -> Tensor:
        heads = self.architecture.head_count
        queries, keys, values = projected.view(len(projected), 3, heads, self.dimension // heads).unbind(1)
        return self._kernel(queries, keys, values, bounds, longest).reshape(len(projected), self.dimension)

    def _pooled_by(self, rows: Tensor, bounds: Tensor) -> Tensor:
        if self.architecture.pooling == "cls":
            pooled = rows[bounds[:-1].clamp(max=len(rows) - 1)]
        else:
            pooled = torch.segment_reduce(rows, self.architecture.pooling, offsets=bounds, axis=0, unsafe=True)
        return functional.normalize(pooled, dim=1) if self.architecture.normalizes else pooled

    def _on_device(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.engine.device) if self.engine.device.type == "cuda" else nullcontext()

    def _captured(self) -> list[_Graph]:
        """Return graphs for batches of some sizes, smallest first; none if they compute something else."""
        has_large = self.max_tokens <= _LARGE_GRAPH_WINDOW
        pool, problem = torch.cuda.graph_pool_handle(), ""
        graphs: list[_Graph] = []
        with torch.inference_mode(), self._on_device():
            try:
                sizes = (*_SMALL_GRAPHS, *(_LARGE_GRAPHS if has_large else ()))
                graphs.extend(self._capture(rows, pool) for rows in sizes)  # those before one that fails stay
            except RuntimeError as error:  # OutOfMemoryError is one
                problem = str(error)
            if wrong := [graph.rows for graph in graphs if not self._agrees(graph)]:
                problem, graphs = f"their vectors are others: rows={wrong}", []
        if problem:
            logger.warning(
                "batches are computed without graphs, which is slower: graphs=%d error=%s", len(graphs), problem
            )
        return graphs

    def _capture(self, rows: int, pool: Any) -> _Graph:
        staged = self._staging(rows, -(-rows // _ROWS_PER_TEXT)).zero_().to(self.engine.device)
        run = partial(self._run, staged, rows, min(rows, self.max_tokens))
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()  # what kernels prepare in their first run is not to be recorded
        stream.synchronize()
        kernels = torch.cuda.CUDAGraph()
        # Other threads may compute meanwhile, with other models.
        with torch.cuda.graph(kernels, pool=pool, stream=stream, capture_error_mode="thread_local"):
            vectors = run()
        least = int(_LARGE_GRAPH_FILL * rows) if rows in _LARGE_GRAPHS else 0
        return _Graph(rows, least, len(vectors), staged, kernels, vectors)

    def _agrees(self, graph: _Graph) -> bool:
        """Return whether a graph computes the same as its kernels one by one."""
        batch = [Tokens(range(length), (), False) for length in (4, 7)]
        lengths = [len(tokens.ids) for tokens in batch]
        replayed, reference = self._replayed(graph, batch, lengths), self._computed(batch, lengths)
        return bool((replayed - reference).abs().max() <= _GRAPH_TOLERANCE[self.engine.dtype] * reference.abs().max())


@dataclass(frozen=True, slots=True)
class _Graph:
    """The kernels of a batch of a fixed size, recorded once and started together.

    Args:
        rows: Word pieces that fit.
        least_rows: Word pieces for which it is worth its time.
        texts: Texts that fit.
        staged: The batch, on the device.
        kernels: What computes.
        vectors: What they write: one vector per text that fits.
    """

    rows: int
    least_rows: int
    texts: int
    staged: Tensor
    kernels: torch.cuda.CUDAGraph
    vectors: Tensor

    def fits(self, rows: int, texts: int) -> bool:
        """Return whether a batch with these numbers of word pieces and texts fits."""
        return self.least_rows <= rows <= self.rows and texts <= self.texts


def _downloaded(vectors: Tensor) -> Tensor:
    """Copy vectors to host memory; other threads run during the wait."""
    if vectors.device.type != "cuda":
        return vectors
    host = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
    host.copy_(vectors, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    copied.synchronize()
    return host
