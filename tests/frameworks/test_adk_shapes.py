"""Agents of Google ADK of many shapes: what is counted, what is the answer, and what approvals resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.answers import calls
from tests.frameworks.asking import ask, opened
from tests.frameworks.behaviours.adk import PRELUDE

from assay.model.answers.agent_response import AgentStatus, Message
from assay.model.answers.approvals import read_approvals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.model.answers.agent_response import AgentResponse

# ADK itself still runs an agent as a tool in a way that it deprecates, and so its loops and sequences of agents.
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CONFIRMED = "tools=[FunctionTool(pay, require_confirmation=True)]"
TRACKER = 'tracker_of(call("track", parcel=7), "Lima")'
INNER = f"""
inner = InMemoryRunner({TRACKER}, app_name="inner")
inner.auto_create_session = True
question = types.Content(role="user", parts=[types.Part(text="parcel 7")])
"""


async def answer_of(folder: Path, source: str, *approvals: dict[str, Any]) -> AgentResponse:
    """Return the answer of the `agent` of a source to one question."""
    caller = opened(folder, "adk", f"{PRELUDE}\n{source}")
    try:
        return await ask(caller, "Question", approvals=read_approvals(approvals, times=1)[0])
    finally:
        await caller.aclose()


COUNTED = {
    "a tool that passes no plugins on": (
        f"""agent = LlmAgent(name="m", model=scripted(call("tracker", request="x"), "It is in Lima."),
                 tools=[AgentTool({TRACKER}, include_plugins=False)])""",
        ["tracker", "track"],
        4,
    ),
    "a synchronous runner in a tool": (
        INNER
        + """
def tracker(request: str) -> str:
    return [event for event in inner.run(user_id="u", session_id="s", new_message=question)][-1].content.parts[0].text

agent = LlmAgent(name="m", model=scripted(call("tracker", request="x"), "It is in Lima."), tools=[tracker])""",
        ["tracker", "track"],
        4,
    ),
    "an agent that passes on what a runner within it yields": (
        INNER
        + """
class Passing(BaseAgent):
    async def _run_async_impl(self, ctx):
        async for event in inner.run_async(user_id="u", session_id=ctx.session.id, new_message=question):
            yield event

agent = Passing(name="p")""",
        ["track"],
        2,
    ),
    "an agent that keeps the events of another to itself": (
        """
class Quiet(BaseAgent):
    async def _run_async_impl(self, ctx):
        async for event in self.sub_agents[0].run_async(ctx):
            pass
        yield Event(author=self.name, content=event.content)

asked = iter([call("track", parcel=7), "Lima"])
model = scripted(lambda seen: next(asked))
agent = Quiet(name="q", sub_agents=[LlmAgent(name="a", model=model, tools=[track])])""",
        ["track"],
        2,
    ),
    "a callback that replaces what the model said": (
        """agent = LlmAgent(name="m", model=scripted("A secret."),
                 after_model_callback=lambda **_: LlmResponse(content=content("redacted")))""",
        [],
        1,
    ),
    "a callback that answers where the model fails": (
        """agent = LlmAgent(name="m", model=scripted(call("track", parcel=7), RuntimeError("down")), tools=[track],
                 on_model_error_callback=lambda **_: LlmResponse(content=content("Later.")))""",
        ["track"],
        1,
    ),
    "a model that numbers its calls anew": (
        """
def numbered(parcel):
    return types.Part(function_call=types.FunctionCall(id="1", name="track", args={"parcel": parcel}))

agent = LlmAgent(name="a", model=scripted(numbered(7), numbered(8), "Done."), tools=[track])""",
        ["track", "track"],
        3,
    ),
}


@pytest.mark.parametrize("shape", COUNTED)
async def test_every_call_is_counted_once(tmp_path: Path, shape: str) -> None:
    """Calls of models and of tools, where they happen and not by the events that come of them."""
    source, names, requests = COUNTED[shape]
    answer = await answer_of(tmp_path, source)
    assert answer.status is AgentStatus.SUCCESS
    assert [(call.name, call.is_error, call.duration_ms is not None) for call in calls(answer)] == [
        (name, False, True) for name in names
    ]
    assert answer.usage is not None
    assert (answer.usage.requests, answer.usage.total_tokens) == (requests, requests * 15)


async def test_a_count_that_one_call_lacks_is_not_known(tmp_path: Path) -> None:
    """A sum over some of the calls would pass for that of all."""
    model = 'scripted("{result}", is_counted=False)'
    source = f"""agent = LlmAgent(name="m", model=scripted(call("inner", request="x"), "Done."),
                 tools=[AgentTool(LlmAgent(name="inner", model={model}))])"""
    usage = (await answer_of(tmp_path, source)).usage
    assert usage is not None
    assert (usage.requests, usage.input_tokens, usage.total_tokens) == (3, None, None)


CITY = "City(**CITY).model_dump_json()"
VALUES: dict[str, tuple[str, str, Any]] = {
    "an agent as a tool whose result is the answer": (
        f"""agent = LlmAgent(name="m", model=scripted(call("city", request="x"), "never"), tools=[AgentTool(
    LlmAgent(name="city", model=scripted({CITY}), output_schema=City), skip_summarization=True)])""",
        "Lima",
        {"answer": "Lima", "people": 10},
    ),
    "a tool that ends a loop": (
        """
