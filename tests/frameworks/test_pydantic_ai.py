"""The pydantic_ai adapter against real pydantic-ai, with its own test models."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened
from tests.frameworks.behaviours.pydantic_ai import PRELUDE

from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import AgentErrorKind, AgentStatus, Source
from assay.model.answers.approvals import read_approvals
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

AGENT = """
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def model(messages, info):
    question = [part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"][-1]
    last = messages[-1].parts[-1]
    if question == "what was said":
        said = [f"{part.part_kind}:{getattr(part, 'content', '')}" for one in messages for part in one.parts]
        return ModelResponse(parts=[TextPart("|".join(said))])
    if last.part_kind == "user-prompt":
        calls = [ToolCallPart("search", {"query": word}) for word in question.split()]
        return ModelResponse(parts=[TextPart("I search."), *calls, ToolCallPart("absent", '{"a')])
    if question == "fail later":
        return ModelResponse(parts=[ToolCallPart("search", {"query": "broken"})])
    if question == "loop":
        return ModelResponse(parts=[ToolCallPart("search", {"query": "loop"})])
    return ModelResponse(parts=[TextPart("It is 42.")], finish_reason="stop")


agent = Agent(FunctionModel(model, model_name="scripted"), system_prompt="Be brief.", deps_type=dict, retries=3)


@agent.tool
def search(context: RunContext[dict], query: str) -> dict:
    if query == "vague":
        raise ModelRetry("be more exact")
    if query == "broken":
        raise ValueError("the index is broken")
    return {"found": query, "deps": context.deps}


def deps(request):
    return request.parameters


async def async_deps(request):
    return {"case": request.case_id}


class Deps:
    pass


nothing = 3
unready = Agent()
"""

TYPED = """
from pydantic import BaseModel
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel


class City(BaseModel):
    answer: str
    sources: list[str]
    people: int


def model(messages, info):
    name = info.output_tools[0].name
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart(name, {"answer": "Lima"})])
    return ModelResponse(parts=[ToolCallPart(name, {"answer": "Lima", "sources": ["Atlas"], "people": 10})])


agent = Agent(FunctionModel(model), output_type=OUTPUT)
"""


async def test_an_answer_has_text_tool_calls_usage_and_model(tmp_path: Path) -> None:
    """Each call has its arguments, its result, and whether it failed; text beside calls is not the answer."""
    caller = opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps")
    answer = await ask(caller, "peru vague", parameters={"area": "south"})
    assert (answer.status, answer.text) == (AgentStatus.SUCCESS, "It is 42.")
    assert [(call.name, call.arguments_json, call.is_error) for call in calls(answer)] == [
        ("search", '{"query": "peru"}', False),
        ("search", '{"query": "vague"}', True),
        ("absent", '"{\\"a"', True),
    ]
    assert calls(answer)[0].result_json == '{"found": "peru", "deps": {"area": "south"}}'
    assert calls(answer)[1].result_json == '"be more exact"'
    assert answer.usage is not None
    assert (answer.usage.requests, answer.model, answer.finish_reason) == (2, "scripted", "stop")
    assert answer.usage.total_tokens == (answer.usage.input_tokens or 0) + (answer.usage.output_tokens or 0) > 0
    assert answer.usage.cache_read_tokens is None
    assert answer.usage.cost_usd is None


@pytest.mark.parametrize("output", ["City", "ToolOutput(City, name='deliver')", "[City, int]"])
async def test_typed_output_is_the_output_and_no_tool_call(tmp_path: Path, output: str) -> None:
    """The call that delivers the output is none of the agent's tools, under any name and when it was refused first."""
    answer = await ask(opened(tmp_path, "pydantic_ai", TYPED.replace("OUTPUT", output)), "largest city of Peru?")
    assert answer.output == {"answer": "Lima", "sources": ["Atlas"], "people": 10}
    assert answer.text == "Lima"
    assert answer.sources == (Source(title="Atlas"),)
    assert answer.tool_calls == ()


@pytest.mark.parametrize("output", ["City", "[City, int]"])
async def test_output_that_stays_wrong_is_an_error_without_tool_calls(tmp_path: Path, output: str) -> None:
    """Attempts to deliver the output that pydantic-ai refuses are none of the agent's tools."""
    source = TYPED.replace("OUTPUT", output).replace("len(messages) == 1", "True")
    answer = await ask(opened(tmp_path, "pydantic_ai", source), "largest city of Peru?")
    assert answer.error is not None
    assert answer.error.type == "UnexpectedModelBehavior"
    assert answer.tool_calls == ()
    assert answer.usage is not None
    assert answer.usage.requests == 2


