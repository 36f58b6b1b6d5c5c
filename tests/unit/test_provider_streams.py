"""Replies in pieces: whatever the pieces are, the reply is the one that comes whole."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.http.event_stream import read_events
from assay.providers import chat_completions, responses
from assay.providers.errors import MalformedReplyError, ReplyTooLargeError
from assay.providers.streams import Pieces
from assay.testing.messages import Reply, Tokens
from assay.testing.providers import reply_events
from assay.testing.reply_bodies import reply_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def anthropic() -> Any:
    """Return the module, imported when a test runs: its SDK takes a second, in each process that collects the tests."""
    from assay.providers import anthropic

    return anthropic


APIS: dict[str, tuple[Any, Any]] = {
    "/v1/chat/completions": (chat_completions.Chunks, chat_completions.reply_from),
    "/v1/responses": (responses.Events, responses.reply_from),
    "/v1/messages": (lambda: anthropic().Events(), lambda body: anthropic().reply_from(body)),
}
every_api = pytest.mark.parametrize("path", APIS)
COUNTS = st.integers(0, 1000)
REPLIES = st.builds(
    Reply,
    st.text(max_size=60),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    usage=st.none() | st.builds(Tokens, st.integers(2000, 3000), COUNTS, COUNTS, COUNTS, COUNTS),
    thinking=st.text(max_size=20),
    tool_calls=st.lists(
        st.tuples(st.text(min_size=1, max_size=5), st.dictionaries(st.text(max_size=5), st.text(max_size=9))),
        max_size=3,
    ),
    cites=st.lists(st.tuples(st.text(min_size=1, max_size=9), st.text(max_size=9)), max_size=2),
)


def events_in(body: bytes, size: int = 7) -> list[bytes]:
    """Return the data of the events of a stream that arrives in chunks of so many bytes."""

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def read() -> list[bytes]:
        return [event async for event in read_events(chunks())]

    return asyncio.run(read())


@every_api
@given(reply=REPLIES, size=st.integers(1, 400))
def test_a_reply_in_pieces_is_the_reply_that_comes_whole(path: str, reply: Reply, size: int) -> None:
    """Text, refusal, calls of tools, citations, usage and reason do not depend on how a reply arrives."""
    make, reply_from = APIS[path]
    assembly = make()
    has_text = False
    for event in events_in(b"".join(reply_events(path, reply)), size):
        if event != b"[DONE]":
            has_text |= assembly.add(json.loads(event))
    body = assembly.whole(ended=False)
    assert body is not None
    pieces, whole = reply_from(body), reply_from(reply_body(path, reply))
    assert [(call["id"], call["name"], arguments_of(call)) for call in pieces.tool_calls] == [
        (call["id"], call["name"], arguments_of(call)) for call in whole.tool_calls
    ]
    assert (pieces.text, pieces.stop, pieces.tokens, pieces.citations) == (
        whole.text, whole.stop, whole.tokens, whole.citations
    )  # fmt: skip
    assert (pieces.model, pieces.finish_reason) == (whole.model, whole.finish_reason)
    assert has_text is bool(reply.text)


def arguments_of(call: Any) -> Any:
    """Return the arguments of a call of a tool, which come as a text or as what it says."""
    return json.loads(call["arguments_json"]) if "arguments_json" in call else call["arguments"]


@every_api
@given(reply=REPLIES, missing=st.integers(1, 100))
def test_a_stream_without_its_end_holds_no_reply(path: str, reply: Reply, missing: int) -> None:
    """A reply that stops in the middle of a sentence, as if that were its end, would be scored as an answer."""
    make, _ = APIS[path]
    assembly = make()
    events = [event for event in events_in(b"".join(reply_events(path, reply))) if event != b"[DONE]"]
    last = next(place for place, event in enumerate(events) if ends(json.loads(event)))
    for event in events[: max(0, last + 1 - missing)]:
        assembly.add(json.loads(event))
    assert assembly.whole(ended=False) is None


def ends(event: dict[str, Any]) -> bool:
    """Tell whether an event says why the model stopped."""
    choices = event.get("choices") or [{}]
    return bool(choices[0].get("finish_reason")) or event.get("type") in (
        "message_delta", "response.completed", "response.incomplete"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata:  b\r\n\r\n", [b"a", b" b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b": keep-alive\n\nevent: x\nid: 1\nretry: 3\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        ("data: a\u2028b\x85c\x0bd\rx\n\n".encode(), ["a\u2028b\x85c\x0bd\rx".encode()]),
        (b"event: only\n\n\n\ndata\n\n", []),
        (b"data: whole\n\ndata: cut off", [b"whole"]),
        (b"", []),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_events_are_read_as_the_standard_says(body: bytes, events: list[bytes], size: int) -> None:
    """Wherever the chunks end; characters that end lines elsewhere are text."""
    assert events_in(body, size) == events


def test_pieces_are_bounded() -> None:
    """A stream that never ends does not fill the memory."""
    pieces = Pieces()
    assert pieces.add("x" * 4 * 1024 * 1024)
    with pytest.raises(ReplyTooLargeError, match="4 MiB"):
        pieces.add("x")


CHUNKS = [
    # Gemini's service: whole calls, all with the same index
    ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
      {"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}], [("a", "f", "{}"), ("b", "g", "{}")]),
    # services that repeat the id, or give no index
    ([{"index": 1, "id": "a", "function": {"name": "f", "arguments": "{"}},
      {"index": 1, "id": "a", "function": {"arguments": "}"}}], [("a", "f", "{}")]),
    ([{"id": "a", "function": {"name": "f", "arguments": "{"}}, {"function": {"arguments": "}"}}], [("a", "f", "{}")]),
    ([{"index": 0, "function": {"name": "f", "arguments": {"q": 1}}}, 3, {"index": 0, "function": None}],
     [(None, "f", {"q": 1})]),
]  # fmt: skip


@pytest.mark.parametrize(("pieces", "calls"), CHUNKS)
def test_calls_of_tools_are_put_together_however_they_are_numbered(pieces: list[Any], calls: list[Any]) -> None:
    """Compatible services number the pieces of calls in ways of their own."""
    chunks = chat_completions.Chunks()
    for piece in pieces:
        assert not chunks.add({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
    chunks.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = chunks.whole(ended=False)
    assert body is not None
    found = chat_completions.reply_from(body).tool_calls
    assert [(call["id"], call["name"], call.get("arguments_json", call.get("arguments"))) for call in found] == calls


def test_a_character_that_is_cut_between_two_pieces_is_whole() -> None:
    """JSON may write a character as two halves, and a service may send them one after the other."""
    chunks = chat_completions.Chunks()
    for half in ("\ud83d", "\ude00"):
        chunks.add({"choices": [{"index": 0, "delta": {"content": half}}]})
    body = chunks.whole(ended=True)
    assert body is not None
    assert chat_completions.reply_from(body).text == "😀"


def test_items_that_the_last_event_of_a_response_leaves_out_count() -> None:
    """Some services send the items as they are done, and then a response without them."""
    events = responses.Events()
    item = {"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}
    events.add({"type": "response.output_item.done", "item": item})
    assert events.whole(ended=True) is None
    events.add({"type": "response.completed", "response": {"status": "completed", "output": []}})
    body = events.whole(ended=False)
    assert body is not None
    assert responses.reply_from(body).text == "Paris"


def test_text_that_a_block_starts_with_counts() -> None:
    """Some gateways send a block whole, in the event that opens it."""
    events = anthropic().Events()
    events.add({"type": "message_start", "message": {"content": []}})
    block = {"type": "text", "text": "Paris"}
    assert events.add({"type": "content_block_start", "index": 0, "content_block": block})
    events.add({"type": "message_stop"})
    body = events.whole(ended=False)
    assert body is not None
    assert anthropic().reply_from(body).text == "Paris"


class CountingText(str):
    """A text that counts how often it is compared."""

    comparisons = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        CountingText.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("field", ["index", "id"])
def test_the_work_for_a_piece_of_a_call_does_not_grow_with_the_calls(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply with thousands of calls of tools holds up no other one: calls are found and not searched for."""
    monkeypatch.setattr(CountingText, "comparisons", 0)
    chunks = chat_completions.Chunks()
    for half in ("{", "}"):
        for number in range(2000):
            names = {"index": "0", "id": "a"} | {field: f"{field} {number}"}
            piece = {name: CountingText(text) for name, text in names.items()}
            piece["function"] = {"name": "f", "arguments": half}  # type: ignore[assignment]
            chunks.add({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
    body = chunks.whole(ended=True)
    assert body is not None
    calls = chat_completions.reply_from(body).tool_calls
    assert [call["arguments_json"] for call in calls] == ["{}"] * 2000
    assert CountingText.comparisons <= 4 * 4000


def chunk(**choice: Any) -> dict[str, Any]:
    """Return a chunk of a completion with one choice."""
    return {"choices": [{"index": 0, **choice}]}


PARTS: dict[str, tuple[Any, list[dict[str, Any]], Any]] = {
    "choices": (chat_completions.Chunks, [], lambda number: chunk(index=number)),
    "calls": (
        chat_completions.Chunks,
        [chunk()],
        lambda number: chunk(delta={"tool_calls": [{"index": number, "function": {"name": "f"}}]}),
    ),
    "calls with ids": (
        chat_completions.Chunks,
        [chunk()],
        lambda number: chunk(delta={"tool_calls": [{"id": f"c{number}"}]}),
    ),
    "calls of two choices": (
        chat_completions.Chunks,
        [chunk(index=0), chunk(index=1)],
        lambda number: chunk(index=number % 2, delta={"tool_calls": [{"index": number}]}),
    ),
    "annotations": (chat_completions.Chunks, [chunk()], lambda number: chunk(delta={"annotations": [number]})),
    "items": (responses.Events, [], lambda number: {"type": "response.output_item.done", "item": number}),
    "blocks": (lambda: anthropic().Events(), [], lambda number: {"type": "content_block_start", "index": number}),
    "one block": (
        lambda: anthropic().Events(),
        [],
        lambda number: {"type": "content_block_start", "index": number % 2},
    ),
    "citations": (
        lambda: anthropic().Events(),
        [{"type": "content_block_start", "index": 0}],
        lambda number: {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}},
    ),
}


@pytest.mark.parametrize(("make", "begin", "part"), PARTS.values(), ids=PARTS)
def test_the_parts_of_a_reply_are_bounded(make: Any, begin: list[dict[str, Any]], part: Any) -> None:
    """Small parts, which no bound of a text counts, do not fill the memory; 10,000 of them are read."""
    assembly = make()
    for event in begin:
        assembly.add(event)
    for number in range(10_000 - len(begin)):
        assembly.add(part(number))
    with pytest.raises(ReplyTooLargeError, match="more than 10,000 parts"):
        assembly.add(part(10_000))


@pytest.mark.parametrize("kind", ["content_block_start", "content_block_delta"])
@pytest.mark.parametrize("index", [[], {}, "0", None, 0.5])
def test_a_block_without_a_number_is_malformed(kind: str, index: object) -> None:
    """The reply says so; nothing else breaks."""
    with pytest.raises(MalformedReplyError, match=f"index of an event {kind}"):
        anthropic().Events().add({"type": kind, "index": index, "delta": {"type": "text_delta", "text": "x"}})


@pytest.mark.parametrize("call", [{"index": []}, {"index": 0, "id": {}}])
def test_a_call_whose_name_is_no_name_is_malformed(call: dict[str, Any]) -> None:
    """The reply says so; nothing else breaks."""
    with pytest.raises(MalformedReplyError, match="index or the id of a call of a tool"):
        chat_completions.Chunks().add(chunk(delta={"tool_calls": [call]}))


def test_usage_that_comes_in_pieces_adds_up() -> None:
    """The last piece counts, null changes nothing, and what is no usage is replaced."""
    events = anthropic().Events()
    events.add({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}})
    events.add({"type": "message_delta", "usage": {"input_tokens": None, "output_tokens": 5}, "delta": None})
    events.add({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    body = events.whole(ended=False)
    assert body is not None
    reply = anthropic().reply_from(body)
    assert reply.tokens is not None
    assert (reply.tokens.input, reply.tokens.output, reply.finish_reason) == (9, 5, "end_turn")


def test_citations_of_several_parts_are_each_once() -> None:
    """A page that two parts of a text cite is one source, with the passages that are cited of it."""
    page = {"type": "url_citation", "url": "https://a.example", "title": "A"}
    file = {"type": "file_citation", "file_id": "f", "filename": "F"}
    texts = [{"type": "output_text", "text": text, "annotations": [page, file]} for text in "ab"]
    reply = responses.reply_from({"status": "completed", "output": [{"type": "message", "content": texts}]})
    assert [(cited["uri"], cited["id"]) for cited in reply.citations] == [("https://a.example", ""), ("", "f")]

    cited = [
        {"url": "https://a.example", "title": "A", "cited_text": "one"},
        {"document_index": 0, "document_title": "D", "cited_text": "x"},
        {"document_index": 1, "document_title": "D", "cited_text": "y"},
        {"url": "https://a.example", "title": "A", "cited_text": "two"},
    ]
    content = [{"type": "text", "text": text, "citations": cited} for text in "ab"]
    assert anthropic().reply_from({"content": content, "stop_reason": "end_turn"}).citations == (
        {"uri": "https://a.example", "title": "A", "content": "one\ntwo"},
        {"uri": "", "title": "D", "content": "x"},
        {"uri": "", "title": "D", "content": "y"},
    )
