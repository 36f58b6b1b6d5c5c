"""The openai and anthropic adapters by every API, whole and in pieces, through the real packages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus, Message, Source, Usage
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.prompt import PromptAgent

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

RESPONSES = {"api": "responses"}
STREAM = {"stream": True}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("openai", {}),
    "chat in pieces": ("openai", STREAM),
    "responses": ("openai", RESPONSES),
    "responses in pieces": ("openai", RESPONSES | STREAM),
    "messages": ("anthropic", {}),
    "messages in pieces": ("anthropic", STREAM),
}
every_way = pytest.mark.parametrize(("adapter", "options"), WAYS.values(), ids=WAYS)
every_stream = pytest.mark.parametrize(
    ("adapter", "options"),
    [way for way in WAYS.values() if "stream" in way[1]],
    ids=[name for name, way in WAYS.items() if "stream" in way[1]],
)


def sse(*events: Any) -> Reply:
    """Return a stream with these events and a whole body, in whatever protocol they are."""
    body = b"".join(b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
                    for event in events)  # fmt: skip
    return Reply(raw=body, headers={"content-type": "text/event-stream"})


@every_way
async def test_an_answer_is_the_same_by_every_way(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Text without thoughts, sources, inclusive usage with reasoning; the time to the first token of a stream alone."""
    reply = Reply(
        "Paris, of course. باريس",
        thinking="a city …",
        usage=Tokens(100, 20, cache_read=60, cache_write=10, reasoning=5),
        cites=[("https://paris.example", "Paris")],
        headers={"request-id": "q1", "x-request-id": "q1"},
    )
    response = await ask(agent_at(adapter, provide(reply), **options))
    assert (response.status, response.text, response.model) == (
        AgentStatus.SUCCESS, "Paris, of course. باريس", "scripted"
    )  # fmt: skip
    assert response.usage == Usage(
        100, 20, 120, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=5, requests=1
    )
    assert response.sources == (Source(title="Paris", uri="https://paris.example"),)
    assert response.metadata["request_id"] == "q1"
    assert response.latency_ms is not None
    if "stream" in options:
        assert response.time_to_first_token_ms is not None
        assert 0 <= response.time_to_first_token_ms <= response.latency_ms
    else:
        assert response.time_to_first_token_ms is None


