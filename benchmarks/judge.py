"""Verdicts per second through the judge service, compared with direct use of the provider's package.

The service runs in a separate process, with its state on disk, behind a unix socket. The provider is a third process
that answers at once, so that only the overhead of the service is measured. Both make the same calls in turns, because
machines are never quiet; processor time suffers less from that than wall time. `--json FILE` saves the
figures. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import psutil
from benchmarks.saved_figures import save

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.rpc.channel import open_channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONCURRENCY = 32
PRICES = "prices: [{model: '*', input: 1, output: 5}]"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verdicts", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(measure(options.verdicts, options.repeats))
    for name, figure in figures.items():
        print(f"{name:<42} {figure}")
    save(options.json, figures)


async def measure(count: int, repeats: int) -> dict[str, Any]:
    """Return medians over rounds; each round asks the package and the service for the same number of verdicts."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    provider = multiprocessing.Process(target=answer_at_once, args=(sending,), daemon=True)
    provider.start()
    url = f"http://127.0.0.1:{receiving.recv()}/v1"
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        async with (
            judge_at(Path(name), url) as (stub, judge),
            openai.AsyncOpenAI(api_key="none", base_url=url) as client,
        ):
            prompt = await prompt_of(stub, url)
            for number in range(repeats + 1):
                asked = [request_of(f"round {number}, answer {index}") for index in range(count)]
                package = await cost_of(client_calls(client, prompt, count), psutil.Process())
                service = await cost_of(grade_all(stub, asked, cached=False), judge)
                cached = await cost_of(grade_all(stub, asked, cached=True), judge)
                package_alone = await cost_of(one_by_one(client, prompt, 50), psutil.Process())
                service_alone = await cost_of(grade_one_by_one(stub, number, 50), judge)
                if number:  # the first round warms up
                    rounds.append(
                        {
                            "package_per_s": count / package[0],
                            "service_per_s": count / service[0],
                            "cached_per_s": count / cached[0],
                            "package_cpu_ms": 1000 * package[1] / count,
                            "service_cpu_ms": 1000 * service[1] / count,
                            "package_alone_ms": 1000 * package_alone[0] / 50,
                            "service_alone_ms": 1000 * service_alone[0] / 50,
                        }
                    )
    provider.terminate()
    return summary(rounds)


def summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians, and the medians of the ratios of each round."""

    def median(name: str, digits: int = 0) -> float:
        return round(statistics.median(figures[name] for figures in rounds), digits)

    ratios = [figures["service_cpu_ms"] / figures["package_cpu_ms"] for figures in rounds]
    return {
        "verdicts_per_s": median("service_per_s"),
        "package_calls_per_s": median("package_per_s"),
        "cpu_per_verdict_ms": median("service_cpu_ms", 2),
        "package_cpu_per_call_ms": median("package_cpu_ms", 2),
        "cpu_per_verdict_over_package": round(statistics.median(ratios), 2),
        "one_at_a_time_ms": median("service_alone_ms", 2),
        "package_one_at_a_time_ms": median("package_alone_ms", 2),
        "cache_hits_per_s": median("cached_per_s"),
    }


async def cost_of(work: Any, process: psutil.Process) -> tuple[float, float]:
    """Return the wall time of some work and the processor time of a process meanwhile, in seconds."""
    before = process.cpu_times()
    start = time.perf_counter()
    await work
    took, after = time.perf_counter() - start, process.cpu_times()
    return took, after.user + after.system - before.user - before.system


def request_of(answer: str) -> pb.GradeRequest:
    """Return the request for one verdict of a question of usual length."""
    return pb.GradeRequest(
        rubric="quality",
        question="What does the warranty cover, and for how long?",
        answer=f"It covers defects of material and workmanship for two years. ({answer})",
        reference="Defects of material and workmanship, for two years from the day of purchase.",
        run_id="bench",
        spend_cap_nano_usd=1_000_000_000_000_000,
    )


async def grade_all(stub: Any, asked: list[pb.GradeRequest], *, cached: bool) -> None:
    """Ask for verdicts in one stream."""
    requests = (pb.GradeStreamRequest(request_id=str(index), grade=request) for index, request in enumerate(asked))
    seen = 0
    async for response in stub.GradeStream(requests):
        assert response.grade.verdict.status == pb.VERDICT_STATUS_VALID, response
        assert response.grade.verdict.cached == cached, response
        seen += 1
    assert seen == len(asked)


async def grade_one_by_one(stub: Any, number: int, count: int) -> None:
    """Ask for verdicts one after the other."""
    for index in range(count):
        await stub.Grade(request_of(f"alone {number} {index}"), timeout=60)


async def client_calls(client: openai.AsyncOpenAI, prompt: dict[str, Any], count: int) -> None:
    """Make calls with the provider's package, as many at once as the service does."""
    left = iter(range(count))

    async def call() -> None:
        for _ in left:
            await client.chat.completions.with_raw_response.create(**prompt)

    await asyncio.gather(*(call() for _ in range(CONCURRENCY)))


async def one_by_one(client: openai.AsyncOpenAI, prompt: dict[str, Any], count: int) -> None:
    """Make calls with the provider's package one after the other."""
    for _ in range(count):
        await client.chat.completions.with_raw_response.create(**prompt)


async def prompt_of(stub: Any, url: str) -> dict[str, Any]:
    """Return what the service sends for a request, so that the package sends the same."""
    await stub.Grade(request_of("first"), timeout=60, wait_for_ready=True)
    async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:
        last: Any = await client.get("/last", cast_to=object)
    sent: dict[str, Any] = {key: last[key] for key in ("model", "messages", "response_format", "max_tokens")}
    return sent


@asynccontextmanager
async def judge_at(folder: Path, url: str) -> AsyncIterator[tuple[Any, psutil.Process]]:
    """Run a judge process and yield a stub for it."""
    (folder / "prices.yaml").write_text(PRICES)
    flags = {
        "listen": f"unix:{folder}/judge.sock",
        "provider": "openai",
        "model": "judge-1",
        "base-url": url,
        "state-dir": folder / "state",
        "prices": folder / "prices.yaml",
        "max-concurrency": CONCURRENCY,
    }
    command = [sys.executable, "-m", "assay_judge", *(f"--{name}={value}" for name, value in flags.items())]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    try:
        async with open_channel(f"unix:{folder}/judge.sock") as channel:
            yield judge_pb2_grpc.JudgeServiceStub(channel), psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


def answer_at_once(port_to: Any) -> None:
    """Serve as a provider that answers each request with a valid verdict, as fast as Python can."""
    asyncio.run(Provider().serve(port_to))


class Provider:
    """A server with minimal HTTP; the provider of the tests supports more and is slower."""

    def __init__(self) -> None:
        self._last = b"{}"

    async def serve(self, port_to: Any) -> None:
        """Print the port, then serve until the process ends."""
        server = await asyncio.start_server(self.connection, "127.0.0.1", 0, limit=1 << 20)
        port_to.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(size[1])) if size else b""
                content = self.reply(body) if body else self._last
                kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(kind % len(content) + content)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()

    def reply(self, body: bytes) -> bytes:
        """Return a completion with a verdict for this call."""
        self._last = body
        match = re.search(rb"verdict_id of this call is (\w+)", body)
        verdict = {"verdict_id": match[1].decode() if match else "", "reasoning": "As the reference says.", "score": 4}
        message = {"role": "assistant", "content": json.dumps(verdict)}
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "judge-1",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1_200, "completion_tokens": 150, "total_tokens": 1_350},
            }
        ).encode()


if __name__ == "__main__":
    main()
