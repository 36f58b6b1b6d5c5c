"""No process of an MCP server outlives the run that started it, however the run ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.frameworks

AGENT = '''
import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from agents import Agent, function_tool
from agents.mcp import MCPServerStdio
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

HERE = Path(__file__).parent
SERVER = """
import os, sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

with Path(sys.argv[1]).open("a") as file:
    print(os.getpid(), file=file)
server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> int:
    "Add."
    return a + b

server.run()
"""


def sums():
    params = {"command": sys.executable, "args": ["-c", SERVER, str(HERE / "pids")]}
    return MCPServerStdio(params, client_session_timeout_seconds=60)


def log(name, text):
    with (HERE / name).open("a") as file:
        print(text, file=file)


@function_tool
async def hang() -> str:
    log("hanging", "it hangs")
    await asyncio.Event().wait()


def model(call):
    question, last = call.input[0]["content"], call.input[-1]
    if "output" in last:
        return [assistant_message("5")]
    if question == "fail":
        raise ValueError("no")
    name, arguments = ("hang", {}) if question == "hang" else ("add", {"a": 2, "b": 3})
    return [function_call(name, arguments, call_id="c1")]


def scripted():
    return ScriptedModel(ModelStep.respond(model) for _ in range(100))


inner = Agent("inner", model=scripted(), mcp_servers=[sums()])
agent = Agent("a", model=scripted(), mcp_servers=[sums()], tools=[hang, inner.as_tool("inner", "Ask.")])


@asynccontextmanager
async def opened():
    log("log", "opened")
    try:
        yield
    finally:
        log("log", "closed")
'''
SPEC = {
    "dataset": "cases.jsonl",
    "agent": {
        "adapter": "openai_agents",
        "target": "agent:agent",
        "lifespan": "agent:opened",
        "retries": 0,
        "timeout": "2m",
    },
    "metrics": ["exact_match"],
    "max_agent_errors": "100%",
}


def write_agent(cli: Cli, *questions: str) -> None:
    """Write the agent, its spec, and a case for each question."""
    cli.write("agent.py", AGENT)
    cli.write("assay.yaml", SPEC)
    cli.write("cases.jsonl", "".join(f'{{"question": "{each}", "answer": "5"}}\n' for each in questions))


def servers(folder: Path) -> list[int]:
    """Return the ids of the servers that were started."""
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_servers_are_started_once_and_end_with_the_run(cli: Cli) -> None:
    """Rows that use them, that fail, and that run out of time share those of the agent and of its nested agent."""
    write_agent(cli, "2 + 3", "fail", "3 + 2", "hang")
    cli.run("run", "--set", "agent.timeout=20s", status=1)
    assert len(servers(cli.folder)) == 2
    assert not any(map(psutil.pid_exists, servers(cli.folder)))
    assert (cli.folder / "log").read_text().split() == ["opened", "closed"]


@pytest.mark.parametrize(
    ("number", "closes"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGKILL, False)],
    ids=["interrupt", "terminate", "kill"],
)
def test_servers_end_with_the_command(cli: Cli, number: signal.Signals, closes: bool) -> None:
    """A command that is killed closes nothing itself, and its servers end with their stdin."""
    write_agent(cli, "2 + 3", "hang")
    process = cli.start("run")
    cli.wait_until((cli.folder / "hanging").exists, process)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert len(servers(cli.folder)) == 2
    wait_until(lambda: not any(map(psutil.pid_exists, servers(cli.folder))))
    assert (cli.folder / "log").read_text().split() == ["opened", *["closed"] * closes]


def test_servers_outlive_the_orchestrator_until_the_run_ends(cli: Cli) -> None:
    """The command restarts a killed orchestrator and keeps using what is open."""
    write_agent(cli, "2 + 3", "hang")
    process = cli.start("run", "--set", "agent.timeout=20s")
    cli.wait_until((cli.folder / "hanging").exists, process)
    for service in cli.services():
        service.kill()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 1, err
    assert len(servers(cli.folder)) == 2
    assert not any(map(psutil.pid_exists, servers(cli.folder)))
    assert (cli.folder / "log").read_text().split() == ["opened", "closed"]
