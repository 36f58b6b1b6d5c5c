"""The openai and anthropic adapters through the real packages: answers, replies that are none, and refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus, ToolCall, Usage
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens, echo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.prompt import PromptAgent

    Provide = Callable[..., ScriptedProvider]
    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.prompt import PromptAgent


both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])


@both
async def test_usage_counts_cached_tokens_as_part_of_the_input(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """One protocol counts them beside the input and the other within; a report has one meaning."""
    tokens = Tokens(100, 20, cache_read=60, cache_write=10, reasoning=5)
    response = await ask(agent_at(adapter, provide(Reply("x", usage=tokens))))
    assert response.usage == Usage(
        100, 20, 120, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=5, requests=1
    )


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ("null", None),
        ("{}", None),
        ('{"prompt_tokens": 7}', Usage(7, requests=1)),
        ('{"prompt_tokens": 0, "completion_tokens": 3, "prompt_tokens_details": null}', Usage(0, 3, requests=1)),
        ('{"prompt_tokens": -1, "completion_tokens": "3", "total_tokens": true}', None),
    ],
)
async def test_usage_that_is_not_told_is_absent(
    usage: str, read: Usage | None, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Local servers leave counts out: what is not known is not 0, and an answer is not lost over it."""
    raw = f'{{"choices": [{{"message": {{"content": "x"}}}}], "usage": {usage}}}'
    response = await ask(agent_at("openai", provide(Reply(raw=raw.encode()))))
    assert (response.text, response.usage, response.finish_reason) == ("x", read, "")