@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_responses_are_asked_in_their_own_shape(
    stream: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Instructions, the history as input, a limit of their own name, and nothing is stored at the service."""
    provider = provide(Reply("yes"))
    agent = agent_at(
        "openai", provider, {"BOT_KEY": "k-1"}, api_key="${BOT_KEY}", system="Be {{how}}.", prompt="<{{input}}>",
        temperature=0.5, max_tokens=77, extra={"reasoning": {"effort": "low"}}, **RESPONSES, **stream,
    )  # fmt: skip
    history = (Message("system", "And kind."), Message("user", "hi"), Message("assistant", "yes?"))
    assert (await ask(agent, how="brief", history=history)).text == "yes"
    (request,) = provider.requests
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "Bearer k-1"
    assert request.body == {
        "model": "some-model",
        "instructions": "Be brief.",
        "input": [
            {"role": "system", "content": "And kind."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": "<hello>"},
        ],
        "max_output_tokens": 77,
        "temperature": 0.5,
        "reasoning": {"effort": "low"},
        "store": False,
        **stream,
    }


@every_way
async def test_calls_of_tools_are_answers(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Several calls keep their order and arguments; without a text there is no first token."""
    calls = [("search", {"query": "مرحبا world"}), ("open", {})]
    response = await ask(agent_at(adapter, provide(Reply(stop="tool_calls", tool_calls=calls)), **options))
    assert (response.status, response.text, response.time_to_first_token_ms) == (AgentStatus.SUCCESS, "", None)
    assert [(call.name, json.loads(call.arguments_json)) for call in (response.tool_calls or ())] == calls
    assert len({call.id for call in response.tool_calls or ()}) == 2


@every_way
@pytest.mark.parametrize(("stop", "kind"), [("length", "truncated"), ("content_filter", "refusal")])
async def test_refused_and_cut_off_answers_are_told_apart(
    adapter: str, options: dict[str, Any], stop: str, kind: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Both keep what the model said and what it cost, and neither is asked again."""
    provider = provide(Reply("As far as", stop=stop, usage=Tokens(9, 3)))
    response = await ask(RetryingAgent(agent_at(adapter, provider, **options), 2))
    assert response.text == "As far as"
    assert response.usage is not None
    assert response.error is not None
    assert (response.status, response.error.type, response.error.retryable) == (AgentStatus.ERROR, kind, False)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("adapter", "word", "kind"),
    [
        ("openai", "refusal", "refusal"),
        ("openai", "max_tokens", "truncated"),
        ("anthropic", "content_filter", "refusal"),
        ("anthropic", "length", "truncated"),
        ("anthropic", "stop_sequence", ""),
        ("openai", "eos", ""),
    ],
)
async def test_words_of_the_other_protocol_mean_the_same(
    adapter: str, word: str, kind: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Gateways pass on what another service said; a word that nothing is known of ends an answer."""
    body = {
        "openai": {"choices": [{"message": {"content": "As far as"}, "finish_reason": word}]},
        "anthropic": {"content": [{"type": "text", "text": "As far as"}], "stop_reason": word},
    }
    response = await ask(agent_at(adapter, provide(Reply(raw=json.dumps(body[adapter]).encode()))))
    assert ("" if response.error is None else response.error.type) == kind
    assert (response.text, response.finish_reason) == ("As far as", word)


REFUSED = {"type": "refusal", "refusal": "I cannot."}
RESPONSE = {"status": "completed", "output": [{"type": "message", "content": [REFUSED]}]}


@pytest.mark.parametrize(
    ("options", "reply"),
    [
        (RESPONSES, Reply(raw=json.dumps(RESPONSE).encode())),
        (RESPONSES | STREAM, sse({"type": "response.refusal.delta", "delta": "I"},
                                 {"type": "response.completed", "response": RESPONSE})),
        (STREAM, sse({"choices": [{"index": 0, "delta": {"refusal": "I "}}]},
                     {"choices": [{"index": 0, "delta": {"refusal": "cannot."}, "finish_reason": "stop"}]}, b"[DONE]")),
    ],
)  # fmt: skip
async def test_a_refusal_has_a_field_of_its_own(
    options: dict[str, Any], reply: Reply, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """OpenAI's models refuse in a field of their own, with an ordinary end."""
    response = await ask(agent_at("openai", provide(reply), **options))
    assert response.error is not None
    assert (response.error.type, response.text) == ("refusal", "I cannot.")


@every_way
async def test_thoughts_alone_are_no_answer(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Nor are they the first token."""
    response = await ask(agent_at(adapter, provide(Reply(thinking="I had better say nothing.")), **options))
    assert response.error is not None
    assert (response.error.type, response.time_to_first_token_ms) == ("empty", None)


@every_way
async def test_a_reply_that_is_cut_off_is_asked_for_again(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Half an answer is no answer, however good it looks: the attempt is recorded, and the next one counts."""

    async def no_wait(seconds: float) -> None:
        assert seconds >= 0

    provider = provide(Reply("half an answer of many words", cut=True), Reply("whole"))
    response = await ask(RetryingAgent(agent_at(adapter, provider, **options), 2, sleep=no_wait))
    assert response.text == "whole"
    (attempt,) = response.attempts
    assert (attempt.error.kind, attempt.error.retryable) == (AgentErrorKind.UNREACHABLE, True)


DELTA = {"choices": [{"index": 0, "delta": {"content": "As far"}}]}
START = {"type": "message_start", "message": {"content": []}}
ADDED = {"type": "response.output_text.delta", "delta": "As far"}


@every_stream
@pytest.mark.parametrize(
    ("events", "kind", "status", "retryable", "words"),
    [
        ((), "unreachable", None, True, "the stream ended before the reply was complete"),
        (({"error": {"message": "upstream is gone", "code": 502}},), "http_status", 502, True, "upstream is gone"),
        (({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},), "http_status", 529, True, ""),
        (({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"},), "http_status", 429, True, "slow"),
        (({"error": {"code": "insufficient_quota", "message": "pay"}},), "http_status", 429, False, "pay"),
        (({"error": {"type": "invalid_request_error", "message": "no"}},), "http_status", 400, False, "no"),
        (({"error": "strange"},), "http_status", 500, True, "strange"),
        ((b"{half",), "malformed", None, False, "not JSON: {half"),
        ((b"[1]",), "malformed", None, False, "not a JSON object"),
        ((b'{"a": 1, "a": 2}',), "malformed", None, False, "same key twice"),
        ((b'{"a": "' + b"x" * 5_000_000 + b'"}',), "too_large", None, False, "an event of the stream is larger than 4"),
        ((b'{"a": "' + b"x" * 4_000_000 + b'"}',) * 17, "too_large", None, False, "64 MiB"),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else None,
)  # fmt: skip
async def test_every_failure_within_a_stream_says_what_it_is(
    adapter: str,
    options: dict[str, Any],
    events: tuple[Any, ...],
    kind: str,
    status: int | None,
    retryable: bool,
    words: str,
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
) -> None:
    """By then the service has sent its 200: the error within is the one that the status would have been."""
    begun = {"openai": DELTA, "anthropic": START}[adapter] if "api" not in options else ADDED
    provider = provide(sse(begun, *events))
    response = await ask(agent_at(adapter, provider, **options))
    assert response.error is not None
    assert (response.error.kind.value, response.error.http_status) == (kind, status)
    assert response.error.retryable is retryable
    assert words in response.error.message
    assert len(provider.requests) == 1


@every_stream
async def test_a_large_reply_in_one_piece_is_too_large(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A service that knows no streams has the limit of replies, however the reply was asked for."""
    provider = provide(Reply(raw=b'{"a": "' + b"x" * 5_000_000 + b'"}'))
    response = await ask(agent_at(adapter, provider, **options))
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TOO_LARGE, False)
    assert "the reply is larger than 4 MiB" in response.error.message


@pytest.mark.parametrize(
    ("response", "kind", "type_", "retryable", "words"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "oh"}},
         "http_status", "server_error", True, "oh"),
        ({"status": "failed", "error": None}, "http_status", "", True, "no explanation"),
        ({"status": "queued", "output": []}, "malformed", "", False, "finished response"),
        ({"status": "completed"}, "malformed", "", False, "finished response"),
        ({"status": "cancelled", "output": []}, "raised", "truncated", False, "broke the answer off"),
        ({"status": "incomplete", "output": []}, "raised", "truncated", False, "broke the answer off: incomplete"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}, "output": []},
         "raised", "truncated", False, "broke the answer off: max_tool_calls"),
        ({"status": "completed", "output": [3, {"type": "message", "content": 3}, {"type": "message", "content": [1]}]},
         "raised", "empty", False, "empty answer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [{}, STREAM])
async def test_what_ends_a_response_is_named(
    response: dict[str, Any],
    kind: str,
    type_: str,
    retryable: bool,
    words: str,
    stream: dict[str, Any],
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
) -> None:
    """Its own status says so within HTTP 200."""
    reply = (
        sse({"type": "response.failed", "response": response}) if stream else Reply(raw=json.dumps(response).encode())
    )
    answer = await ask(agent_at("openai", provide(reply), **RESPONSES, **stream))
    assert answer.error is not None
    assert (answer.error.kind.value, answer.error.type, answer.error.retryable) == (kind, type_, retryable)
    assert words in answer.error.message


@every_stream
async def test_a_service_that_knows_no_streams_answers_whole(
    adapter: str, options: dict[str, Any], provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """The answer counts; a time to the first token is not made up."""
    bodies = {
        "chat": b'{"choices": [{"message": {"content": "whole"}}]}',
        "responses": b'{"output": [{"type": "message", "content": [{"type": "output_text", "text": "whole"}]}]}',
        "messages": b'{"content": [{"type": "text", "text": "whole"}]}',
    }
    raw = bodies["messages" if adapter == "anthropic" else options.get("api", "chat")]
    response = await ask(agent_at(adapter, provide(Reply(raw=raw)), **options))
    assert (response.text, response.time_to_first_token_ms) == ("whole", None)


async def test_usage_of_a_stream_is_asked_for_where_the_service_knows_that(
    provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A service that refuses the option is asked without it from then on."""
    refused = Reply("Unrecognized request argument supplied: stream_options", status=400)
    provider = provide(Reply("counted", usage=Tokens(9, 3)), refused, Reply("uncounted"))
    agent = agent_at("openai", provider, **STREAM)
    responses = [await ask(agent) for _ in range(3)]
    assert [response.usage is None for response in responses] == [False, True, True]
    asked = [request.body.get("stream_options") for request in provider.requests]
    assert asked == [{"include_usage": True}, {"include_usage": True}, None, None]


@every_way
async def test_waiting_for_a_rate_limit_is_in_the_attempts_and_in_no_latency(
    adapter: str,
    options: dict[str, Any],
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock stands still but while the agent waits as it was asked to: what is measured is the attempts alone."""
    now = 1000.0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    busy = Reply("busy", status=429, headers={"retry-after": "20"})
    provider = provide(busy, busy, Reply("yes"))
    response = await ask(RetryingAgent(agent_at(adapter, provider, **options), 2, sleep=sleep, jitter=lambda: 0.0))
    assert (response.text, now) == ("yes", 1040.0)
    assert [attempt.error.http_status for attempt in response.attempts] == [429, 429]
    assert [response.latency_ms, *(attempt.latency_ms for attempt in response.attempts)] == [0.0] * 3
    assert response.time_to_first_token_ms == (0.0 if "stream" in options else None)


@every_way
async def test_a_refused_parameter_takes_no_time(
    adapter: str,
    options: dict[str, Any],
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock moves only while the service refuses: latency counts from the request that was answered."""
    now = 1000.0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def picky(request: ProviderRequest) -> Reply:
        nonlocal now
        if "temperature" not in request.body:
            return Reply("yes")
        now += 7
        return Reply("temperature is not supported with this model", status=400, error={"param": "temperature"})

    response = await ask(agent_at(adapter, provide(picky), temperature=1, **options))
    assert (response.text, response.latency_ms, now) == ("yes", 0.0, 1007.0)
    assert response.time_to_first_token_ms == (0.0 if "stream" in options else None)
