"""Secrets that agents and judges are sent and repeat wherever they can: nothing that is kept or shown has one.

Real processes with TLS-free sockets of this machine, real databases, logs at debug; only what answers is scripted.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import os
import re
import secrets
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import grpc
import grpc.aio
import pytest
from tests.support.judge_specs import judge_of

from assay.agent.v1 import agent_pb2
from assay.client import admin
from assay.client.client import Client
from assay.errors import InvalidInputError
from assay.identity.rights import Role
from assay.identity.tokens import new_token
from assay.model.case import Case, Turn
from assay.model.report_settings import ReportSettings
from assay.model.run import AgentSpec, JudgeSpec, MetricSpec, RunSpec, RunState, StateChanged
from assay.reports.writing import write_reports
from assay.rpc.status import DETAILS_KEY
from assay.testing.judges import says
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

TEAM = "alpha"
METRICS = (MetricSpec("exact_match"), MetricSpec("rouge"))
_WINDOW = 10  # of so many characters of a secret none is left


@dataclass
class Planted:
    """Secrets by their names.

    Args:
        values: Each is unlike every other text.
    """

    values: dict[str, str] = field(default_factory=dict)

    def plant(self, name: str, value: str = "") -> str:
        """Add a secret and return how a spec names it."""
        self.values[name] = value or f"sk-planted/{secrets.token_hex(20)}"
        return f"secret://{name}"

    def found_in(self, content: bytes) -> list[str]:
        """Return the names of secrets of which a part is in some bytes: plain, as hex, or as base64."""
        return [name for name, value in self.values.items() if any(part in content for part in _parts(value))]


def _parts(value: str) -> Iterator[bytes]:
    random = value.partition("/")[2].encode()
    for start in range(len(random) - _WINDOW):
        yield random[start : start + _WINDOW]
    yield random.hex().encode()[:24]
    for shift in range(3):
        yield base64.b64encode(random[shift:])[4:20]


@dataclass(frozen=True)
class Request:
    """What the agent was sent."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def secret(self) -> str:
        """The secret in it."""
        everything = f"{self.line}\n{self.headers}\n{self.body.decode()}"
        found = re.search(r"sk-planted(?:/|%2F)[0-9a-f]{40}", everything)
        assert found is not None, everything
        return found[0].replace("%2F", "/")


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _answer(text: str, **fields: object) -> bytes:
    return _json({"text": text, **fields})


def _basic(secret: str) -> str:
    return base64.b64encode(f"user:{secret}".encode()).decode()


def _events(*pieces: str) -> bytes:
    return b"".join(b"data: " + _json({"piece": piece}) + b"\n\n" for piece in pieces)


ECHOES: dict[str, Callable[[str], tuple[int, bytes]]] = {
    "plain": lambda s: (200, _answer(f"You sent {s}.")),
    "long, for a scorer": lambda s: (200, _answer(f"{'word ' * 20_000}{s}")),
    "twice": lambda s: (200, _answer(s + s)),
    "json in json": lambda s: (200, _answer(json.dumps({"headers": {"authorization": f"Bearer {s}"}}))),
    "base64": lambda s: (200, _answer(f"Basic {_basic(s)}")),
    "base64 for URLs": lambda s: (200, _answer(base64.urlsafe_b64encode(s.encode()).decode().rstrip("="))),
    "hex": lambda s: (200, _answer(s.encode().hex())),
    "in a URL": lambda s: (200, _answer(f"GET /?key={quote(s, safe='')}&x=1")),
    "HTML": lambda s: (200, _answer(html.escape(f'<b title="{s}">'))),
    "output": lambda s: (200, _answer("a", output={"request": [{"key": s}, {s: 1}]})),
    "metadata": lambda s: (200, _answer("a", metadata={"sent": {"header": s}})),
    "sources": lambda s: (200, _answer("a", sources=[{"id": s, "text": s}])),
    "tool calls": lambda s: (200, _answer("a", calls=[{"name": "get", "arguments": {"key": s}, "result": s}])),
    "halves": lambda s: (200, _answer(s[:25], output=[s[25:], s[8:30]])),
    "400": lambda s: (400, _json({"error": f"the key {s} is wrong"})),
    "401 cut off": lambda s: (401, f"{'x' * 460} key {s} {'y' * 600}".encode()),
    "500 page": lambda s: (500, f"<html><pre>Traceback: KeyError({s!r})</pre></html>".encode()),
    "302": lambda s: (302, f"Moved to /login?token={s}".encode()),
    "no JSON": lambda s: (200, f"<html>{s}</html>".encode()),
    "key twice": lambda s: (200, f'{{"{s}": 1, "{s}": 2}}'.encode()),
    "unmapped": lambda s: (200, _json({s: {"said": s}})),
    "own error": lambda s: (200, _answer("", error=f"upstream refused {s}")),
    "stream": lambda s: (200, _events("You sent ", s[:9], s[9:20], s[20:], ".")),
    "stream error": lambda s: (200, b"event: error\ndata: " + _json({"message": f"bad key {s}"}) + b"\n\n"),
}


