"""`agent.traces`: metrics of a run read tool calls, sources and tokens from spans, from the command to the report."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

# The answers of both agents are texts alone.
AGENT = """\
import json, os, urllib.request

def answer(request):
    _, trace_id, root_id, _ = request.traceparent.split("-")
    def span(number, **attributes):
        pairs = [{"key": key, "value": {"intValue" if isinstance(value, int) else "stringValue": value}}
                 for key, value in attributes.items()]
        return {"traceId": trace_id, "spanId": f"{number:016x}", "parentSpanId": root_id, "attributes": pairs,
                "startTimeUnixNano": str(number), "endTimeUnixNano": str(number)}
    spans = [] if request.input == "q3" else [
        span(1, **{"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}),
        span(2, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
                   "gen_ai.tool.call.arguments": json.dumps({"q": request.input})}),
        span(3, **{"gen_ai.operation.name": "retrieval",
                   "gen_ai.retrieval.documents": json.dumps([{"title": "other"}, {"title": "page"}])}),
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    asked = urllib.request.Request(os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], body,
                                   {"Content-Type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60).close()
    return "A"
"""
PROGRAM = """\
import json, sys
from types import SimpleNamespace
from agent import answer
for line in sys.stdin:
    question = json.loads(line)
    text = answer(SimpleNamespace(**question))
    print(json.dumps({"text": text, "request_id": question["request_id"]}), flush=True)
"""
METRICS = ["exact_match", "tokens", "mrr", "tool_calls"]


def test_metrics_read_what_spans_say(shared_project: Cli) -> None:
    """A function and a program get the same scores; the row without spans has none for tokens, and not 0."""
    cli = shared_project
    cases = [
        {"id": f"c{n}", "question": f"q{n}", "reference": "A", "expected_sources": ["page"],
         "expected_tools": [{"name": "search", "arguments": {"q": f"q{n}"}}]}
        for n in range(5)
    ]  # fmt: skip
    cli.write("qa.jsonl", "\n".join(map(json.dumps, cases)))
    cli.write("agent.py", AGENT)
    cli.write("program.py", PROGRAM)
    python: dict[str, Any] = {"adapter": "python", "target": "agent:answer"}
    command: dict[str, Any] = {"adapter": "command", "target": [sys.executable, "program.py"], "processes": 2}
    for name, agent in (("python", python), ("command", command)):
        spec = {
            "name": "traced",
            "dataset": "qa.jsonl",
            "metrics": METRICS,
            "agent": {**agent, "traces": {"wait": "3s"}},
        }
        cli.write("assay.yaml", spec)
        done = cli.run("run", "--output-dir", name, "--record", f"{name}.jsonl", status=None)
        rows = {row["case_id"]: row for row in json.loads((cli.folder / name / "results.json").read_text())["rows"]}
        assert len(rows) == 5, done.stderr
        for case, row in rows.items():
            scores = {metric: score.get("value") for metric, score in row["scores"].items()}
            traced = case != "c3"
            assert scores["exact_match"] == 1.0
            assert scores["tokens"] == (9 if traced else None), row
            assert scores["mrr"] == (0.5 if traced else 0.0), row
            assert scores["tool_calls"] == (1.0 if traced else None), row
        recorded = [json.loads(line) for line in (cli.folder / f"{name}.jsonl").read_text().splitlines()]
        notes = {one["id"]: one["recorded"]["metadata"]["assay_trace"] for one in recorded}
        assert notes["c3"]["problems"] == ["no span of this trace arrived within 3 s"]
        assert notes["c0"]["spans"] == 3
        cli.write("assay.yaml", {**spec, "dataset": f"{name}.jsonl", "agent": {"adapter": "replay"}})
        cli.run("run", "--output-dir", "again", status=None)
        again = json.loads((cli.folder / "again" / "results.json").read_text())["rows"]
        assert [row["scores"] for row in again] == [row["scores"] for row in rows.values()]


def test_evaluate_and_validate_take_traces(shared_project: Cli) -> None:
    """`assay validate` opens what the run needs; traces of an agent that is elsewhere are refused."""
    cli = shared_project
    cli.write("qa.jsonl", '{"question": "q", "reference": "A"}')
    cli.write("agent.py", AGENT)
    spec = {"name": "traced", "dataset": "qa.jsonl", "metrics": ["exact_match"]}
    cli.write("assay.yaml", {**spec, "agent": {"adapter": "python", "target": "agent:answer", "traces": "otlp"}})
    cli.run("validate")
    cli.write("assay.yaml", {**spec, "agent": {"adapter": "http", "target": "http://127.0.0.1:1/", "traces": "otlp"}})
    assert "agent.traces: traces are read of agents that run on the user's side" in cli.run("validate", status=2).stderr
