"""The processes under fuzz: one of each service, on unix sockets, with what a user would have stored there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2  # noqa: F401 - brings its descriptor
from tests.fuzz.examples import CASES, EXAMPLES, run_spec

from assay.admin.v1 import admin_pb2
from assay.agent.v1 import agent_pb2
from assay.client.client import Client
from assay.embedder.v1 import embedder_pb2
from assay.judge.v1 import judge_pb2
from assay.metrics import METRICS
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.testing.providers import Reply, ScriptedProvider
from assay.v1 import calibration_pb2, comparison_pb2, dataset_pb2, host_pb2, run_pb2, server_pb2
from assay_orchestrator.identity.bootstrap import make_operator_token
from assay_orchestrator.service import SERVICES
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import grpc.aio
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

NOT_SERVED = frozenset({"assay.agent.v1.AgentService"})
"""Contracts that users serve, and no process of Assay."""

_ROOT = Path(__file__).parents[2]
_READY_S = 120.0
_MODULES = (
    admin_pb2,
    agent_pb2,
    calibration_pb2,
    comparison_pb2,
    dataset_pb2,
    embedder_pb2,
    host_pb2,
    judge_pb2,
    run_pb2,
    server_pb2,
)
_ORCHESTRATOR = ("assay_orchestrator", "--listen", "{address}", "--database", "{folder}/assay.db")
_CHANNEL = ChannelOptions(max_message_bytes=64 * 1024 * 1024)  # the server refuses what is too large
_COMMON = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")
_PROCESSES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(SERVICES, _ORCHESTRATOR),
    "assay.admin.v1.AdminService": (*_ORCHESTRATOR, "--auth", "tokens"),
    "assay.judge.v1.JudgeService": (
        "assay_judge",
        "--listen",
        "{address}",
        "--state-dir",
        "{folder}",
        "--provider",
        "openai",
        "--model",
        "m",
        "--base-url",
        "{provider}",
        "--key-variable",
        "FUZZ_KEY",
        "--attempts",
        "1",
        "--allow-judges",
        "*",
    ),
    "assay.embedder.v1.EmbedderService": ("tests.fuzz.embedder_process", "{address}"),
}
_KNOWN: Mapping[str, Sequence[str]] = {
    "team": ("", "operators", "search", "*"),
    "adapter": ("replay", "python", "http", "grpc", "openai", "anthropic", "command"),
    "target": (
        "",
        "a:b",
        "http://127.0.0.1:1/",
        "http://u:p@127.0.0.1",
        "https://[::1]:70000/",
        "gpt",
        "0x7f.1",
        "127.0.0.1:1",
        "unix:/x",
    ),
    "type": ("contains", "equals", "regex", "is-json", "javascript", "latency"),
    "kind": (*METRICS, "exact_mach"),
    "gates": ("pass_rate >= 0.5", "pass_rate > NaN", "exact_match >= 1e999", "((((("),
    "rubric": ("answer", "", "nothing"),
    "service": ("", "assay.v1.RunService", "x"),
    "provider": ("none", "openai", "anthropic", "replay"),
    "model": ("all-MiniLM-L6-v2", "", "/etc", "gpt-4o-mini"),
    "case_id": ("c0", "c1", "c2"),
    "page_token": ("", "AAAA", "W10=", "bm9wZQ=="),
    "list_services": ("", "*"),
    "file_containing_symbol": ("assay.v1.RunService", "x"),
}


@dataclass
class Target:
    """One service in its process.

    Args:
        service: Its full name.
        channel: A channel to it.
        known: What its texts may be that means something, by the field's name; grows with what it answers.
        examples: Messages as a user would send them, by the name of their type, in the order of a stream.
        log: Where its process logs.
        process: The process.
    """

    service: str
    channel: grpc.aio.Channel
    known: dict[str, list[str]]
    examples: Mapping[str, Sequence[Message]]
    log: Path
    process: subprocess.Popen[bytes]

    def methods(self) -> list[MethodDescriptor]:
        """Return everything that it serves, read from the descriptors."""
        pool = descriptor_pool.Default()
        return [method for name in (self.service, *_COMMON) for method in pool.FindServiceByName(name).methods]

    async def is_serving(self) -> bool:
        """Return whether its process lives and says that it takes work."""
        check = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = await check(health_pb2.HealthCheckRequest(service=self.service), timeout=60)
        serving: bool = answer.status == health_pb2.HealthCheckResponse.SERVING
        return serving and self.process.poll() is None


def services() -> list[str]:
    """Return the full name of every service of the contracts."""
    return [each.full_name for module in _MODULES for each in module.DESCRIPTOR.services_by_name.values()]


@asynccontextmanager
async def running_targets(folder: Path) -> AsyncIterator[list[Target]]:
    """Yield a process of each service, ready, with its logs in a folder."""
    async with AsyncExitStack() as stack:
        verdict = Reply(json.dumps({"reasoning": "It is right.", "score": 4}))
        provider = stack.enter_context(ScriptedProvider(verdict)).openai_url
        targets = [
            await stack.enter_async_context(_running(service, folder, provider))
            for service in services()
            if service not in NOT_SERVED
        ]
        yield targets


@asynccontextmanager
async def _running(service: str, folder: Path, provider: str) -> AsyncIterator[Target]:
    own = folder / service
    own.mkdir(parents=True)
    address = f"unix:{own}/s.sock"
    arguments = [part.format(address=address, folder=own, provider=provider) for part in _PROCESSES[service]]
    token = await _first_token(own) if service == "assay.admin.v1.AdminService" else ""
    log = own / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it takes a moment, and nothing else runs
            [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=_ROOT,
            env={**os.environ, "ASSAY_HOME": str(own), "FUZZ_KEY": "k"},
        )  # fmt: skip
    try:
        async with open_channel(address, dataclasses.replace(_CHANNEL, token=token)) as channel:
            await wait_for_ready(channel, service, _READY_S)
            known = {name: list(texts) for name, texts in _KNOWN.items()}
            if service in SERVICES:
                await _store_something(address, known)
            yield Target(service, channel, known, EXAMPLES, log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()


async def _first_token(folder: Path) -> str:
    """Return the token of an operator, with which everything may be called."""
    return (await make_operator_token(Settings(database=folder / "assay.db"))).text


async def _store_something(address: str, known: dict[str, list[str]]) -> None:
    async with Client(address) as client:
        dataset = await client.upload_dataset(CASES, name="d")
        known["dataset_id"] = [dataset.dataset_id]
        known["request_id"] = [str(number) for number in range(1000)]
        known["run_id"] = ["nothing"]
        await client.create_run(run_spec("replay"), dataset.dataset_id)  # keeps the dataset from being deleted
        for adapter in ("replay", "replay", "python"):
            run = await client.create_run(run_spec(adapter), dataset.dataset_id)
            known["run_id"].append(run.run_id)
            if adapter == "replay":
                async for _ in client.watch_run(run.run_id):
                    pass