@pytest.mark.parametrize(
    ("output", "text", "value"), [("str", "a", None), ("int", "0", 0), ("list[str]", '["a"]', ["a"])]
)
async def test_output_of_any_type_has_a_text(tmp_path: Path, output: str, text: str, value: object) -> None:
    """A text is no structured output; anything else is, and its JSON is the text."""
    source = f"""
        from pydantic_ai import Agent
        from pydantic_ai.models.test import TestModel
        agent = Agent(TestModel(custom_output_text={"'a'" if output == "str" else None}), output_type={output})
    """
    answer = await ask(opened(tmp_path, "pydantic_ai", source), "q")
    assert answer.error is None
    assert (answer.text, answer.output) == (text, value)


async def test_a_conversation_keeps_its_messages(tmp_path: Path) -> None:
    """The second turn sees the first with its tool calls; another session, and another history, see none of it."""
    caller = opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:async_deps")
    first = await ask(caller, "peru")
    history = (Message("user", "peru"), Message("assistant", first.text))
    second = await ask(caller, "what was said", history=history)
    assert second.text.startswith("system-prompt:Be brief.|user-prompt:peru|text:I search.|tool-call:")
    assert "tool-return:{'found': 'peru', 'deps': {'case': 'case'}}" in second.text
    assert second.text.endswith("|text:It is 42.|user-prompt:what was said")
    assert second.tool_calls == ()
    fresh = await ask(caller, "what was said", session="run/0/1")
    assert fresh.text == "system-prompt:Be brief.|user-prompt:what was said"
    other = await ask(caller, "what was said", history=(Message("user", "chile"), Message("assistant", "no")))
    assert other.text == "system-prompt:Be brief.|user-prompt:chile|text:no|user-prompt:what was said"
    tool = await ask(caller, "q", history=(Message("tool", "x"),))
    assert tool.error is not None
    assert "a message with the role 'tool'" in tool.error.message