from google.adk.agents import LoopAgent
from google.adk.tools.exit_loop_tool import exit_loop
writer = LlmAgent(name="writer", model=scripted("A draft."))
critic = LlmAgent(name="critic", model=scripted(call("exit_loop")), tools=[exit_loop])
agent = LoopAgent(name="l", sub_agents=[writer, critic])""",
        "A draft.",
        None,
    ),
    "a task": ('agent = LlmAgent(name="a", mode="task", model=scripted(call("finish_task", result="It is done.")))',
               "It is done.", None),
    "a task with typed output": (
        'agent = LlmAgent(name="a", mode="task", model=scripted(call("finish_task", **CITY)), output_schema=City)',
        "Lima",
        {"answer": "Lima", "people": 10},
    ),
    "a list": ('agent = LlmAgent(name="a", model=scripted(\'["a"]\'), output_schema=list[str])', '["a"]', ["a"]),
    "a workflow that ends in an agent": (
        """
def prepare(node_input):
    return {"answer": "no"}

agent = Workflow(name="w", edges=[("START", prepare), (prepare, LlmAgent(name="a", model=scripted("The end.")))])""",
        "The end.",
        None,
    ),
    "a workflow that ends in a function": (
        """
def finish(node_input):
    return {"answer": f"{node_input} It is final."}

writer = LlmAgent(name="a", model=scripted("A draft."))
agent = Workflow(name="w", edges=[("START", writer), (writer, finish)])""",
        "A draft. It is final.",
        {"answer": "A draft. It is final."},
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", VALUES)
async def test_the_last_final_value_is_the_answer(tmp_path: Path, shape: str) -> None:
    """Whatever it is: a text, the result of a tool, or the output of a node or a task."""
    source, text, output = VALUES[shape]
    answer = await answer_of(tmp_path, source)
    assert (answer.status, answer.text, answer.output) == (AgentStatus.SUCCESS, text, output)


ASKING = """
def leave(days: int, tool_context: ToolContext) -> str:
    confirmation = tool_context.tool_confirmation
    if confirmation is None:
        tool_context.request_confirmation(hint="How many days?", payload={"approved": 0})
        return "pending"
    return f"{days} days, {confirmation.confirmed}, {confirmation.payload}, {confirmation.hint}"

agent = LlmAgent(name="a", model=scripted(call("leave", days=5), "You will hear.", "Done."), tools=[leave])
"""
WORKFLOW = """
def amount(node_input):
    return {"amount": 5}

tool = FunctionTool(pay, require_confirmation=True)
agent = Workflow(name="w", edges=[("START", amount), (amount, tool)])
"""
PAYERS = ", ".join(f'LlmAgent(name="{name}", model=scripted({{steps}}), {CONFIRMED})' for name in ("x", "y")).format(
    steps='call("pay", amount=5), "Done."'
)
RESUMED: dict[str, tuple[str, Sequence[dict[str, Any]], list[str]]] = {
    "a payload as it was asked": (ASKING, [{"approve": True}], ["5 days, True, {'approved': 0}, "]),
    "an edited payload": (ASKING, [{"edit": {"approved": 3}}], ["5 days, True, {'approved': 3}, "]),
    "edited arguments beside a payload": (ASKING, [{"edit": {"days": 2}}], ["2 days, True, {'approved': 0}, "]),
    "a reason for the tool": (ASKING, [{"deny": "no time"}], ["5 days, False, {'approved': 0}, no time"]),
    "a reason for the model": (
        f'agent = LlmAgent(name="a", model=scripted(call("pay", amount=5), "No."), {CONFIRMED})',
        [{"deny": "too much"}],
        ["This tool call is rejected. too much"],
    ),
    "a tool of a workflow": (WORKFLOW, [{"approve": True}], ["paid 5"]),
    "a denied tool of a workflow": (WORKFLOW, [{"deny": "too much"}], ["rejected. too much"]),
    "agents in parallel": (
        f"from google.adk.agents import ParallelAgent\nagent = ParallelAgent(name='p', sub_agents=[{PAYERS}])",
        [{"approve": True, "times": 2}],
        ["paid 5", "paid 5"],
    ),
    "nested agents at once": (
        f"""
