"""Google ADK in process: real agents, apps and runners with a scripted model, asked through the real orchestrator."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.frameworks.adk_agents import ADK_AGENTS
from tests.frameworks.answers import calls
from tests.support.docs.guides import blocks

import assay
from assay.agent_host.loader import AgentImportError
from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Message,
    Source,
    Usage,
)
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.frameworks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

CALL_TOKENS = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13, "requests": 1}


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose `adk_agents.py` has agents."""
    (tmp_path / "adk_agents.py").write_text(ADK_AGENTS, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("adk_agents", None)


def request(text: str, **more: Any) -> AgentRequest:
    """Return a question, whose session is its own unless it says otherwise."""
    return AgentRequest(
        **{"request_id": "r", "run_id": "run", "case_id": "c", "input": text, "session_id": text} | more
    )


def ask(folder: Path, *requests: AgentRequest | str, target: str = "agent", **options: Any) -> list[AgentResponse]:
    """Ask one agent questions, one after the other."""
    caller = open_caller(AgentSpec("adk", f"adk_agents:{target}", options=options), folder)
    assert caller is not None

    async def answers() -> list[AgentResponse]:
        try:
            return [await caller.call(request(one) if isinstance(one, str) else one) for one in requests]
        finally:
            await caller.aclose()

    return asyncio.run(answers())


@pytest.fixture
def evaluate(
    agents: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, list[AgentResponse]]]:
    """Return what runs cases through the orchestrator: the answers of each case, one a repeat."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_home))
    monkeypatch.chdir(agents)

    def run(cases: list[dict[str, Any]], **options: Any) -> dict[str, list[AgentResponse]]:
        agent = {"adapter": "adk", "target": "adk_agents:agent", "retries": 1, **options}
        metrics = ["tokens", *(["tool_calls"] if any("expected_tools" in case for case in cases) else [])]
        spec = {"metrics": metrics, "repeats": 2, "agent": agent}
        found: dict[str, list[AgentResponse]] = {}
        for row in assay.evaluate(spec, dataset=cases, progress=False).rows:
            assert row.response is not None
            found.setdefault(row.case_id, []).append(row.response)
        return found

    return run


def refusal(folder: Path, target: str = "agent", **options: Any) -> InvalidInputError:
    """Return the refusal of an agent."""
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec("adk", f"adk_agents:{target}", options=options), folder)
    return caught.value


def test_a_run_of_an_agent(evaluate: Callable[..., dict[str, list[AgentResponse]]]) -> None:
    """Through the orchestrator: texts, tools with results, usage, model; failed rows have their reason."""
    questions = {"plain": "hello", "tools": "search it", "tool raises": "fail", "event": "event 400",
                 "flaky": "flaky run", "loop": "loop"}  # fmt: skip
    expected = [{"name": name} for name in ("search", "odd", "surrogate")]
    cases = [{"id": name, "question": text, "expected_tools": expected} for name, text in questions.items()]
    found = evaluate(cases, max_llm_calls=3)
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(questions, 2)
    rows = {name: answers[0] for name, answers in found.items()}
    plain, tools, failed, loop = (rows[name] for name in ("plain", "tools", "tool raises", "loop"))
    assert (plain.text, plain.model, plain.usage) == ("echo hello", "scripted-1", Usage(**CALL_TOKENS))
    search, odd, surrogate = calls(tools)
    assert (search.name, search.is_error) == ("search", False)
    assert json.loads(search.arguments_json) == {"query": "search it"}
    assert json.loads(search.result_json) == {"hits": ["search it"]}
    assert json.loads(odd.result_json) == {
        "when": "2026-01-02",
        "bytes": "eA==",
        "number": "NaN",
        "object": repr(object),
    }
    assert "cut" in surrogate.result_json
    assert tools.text.startswith("found ")
    assert "hm" not in tools.text, "a thought"
    assert tools.usage == Usage(input_tokens=20, output_tokens=6, total_tokens=26, requests=2)
    assert rows["flaky"].text == "echo flaky run"
    errors = {name: answer.error for name, answer in rows.items() if answer.error is not None}
    assert {name: (error.type, error.retryable) for name, error in errors.items()} == {
        "tool raises": ("LookupError", False),
        "event": ("400", False),
        "loop": ("LlmCallsLimitExceededError", False),
    }
    assert "adk_agents.py" in errors["tool raises"].traceback
    assert [(call.name, call.is_error) for call in calls(failed)] == [("odd", False), ("fail", True)]
    assert loop.usage == Usage(input_tokens=30, output_tokens=9, total_tokens=39, requests=3)
    assert len(calls(loop)) == 3


def test_a_conversation_shares_a_session(evaluate: Callable[..., dict[str, list[AgentResponse]]]) -> None:
    """Turns of a case see the earlier ones and their state; a retried turn sees nothing of the failed attempt."""
    texts = ["count one", "flaky turn", "count two", "seen all"]
    for answer in evaluate([{"id": "c", "turns": [{"input": text} for text in texts]}])["c"]:
        assert re.findall(r"\('user', '([^']+)'\)", answer.text) == texts, answer
        assert "'n': 2" in answer.text, "the state of the first turn"


@pytest.mark.parametrize("target", ["agent", "app", "runner", "make", "make_runner", "pair", "flow"])
def test_what_a_target_may_name(agents: Path, target: str) -> None:
    """Agents, workflows, apps, runners, and functions that return one of them."""
    (answer,) = ask(agents, "hello there", target=target)
    assert (answer.status, answer.text) == (
        AgentStatus.SUCCESS,
        "echo hello there" if target != "pair" else answer.text,
    )
    assert answer.text.startswith("echo ")
    assert answer.latency_ms is not None


@pytest.mark.parametrize("target", ["agent", "app", "runner"])
def test_rows_share_no_state(agents: Path, target: str) -> None:
    """Of the session, the user or the app: each row begins at nothing, also one that is asked again."""
    answers = ask(agents, *(request("count", session_id=f"{n % 2}") for n in range(4)), target=target)
    assert {answer.text for answer in answers} == {"found {'n': 1, 'user:n': 1, 'app:n': 1}"}


def test_services_of_the_options_are_used(agents: Path) -> None:
    """An app name, a user and services given as objects, factories or classes; sessions in memory are deleted."""
    options: dict[str, Any] = {"app_name": "name", "user_id": "anna", "max_llm_calls": 5}
    options["session_service"] = "adk_agents:sessions"
    answers = ask(agents, "count", "count more", memory_service="adk_agents:InMemoryMemoryService", **options)
    assert [answer.text for answer in answers] == [
        "found {'n': 1, 'user:n': 1, 'app:n': 1}",
        "found {'n': 1, 'user:n': 2, 'app:n': 2}",
    ]
    sessions = sys.modules["adk_agents"].sessions
    assert sessions.sessions == {"name": {"anna": {}}}


def test_a_memory_service_is_searched(agents: Path) -> None:
    """What a memory service holds of a user is what the agent's tool finds."""
    ask(agents, "hello")
    module = sys.modules["adk_agents"]

    async def fill() -> None:
        session = await module.sessions.create_session(app_name="helper", user_id="anna")
        event = module.says("the sky is blue")
        from google.adk.events.event import Event

        await module.sessions.append_event(session, Event(author="helper", content=event.content))
        await module.memory.add_session_to_memory(session)

    asyncio.run(fill())
    (found,) = ask(agents, "remember", memory_service="adk_agents:memory", user_id="anna")
    assert "the sky is blue" in calls(found)[0].result_json
    (found,) = ask(agents, "remember", memory_service="adk_agents:memory")
    assert "the sky is blue" not in calls(found)[0].result_json, "a user of the row's own has no memories"


