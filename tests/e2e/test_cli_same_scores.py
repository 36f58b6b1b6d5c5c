"""One agent behind every adapter: how an agent is reached changes none of its scores."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

from tests.support.reports.same_scores import PROGRAM, results_without_times

import assay

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

CASE_COUNT = 200
AGENT = '''\
def answer(request):
    """A function of the question alone: text of many scripts, calls, sources and tokens; some of them failures."""
    number = int(request.input.split()[-1])
    if number % 40 == 7:
        raise RuntimeError("out of luck")
    if number % 40 == 11:
        return {"text": "", "status": "out_of_scope"}
    words = ["Paris", "الرياض عاصمة", "北京", "naïve\\u2028café", "=1+1", "<b>", "\\U0001f600", "0.1"]
    return {
        "text": " ".join(words[(number + step) % len(words)] for step in range(number % 5 + 1)),
        "usage": {"input_tokens": number * 3, "output_tokens": number, "cache_read_tokens": number},
        "sources": [{"title": f"page {number % 5}", "id": f"s{number}"}, {"title": "other", "score": number / 7}],
        "tool_calls": [{"name": "search", "arguments": {"n": number, "deep": [None, 0.1, {"k": "ü"}]}},
                       {"name": "read", "arguments": {}, "result": {"rows": number}}],
        "sql": f"SELECT {number} FROM t{number % 3}", "data_rows": number,
        "output": {"n": [number, None, 12345678901234567890], "share": number / 3},
        "metadata": {"kind": number % 2},
    }
'''
METRICS: list[Any] = [
    "exact_match", "rouge", "tokens", "hit_rate", "mrr", "tool_calls", "coverage", "retrieval_accuracy",
    {"shape": {"kind": "json_schema", "schema": {"type": "object", "properties": {"share": {"maximum": 40}}}}},
    {"blend": {"formula": "0.5 * exact_match + 0.5 * mrr"}},
]  # fmt: skip


def write_project(cli: Cli) -> Any:
    """Write the agent, the program and two hundred cases; return the agent's function."""
    cases = [
        {"id": f"c{n}", "question": f"Frage nr {n}", "references": [["Paris", "الرياض عاصمة"][n % 2], "0.1"],
         "expected_sources": [f"page {n % 4}"], "expected_tools": [{"name": "search", "arguments": {"n": n}}],
         "expected_table": f"t{n % 2}", "category": f"g{n % 3}", "weight": n % 4 + 1}
        for n in range(CASE_COUNT)
    ]  # fmt: skip
    cli.write("qa.jsonl", "\n".join(map(json.dumps, cases)))
    cli.write("agent.py", AGENT)
    cli.write("program.py", PROGRAM)
    names: dict[str, Any] = {}
    exec(compile(AGENT, "agent.py", "exec"), names)
    return names["answer"]


class Handler(BaseHTTPRequestHandler):
    """The agent behind HTTP; a failure is the status 500."""

    answer: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one question."""
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))

        class Request:
            input = question["input"]

        try:
            status, body = 200, json.dumps(type(self).answer(Request))
        except RuntimeError as problem:
            status, body = 500, json.dumps({"error": str(problem)})
        data = body.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def test_every_adapter_gives_the_same_scores(shared_project: Cli) -> None:
    """The same 200 cases through a function, a program, HTTP, gRPC and a recording: equal rows and aggregates."""
    cli = shared_project
    function = write_project(cli)
    handler = type("AgentHandler", (Handler,), {"answer": staticmethod(function)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http, assay.agent_server(function) as grpc:
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        agents: dict[str, dict[str, Any]] = {
            "python": {"target": "agent:answer"},
            "command": {"target": [sys.executable, "program.py"], "processes": 3},
            "http": {"target": f"http://127.0.0.1:{http.server_port}/"},
            "grpc": {"target": grpc.address},
            "replay": {},
        }
        spec = {"name": "same", "dataset": "qa.jsonl", "metrics": METRICS, "max_agent_errors": "100%"}
        for adapter, options in agents.items():
            cli.write("assay.yaml", {**spec, "agent": {"adapter": adapter, "retries": 0, **options}})
            recording = ["--record", "recorded.jsonl"] if adapter == "python" else []
            cli.run("run", "--output-dir", adapter, *recording, status=1)
            if recording:
                spec["dataset"] = "recorded.jsonl"
        http.shutdown()
    rows, aggregates = results_without_times(cli.folder / "python")
    assert len(rows) == CASE_COUNT
    assert {row["status"] for row in rows} == {"success", "error", "out_of_scope"}
    assert len({json.dumps(row["scores"], sort_keys=True) for row in rows}) > CASE_COUNT / 4
    for adapter in agents:
        assert results_without_times(cli.folder / adapter) == (rows, aggregates), adapter