def payer(name):
    replies = scripted(call("pay", amount=5), "{{result}}")
    return LlmAgent(name=name, description="Pays.", mode="single_turn", model=replies, {CONFIRMED})

calling = scripted([call("x", request="Pay"), call("y", request="Pay")], "Done.")
agent = LlmAgent(name="a", model=calling, sub_agents=[payer("x"), payer("y")])""",
        [{"approve": True, "times": 2}],
        # ADK runs the second one anew when it resumes the first: it calls its model and the tool again.
        ["paid 5", "paid 5", "paid 5", "", "paid 5"],
    ),
    "an agent after a handoff": (
        f"""
payer = LlmAgent(name="payer", description="Pays.", model=scripted(call("pay", amount=5), "Done."), {CONFIRMED})
agent = LlmAgent(name="a", model=scripted(call("transfer_to_agent", agent_name="payer")), sub_agents=[payer])""",
        [{"approve": True}],
        ["null", "paid 5"],
    ),
    "one of two calls": (
        """agent = LlmAgent(name="a", model=scripted([call("pay", amount=5), call("track", parcel=7)], "Done."),
                 tools=[FunctionTool(pay, require_confirmation=True), track])""",
        [{"approve": True}],
        ["paid 5", "Lima"],
    ),
}


@pytest.mark.parametrize("shape", RESUMED)
async def test_approvals_resume_what_waits(tmp_path: Path, shape: str) -> None:
    """By ADK's own way for each; a call that waited is listed once, with the result that it has then."""
    source, approvals, results = RESUMED[shape]
    waiting = await answer_of(tmp_path, source)
    assert waiting.status is AgentStatus.INTERRUPTED
    assert [call.result_json for call in calls(waiting) if call.name in ("pay", "leave")] == [""] * len(
        waiting.interrupts
    )
    answer = await answer_of(tmp_path, source, *approvals)
    assert answer.status is AgentStatus.SUCCESS
    assert len(answer.interrupts) == len(waiting.interrupts)
    assert [result in call.result_json for call, result in zip(calls(answer), results, strict=True)] == [True] * len(
        results
    )


async def test_a_resumable_app_continues_after_the_stop(tmp_path: Path) -> None:
    """The agents that come after the one that waited run, too."""
    source = f"""
from google.adk.agents import SequentialAgent
from google.adk.apps.app import App, ResumabilityConfig
agents = [LlmAgent(name="a", model=scripted(call("pay", amount=5), "Done."), {CONFIRMED}),
          LlmAgent(name="b", model=scripted(lambda seen: "Afterwards."))]
agent = App(name="app", root_agent=SequentialAgent(name="s", sub_agents=agents),
            resumability_config=ResumabilityConfig(is_resumable=True))"""
    assert (await answer_of(tmp_path, source, {"approve": True})).text == "Afterwards."


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (
            """
class Place(BaseModel):
    city: str

async def ask(node_input):
    yield RequestInput(message="Which city?", interrupt_id="city", response_schema=Place)

def finish(node_input):
    return f"It is {node_input['city']}."

agent = Workflow(name="w", edges=[("START", ask), (ask, finish)])""",
            {"city": "Lima"},
        ),
        (
            """
from google.adk.tools._request_input_tool import request_input
agent = LlmAgent(name="a", model=scripted(call("adk_request_input", message="Which city?"), "It is {result}."),
                 tools=[request_input])""",
            "Lima",
        ),
    ],
)
async def test_questions_to_a_person_are_answered(tmp_path: Path, source: str, answer: object) -> None:
    """Of a workflow, with a schema, and of a model by ADK's tool, which is no tool of the agent's."""
    response = await answer_of(tmp_path, source, {"answer": answer})
    assert (response.text, response.tool_calls) == ("It is Lima.", ())
    assert [(str(one.kind), one.message, one.decision) for one in response.interrupts] == [
        ("input", "Which city?", "answer")
    ]