@asynccontextmanager
async def http_agent() -> AsyncIterator[tuple[int, list[str]]]:
    """Serve an agent that repeats its secret as the path says; yields its port and what it was sent."""
    sent: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                line, *lines = head.rstrip().split("\r\n")
                headers = dict(each.lower().split(": ", 1)[::-1][::-1] for each in lines)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                raw = dict(each.split(": ", 1) for each in lines)
                request = Request(line, raw, body)
                sent.append(request.secret)
                echo = _echo_at(line.split(" ")[1].split("/")[1].split("?")[0])
                status, content = ECHOES[echo](request.secret)
                kind = "text/event-stream" if echo.startswith("stream") else "application/json"
                writer.write(
                    f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\nx-sent: {request.secret}\r\n"
                    f"location: /?{request.secret}\r\ncontent-length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has hung up, as it may
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1], sent


def _in_url(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def _echo_at(path: str) -> str:
    return next(name for name in ECHOES if _in_url(name) == path)


@asynccontextmanager
async def grpc_agent() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve an AgentService that repeats its metadata: in an answer, then in status, details and trailers."""
    sent: list[str] = []

    async def answer(request: bytes, context: Any) -> bytes:
        given = dict(context.invocation_metadata())
        sent.append(str(given["x-key"]))
        if given["x-way"] == "answer":
            response = agent_pb2.AgentResponse(
                status=agent_pb2.AGENT_STATUS_SUCCESS, text=f"{given}", metadata_json=json.dumps(given)
            )
            return agent_pb2.AnswerResponse(response=response).SerializeToString()
        trailers = (("x-sent", sent[-1]), (DETAILS_KEY, sent[-1].encode()))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"refused {given}", trailing_metadata=trailers)
        return b""

    server = grpc.aio.server()
    methods: Any = {"Answer": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("assay.agent.v1.AgentService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", sent
    finally:
        await server.stop(None)


def key_of(request: ProviderRequest) -> str:
    """Return the key that a provider was sent."""
    found = re.search(r"sk-planted/[0-9a-f]{40}", str(request.headers))
    assert found is not None
    return found[0]


def http_runs(planted: Planted, port: int) -> Iterator[AgentSpec]:
    """Yield agents over HTTP: each echo once, with the secret at one of the places where a spec may name it."""
    for number, echo in enumerate(ECHOES):
        reference = planted.plant(f"http-{number}")
        path = f"http://127.0.0.1:{port}/{_in_url(echo)}"
        options: dict[str, Any] = {"response": {"text": "text", "output": "output", "metadata": "metadata"}}
        options["response"] |= {"sources": "sources", "tool_calls": "calls", "error": "error"}
        if echo.startswith("stream"):
            options |= {"stream": "sse", "response": {"delta": "piece"}}
        match number % 5:
            case 0:
                options["headers"] = {"authorization": f"Bearer {reference}"}
            case 1:
                path += f"/${{{reference}}}/ask"
            case 2:
                path += f"?key=${{{reference}}}&x=1"
            case 3:
                options["query"] = {"key": reference}
            case _:
                options["body"] = {"input": "{{input}}", "auth": [{"token": reference}]}
        yield AgentSpec("http", path, concurrency=1, retries=0, options=options)


@dataclass
class Processes:
    """The services of an installation.

    Args:
        folder: Where they keep everything.
    """

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, module: str, *flags: object, **environ: str) -> None:
        """Start a service that logs everything."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ASSAY_", "OPENAI", "ANTHR"))}
        with (self.folder / f"{module}.log").open("wb") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "-m", module, "--log-level", "debug", "--no-reflection", *map(str, flags)],
                    cwd=self.folder, env={**own, "ASSAY_HOME": str(self.folder / "home"), **environ},
                    stdout=log, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip

    def stop(self) -> None:
        """End them, so that all is written."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(60)

    def arguments(self) -> bytes:
        """Return the command lines of all, and of the processes that they have started."""
        return b"".join((Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in self._all())

    def environments_of_children(self) -> bytes:
        """Return the environments of the processes that services have started, which call nothing."""
        own = {process.pid for process in self.running}
        return b"".join((Path("/proc") / str(pid) / "environ").read_bytes() for pid in self._all() if pid not in own)

    def _all(self) -> list[int]:
        found = [process.pid for process in self.running]
        for pid in found:
            for task in (Path("/proc") / str(pid) / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
        return found


def bootstrap(folder: Path) -> str:
    """Make the database with a team, and return the token of its admin."""
    token = new_token()
    database = open_database(Settings(database=folder / "assay.db"))
    try:

        def make(connection: Any) -> None:
            tokens.create_team(connection, TEAM)
            tokens.create_token(connection, token, tokens.NewToken(TEAM, Role.TEAM_ADMIN, "test"))

        asyncio.run(database.write(make))
    finally:
        database.close()
    return token.text


async def shown(client: Client, settings: RunSpec, folder: Path) -> str:
    """Run to the end; return everything that callers see of it, and write its reports."""
    cases = [Case("c", (Turn("q", references=("word " * 200,)),))]
    dataset = await client.upload_dataset(cases, name="d")
    seen: list[object] = []
    run = await client.create_run(settings, dataset.dataset_id)
    async for event in client.watch_run(run.run_id):
        seen.append(event)
        if isinstance(event, StateChanged) and event.state is RunState.PAUSED:
            break  # the judge cannot be had
    run = await client.get_run(run.run_id)
    rows = [row async for row in client.list_rows(run.run_id)]
    assert rows or run.state_message
    seen += [run, rows, await client.list_attempts(run.run_id, "c")]
    wanted = tuple(ReportSettings(name) for name in ("json", "jsonl", "csv", "html", "markdown", "junit"))
    if run.summary is not None:
        await write_reports(run, client.list_rows(run.run_id), wanted, folder / run.run_id)
    return repr(seen)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_planted_secrets_are_found_nowhere(tmp_path: Path) -> None:
    """Sent and repeated in 37 ways: none in databases, logs, events, reports, errors, arguments and environments."""
    token = bootstrap(tmp_path)
    planted = Planted()
    processes = Processes(tmp_path)
    try:
        texts = asyncio.run(_evaluate(tmp_path, planted, processes, token))
        assert planted.found_in(processes.arguments()) == []
        children = processes.environments_of_children()
        assert b"PATH" in children
        assert planted.found_in(children) == []
    finally:
        processes.stop()
    assert len(planted.values) == 37
    assert planted.found_in("\n".join(texts).encode()) == []
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and not path.is_relative_to(tmp_path / "secrets"):
            assert planted.found_in(path.read_bytes()) == [], path
    logged = "".join((tmp_path / f"{name}.log").read_text() for name in ("assay_orchestrator", "assay_judge"))
    assert "DEBUG" in logged
    assert "[redacted]" in "".join(texts)


async def _evaluate(folder: Path, planted: Planted, processes: Processes, token: str) -> list[str]:
    async with AsyncExitStack() as stack:
        port, http_sent = await stack.enter_async_context(http_agent())
        grpc_address, grpc_sent = await stack.enter_async_context(grpc_agent())
        provider = stack.enter_context(ScriptedProvider(lambda request: reply_of(request)))
        judge_provider = stack.enter_context(ScriptedProvider(*judge_replies()))
        agents = [*http_runs(planted, port), *grpc_runs(planted, grpc_address), *prompt_runs(planted, provider)]
        unreachable = AgentSpec(
            "http", f"http://127.0.0.1:1/{planted.plant('unreachable')}", retries=1, options={"response": {"text": "x"}}
        )
        variable, in_variable = planted.plant("in-variable"), planted.plant("variable")
        for agent, header in ((agents[0], "${AGENT_VARIABLE}"), (agents[0], variable)):
            options = {**agent.options, "headers": {"x-key": header}}
            agents.append(AgentSpec("http", agent.target, concurrency=1, retries=0, options=options))
        judges = [
            judge_of(
                "openai",
                "judge-1",
                judge_provider.openai_url,
                key_variable=planted.plant(f"judge-{number}"),
                max_tokens=99,
            )
            for number in range(len(judge_replies()))
        ]
        planted.plant("lines", f"sk-planted/{secrets.token_hex(20)}\nsecond line")
        _write(folder, planted, without=("in-variable", "variable"))
        start_services(folder, planted, processes)
        client = await stack.enter_async_context(Client(f"unix:{folder}/o.sock", token=token, patience_s=60.0))
        await client.wait_for_ready(60)
        names = list(planted.values)
        for number, names_of_one in enumerate((names[:30], names[30:])):
            await admin.create_destination(client, f"local-{number}", "127.0.0.1", secrets=names_of_one)
        assert in_variable
        texts = [
            await shown(client, RunSpec(f"r{number}", agent, METRICS), folder / "reports")
            for number, agent in enumerate([*agents, unreachable])
        ]
        texts += [await judged(client, judge, agents[0], folder / "reports") for judge in judges]
        texts += await refusals(client, port)
        assert {*http_sent, *grpc_sent} >= {
            value for name, value in planted.values.items() if name.startswith(("http", "grpc"))
        }
        assert len({key_of(request) for request in (*provider.requests, *judge_provider.requests)}) == 7
        return texts


def reply_of(request: ProviderRequest) -> Reply:
    """Return a model's reply that repeats its key, as the question says."""
    key, model = key_of(request), request.body["model"]
    replies = {
        "says": Reply(f"My key is {key}, or {_basic(key)}."),
        "refuses": Reply(f"Incorrect API key provided: {key}", status=401),
        "fails": Reply("oh", status=500, raw=f"<html>{key}</html>".encode()),
        "breaks": Reply(raw=f'{{"id": "{key}"}}'.encode()),
    }
    return replies[model]