async def test_a_failed_run_keeps_what_it_did(tmp_path: Path) -> None:
    """The row of an agent that raised has its tool calls and its tokens, and the error is its own."""
    answer = await ask(opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps"), "fail later")
    assert answer.error is not None
    assert (answer.error.kind, answer.error.type) == (AgentErrorKind.RAISED, "ValueError")
    assert answer.error.message == "ValueError: the index is broken"
    assert 'raise ValueError("the index is broken")' in answer.error.traceback
    assert [call.arguments_json for call in calls(answer) if call.name == "search"] == [
        '{"query": "fail"}',
        '{"query": "later"}',
        '{"query": "broken"}',
    ]
    assert calls(answer)[0].result_json == '{"found": "fail", "deps": {}}'
    assert answer.usage is not None
    assert answer.usage.requests == 2


async def test_a_failed_turn_has_its_own_trace(tmp_path: Path) -> None:
    """Calls of earlier turns are not repeated in the row of a turn that failed, and the turn may be asked again."""
    caller = opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps")
    first = await ask(caller, "peru")
    said = (Message("user", "peru"), Message("assistant", first.text))
    failed = await ask(caller, "fail later", history=said)
    assert [call.arguments_json for call in calls(failed) if call.name == "search"] == [
        '{"query": "fail"}',
        '{"query": "later"}',
        '{"query": "broken"}',
    ]
    again = await ask(caller, "what was said", history=said)
    assert "fail" not in again.text
    assert "tool-return:{'found': 'peru'" in again.text


async def test_a_case_of_variables_alone_is_an_error(tmp_path: Path) -> None:
    """No model is called for it."""
    answer = await ask(opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps"), "", variables={"city": "Lima"})
    assert answer.error is not None
    assert "the case has variables and no text" in answer.error.message
    assert answer.usage is None


async def test_questions_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each of many questions at once has its own tool calls."""
    caller = opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps")
    answers = await asyncio.gather(*(ask(caller, f"w{i}", session=f"run/{i}/0") for i in range(50)))
    assert [calls(answer)[0].arguments_json for answer in answers] == [f'{{"query": "w{i}"}}' for i in range(50)]
    assert {len(calls(answer)) for answer in answers} == {2}


async def test_limits_end_a_run(tmp_path: Path) -> None:
    """An agent that calls its tool for ever is ended after `request_limit` requests."""
    answer = await ask(opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps", request_limit=4), "loop")
    assert answer.error is not None
    assert (answer.error.type, answer.error.retryable) == ("UsageLimitExceeded", False)
    assert answer.usage is not None
    assert answer.usage.requests == 4
    few = await ask(opened(tmp_path, "pydantic_ai", AGENT, deps="agent.py:deps", tool_calls_limit=1), "a b")
    assert few.error is not None
    assert few.error.type == "UsageLimitExceeded"


PAY = 'agent = Agent(scripted(call("pay", amount=5), "Done: {result}"), tools=[pay_tool]%s)'
TRACKER = 'inner = Agent(scripted(call("track", parcel=7), "It is in {result}."), tools=[track])'
SHAPES: dict[str, tuple[str, list[tuple[str, str, str]], int]] = {
    "the agent that took over is run by the function of an output": (
        f"""
{TRACKER}

async def hand_over(where: str) -> str:
    return (await inner.run(where)).output

agent = Agent(scripted(call("final_result", where="7")), output_type=[hand_over])
""",
        [("track", '{"parcel": 7}', '"Lima"')],
        3,
    ),
    "an agent in a tool is iterated over": (
        f"""
{TRACKER}

async def tracker(where: str) -> str:
    async with inner.iter(where) as run:
        async for node in run:
            pass
    return run.result.output

agent = Agent(scripted(call("tracker", where="7"), "{{result}}"), tools=[tracker])
""",
        [("tracker", '{"where": "7"}', '"It is in Lima."'), ("track", '{"parcel": 7}', '"Lima"')],
        4,
    ),
    "a tool is named like the output's": (
        """
def final_result(a: int) -> str:
    return "Final result processed."

agent = Agent(scripted(call("final_result", a=1), "It is in Lima."), tools=[final_result])
""",
        [("final_result", '{"a": 1}', '"Final result processed."')],
        2,
    ),
    "a tool begins like the output's": (
        """
def final_result_b(a: int) -> str:
    return "Output tool not used - no"

agent = Agent(
    scripted(call("final_result_b", a=1), call("final_result", answer="It is in Lima.", people=1)),
    tools=[final_result_b],
    output_type=City,
)
""",
        [("final_result_b", '{"a": 1}', '"Output tool not used - no"')],
        2,
    ),
    "a processor of the history takes calls out": (
        """
from pydantic_ai.capabilities import ProcessHistory

def reply(messages, info):
    part = {"Lima": ToolCallPart("track", {"parcel": 8}), "Quito": TextPart("It is in Lima.")}.get(
        messages[-1].parts[-1].content, ToolCallPart("track", {"parcel": 7})
    )
    return ModelResponse([part], usage=RequestUsage(input_tokens=10, output_tokens=5))

def shorten(messages):
    return [messages[0], *messages[-2:]] if len(messages) > 3 else messages

agent = Agent(FunctionModel(reply), tools=[track], capabilities=[ProcessHistory(shorten)])
""",
        [("track", '{"parcel": 7}', '"Lima"'), ("track", '{"parcel": 8}', '"Quito"')],
        3,
    ),
    "calls have one id": (
        """
def reply(messages, info):
    if len(messages) > 4:
        return ModelResponse([TextPart("It is in Lima.")], usage=RequestUsage(input_tokens=10, output_tokens=5))
    call = ToolCallPart("track", {"parcel": 6 + len(messages) // 2 + 1}, "c")
    return ModelResponse([call], usage=RequestUsage(input_tokens=10, output_tokens=5))

agent = Agent(FunctionModel(reply), tools=[track])
""",
        [("track", '{"parcel": 7}', '"Lima"'), ("track", '{"parcel": 8}', '"Quito"')],
        3,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
async def test_calls_are_read_from_runs_of_any_shape(tmp_path: Path, name: str) -> None:
    """Each call once, with its result, and the tokens of all runs."""
    source, wanted, requests = SHAPES[name]
    answer = await ask(opened(tmp_path, "pydantic_ai", PRELUDE + source), "Where is parcel 7?")
    assert (answer.error, answer.text) == (None, "It is in Lima.")
    assert [(call.name, call.arguments_json, call.result_json) for call in calls(answer)] == wanted
    assert all(call.duration_ms is not None and not call.is_error for call in calls(answer))
    assert answer.usage is not None
    assert (answer.usage.requests, answer.usage.total_tokens) == (requests, 15 * requests)


DEFERRING = """
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

def sent(amount: int) -> str:
    raise CallDeferred

def large(context: RunContext, amount: int) -> str:
    if not context.tool_call_approved:
        raise ApprovalRequired
    return pay(amount)

"""


@pytest.mark.parametrize(
    ("tool", "more", "approvals", "decided", "paid"),
    [
        ("Tool(pay, requires_approval=True)", "", [{"approve": True}], ["approval:approve"], "paid 5"),
        ("Tool(pay, requires_approval=True)", "", [{"deny": "no"}], ["approval:deny"], "no"),
        ("Tool(large, name='pay')", ", output_type=[str, DeferredToolRequests]", [{"edit": {"amount": 3}}],
         ["approval:edit"], "paid 3"),
        ("Tool(sent, name='pay', requires_approval=True)", ", output_type=[str, DeferredToolRequests]",
         [{"approve": True}, {"answer": {"kind": "sent"}}], ["approval:approve", "call:answer"], '{"kind": "sent"}'),
    ],
)  # fmt: skip
async def test_calls_that_wait_are_resumed(
    tmp_path: Path, tool: str, more: str, approvals: list[dict[str, object]], decided: list[str], paid: str
) -> None:
    """Whether or not the agent's output types have a place for them, and when one waits for two things in turn."""
    source = f"{PRELUDE}{DEFERRING}pay_tool = {tool}\n{PAY % more}"
    caller = opened(tmp_path, "pydantic_ai", source)
    waiting = await ask(caller, "Pay 5")
    assert (waiting.status, [str(wait.kind) for wait in waiting.interrupts]) == ("interrupted", ["approval"])
    answer = await ask(caller, "Pay 5", session="run/1/0", approvals=read_approvals(approvals, times=1)[0])
    assert [f"{wait.kind}:{wait.decision}" for wait in answer.interrupts] == decided
    assert (answer.status, len(calls(answer))) == ("success", 1)
    assert paid in calls(answer)[0].result_json
    assert calls(answer)[0].arguments_json == ('{"amount": 3}' if paid == "paid 3" else '{"amount": 5}')


async def test_tokens_counted_before_the_question_are_not_its_own(tmp_path: Path) -> None:
    """An agent in a tool may count in an object that other questions count in, too."""
    source = """
from pydantic_ai.usage import RunUsage

everything = RunUsage(requests=7, input_tokens=1000)
inner = Agent(scripted("Lima."))

async def tracker(where: str) -> str:
    return (await inner.run(where, usage=everything)).output

agent = Agent(scripted(call("tracker", where="7"), "{result}"), tools=[tracker])
"""
    answer = await ask(opened(tmp_path, "pydantic_ai", PRELUDE + source), "Where is parcel 7?")
    assert answer.usage is not None
    assert (answer.usage.requests, answer.usage.total_tokens) == (3, 45)


async def test_citations_are_sources(tmp_path: Path) -> None:
    """Each source that the model's texts cite stands once, in the order of the text."""
    source = """
        from pydantic_ai import Agent
        from pydantic_ai.messages import Citation, DocumentCitationSource, ModelResponse, TextPart, WebCitationSource
        from pydantic_ai.models.function import FunctionModel

        web = Citation([WebCitationSource("https://a.example", title="A", excerpts=["x", "y"])])
        file = Citation([DocumentCitationSource(document_id="d1", title="D")])
        agent = Agent(FunctionModel(lambda messages, info: ModelResponse([TextPart("t", citations=[web, file, web])])))
    """
    answer = await ask(opened(tmp_path, "pydantic_ai", source), "q")
    assert answer.sources == (
        Source(title="A", uri="https://a.example", content="x\ny"),
        Source(id="d1", title="D"),
    )


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("agent.py:nothing", {}, "agent.target: names a builtins.int, not an agent of pydantic-ai"),
        ("agent.py:unready", {}, "agent.target: names an agent without a model: give it one"),
        ("agent.py:agent", {}, "agent.deps: is missing: the agent's tools receive a dict"),
        ("agent.py:agent", {"deps": "agent.py:Deps"}, "agent.deps: names the class Deps: name an object of it"),
        ("agent.py:agent", {"deps": "agent.py:no"}, "agent.deps: agent.py has no 'no'"),
    ],
)
def test_wrong_objects_are_refused(tmp_path: Path, target: str, options: dict[str, str], message: str) -> None:
    """Before a question is asked, at the field that names the object."""
    (tmp_path / "agent.py").write_text(AGENT)
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("pydantic_ai", target, options=options), tmp_path)
    assert message in str(caught.value)


def test_tools_that_hang_hold_up_neither_further_questions_nor_the_end(tmp_path: Path) -> None:
    """Sixty tools that hang end at the time limit, leave room for the next one, and the process ends."""
    agent = """
import threading
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def model(messages, info):
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse(parts=[ToolCallPart("work", {"what": last.content})])
    return ModelResponse(parts=[TextPart(last.content)])


agent = Agent(FunctionModel(model))


@agent.tool_plain
def work(what: str) -> str:
    if what == "hang":
        threading.Event().wait()
    return f"{what}: done"
"""
    (tmp_path / "agent.py").write_text(agent, encoding="utf-8")
    program = """
import asyncio, sys
from pathlib import Path

from tests.frameworks.asking import ask

from assay.agent_host.user_code import open_caller
from assay.client.api.loop_thread import run_to_end
from assay.model.run import AgentSpec


async def main():
    caller = open_caller(AgentSpec("pydantic_ai", "agent.py:agent"), Path(sys.argv[1]))
    hung = await asyncio.gather(*(ask(caller, "hang", f"run/{number}/0", timeout_s=2) for number in range(60)))
    print(*{response.error.kind for response in hung})
    print((await ask(caller, "next")).text)


run_to_end(main())
"""
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stdout.splitlines(), found.stderr) == (0, ["timeout", "next: done"], "")
