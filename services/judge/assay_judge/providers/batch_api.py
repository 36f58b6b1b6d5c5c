"""The protocol of a provider's batch API, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from assay.parsing.strict_json import REPLY_DECODER
from assay.providers.errors import MalformedReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from assay.providers.errors import ProviderStatusError
    from assay.providers.messages import Reply
    from assay_judge.model import Prompt
    from assay_judge.providers.verdict_request import JudgeParameters

BATCH_CALLS_AT_ONCE = 8
MAX_RESULTS_BYTES = 1024 * 1024 * 1024
"""The largest results file, which is read line by line."""

_LINE_BYTES = 4 * 1024 * 1024


class BatchState(StrEnum):
    """State of a batch, or of a request in it."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch.

    Args:
        item_id: The id of the request in the batch and in its results.
        prompt: The prompt.
        schema: JSON schema of the verdict.
        parameters: The parameters of the request.
    """

    item_id: str
    prompt: Prompt
    schema: Mapping[str, Any]
    parameters: JudgeParameters


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """Status of a batch.

    Args:
        state: The state of the batch.
        done: Number of finished requests, as far as the provider says.
        message: The provider's explanation; untrusted text.
    """

    state: BatchState
    done: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """Result of a search for a batch whose submission may have failed.

    Args:
        provider_id: The provider's id of the batch; empty if it was not found.
        is_open: Whether the batch may still be one of the unfinished batches that the provider lists.
    """

    provider_id: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request. Besides `item_id`, exactly one field is set.

    Args:
        item_id: The id of the request.
        reply: The model's reply.
        refusal: The HTTP error that a direct call would have got.
        state: Why the provider did not process the request.
        problem: Why the provider's result is malformed.
    """

    item_id: str
    reply: Reply | None = None
    refusal: ProviderStatusError | None = None
    state: BatchState | None = None
    problem: str = ""


class BatchApi(Protocol):
    """The batch API of one service.

    All methods raise ProviderStatusError, UnreachableError or MalformedReplyError if the service does not answer.
    """

    async def submit(
        self, batch_id: str, model: str, requests: Sequence[BatchRequest], confirm: Callable[[], Awaitable[None]]
    ) -> str:
        """Submit a batch; return the provider's id.

        Args:
            batch_id: Our id of the batch.
            model: The model's id.
            requests: The requests.
            confirm: Awaited directly before the call that creates the batch; an exception prevents that call.
        """

    async def search(self, batch_id: str, item_ids: Collection[str], since: float) -> BatchSearch:
        """Search for a batch that may have been submitted.

        Args:
            batch_id: Our id of the batch.
            item_ids: The ids of its requests.
            since: The earliest possible time of its submission, in seconds since 1970.
        """

    async def status(self, provider_id: str) -> BatchStatus:
        """Return the status of a batch."""

    def results(self, provider_id: str) -> AsyncIterator[BatchResult]:
        """Return the results of a finished batch, in any order; some may be missing."""

    async def aclose(self) -> None:
        """Close the connections."""


def require_id(thing: object) -> str:
    """Return the id in a reply that a provider's package has parsed without checking it.

    Raises:
        MalformedReplyError: The reply has no id.
    """
    name = getattr(thing, "id", None)
    if not isinstance(name, str) or not name:
        raise MalformedReplyError("the reply has no id")
    return name


async def read_json_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Return the JSON objects of a JSON Lines file; lines without an object are skipped.

    Raises:
        MalformedReplyError: A line is too long.
    """
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if (data := _object(line)) is not None:
                yield data
        if len(rest) > _LINE_BYTES:
            raise MalformedReplyError(f"a result is larger than {_LINE_BYTES // 1024 // 1024} MiB")
    if (data := _object(rest)) is not None:
        yield data


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        data = REPLY_DECODER.decode(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