def judge_replies() -> list[Any]:
    """Return what a judge says that repeats its key."""
    return [
        lambda request: says({"reasoning": f"My key is {key_of(request)}.", "score": 4})(request),
        lambda request: Reply(f"Incorrect API key provided: {key_of(request)}", status=401),
        lambda request: Reply(raw=f"<html>{key_of(request)}</html>".encode()),
    ]


def grpc_runs(planted: Planted, address: str) -> Iterator[AgentSpec]:
    """Yield agents over gRPC."""
    for number, way in enumerate(("answer", "status")):
        metadata = {"x-key": planted.plant(f"grpc-{number}"), "x-way": way}
        yield AgentSpec("grpc", address, retries=0, options={"metadata": metadata})


def prompt_runs(planted: Planted, provider: ScriptedProvider) -> Iterator[AgentSpec]:
    """Yield prompts to a model."""
    for number, (adapter, model) in enumerate(
        (("openai", "says"), ("openai", "refuses"), ("anthropic", "fails"), ("anthropic", "breaks"))
    ):
        url = provider.openai_url if adapter == "openai" else provider.url
        options = {"base_url": url, "api_key": planted.plant(f"prompt-{number}")}
        yield AgentSpec(adapter, model, retries=0, options=options)


def start_services(folder: Path, planted: Planted, processes: Processes) -> None:
    """Start a judge and an orchestrator that have all secrets."""
    common = ("--secrets", folder / "secrets", "--egress-networks", "127.0.0.0/8")
    processes.start(
        "assay_judge", *common, "--listen", f"unix:{folder}/j.sock", "--state-dir", folder / "judge", "--attempts", 1,
        "--allow-judges", "*", "--allow-base-urls", "http://127.0.0.1:*",
    )  # fmt: skip
    processes.start(
        "assay_orchestrator", *common, "--listen", f"unix:{folder}/o.sock", "--database", folder / "assay.db",
        "--auth", "tokens", "--judge", f"unix:{folder}/j.sock", "--judge-patience-s", 5,
        "--agent-env", "AGENT_*@127.0.0.1", "--secret-variables", f"{TEAM}/in-variable=IN_VARIABLE",
        AGENT_VARIABLE=planted.values["variable"], IN_VARIABLE=planted.values["in-variable"],
    )  # fmt: skip


