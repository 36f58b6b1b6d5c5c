"""Traces of agents: spans that functions and programs send over loopback or append to a file complete their answers."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from assay.agent_host.traces import span_sources
from assay.agent_host.traces.receiver import MAX_BODY_BYTES, TraceReceiver, shared_receiver
from assay.agent_host.traces.traced_caller import METADATA_KEY
from assay.agent_host.user_code import function_caller, open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentRequest, AgentResponse, AgentStatus, Usage
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG_S = 120.0
SENDER = """\
import json, os, urllib.request

def span(traceparent, number, parent=None, start=0, **attributes):
    _, trace_id, root_id, _ = traceparent.split("-")
    parent_id = root_id if parent is None else f"{parent:016x}"
    return {"traceId": trace_id, "spanId": f"{number:016x}", "parentSpanId": parent_id,
            "name": f"s{number}", "startTimeUnixNano": str(start or number), "endTimeUnixNano": str(9_000_000 + number),
            "attributes": [{"key": key, "value": value_of(value)} for key, value in attributes.items()]}

def value_of(value):
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

def export(*spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})

def post(*spans):
    url = os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    asked = urllib.request.Request(url, export(*spans).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=60) as reply:
        assert json.load(reply) == {}

def spans_of(traceparent, text):
    return [
        span(traceparent, 3, 1, **{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1",
                                   "gen_ai.usage.input_tokens": len(text), "gen_ai.usage.output_tokens": 2}),
        span(traceparent, 2, 1, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
                                   "gen_ai.tool.call.id": "call",
                                   "gen_ai.tool.call.arguments": json.dumps({"q": text})}),
        span(traceparent, 4, 1, **{"gen_ai.operation.name": "retrieval",
                                   "gen_ai.retrieval.documents": json.dumps([{"id": "b"}, {"id": "a"}])}),
        span(traceparent, 1, **{"gen_ai.operation.name": "invoke_agent"}),
    ]
"""
FUNCTION = """\
from sender import post, spans_of

def answer(request):
    if request.input == "silent":
        return "quiet"
    post(*spans_of(request.traceparent, request.input))
    if request.input == "own":
        return {"text": "x", "usage": {"total_tokens": 7}, "tool_calls": [{"name": "mine"}], "metadata": {"k": 1}}
    if request.input == "fail":
        raise KeyError("no luck")
    return request.input.upper()
"""
PROGRAM = """\
import json, os, sys
from sender import post, spans_of
if "one" in sys.argv:
    q = json.load(sys.stdin)
    assert os.environ["TRACEPARENT"] == q["traceparent"]
    post(*spans_of(q["traceparent"], q["input"]))
    print(json.dumps({"text": q["input"].upper()}))
