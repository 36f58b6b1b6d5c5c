"""The batch APIs of a scripted provider: OpenAI's files and batches, Anthropic's batches.

Each request of a batch is answered by the provider's scripts when the batch ends; a script that returns an HTTP error
makes that request fail alone. How batches go is set by the attributes, at any time:

    with ScriptedProvider(says(GOOD)) as provider:
        provider.batches.looks = 3            # says "in progress" three times first
        provider.batches.shuffles = True      # results come in another order
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.testing.messages import ProviderRequest

if TYPE_CHECKING:
    from assay.testing.messages import Reply

    Answer = Callable[[ProviderRequest], Reply]

_OPENAI_ENDS = {"ended": "completed", "expired": "expired", "failed": "failed", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class BatchReply:
    """The answer to one call of a batch API.

    Args:
        status: The HTTP status.
        cut: Whether the connection is closed in the middle of the body.
        lost: Whether it is closed before any of it.
    """

    body: bytes
    status: int = 200
    cut: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Batch:
    name: str
    requests: list[tuple[str, Any]]
    metadata: dict[str, str]
    looks: int
    created_at: float = field(default_factory=time.time)
    end: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)


class ScriptedBatches:
    """The batches of one scripted provider.

    Args:
        answer: Answers one request of a batch.
        body_of: Returns the body of a reply in the protocol of a path.

    Attributes:
        looks: How often a new batch is still in progress when it is looked at.
        is_held: Whether no batch ends.
        end: How batches end: "ended", "expired", "cancelled" or "failed" (OpenAI's protocol alone).
        undone: How many requests of a batch that expires or is cancelled are not answered.
        fate_of: What becomes of one request of a batch that ends: "" it is answered, "expired" or "missing" it is not.
        shuffles: Whether results come in another order than the requests.
        cut: How results are cut: "" not at all, "body" by a closed connection, "line" in the middle of the last line.
        cut_times: How often they are; endlessly if negative.
        lost_replies: How many submissions are carried out without the client hearing of it.
        refusals: Errors that submissions are answered with, one after the other.
        submitted: The custom ids of each batch that was accepted.
        paid: The custom ids of requests that were answered, one entry for each time.
        looked: How often a batch was polled.
    """

    def __init__(self, answer: Answer, body_of: Callable[[str, Reply], dict[str, Any]]) -> None:
        self.looks = 0
        self.is_held = False
        self.end = "ended"
        self.undone = 0
        self.fate_of: Callable[[ProviderRequest], str] = lambda _: ""
        self.shuffles = False
        self.cut = ""
        self.cut_times = -1
        self.lost_replies = 0
        self.refusals: list[Reply] = []
        self.submitted: list[list[str]] = []
        self.paid: list[str] = []
        self.requests: list[ProviderRequest] = []
        self.looked = 0
        self._answer = answer
        self._body_of = body_of
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, _Batch] = {}
        self._lock = threading.Lock()

    def serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> BatchReply | None:
        """Return the reply to a call of a batch API; None for any other call."""
        place, _, query = path.partition("?")
        parts = place.strip("/").split("/")
        parts = parts[1:] if parts[0] == "v1" else parts
        with self._lock:
            if parts[:1] == ["files"]:
                return self._file(method, parts[1:], headers, body)
            if parts[:1] == ["batches"]:
                return self._openai(method, parts[1:], body, query, headers)
            if parts[:2] == ["messages", "batches"]:
                return self._anthropic(method, parts[2:], body, query, headers)
        return None

    def _file(self, method: str, parts: list[str], headers: dict[str, str], body: bytes) -> BatchReply:
        if method == "POST":
            name = f"file-{len(self._files)}"
            self._files[name] = _uploaded(headers["content-type"], body)
            return _json({"id": name, "object": "file", "bytes": len(self._files[name]), "created_at": 1,
                          "filename": "batch.jsonl", "purpose": "batch", "status": "processed"})  # fmt: skip
        if parts[0] not in self._files:
            return _json({"error": {"message": "no such file"}}, 404)
        return self._content(self._files[parts[0]])

    def _openai(self, method: str, parts: list[str], body: bytes, query: str, headers: dict[str, str]) -> BatchReply:
        if method == "POST":
            asked = json.loads(body)
            lines = [json.loads(line) for line in self._files[asked["input_file_id"]].splitlines()]
            requests = [(line["custom_id"], line["body"]) for line in lines]
            return self._accept("batch", requests, asked.get("metadata") or {}, self._openai_shape)
        if not parts:
            return self._list(query, "after", self._openai_shape, "/v1/chat/completions", headers)
        if parts[0] not in self._batches:
            return _json({"error": {"message": "no such batch"}}, 404)
        batch = self._batches[parts[0]]
        self._look(batch, "/v1/chat/completions", headers)
        return _json(self._openai_shape(batch))

    def _anthropic(self, method: str, parts: list[str], body: bytes, query: str, headers: dict[str, str]) -> BatchReply:
        if method == "POST":
            requests = [(request["custom_id"], request["params"]) for request in json.loads(body)["requests"]]
            return self._accept("msgbatch", requests, {}, _anthropic_shape)
        if not parts:
            return self._list(query, "after_id", _anthropic_shape, "/v1/messages", headers)
        if parts[0] not in self._batches:
            return _json({"type": "error", "error": {"type": "not_found_error", "message": "no such batch"}}, 404)
        batch = self._batches[parts[0]]
        if parts[1:] == ["results"]:
            return self._content(_lines(batch.results))
        self._look(batch, "/v1/messages", headers)
        return _json(_anthropic_shape(batch))

    def _accept(
        self, kind: str, requests: list[tuple[str, Any]], metadata: dict[str, str], shape: Callable[[_Batch], Any]
    ) -> BatchReply:
        if self.refusals:
            refusal = self.refusals.pop(0)
            return _json({"error": {"message": refusal.text, **refusal.error}}, refusal.status)
        batch = _Batch(f"{kind}_{len(self._batches)}", requests, metadata, self.looks)
        self._batches[batch.name] = batch
        self.submitted.append([custom_id for custom_id, _ in requests])
        lost = self.lost_replies > 0
        self.lost_replies -= lost
        return BatchReply(json.dumps(shape(batch)).encode(), lost=lost)

    def _list(
        self, query: str, cursor: str, shape: Callable[[_Batch], Any], path: str, headers: dict[str, str]
    ) -> BatchReply:
        newest = list(self._batches.values())[::-1]
        after = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair).get(cursor)
        names = [batch.name for batch in newest]
        rest = newest[names.index(after) + 1 :] if after in names else newest
        page, more = rest[:2], len(rest) > 2  # small pages, so that tests turn them
        for batch in page:
            self._look(batch, path, headers)
        ends = {"first_id": page[0].name, "last_id": page[-1].name} if page else {}
        return _json({"object": "list", "data": [shape(batch) for batch in page], "has_more": more, **ends})

    def _look(self, batch: _Batch, path: str, headers: dict[str, str]) -> None:
        self.looked += 1
        if batch.end or self.is_held:
            return
        if batch.looks > 0:
            batch.looks -= 1
            return
        batch.end = self.end
        undone = 0 if self.end == "ended" else len(batch.requests) if self.end == "failed" else self.undone
        for number, (custom_id, asked) in enumerate(batch.requests):
            if number >= len(batch.requests) - undone:
                self._undone(batch, custom_id, path, batch.end)
            else:
                self._done(batch, custom_id, asked, path, headers)
        if self.shuffles:
            random.Random(7).shuffle(batch.results)  # noqa: S311 - the same order every time

    def _done(self, batch: _Batch, custom_id: str, asked: Any, path: str, headers: dict[str, str]) -> None:
        request = ProviderRequest(path, headers, asked)
        fate = self.fate_of(request)
        if fate == "expired":
            self._undone(batch, custom_id, path, fate)
        if fate:
            return
        self.requests.append(request)
        reply = self._answer(request)
        body = self._body_of(path, reply) if reply.raw is None else json.loads(reply.raw)
        is_good = reply.status == 200
        if is_good:
            self.paid.append(custom_id)
        if path.endswith("/messages"):
            result = {"type": "succeeded", "message": body} if is_good else {"type": "errored", "error": body}
            batch.results.append({"custom_id": custom_id, "result": result})
        else:
            response = {"status_code": reply.status, "request_id": "r", "body": body}
            line = {"id": "b", "custom_id": custom_id, "response": response, "error": None}
            (batch.results if is_good else batch.errors).append(line)

    def _undone(self, batch: _Batch, custom_id: str, path: str, end: str) -> None:
        if path.endswith("/messages"):
            kind = "expired" if end == "expired" else "canceled"
            batch.results.append({"custom_id": custom_id, "result": {"type": kind}})
        elif end != "failed":
            error = {"code": f"batch_{end}", "message": "This request could not be executed in time."}
            batch.errors.append({"id": "b", "custom_id": custom_id, "response": None, "error": error})

    def _content(self, content: bytes) -> BatchReply:
        if not self.cut or not self.cut_times:
            return BatchReply(content)
        self.cut_times -= 1
        if self.cut == "body":
            return BatchReply(content, cut=True)
        return BatchReply(content[: content.rstrip().rfind(b"\n") + 20])

    def _openai_shape(self, batch: _Batch) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "id": batch.name,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": "file-0",
            "completion_window": "24h",
            "created_at": int(batch.created_at),
            "status": _OPENAI_ENDS[batch.end] if batch.end else "in_progress",
            "metadata": batch.metadata,
            "request_counts": {"total": len(batch.requests), "completed": len(batch.results), "failed": 0},
        }
        if batch.end == "failed":
            shape["errors"] = {"object": "list", "data": [{"code": "invalid", "message": "the file is wrong"}]}
        elif batch.end:
            for kind, lines in (("output", batch.results), ("error", batch.errors)):
                if lines:
                    name = f"file-{kind}-{batch.name}"
                    self._files[name] = _lines(lines)
                    shape[f"{kind}_file_id"] = name
        return shape


def _anthropic_shape(batch: _Batch) -> dict[str, Any]:
    kinds = [result["result"]["type"] for result in batch.results]
    counts = {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")}
    shape = {
        "id": batch.name,
        "type": "message_batch",
        "processing_status": "ended" if batch.end else "in_progress",
        "request_counts": {"processing": 0 if batch.end else len(batch.requests), **counts},
        "created_at": datetime.fromtimestamp(batch.created_at, UTC).isoformat(),
        "expires_at": datetime.fromtimestamp(batch.created_at + 86_400, UTC).isoformat(),
        "results_url": None,
    }
    return shape | ({"results_url": f"/v1/messages/batches/{batch.name}/results"} if batch.end else {})


def _lines(results: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(result, ensure_ascii=False).encode() + b"\n" for result in results)


def _json(data: Any, status: int = 200) -> BatchReply:
    return BatchReply(json.dumps(data).encode(), status)


def _uploaded(content_type: str, body: bytes) -> bytes:
    """Return the file in a form."""
    head = f"content-type: {content_type}\r\n\r\n".encode()
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    for part in form.iter_parts():
        if part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            return content
    raise ValueError("the form has no file")