def _write(folder: Path, planted: Planted, without: tuple[str, ...]) -> None:
    own = folder / "secrets" / TEAM
    own.mkdir(parents=True)
    for name, value in planted.values.items():
        if name not in without:
            (own / name).write_text(value)


async def judged(client: Client, judge: JudgeSpec, agent: AgentSpec, folder: Path) -> str:
    """Return what is seen of a run whose answers are judged."""
    return await shown(client, RunSpec("judged", agent, (MetricSpec("judge_score"),), judges=(judge,)), folder)


async def refusals(client: Client, port: int) -> list[str]:
    """Return the errors that callers get for specs that cannot be used, on the wire."""
    said = []
    for target, header in (
        (f"http://127.0.0.1:{port}/", "secret://lines"),
        (f"http://127.0.0.1:{port}/", "secret://not-there"),
        ("http://elsewhere.test/${secret://http-0}", "x"),
        (f"http://127.0.0.1:{port}/${{secret://lines}}", "x"),
    ):
        settings = AgentSpec("http", target, options={"headers": {"x-key": header}, "response": {"text": "text"}})
        with pytest.raises(InvalidInputError) as refusal:
            await client.create_run(RunSpec("r", settings, (MetricSpec("exact_match"),)), "none")
        said.append(f"{refusal.value!r} {refusal.value.problems}")
    return said