else:
    assert "TRACEPARENT" not in os.environ
    for line in sys.stdin:
        q = json.loads(line)
        post(*spans_of(q["traceparent"], q["input"]))
        print(json.dumps({"request_id": q["request_id"], "text": q["input"].upper()}), flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with agents; the environment and the modules of this process are afterwards as before."""
    for name, text in (("sender", SENDER), ("traced_function", FUNCTION), ("program", PROGRAM)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    before, path = dict(os.environ), list(sys.path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path
    for name in ("sender", "traced_function"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def asked(text: str, timeout_s: float = LONG_S) -> AgentRequest:
    return AgentRequest(request_id=f"r-{text}", run_id="run", case_id="c", input=text, timeout_s=timeout_s)


async def answers(folder: Path, adapter: str, target: str, *texts: str, **options: Any) -> list[AgentResponse]:
    """Ask an agent of the folder everything at once."""
    caller = open_caller(AgentSpec(adapter, target, options=options), folder)
    assert caller is not None
    try:
        return await asyncio.gather(*(caller.call(asked(text)) for text in texts))
    finally:
        await caller.aclose()


def check(response: AgentResponse) -> None:
    """Compare an answer with what the spans of `SENDER` say."""
    assert response.status is AgentStatus.SUCCESS, response.error
    (call,) = response.tool_calls or ()
    assert (call.name, call.id, json.loads(call.arguments_json)) == ("search", "call", {"q": response.text.lower()})
    assert [source.id for source in response.sources] == ["b", "a"]
    size = len(response.text)
    assert response.usage == Usage(input_tokens=size, output_tokens=2, total_tokens=size + 2)
    assert response.model == "m-1"
    assert response.metadata[METADATA_KEY]["spans"] == 4
    assert "problems" not in response.metadata[METADATA_KEY]


@pytest.mark.parametrize(
    ("adapter", "target", "options"),
    [
        ("python", "traced_function:answer", {}),
        ("command", f"{sys.executable} program.py", {"processes": 2}),
        ("command", f"{sys.executable} program.py one", {"mode": "per_question"}),
    ],
)
async def test_spans_complete_the_answer_of_their_question(
    folder: Path, adapter: str, target: str, options: dict[str, Any]
) -> None:
    """Questions in flight together: each answer has the calls, sources and tokens of its own trace, and no other's."""
    texts = [f"{letter * 3}" for letter in "abcdefgh"]
    found = await answers(folder, adapter, target, *texts, traces={"wait": "1m"}, **options)
    assert [one.text for one in found] == [text.upper() for text in texts]
    for one in found:
        check(one)
    assert len({one.metadata[METADATA_KEY]["trace_id"] for one in found}) == len(texts)


async def test_what_an_agent_reports_itself_stays(folder: Path) -> None:
    """The spans fill what is missing alone; its metadata stays beside the note."""
    (own,) = await answers(folder, "python", "traced_function:answer", "own", traces="otlp")
    assert own.usage == Usage(total_tokens=7)
    assert [call.name for call in own.tool_calls or ()] == ["mine"]
    assert [source.id for source in own.sources] == ["b", "a"]
    assert own.metadata["k"] == 1


async def test_missing_spans_are_no_zeros(folder: Path) -> None:
    """Of an answer without spans neither calls nor tokens are known, and it says that none arrived."""
    (silent,) = await answers(folder, "python", "traced_function:answer", "silent", traces={"wait": "50ms"})
    assert (silent.text, silent.usage, silent.tool_calls, silent.sources) == ("quiet", None, None, ())
    assert silent.metadata[METADATA_KEY]["problems"] == ["no span of this trace arrived within 0.05 s"]


async def test_a_failed_answer_keeps_what_its_spans_say(folder: Path) -> None:
    """It waits for nothing, and what had arrived stays."""
    (failed,) = await answers(folder, "python", "traced_function:answer", "fail", traces={"wait": "1m"})
    assert failed.error is not None
    assert failed.error.type == "KeyError"
    assert [call.name for call in failed.tool_calls or ()] == ["search"]
    assert "problems" not in failed.metadata[METADATA_KEY]


async def test_late_spans_are_named(folder: Path) -> None:
    """Of spans whose parent never comes, the calls are kept; the row says so, and tokens are not known."""
    (folder / "late.py").write_text(
        "from sender import post, spans_of\n"
        "def answer(request):\n"
        "    post(*spans_of(request.traceparent, request.input)[:-1])\n"
        "    return 'x'\n"
    )
    (late,) = await answers(folder, "python", "late:answer", "q", traces={"wait": "200ms"})
    (problem,) = late.metadata[METADATA_KEY]["problems"]
    assert problem == "spans whose parent did not arrive within 0.2 s: 3; what came later is left out"
    assert [call.name for call in late.tool_calls or ()] == ["search"]
    assert late.usage is None


async def test_spans_of_this_process_have_the_question_as_parent(folder: Path) -> None:
    """Through OpenTelemetry's own context, in functions that run in threads and in coroutines."""
    from opentelemetry import trace

    def current(request: AgentRequest) -> str:
        context = trace.get_current_span().get_span_context()
        assert context.is_remote
        assert context.trace_flags.sampled
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    async def current_in_loop(request: AgentRequest) -> str:
        return current(request)

    settings = AgentSpec("python", "caller:agent", options={"traces": {"wait": "0s"}})
    for function in (current, current_in_loop):
        caller = function_caller(function, settings, folder)
        response = await caller.call(asked("q"))
        await caller.aclose()
        assert response.text.split("-")[1] == response.metadata[METADATA_KEY]["trace_id"], response.error
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_file_is_read_while_it_grows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines of OTLP, and spans as the console exporter of the SDK prints them; what was there before is not read."""
    (folder / "spans.jsonl").write_text('{"resourceSpans": 1}\nno JSON\n' * 1000)
    (folder / "writing.py").write_text(
        "import json\n"
        "from pathlib import Path\n"
        "from sender import export, spans_of\n"
        "def answer(request):\n"
        "    first, *others = spans_of(request.traceparent, request.input)\n"
        "    _, trace_id, root_id, _ = request.traceparent.split('-')\n"
        "    attributes = {one['key']: next(iter(one['value'].values())) for one in first['attributes']}\n"
        "    attributes |= {'gen_ai.usage.input_tokens': len(request.input), 'gen_ai.usage.output_tokens': 2}\n"
        "    printed = {'name': 'chat', 'context': {'trace_id': '0x' + trace_id, 'span_id': '0x' + first['spanId']},\n"
        "               'parent_id': '0x' + first['parentSpanId'], 'start_time': '2026-01-01T00:00:00.000001Z',\n"
        "               'end_time': '2026-01-01T00:00:00.5Z', 'status': {'status_code': 'UNSET'},\n"
        "               'attributes': attributes, 'events': [], 'links': [], 'resource': {}}\n"
        "    with Path('spans.jsonl').open('a') as file:\n"
        "        file.write(json.dumps(printed, indent=4) + '\\n' + export(*others) + '\\n')\n"
        "    return request.input.upper()\n"
    )
    traces = {"file": "spans.jsonl", "wait": "1m"}
    monkeypatch.chdir(folder)
    found = await answers(folder, "python", "writing:answer", "ab", "cd", traces=traces)
    for one in found:
        check(one)
    assert "leaving out" not in caplog.text


async def test_the_environment_of_the_user_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics and logs go where they went; the traces of a run come here."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector.test/v1/traces")
    (silent,) = await answers(folder, "python", "traced_function:answer", "ab", traces="otlp")
    check(silent)
    assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector.test"
    assert "127.0.0.1" in os.environ["NO_PROXY"].split(","), "no proxy sees the spans"


def test_a_missing_extra_is_refused_with_the_command_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the agent's code is imported; a file needs no extra."""
    monkeypatch.setattr(span_sources, "is_installed", lambda: False)
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("python", "no_such:f", options={"traces": "otlp"}), folder)
    (problem,) = caught.value.problems
    assert problem.field == "agent.traces"
    assert "[otel]" in problem.message
    traces = {"file": "later.jsonl"}
    assert open_caller(AgentSpec("python", "traced_function:answer", options={"traces": traces}), folder)


