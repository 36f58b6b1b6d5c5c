"""`assay validate` finds every target and option that no question could be asked of, and calls nothing for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.behaviours.test_behaviours import FRAMEWORKS

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.frameworks

OBJECTS = """
import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

number = 3
nothing = None


def of_a_name(name):
    log("called")


async def later():
    log("called")


@asynccontextmanager
async def opening():
    log("called")
    yield agent


@contextmanager
def opens_twice(first, second):
    log("called")
    yield


@dataclass
class Carrier:
    city: str
"""
"""Objects that no framework runs as an agent; what they do is written to the log."""

AGENTS = {
    "adk": """
agent = LlmAgent(name="a", model=scripted("Lima."))
modelless = LlmAgent(name="a", model=scripted("Lima."), tools=[AgentTool(LlmAgent(name="b", model="no-such-model"))])
inner = LlmAgent(name="a", model=scripted("Lima."), mode="single_turn")
""",
    "langgraph": """
agent = loop(scripted("Lima."), []).compile()
draft = loop(scripted("Lima."), [])

from langgraph.store.base import BaseStore

class Store(BaseStore):
    def batch(self, ops):
        log("called")
    abatch = batch

storing = loop(scripted("Lima."), []).compile(store=Store())
""",
    "openai_agents": 'agent = Agent("a", model=scripted("Lima."))',
    "pydantic_ai": """
agent = Agent(scripted("Lima."))
needing = Agent(scripted("Lima."), deps_type=Carrier)
modelless = Agent()
""",
}
COMMON: dict[str, tuple[dict[str, Any], str]] = {
    "no-module": ({"target": "absent:agent"}, "agent.target: "),
    "no-file": ({"target": "absent.py:agent"}, "agent.target: "),
    "no-object": ({"target": "agent.py:agnt"}, "agent.target: "),
    "raises": ({"target": "raising.py:agent"}, "agent.target: "),
    "number": ({"target": "agent.py:number"}, "agent.target: names a builtins.int"),
    "nothing": ({"target": "agent.py:nothing"}, "agent.target: names a builtins.NoneType"),
    "class": ({"target": "agent.py:Carrier"}, "agent.target: "),
    "function": ({"target": "agent.py:of_a_name"}, "agent.target: "),
    "later": ({"target": "agent.py:later"}, "agent.target: "),
    "opening": ({"target": "agent.py:opening"}, "agent.target: "),
    "no-lifespan": ({"lifespan": "agent.py:absent"}, "agent.lifespan: "),
    "wrong-lifespan": ({"lifespan": "agent.py:number"}, "agent.lifespan: "),
    "other-lifespan": ({"lifespan": "agent.py:opens_twice"}, "agent.lifespan: "),
}
"""What is wrong with an agent of any framework: keys of the agent, and how the problem begins."""
OWN: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "adk": {
        "no-model": ({"target": "agent.py:modelless"}, "agent.target: the agent 'b' has no model: "),
        "inner": ({"target": "agent.py:inner"}, "agent.target: the agent 'a' has the mode 'single_turn'"),
        "no-service": ({"session_service": "agent.py:absent"}, "agent.session_service: "),
        "other-service": ({"memory_service": "agent.py:number"}, "agent.memory_service: "),
    },
    "langgraph": {
        "not-compiled": ({"target": "agent.py:draft"}, "agent.target: "),
        "store-left-out": ({"target": "agent.py:storing"}, "agent.target: is a graph with a store of the type Store"),
        "other-store": ({"target": "agent.py:storing", "store": "agent.py:number"}, "agent.store: "),
        "no-input": ({"input": "mesages"}, "agent.input: "),
        "no-output": ({"output": "mesages"}, "agent.output: "),
    },
    "openai_agents": {
        "no-context": ({"context": "agent.py:absent"}, "agent.context: "),
        "later-as-context": ({"context": "agent.py:later"}, "agent.context: names later, which takes other arguments"),
        "class-as-context": ({"context": "agent.py:Carrier"}, "agent.context: names the class Carrier"),
    },
    "pydantic_ai": {
        "no-deps": ({"deps": "agent.py:absent"}, "agent.deps: "),
        "later-as-deps": ({"deps": "agent.py:later"}, "agent.deps: names later, which takes other arguments"),
        "class-as-deps": ({"deps": "agent.py:Carrier"}, "agent.deps: names the class Carrier"),
        "deps-left-out": ({"target": "agent.py:needing"}, "agent.deps: is missing"),
        "no-model": ({"target": "agent.py:modelless"}, "agent.target: "),
    },
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_unusable_target_is_found(shared_cli: Cli, framework: str) -> None:
    """All of them at once, each at its field; the agent that is right beside them has no problem."""
    module = FRAMEWORKS[framework]
    shared_cli.write("agent.py", f"{module.PRELUDE}\n{OBJECTS}\n{AGENTS[framework]}")
    shared_cli.write("raising.py", "raise RuntimeError('not today')")
    shared_cli.write("cases.jsonl", {"question": "Capital?", "answer": "Lima."})
    wrong = COMMON | OWN[framework]
    variants = [{"name": "right"}, *({"name": name, "set": {f"agent.{key}": value for key, value in keys.items()}}
                                     for name, (keys, _) in wrong.items())]  # fmt: skip
    shared_cli.write(
        "assay.yaml",
        {
            "dataset": "cases.jsonl",
            "metrics": ["exact_match"],
            "agent": {"adapter": framework, "target": "agent.py:agent"},
            "variants": variants,
        },
    )
    found = json.loads(shared_cli.run("validate", "--json", status=2).stdout)
    problems = [f"{each['field']}: {each['message']}" for each in found["problems"]]
    by_name = {
        name: problem.partition(": ")[2] for problem in problems for name in problem.partition(": ")[0].split(", ")
    }
    missed = {name for name, (_, begins) in wrong.items() if not by_name.get(name, "").startswith(begins)}
    assert not missed, "\n".join(problems)
    assert "right" not in by_name
    assert not (shared_cli.folder / "log").exists(), "something was called"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_older_version_is_refused(shared_cli: Cli, framework: str) -> None:
    """With the command that installs one that is read, before the module of the agent is imported."""
    from assay.model.frameworks import FRAMEWORKS as KNOWN

    package, (least, _) = next(iter(KNOWN[framework].packages.items()))
    folder = shared_cli.folder / "older" / f"{package.replace('-', '_')}-0.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n", encoding="utf-8")
    shared_cli.env["PYTHONPATH"] = str(folder.parent)
    shared_cli.write("agent.py", "raise RuntimeError('imported')")
    shared_cli.write("cases.jsonl", {"question": "Capital?", "answer": "Lima."})
    agent = {"adapter": framework, "target": "agent.py:agent"}
    shared_cli.write("assay.yaml", {"dataset": "cases.jsonl", "metrics": ["exact_match"], "agent": agent})
    refused = shared_cli.run("validate", status=2)
    said = refused.stdout + refused.stderr
    assert f"agent.adapter: {package} 0.1 is installed, and this version of Assay reads {least} or later" in said
    assert "pip install" in said
    assert "imported" not in said