def test_tokens_are_counted_in_inclusive_buckets(agents: Path) -> None:
    """Thoughts are output and tool prompts are input, once: some models count them in, which their total shows."""
    thinks, inclusive, streamed, silent = ask(agents, "thinks", "inclusive", "stream", "silent")
    assert thinks.usage == Usage(input_tokens=14, output_tokens=8, total_tokens=22, cache_read_tokens=4,
                                 reasoning_tokens=5, requests=1)  # fmt: skip
    assert thinks.finish_reason == "STOP"
    assert inclusive.usage == Usage(**CALL_TOKENS, reasoning_tokens=2)
    assert (streamed.text, streamed.usage) == ("ab", Usage(**CALL_TOKENS))
    assert silent.error is not None
    assert (silent.error.kind, silent.usage) == (AgentErrorKind.MALFORMED, Usage(requests=1))


def test_grounding_and_citations_are_sources(agents: Path) -> None:
    """In the order of the answer, what it is grounded on first."""
    (answer,) = ask(agents, "grounded")
    assert answer.sources == (
        Source(title="Page", uri="https://p.example"),
        Source(id="d1", title="Doc", uri="gs://d", content="passage"),
        Source(title="Book", uri="urn:b"),
    )


@pytest.mark.parametrize(
    ("question", "kind", "type_", "status", "retryable"),
    [
        ("event 503", AgentErrorKind.HTTP_STATUS, "503", 503, True),
        ("event 429", AgentErrorKind.HTTP_STATUS, "429", 429, True),
        ("event 404", AgentErrorKind.HTTP_STATUS, "404", 404, False),
        ("event UNAVAILABLE", AgentErrorKind.RAISED, "UNAVAILABLE", None, True),
        ("event SAFETY", AgentErrorKind.RAISED, "SAFETY", None, False),
        ("cut", AgentErrorKind.RAISED, "MAX_TOKENS", None, False),
        ("filtered", AgentErrorKind.RAISED, "SAFETY", None, False),
        ("boom", AgentErrorKind.RAISED, "RuntimeError", None, True),
        ("fail", AgentErrorKind.RAISED, "LookupError", None, False),
    ],
)
def test_failures_are_errors_with_their_code(
    agents: Path, question: str, kind: AgentErrorKind, type_: str, status: int | None, retryable: bool
) -> None:
    """Of the model, as an event or an exception, and of ADK itself: retried by their code; what was spent is kept."""
    (answer,) = ask(agents, question)
    assert answer.status is AgentStatus.ERROR
    assert answer.error is not None
    found = (answer.error.kind, answer.error.type, answer.error.http_status, answer.error.retryable)
    assert found == (kind, type_, status, retryable)
    if question.startswith(("event", "cut", "fail")):
        assert answer.usage == Usage(**CALL_TOKENS)
    if question.startswith("event"):
        assert answer.error.message.endswith(": not now")
    if question == "cut":
        assert (answer.text, answer.finish_reason) == ("The begin", "MAX_TOKENS")