@pytest.fixture
def receiver() -> Iterator[TraceReceiver]:
    receiver = TraceReceiver()
    yield receiver
    receiver.close()


def send(receiver: TraceReceiver, body: bytes, path: str = "/v1/traces", **headers: str) -> tuple[int, bytes]:
    """Send a body as an exporter does, and return status and body of the reply."""
    host, _, port = receiver.url.rpartition("//")[2].partition(":")
    assert host == "127.0.0.1"
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **named})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


GOOD = b'{"resourceSpans": []}'


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (GOOD, {}, 200),
        (gzip.compress(GOOD, mtime=0), {"Content_Encoding": "gzip"}, 200),
        (b"", {"Content_Type": "application/x-protobuf"}, 200),
        (b"{", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"[]", {}, 400),
        (b'{"resourceSpans": 7}', {}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [1]}]}', {}, 400),
        (b"\xff\xff\xff", {"Content_Type": "application/x-protobuf"}, 400),
        (b"\x0a\x05" * 1000, {"Content_Type": "application/x-protobuf"}, 400),
        (GOOD, {"Content_Encoding": "gzip"}, 400),
        (GOOD, {"Content_Encoding": "br"}, 415),
        (GOOD, {"Content_Type": "text/html"}, 415),
        (b"", {"Content_Length": "99999999999"}, 413),
        (b"", {"Content_Length": "-1"}, 411),
        (gzip.compress(b" " * (MAX_BODY_BYTES + 1), mtime=0), {"Content_Encoding": "gzip"}, 413),
    ],
)
def test_hostile_exports_are_refused_and_harm_no_other(
    receiver: TraceReceiver, body: bytes, headers: dict[str, str], status: int
) -> None:
    """Whatever is sent gets a reply of HTTP with its reason, and the next export is taken."""
    assert send(receiver, body, **headers)[0] == status
    assert send(receiver, GOOD) == (200, b"{}")


def test_a_body_in_chunks_is_taken(receiver: TraceReceiver) -> None:
    """As exporters of Node send it."""
    connection = http.client.HTTPConnection(receiver.url.rpartition("/")[2], timeout=60)
    connection.request(
        "POST", "/v1/traces", iter([GOOD[:5], GOOD[5:]]), {"Content-Type": "application/json"}, encode_chunked=True
    )
    assert connection.getresponse().status == 200
    connection.close()


def test_metrics_and_logs_are_taken_and_dropped(receiver: TraceReceiver) -> None:
    """An exporter that sends everything to one place logs no errors; other paths are refused."""
    assert send(receiver, b"{}", "/v1/metrics") == (200, b"{}")
    assert send(receiver, b"{}", "/v1/logs") == (200, b"{}")
    assert send(receiver, b"{}", "/")[0] == 404


async def test_malformed_spans_are_counted_in_the_reply(receiver: TraceReceiver) -> None:
    """As the protocol has it, so that the exporter logs them; their neighbours are taken."""
    trace = receiver.traces.open()
    good = {"traceId": trace.trace_id, "spanId": "1" * 16}
    deep: Any = {"stringValue": "x"}
    for _ in range(40):
        deep = {"arrayValue": {"values": [deep]}}
    bad = [{}, {"traceId": "x", "spanId": "y"}, 3, {**good, "attributes": [{"key": "k", "value": deep}]}]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [*bad, good]}], "unknown": 1}]}
    status, reply = send(receiver, json.dumps(body).encode())
    assert status == 200
    assert json.loads(reply)["partialSuccess"]["rejectedSpans"] == "4"
    assert [span.span_id for span in trace.spans] == ["1" * 16]
    status, reply = send(receiver, b"\x0a\x04\x12\x02\x12\x00", Content_Type="application/x-protobuf")
    assert ExportTraceServiceResponse.FromString(reply).partial_success.rejected_spans == 1


def test_one_receiver_serves_a_process() -> None:
    """A second run gets the spans of an agent that was imported for the first one."""
    assert shared_receiver() is shared_receiver()