async def test_a_workflow_s_call_cannot_be_edited(tmp_path: Path) -> None:
    """ADK has no way to do so: the row says what to do, and is not asked again."""
    error = (await answer_of(tmp_path, WORKFLOW, {"edit": {"amount": 2}})).error
    assert error is not None
    assert "approve or deny" in error.message
    assert not error.retryable


async def test_a_tool_that_has_a_first_answer_does_not_wait(tmp_path: Path) -> None:
    """A long-running tool that returned something: the model answers with it, as in ADK."""
    source = """
def ticket(amount: int) -> dict:
    return {"status": "pending"}

tools = [LongRunningFunctionTool(ticket)]
agent = LlmAgent(name="a", model=scripted(call("ticket", amount=5), "Asked."), tools=tools)"""
    assert (await answer_of(tmp_path, source)).text == "Asked."


async def test_a_tool_that_raised_failed_even_if_a_plugin_goes_on(tmp_path: Path) -> None:
    """ADK's own plugin tells the model, in a response that has no key for errors."""
    source = """
from google.adk.apps import App
from google.adk.plugins import ReflectAndRetryToolPlugin
tracking = LlmAgent(name="a", model=scripted(call("track", parcel=9), call("track", parcel=7), "Lima."), tools=[track])
agent = App(name="app", root_agent=tracking, plugins=[ReflectAndRetryToolPlugin()])"""
    answer = await answer_of(tmp_path, source)
    assert [(call.is_error, "no parcel 9" in call.result_json) for call in calls(answer)] == [
        (True, True),
        (False, False),
    ]


async def test_summaries_of_earlier_events_are_counted_in_their_turn(tmp_path: Path) -> None:
    """ADK asks a model for them after the answer, in an event that it keeps to itself."""
    source = """
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
summarizer = LlmEventSummarizer(llm=scripted("A summary."))
agent = App(name="app", root_agent=LlmAgent(name="a", model=scripted("Hello.")), events_compaction_config=
            EventsCompactionConfig(compaction_interval=1, overlap_size=0, summarizer=summarizer))"""
    caller = opened(tmp_path, "adk", f"{PRELUDE}\n{source}")
    history: tuple[Message, ...] = ()
    for index in range(2):
        answer = await ask(caller, "Question", turn_index=index, history=history)
        history += (Message("user", "Question"), Message("assistant", answer.text))
        assert answer.usage is not None
        assert (answer.usage.requests, answer.usage.total_tokens) == (2, 30)
    await caller.aclose()


async def test_toolsets_of_nested_agents_are_closed_after_a_time_out(tmp_path: Path) -> None:
    """ADK closes those of an agent that is a tool at its end, which a question that times out never reaches."""
    source = """
from google.adk.tools.base_toolset import BaseToolset

class Tools(BaseToolset):
    async def get_tools(self, readonly_context=None):
        return [FunctionTool(hang)]

    async def close(self):
        log("closed")

inner = LlmAgent(name="tracker", description="Tracks.", model=scripted(call("hang")), tools=[Tools()])
agent = LlmAgent(name="m", model=scripted(call("tracker", request="x"), "Done."), tools=[AgentTool(inner)])"""
    caller = opened(tmp_path, "adk", f"{PRELUDE}\n{source}")
    answer = await ask(caller, "Question", timeout_s=1.0)
    assert answer.error is not None
    assert [call.name for call in calls(answer)] == ["tracker", "hang"]
    assert not (tmp_path / "log").exists()
    await caller.aclose()
    assert (tmp_path / "log").read_text() == "closed\n"


async def test_a_turn_that_failed_after_a_stop_is_undone_whole(tmp_path: Path) -> None:
    """A retry sees neither the question nor the confirmation of the attempt before."""
    source = """
tries = []

def fetch(parcel: int) -> str:
    tries.append(parcel)
    if len(tries) == 1:
        raise RuntimeError("not now")
    return "Lima"

def replies(seen):
    log(str(seen.count("fetch")))
    return "Lima." if "result" in seen else call("fetch", parcel=7)

confirmed = FunctionTool(fetch, require_confirmation=True)
agent = LlmAgent(name="a", model=scripted(replies), tools=[confirmed])"""
    caller = opened(tmp_path, "adk", f"{PRELUDE}\n{source}")
    approvals = read_approvals([{"approve": True}], times=1)[0]
    answers = [await ask(caller, "Question", approvals=approvals) for _ in range(2)]
    await caller.aclose()
    assert [answer.status for answer in answers] == [AgentStatus.ERROR, AgentStatus.SUCCESS]
    assert (tmp_path / "log").read_text().split() == ["0", "0", "2"]