@pytest.mark.parametrize(
    ("question", "type_", "message"),
    [
        ("hang", "", "no answer within 1 s"),
        ("cancel", "", "the answer of the agent cannot be read: the agent ended without a final output"),
        ("exit", "SystemExit", "SystemExit: 0"),
    ],
)
def test_tools_that_end_or_hang_fail_their_row_alone(agents: Path, question: str, type_: str, message: str) -> None:
    """The process, the event loop and other rows are not affected."""
    failed, answered = ask(agents, request(question, timeout_s=1.0), "hello")
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == (type_, message)
    assert answered.text == "echo hello"


def test_an_error_that_a_tool_reports_is_one_of_the_call(agents: Path) -> None:
    """The agent answers; the call is marked."""
    (answer,) = ask(agents, "wrong")
    assert answer.status is AgentStatus.SUCCESS
    assert [(call.name, call.is_error, call.result_json) for call in calls(answer)] == [
        ("wrong", True, '{"error":"no index"}')
    ]


def test_history_and_state_of_a_case_reach_the_agent(agents: Path) -> None:
    """Messages before the first turn, and a turn whose session is gone; variables fill in the instruction."""
    history = (Message("user", "my name is Anna"), Message("assistant", "hello Anna"), Message("system", "be brief"))
    first, later = ask(
        agents, request("seen", history=history), request("seen", turn_index=2, history=history, session_id="s")
    )
    for answer in (first, later):
        assert answer.text == str(
            [("user", "my name is Anna"), ("model", "hello Anna"), ("user", "be brief"), ("user", "seen")]
        )
    (variables,) = ask(agents, request("instruction", variables={"city": "Kyiv"}), target="templated")
    (state,) = ask(agents, request("instruction", parameters={"state": {"city": "Rome"}}), target="templated")
    (missing,) = ask(agents, "instruction", target="templated")
    assert "You live in Kyiv." in variables.text
    assert "You live in Rome." in state.text
    assert missing.error is not None
    assert "city" in missing.error.message


def test_sessions_are_kept_in_bounded_number(agents: Path) -> None:
    """The oldest is deleted; its conversation continues from the texts of its history."""
    from assay.agent_host.frameworks.adk import AdkAgent

    ask(agents, "hello")
    module = sys.modules["adk_agents"]
    services = {"session_service": module.sessions, "memory_service": None}
    agent = AdkAgent(module.agent, {"user_id": "anna"}, services, max_idle=2)

    def kept() -> int:
        return len(module.sessions.sessions["helper"]["anna"])

    async def converse() -> list[int]:
        counts = []
        for number in range(5):
            await agent(request("hello", session_id=f"s{number}"))
            counts.append(kept())
        history = (Message("user", "hello"), Message("assistant", "echo hello"))
        again = await agent(request("seen", session_id="s0", turn_index=1, history=history))
        assert again.text == str([("user", "hello"), ("model", "echo hello"), ("user", "seen")])
        await agent.aclose()
        return [*counts, kept()]

    assert asyncio.run(converse()) == [1, 2, 2, 2, 2, 0]