@both
@pytest.mark.parametrize("thinking", ["", "I had better say nothing."])
@pytest.mark.parametrize("text", ["", " \n"])
async def test_silence_is_no_answer(
    adapter: str, text: str, thinking: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A model that says nothing, or only thinks, has failed the case; it is not scored as if it had said ''."""
    response = await ask(agent_at(adapter, provide(Reply(text, thinking=thinking, usage=Tokens(9, 3)))))
    assert response.error is not None
    assert (response.error.kind, response.error.type) == (AgentErrorKind.RAISED, "empty")
    assert not response.error.retryable
    assert response.finish_reason in response.error.message
    assert response.usage is not None


@both
async def test_a_call_of_a_tool_is_no_text_and_no_failure(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A model that calls a tool in place of an answer is told apart by its calls and its finish reason."""
    provider = provide(Reply(stop="tool_calls", tool_calls=[("search", {"query": "مرحبا"})]))
    tools = [{"type": "function", "function": {"name": "search"}}]
    response = await ask(agent_at(adapter, provider, extra={"tools": tools}))
    assert provider.requests[0].body["tools"] == tools
    call_id, reason = ("call_0", "tool_calls") if adapter == "openai" else ("toolu_0", "tool_use")
    assert (response.status, response.text, response.finish_reason) == (AgentStatus.SUCCESS, "", reason)
    (call,) = response.tool_calls or ()
    assert dataclasses.replace(call, arguments_json="") == ToolCall("search", call_id)
    assert '"query"' in call.arguments_json


@pytest.mark.parametrize(
    ("arguments", "read"),
    [(r'"{\"q\": 1}"', '{"q": 1}'), ('"{not json"', "{not json"), ("null", ""), ('{"q": [1]}', '{"q": [1]}')],
)
async def test_arguments_of_a_tool_are_kept_however_they_are_written(
    arguments: str, read: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """The protocol wants JSON in a text; some models write no JSON there, and some servers no text."""
    call = f'{{"function": {{"name": "t", "arguments": {arguments}}}}}'
    raw = f'{{"choices": [{{"message": {{"tool_calls": [{call}, 3, {{}}]}}}}]}}'
    response = await ask(agent_at("openai", provide(Reply(raw=raw.encode()))))
    assert response.tool_calls == (ToolCall("t", arguments_json=read),)


@both
@pytest.mark.parametrize(("stop", "kind"), [("length", "truncated"), ("content_filter", "refusal"), ("stop", "")])
async def test_refused_and_cut_off_answers_are_failures_that_keep_their_text(
    adapter: str, stop: str, kind: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Neither is scored as an answer nor asked again."""
    response = await ask(agent_at(adapter, provide(Reply("As far as", stop=stop, usage=Tokens(9, 3)))))
    assert response.text == "As far as"
    assert response.usage is not None
    if not kind:
        assert response.error is None
        return
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert (response.error.kind, response.error.type) == (AgentErrorKind.RAISED, kind)
    assert not response.error.retryable


async def test_a_refusal_field_is_a_refusal(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """OpenAI's models refuse in a field of their own, with an ordinary finish reason."""
    raw = b'{"choices": [{"message": {"content": null, "refusal": "I cannot."}, "finish_reason": "stop"}]}'
    response = await ask(agent_at("openai", provide(Reply(raw=raw))))
    assert response.text == "I cannot."
    assert response.error is not None
    assert response.error.type == "refusal"


@both
@pytest.mark.parametrize(
    ("reply", "kind", "status", "retryable", "words"),
    [
        (Reply("busy", status=429, headers={"retry-after": "3"}), "http_status", 429, True, "busy"),
        (Reply("overloaded", status=529), "http_status", 529, True, "overloaded"),
        (Reply("slow", status=408), "http_status", 408, True, ""),
        (Reply("no", status=503, headers={"x-should-retry": "false"}), "http_status", 503, False, ""),
        (Reply("pay", status=429, error={"type": "insufficient_quota"}), "http_status", 429, False, ""),
        (Reply("bad", status=400), "http_status", 400, False, "bad"),
        # A filter before the model is a refusal, as one behind it is.
        (
            Reply("blocked", status=400, error={"code": "content_filter"}),
            "raised",
            400,
            False,
            "withheld the question",
        ),
        (Reply("who", status=401), "http_status", 401, False, "name its variable with api_key"),
        (Reply("gone", status=404), "http_status", 404, False, "'some-model' is not available"),
        (Reply(status=302, headers={"location": "http://127.0.0.1:1/"}), "http_status", 302, False, "not followed"),
        (Reply(raw=b"", status=300), "http_status", 300, False, "HTTP 300: (no explanation)"),
        (Reply(raw=b"<h1>Bad Gateway</h1>", status=502), "http_status", 502, True, "Bad Gateway"),
        (Reply("half an answer", cut=True), "unreachable", None, True, "cannot be reached"),
        (Reply(raw=b'{"choices": [{]}'), "malformed", None, False, "not JSON"),
        # Gateways send errors with 200, too: they may pass as those of a stream may.
        (Reply(raw=b'{"error": {"message": "upstream"}}'), "http_status", 500, True, "upstream"),
        (Reply(raw=b'{"choices": 1, "choices": [], "content": 1}'), "malformed", None, False, "same key twice"),
        (Reply(raw=b"[]"), "malformed", None, False, "not a JSON object"),
        (Reply(raw=b'{"choices": [], "content": 3}'), "malformed", None, False, "message of a model"),
        (Reply(raw=b" " * 5_000_000), "too_large", None, False, "4 MiB"),
        (Reply(raw=b"\x1f\x8b", headers={"content-encoding": "gzip"}), "malformed", None, False, "cannot be unpacked"),
        (Reply(raw=b"x", headers={"content-encoding": "br"}), "malformed", None, False, "compressed as 'br'"),
        (Reply(raw=b"\x1f\x8b", headers={"content-encoding": "gzip"}, status=503), "http_status", 503, True, "503"),
        (Reply(raw=b'{"detail": [{"msg": "no such field"}]}', status=422), "http_status", 422, False, "no such field"),
        (Reply(raw=b'{"error": null}', status=500), "http_status", 500, True, "HTTP 500"),
        (Reply(raw=b"", status=418), "http_status", 418, False, "no explanation"),
    ],
)
async def test_every_failure_says_what_it_is_and_whether_it_may_pass(
    adapter: str,
    reply: Reply,
    kind: str,
    status: int | None,
    retryable: bool,
    words: str,
    provide: Provide,
    agent_at: AgentAt,
    ask: Ask,
) -> None:
    """One attempt is one request: the package's own retries are off, and no failure is an exception."""
    provider = provide(reply)
    response = await ask(agent_at(adapter, provider))
    assert response.error is not None
    assert (response.error.kind.value, response.error.http_status) == (kind, status)
    assert response.error.retryable is retryable
    assert words in response.error.message
    assert response.error.retry_after_s == (3.0 if "retry-after" in reply.headers else None)
    assert len(provider.requests) == 1


@both
async def test_a_provider_that_is_not_there_is_unreachable(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A refused connection may be a restart."""
    with ScriptedProvider() as gone:
        agent = agent_at(adapter, gone)
    response = await ask(agent)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.UNREACHABLE, True)


@both
async def test_a_silent_provider_is_given_up_on(adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """The time limit of the attempt is the only one."""
    agent = agent_at(adapter, provide(Reply(delay_s=100)))
    response = await ask(agent, timeout_s=0.2)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TIMEOUT, True)


async def test_a_choice_that_is_an_error_is_the_error_of_the_service(
    provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A gateway whose model's service broke off says so within HTTP 200: that may pass, as in a stream."""
    choice = '{"message": {"content": "As"}, "finish_reason": "error", "error": {"code": 502, "message": "upstream"}}'
    response = await ask(agent_at("openai", provide(Reply(raw=f'{{"choices": [{choice}]}}'.encode()))))
    assert response.error is not None
    assert (response.error.kind, response.error.http_status) == (AgentErrorKind.HTTP_STATUS, 502)
    assert response.error.retryable
    assert "upstream" in response.error.message


@pytest.mark.parametrize(
    ("adapter", "stop", "words"),
    [
        ("anthropic", "pause_turn", "paused"),
        ("anthropic", "model_context_window_exceeded", "context window"),
        ("openai", "error", "broke the answer off: upstream is gone"),
        ("openai", "abort", "broke the answer off"),
    ],
)
async def test_whatever_else_ends_an_answer_early_is_told(
    adapter: str, stop: str, words: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Half an answer with HTTP 200 is not scored as a whole one."""
    reply = Reply("As far as", stop=stop)
    if stop == "error":
        choice = (
            '{"message": {"content": "As far"}, "finish_reason": "error", "error": {"message": "upstream is gone"}}'
        )
        reply = Reply(raw=f'{{"choices": [{choice}]}}'.encode())
    response = await ask(agent_at(adapter, provide(reply)))
    assert response.text.startswith("As far")
    assert response.error is not None
    assert response.error.type == "truncated"
    assert words in response.error.message


@both
@pytest.mark.parametrize("ending", ["timeout", "cancelled"])
async def test_a_call_that_is_given_up_on_is_closed_and_gives_its_place_back(
    adapter: str, ending: str, agent_at: AgentAt, ask: Ask
) -> None:
    """A provider is not left computing for nobody, and one that hangs does not block the connections for ever."""
    asked, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # to the end: until the other side hangs up
        writer.close()
        closed.set()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    agent = agent_at(adapter, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", concurrency=1)
    async with listener, asyncio.timeout(60):
        for _ in range(2):
            question = asyncio.ensure_future(ask(agent, timeout_s=1.0 if ending == "timeout" else 100))
            while ending == "timeout" and not asked.is_set():
                # A provider's package takes a while over its first question: it may end before it is sent.
                await question
                if not asked.is_set():
                    question = asyncio.ensure_future(ask(agent, timeout_s=1.0))
            await asked.wait()
            if ending == "cancelled":
                question.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await question
            else:
                error = (await question).error
                assert error is not None
                assert error.kind is AgentErrorKind.TIMEOUT
            await closed.wait()
            asked.clear()
            closed.clear()


@both
async def test_a_provider_that_sends_replies_twice_shifts_no_answer(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """What follows a reply is not the answer to the next question of the connection."""
    provider = provide(lambda request: Reply(request.question, twice=True))
    agent = agent_at(adapter, provider)
    questions = [f"question {index}" for index in range(20)]
    assert [(await ask(agent, question)).text for question in questions] == questions
    assert len(provider.requests) == len(questions)


def extra_field(*place: str, given: Any) -> Reply:
    """Return the refusal of a service that is built on FastAPI: a field that it does not know."""
    problem = {"type": "extra_forbidden", "loc": ["body", *place], "msg": "Extra inputs are not permitted"}
    return Reply(status=422, raw=json.dumps({"detail": [{**problem, "input": given}]}).encode())


@both
async def test_a_temperature_that_is_refused_with_422_is_left_out(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Services that are built on FastAPI refuse with 422 what others refuse with 400."""
    provider = provide(extra_field("temperature", given=0.5), echo)
    agent = agent_at(adapter, provider, temperature=0.5)
    responses = [await ask(agent) for _ in range(2)]
    assert [response.text for response in responses] == ["hello", "hello"]
    assert ["temperature" in request.body for request in provider.requests] == [True, False, False]


async def test_the_other_name_of_max_tokens_is_tried_after_a_422(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """The limit of tokens is sent in any case."""

    def picky(request: ProviderRequest) -> Reply:
        if "max_tokens" in request.body:
            return extra_field("max_tokens", given=9)
        return Reply(str(request.body["max_completion_tokens"]))

    assert (await ask(agent_at("openai", provide(picky), max_tokens=9))).text == "9"


@both
async def test_a_422_that_quotes_the_prompt_changes_nothing(
    adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """What the service does not know is another field, whose value holds the word."""
    provider = provide(extra_field("messages", given="water at room temperature"), echo)
    agent = agent_at(adapter, provider, temperature=1)
    response = await ask(agent)
    assert response.error is not None
    assert response.error.http_status == 422
    assert (await ask(agent)).metadata["temperature"] == 1


async def test_a_refusal_among_the_parts_of_a_message_is_a_refusal(
    provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """It is no silence: the refusal is kept as text and in the error."""
    content = [{"type": "refusal", "refusal": "I will not."}]
    raw = json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})
    response = await ask(agent_at("openai", provide(Reply(raw=raw.encode()))))
    assert response.error is not None
    assert (response.error.type, response.text) == ("refusal", "I will not.")
    assert response.error.message == "the model refused to answer: I will not."


@pytest.mark.parametrize(
    ("adapter", "usage", "read"),
    [
        ("openai", {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 2**64 - 1}},
         Usage(100, cache_read_tokens=100, requests=1)),
        ("openai", {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 90}},
         Usage(100, cache_read_tokens=60, cache_write_tokens=40, requests=1)),
        ("openai", {"prompt_tokens": 2**64 - 1, "completion_tokens": 9}, Usage(output_tokens=9, requests=1)),
        ("openai", {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 10**30}},
         Usage(output_tokens=9, reasoning_tokens=9, requests=1)),
        ("anthropic", {"input_tokens": 10**30, "output_tokens": 9}, Usage(output_tokens=9, requests=1)),
        ("anthropic", {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 2**64 - 1}},
         Usage(5, 9, 14, cache_read_tokens=None, reasoning_tokens=9, requests=1)),
    ],
)  # fmt: skip
async def test_usage_that_cannot_be_true_costs_no_answer(
    adapter: str, usage: dict[str, Any], read: Usage, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """Counters of gateways underflow: a part is cut to its whole, and what no number can be is not known."""
    response = await ask(agent_at(adapter, provide(Reply("hello", raw_usage=usage))))
    assert (response.text, response.error) == ("hello", None)
    assert response.usage == read


@both
@pytest.mark.parametrize("status", [200, 404])
async def test_a_web_page_names_the_address(
    adapter: str, status: int, provide: Provide, agent_at: AgentAt, ask: Ask
) -> None:
    """A URL of a site in place of a service is the usual mistake: the sentence says where to look."""
    page = b"<!doctype html>\n<html><title>Welcome</title></html>"
    response = await ask(agent_at(adapter, provide(Reply(raw=page, status=status))))
    assert response.error is not None
    assert "the reply is a web page and not a model's: check base_url" in response.error.message
    assert "\n" not in response.error.message


@both
async def test_a_conflict_may_pass(adapter: str, provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """The packages themselves retry HTTP 409."""
    response = await ask(agent_at(adapter, provide(Reply("again", status=409))))
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.HTTP_STATUS, True)


async def test_of_two_messages_none_is_the_answer(provide: Provide, agent_at: AgentAt, ask: Ask) -> None:
    """One was asked for: a report does not show the first of several as if it were the only one."""
    choices = [{"index": n, "message": {"content": f"answer {n}"}, "finish_reason": "stop"} for n in range(2)]
    response = await ask(agent_at("openai", provide(Reply(raw=json.dumps({"choices": choices}).encode()))))
    assert response.error is not None
    assert response.error.kind is AgentErrorKind.MALFORMED
    assert response.error.message.startswith("the reply does not hold one message of a model: ")
