"""Secrets that are rotated while a run asks: every adapter sends the new value, from any store."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from assay.agent.v1 import agent_pb2
from assay.model.answers.agent_response import AgentRequest
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay.parsing.secret_references import SecretReference
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider
from assay_orchestrator.agents import build_agent
from assay_orchestrator.agents import secrets as secrets_module
from assay_orchestrator.agents.access import AgentAccess

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse
    from assay_orchestrator.agents.retrying import RetryingAgent

FIRST, SECOND = "first-0123456789", "second-0123456789"


class ExternalStore:
    """A store of an operator's own."""

    def __init__(self) -> None:
        self.values: dict[SecretReference, str] = {}

    def read(self, reference: SecretReference) -> str | None:
        """Return the value of a secret."""
        return self.values.get(reference)


async def ask(agent: RetryingAgent, number: int) -> AgentResponse:
    """Return the answer to one question."""
    name = f"r/{number}"
    request = AgentRequest(f"{name}#0", "r", f"c{number}", "q", session_id=name, idempotency_key=name)
    return await agent.answer(request, Case(f"c{number}", (Turn("q"),)))


async def service(stack: AsyncExitStack, sent: list[str]) -> str:
    """Serve an AgentService that notes its metadata; return its address."""

    async def answer(request: bytes, context: Any) -> bytes:
        sent.append(str(dict(context.invocation_metadata())["x-key"]))
        response = agent_pb2.AgentResponse(status=agent_pb2.AGENT_STATUS_SUCCESS, text="a")
        return agent_pb2.AnswerResponse(response=response).SerializeToString()

    server = grpc.aio.server()
    methods: Any = {"Answer": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("assay.agent.v1.AgentService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("adapter", ["http", "grpc", "openai", "anthropic"])
async def test_the_next_question_has_the_new_value(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a secret, rows have an error; once it is there again, they are asked, also with the value of before."""
    monkeypatch.setattr(secrets_module, "REREAD_S", 0.0)
    store, sent = ExternalStore(), list[str]()
    reference = SecretReference("local", "key")

    def note(request: ProviderRequest) -> Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        key = headers.get("x-key") or headers.get("x-api-key") or headers["authorization"]
        sent.append(key.removeprefix("Bearer "))
        return Reply(raw=json.dumps({"text": "a"}).encode()) if adapter == "http" else Reply("a")

    async with AsyncExitStack() as stack:
        provider = stack.enter_context(ScriptedProvider(note))
        settings = {
            "http": lambda: AgentSpec("http", f"{provider.url}/v1/messages", options={
                "headers": {"x-key": "secret://key"}, "response": {"text": "text"}
            }),
            "openai": lambda: AgentSpec("openai", "m", options={
                "base_url": provider.openai_url, "api_key": "secret://key"
            }),
            "anthropic": lambda: AgentSpec("anthropic", "m", options={
                "base_url": provider.url, "api_key": "secret://key"
            }),
        }  # fmt: skip
        if adapter == "grpc":
            address = await service(stack, sent)
            chosen = AgentSpec("grpc", address, options={"metadata": {"x-key": "secret://key"}})
        else:
            chosen = settings[adapter]()
        store.values[reference] = FIRST
        agent = build_agent(chosen, AgentAccess(("127.0.0.1",), (), secrets=store), hosted=None)
        stack.push_async_callback(agent.aclose)
        for number, value in enumerate((FIRST, SECOND, "", SECOND)):
            store.values[reference] = value
            response = await ask(agent, number)
            if not value:
                assert response.error is not None
                assert response.error.type == "SecretMissing"
                assert "secret://key" in response.error.message
    assert sent == [FIRST, SECOND, SECOND]