@pytest.mark.parametrize(
    ("target", "options", "field", "message"),
    [
        ("search.__name__", {}, "agent.target", "names a builtins.str, not an agent, an app, or a runner"),
        ("make_nothing", {}, "agent.target", "names a builtins.NoneType, not an agent"),
        ("make_of", {}, "agent.target", "make_of needs arguments"),
        ("make_later", {}, "agent.target", "make_later is asynchronous"),
        ("make_badly", {}, "agent.target", "'make_badly' raised an error (traceback below)"),
        ("agent", {"session_service": "adk_agents:memory"}, "agent.session_service", "not a BaseSessionService"),
        ("agent", {"memory_service": "adk_agents:sessions"}, "agent.memory_service", "not a BaseMemoryService"),
        ("agent", {"memory_service": "adk_agents:make_bank"}, "agent.memory_service", "google-cloud-agentplatform"),
        ("agent", {"memory_service": "adk_agents:make_other"}, "agent.memory_service", "needs a missing package: No"),
        ("agent", {"max_llm_calls": 10**30}, "agent.max_llm_calls", "is larger than ADK allows"),
        ("runner", {"app_name": "x"}, "agent.app_name", "belongs to the runner"),
        ("runner", {"session_service": "adk_agents:sessions"}, "agent.session_service", "belongs to the runner"),
    ],
)  # fmt: skip
def test_wrong_objects_are_refused(
    agents: Path, target: str, options: dict[str, Any], field: str, message: str
) -> None:
    """Before anything is asked, with the field and the reason."""
    found = refusal(agents, target, **options)
    assert [problem.field for problem in found.problems] == [field]
    assert message in found.problems[0].message
    if target == "make_badly":
        assert isinstance(found, AgentImportError)
        assert "ValueError: no configuration" in found.user_traceback


def test_all_wrong_options_are_reported_at_once(agents: Path) -> None:
    """Each at its field."""
    services = {"session_service": "adk_agents:memory", "memory_service": "adk_agents:sessions"}
    found = refusal(agents, "runner", app_name="x", max_llm_calls=10**30, **services)
    assert {problem.field for problem in found.problems} == {
        f"agent.{name}" for name in (*services, "app_name", "max_llm_calls")
    }


def test_the_command_says_nothing_of_the_framework(agents: Path, shared_cli: Cli) -> None:
    """`assay run` on failing rows prints its own lines alone; the tracebacks are in the report."""
    cli = shared_cli
    cli.write("adk_agents.py", ADK_AGENTS)
    cli.write("qa.jsonl", '{"question": "hello", "answer": "echo hello"}\n{"question": "boom", "answer": "x"}\n'
                          '{"question": "fail", "answer": "x"}')  # fmt: skip
    agent = {"adapter": "adk", "target": "adk_agents:agent", "retries": 0}
    cli.write(
        "assay.yaml", {"dataset": "qa.jsonl", "metrics": ["exact_match"], "agent": agent, "max_agent_errors": "100%"}
    )
    done = cli.run("run", "--output-dir", "out", status=None)
    said = done.stdout + done.stderr
    assert "Root node" not in said
    assert "Warning" not in said
    rows = json.loads((cli.folder / "out" / "results.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["success", "error", "error"]
    assert not [
        name for name in ("google_adk",) if logging.getLogger(name).handlers and logging.getLogger(name).propagate
    ]


def test_the_memory_bank_of_the_guide(shared_cli: Cli) -> None:
    """docs/frameworks.md as printed: the function that makes a memory bank is called."""
    (services,) = (block.text for block in blocks("docs/frameworks.md", "python") if "memory_bank" in block.text)
    (spec,) = (block.text for block in blocks("docs/frameworks.md", "yaml") if "memory_bank" in block.text)
    shared_cli.write("agent.py", f"{ADK_AGENTS}\nroot_agent = agent\n")
    shared_cli.write("services.py", services)
    shared_cli.write("qa.jsonl", '{"question": "hello", "answer": "echo hello"}')
    shared_cli.write("assay.yaml", spec)
    shared_cli.env |= {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l", "AGENT_ENGINE_ID": "1"}
    refused = shared_cli.run("validate", status=2).stderr
    assert "agent.memory_service: memory_bank needs google-cloud-agentplatform, which is not" in refused
    assert "pip install google-cloud-agentplatform (the extra" in refused


def test_the_example_answers_as_the_function_does(shared_cli: Cli) -> None:
    """`examples/product-manual/adk.yaml` as it is: answers, scores and gates of `assay.yaml`, by a real runner."""
    rows, similarities = {}, {}
    for name in ("assay", "adk"):
        shared_cli.run("run", EXAMPLES / "product-manual" / f"{name}.yaml", "--output-dir", name)
        report = json.loads((shared_cli.folder / name / "results.json").read_text(encoding="utf-8"))
        assert [gate["outcome"] for gate in report["summary"]["gates"]] == ["pass", "pass"]
        rows[name] = [(row["case_id"], row["answer"], row["passed"]) for row in report["rows"]]
        similarities[name] = [row["scores"]["semantic_similarity"]["value"] for row in report["rows"]]
    assert rows["adk"] == rows["assay"]
    # Which texts share a batch of the embedder decides the last digits of their vectors.
    assert similarities["adk"] == pytest.approx(similarities["assay"], abs=1e-5)
