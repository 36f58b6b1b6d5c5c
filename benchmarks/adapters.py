"""Processor time of an agent call through each adapter, counted over Assay's processes.

The agent answers at once, 64 questions are in flight, and each figure is a whole `assay run` of the same cases with
durable results. The overhead per case is the processor time of command and orchestrator minus that of a run that calls
no agent (`replay`) and minus the cost of the function itself; the process of an http or grpc agent is not counted. The
adapters take turns. `--json FILE` saves the figures. See
README.md beside this file.
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
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.saved_figures import save

if TYPE_CHECKING:
    from collections.abc import Iterator

CONCURRENCY = 64
GOALS_MS = {"python": 0.5, "grpc": 1.0, "http": 3.0}
AGENT = "async def answer(request):\n    return request.input.upper()\n"
PROGRAM = """\
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    sys.stdout.write(json.dumps({"request_id": question["request_id"], "text": question["input"].upper()}) + "\\n")
    sys.stdout.flush()
"""
GRPC_SERVER = """\
import assay, sys
from agent import answer
with assay.agent_server(answer, concurrency=64) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""
HTTP_SERVER = """\
import asyncio, json, sys

async def serve(reader, writer):
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
        question = json.loads(await reader.readexactly(length))
        body = json.dumps({"text": question["input"].upper()}).encode()
        head = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body)
        writer.write(head + body)

async def connected(reader, writer):
    try:
        await serve(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_project(folder, options.cases)
        agents: dict[str, dict[str, Any]] = {
            "replay": {},
            "python": {"target": "agent:answer", "concurrency": CONCURRENCY},
            "command": {"target": [sys.executable, "-I", "-S", "program.py"], "processes": CONCURRENCY // 16},
            "grpc": {"target": stack.enter_context(served(folder, GRPC_SERVER)), "concurrency": CONCURRENCY},
            "http": {"target": stack.enter_context(served(folder, HTTP_SERVER)), "concurrency": CONCURRENCY},
        }
        seconds: dict[str, list[float]] = {adapter: [] for adapter in agents}
        for turn in range(options.repeats + 1):
            for adapter, agent in agents.items():
                used = run(folder, adapter, agent)
                if turn:  # the first run creates the database and compiles modules
                    seconds[adapter].append(used)
    direct_ms = direct_call_ms(options.cases)
    figures = figures_of(seconds, options.cases, direct_ms)
    for adapter, figure in figures.items():
        print(f"{adapter:<8} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    save(options.json, figures)


def figures_of(seconds: dict[str, list[float]], case_count: int, direct_ms: float) -> dict[str, dict[str, float]]:
    """Return the median overhead of a call per adapter, in ms, with the goal and the spread of the runs."""
    bare = statistics.median(seconds["replay"])
    figures = {}
    for adapter, used in seconds.items():
        own = direct_ms if adapter in ("python", "command") else 0.0  # the agent runs in the counted processes
        overheads = [(spent - bare) * 1000 / case_count - own for spent in used]
        figure = {"cpu_s": round(statistics.median(used), 2)}
        if adapter != "replay":
            figure |= {
                "overhead_ms": round(statistics.median(overheads), 3),
                "least_ms": round(min(overheads), 3),
                "most_ms": round(max(overheads), 3),
            }
        if adapter in GOALS_MS:
            figure["goal_ms"] = GOALS_MS[adapter]
        figures[adapter] = figure
    return figures


def write_project(folder: Path, case_count: int) -> None:
    """Write the agents and their cases, with recorded answers for `replay`."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "program.py").write_text(PROGRAM)
    with (folder / "qa.jsonl").open("w") as file:
        for number in range(case_count):
            case = {"id": f"c{number}", "question": f"q{number}", "answer": f"Q{number}"}
            file.write(json.dumps({**case, "reference": f"Q{number}", "recorded": f"Q{number}"}) + "\n")


@contextmanager
def served(folder: Path, code: str) -> Iterator[str]:
    """Run an agent in a separate process; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)


def run(folder: Path, adapter: str, agent: dict[str, Any]) -> float:
    """Return the processor seconds of one command and the processes it starts."""
    spec = {"name": "b", "dataset": "qa.jsonl", "metrics": ["exact_match"], "agent": {"adapter": adapter, **agent}}
    (folder / "assay.yaml").write_text(json.dumps(spec))
    env = {**os.environ, "ASSAY_HOME": str(folder / "home")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # keep compiled modules, as users do
    command = [sys.executable, "-m", "assay_cli", "run", "assay.yaml", "--no-progress", "--output-dir", "out"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{adapter}: the command failed: {done.stderr}{done.stdout}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def direct_call_ms(count: int) -> float:
    """Return the processor time of one call of the function, with 64 concurrent calls, in ms."""
    names: dict[str, Any] = {}
    exec(AGENT, names)

    class Request:
        input = "q1"

    async def calls() -> None:
        for _ in range(count // CONCURRENCY):
            await asyncio.gather(*(names["answer"](Request) for _ in range(CONCURRENCY)))

    start = time.process_time()
    asyncio.run(calls())
    return (time.process_time() - start) * 1000 / count


if __name__ == "__main__":
    main()
