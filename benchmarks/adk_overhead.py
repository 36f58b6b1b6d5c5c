"""Overhead of Assay for a Google ADK agent: per call, and for whole evaluations compared with `adk eval`.

The agent calls one tool and answers, with a scripted model that takes no time. Per call: processor time of 2,000
questions at concurrency 64 through the adapter and through a runner alone, by turns, medians. Whole commands: `assay
run` and `adk eval` over the same evaluation set with ROUGE-1 and tool trajectories, by turns, medians of wall time and
of the processor time of all processes, the orchestrator included; the difference between the larger and the smaller set
is the cost of a case without the start. google-adk[eval] is not among the packages of `make test-frameworks`: --adk
names the command of an environment of its own. Run this with .venv-frameworks/bin/python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from benchmarks.saved_figures import save

from assay.agent_host.user_code import open_caller
from assay.model.answers.agent_request import AgentRequest
from assay.model.run import AgentSpec

AGENT = '''\
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=f"The answer is {last.function_response.response['found']}.")
        else:
            part = types.Part(function_call=types.FunctionCall(name="look_up", args={"key": last.text}))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=9, candidates_token_count=4)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


def look_up(key: str) -> dict:
    """Look a key up."""
    return {"found": key.upper()}


root_agent = LlmAgent(name="measured", model=Scripted(), tools=[look_up])
'''
CRITERIA = {"criteria": {"response_match_score": 0.5, "tool_trajectory_avg_score": 1.0}}
METRICS = [
    {"rouge": {"measure": "rouge1", "threshold": 0.5}},
    {"tool_calls": {"order": "exact", "threshold": 1.0}},
]
CONCURRENCY = 64
CALLS = 2_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adk", type=Path, help="the command adk of an environment with google-adk[eval]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_agent(folder)
        figures: dict[str, Any] = {"call": measure_calls(folder, options.rounds)}
        figures["command"] = measure_commands(folder, options.adk, options.rounds, options.cases)
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


def write_agent(folder: Path) -> None:
    """Write the agent to the place where `adk eval` and `assay run` look for it."""
    package = folder / "measured"
    package.mkdir()
    (package / "__init__.py").write_text("from . import agent\n")
    (package / "agent.py").write_text(AGENT)
    (folder / "criteria.json").write_text(json.dumps(CRITERIA))


def write_cases(folder: Path, count: int) -> Path:
    """Write an evaluation set with `count` cases and a spec for it; return the path of the set."""

    def content(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"text": text}]}

    cases = [
        {
            "eval_id": f"case{number}",
            "conversation": [
                {
                    "invocation_id": f"i{number}",
                    "user_content": content("user", f"key {number}"),
                    "final_response": content("model", f"The answer is KEY {number}."),
                    "intermediate_data": {"tool_uses": [{"name": "look_up", "args": {"key": f"key {number}"}}]},
                }
            ],
            "session_input": {"app_name": "measured", "user_id": "user", "state": {}},
        }
        for number in range(count)
    ]
    path = folder / f"cases{count}.evalset.json"
    path.write_text(json.dumps({"eval_set_id": f"cases{count}", "eval_cases": cases}))
    spec = {
        "dataset": path.name,
        "agent": {"adapter": "adk", "target": "measured.agent:root_agent", "concurrency": CONCURRENCY},
        "metrics": METRICS,
        "gates": ["rouge == 1", "tool_calls == 1"],
    }
    (folder / f"assay{count}.yaml").write_text(json.dumps(spec))
    return path


def measure_calls(folder: Path, rounds: int) -> dict[str, Any]:
    """Return milliseconds of processor time per call, through the adapter and through a runner alone."""
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    caller = open_caller(AgentSpec("adk", "measured.agent:root_agent"), folder)
    assert caller is not None
    runner = InMemoryRunner(sys.modules["measured.agent"].root_agent, app_name="measured")

    async def through_adapter(number: int) -> None:
        response = await caller.call(AgentRequest(f"r{number}", "run", "c", f"key {number}", session_id=f"s{number}"))
        assert response.text == f"The answer is KEY {number}.", response

    async def alone(number: int) -> None:
        session = await runner.session_service.create_session(app_name="measured", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text=f"key {number}")])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=message):
            pass
        await runner.session_service.delete_session(app_name="measured", user_id="user", session_id=session.id)

    async def spent_ms(ask: Any) -> float:
        numbers = iter(range(CALLS))

        async def ask_next() -> None:
            for number in numbers:
                await ask(number)

        start = time.process_time()
        await asyncio.gather(*(ask_next() for _ in range(CONCURRENCY)))
        return (time.process_time() - start) * 1000 / CALLS

    async def measure() -> dict[str, list[float]]:
        ways = {"adapter": through_adapter, "runner": alone}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for index in range(rounds + 1):
            for name, ask in ways.items():
                spent = await spent_ms(ask)
                if index:  # the first round warms up
                    times[name].append(spent)
        await caller.aclose()
        return times

    times = asyncio.run(measure())
    added = [adapter - alone for adapter, alone in zip(times["adapter"], times["runner"], strict=True)]
    return {
        "processor_ms_per_call": {name: round(statistics.median(values), 3) for name, values in times.items()},
        "added_ms": round(statistics.median(added), 3),
        "added_ms_range": [round(min(added), 3), round(max(added), 3)],
    }


def measure_commands(folder: Path, adk: Path | None, rounds: int, count: int) -> dict[str, Any]:
    """Return seconds of whole commands over `count` cases and a tenth of them, and milliseconds per further case."""
    small, large = sizes = (count // 10, count)
    assay = [sys.executable, "-m", "assay_cli"]
    ways: dict[str, Any] = {"assay run": lambda size: [*assay, "run", f"assay{size}.yaml"]}
    if adk is not None:
        ways["adk eval"] = lambda size: [
            str(adk), "eval", "measured", f"cases{size}.evalset.json", "--config_file_path", "criteria.json",
        ]  # fmt: skip
    for size in sizes:
        write_cases(folder, size)
    environment = {**os.environ, "ASSAY_HOME": str(folder / "home"), "PYTHONPATH": str(folder)}
    times: dict[str, dict[int, list[tuple[float, float]]]] = {name: {size: [] for size in sizes} for name in ways}
    subprocess.run([*assay, "up", "--no-embedder"], cwd=folder, env=environment, check=True, capture_output=True)
    try:
        for index in range(rounds + 1):
            for name, command in ways.items():
                for size in sizes:
                    spent = time_command(command(size), folder, environment)
                    if index:  # the first round warms up
                        times[name][size].append(spent)
    finally:
        subprocess.run([*assay, "down"], cwd=folder, env=environment, check=True, capture_output=True)

    def medians(name: str, kind: int) -> dict[str, float]:
        by_size = {size: [pair[kind] for pair in times[name][size]] for size in sizes}
        further = [
            (more - less) * 1000 / (large - small) for less, more in zip(by_size[small], by_size[large], strict=True)
        ]
        seconds = {f"{size} cases, s": round(statistics.median(values), 2) for size, values in by_size.items()}
        return {**seconds, "per further case, ms": round(statistics.median(further), 2)}

    return {name: {"wall": medians(name, 0), "processor": medians(name, 1)} for name in ways}


def time_command(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Run a command that must succeed; return its seconds of wall time, and of processor time with its services."""
    services = [
        process
        for process in psutil.process_iter(["cmdline"])
        if environment["ASSAY_HOME"] in " ".join(process.info["cmdline"] or [])
    ]
    before, start = _processor_s(services), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall, processor = time.perf_counter() - start, _processor_s(services) - before
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    # `adk eval` ends with status 0 whatever the outcome.
    assert command[1] != "eval" or "Tests failed: 0" in done.stdout, done.stdout[-3000:]
    return wall, processor


def _processor_s(services: list[psutil.Process]) -> float:
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + sum(sum(service.cpu_times()[:2]) for service in services)


if __name__ == "__main__":
    main()
