"""The product-manual assistant as an agent of Google ADK: its model searches the manual with a tool.

PRODUCT_MANUAL_MODEL names the model, for example gemini-2.5-flash with a key in GOOGLE_API_KEY. Without it a scripted
model answers, offline: it searches for the question and quotes what it finds, by the rules of `agent.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agent import LEAST_SCORE, SECOND_SHARE, SENTENCES, rank
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.models.llm_request import LlmRequest

DECLINED = "I'm sorry, the manual of the Breva 300 says nothing about that."
INSTRUCTION = f"""You answer customers' questions about the Breva 300 air purifier.
Search the manual before you answer. Quote the sentence that answers the question, or two where both are needed.
If the manual does not answer it, say: {DECLINED}"""


def search_manual(question: str) -> dict[str, Any]:
    """Search the manual for the sentences that are about a question.

    Args:
        question: The customer's question.

    Returns:
        The best sentences, best first: text, section, score, and position in the manual.
    """
    found = [
        {"text": one.text, "section": one.heading, "score": round(score, 4), "position": SENTENCES.index(one)}
        for score, one in rank(question)[:5]
    ]
    return {"sentences": found}


class ScriptedModel(BaseLlm):
    """Plays the model's part without one: calls the tool, then answers with what it found."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next message of the model."""
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is None:
            call = types.FunctionCall(name="search_manual", args={"question": last.text})
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=quoted(last.function_response.response["sentences"]))
        sent = sum(len(part.text or "") for content in llm_request.contents for part in content.parts) // 4
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=sent, candidates_token_count=20, total_token_count=sent + 20
        )
        yield LlmResponse(
            content=types.Content(role="model", parts=[part]), usage_metadata=usage, model_version=self.model
        )


def quoted(sentences: list[dict[str, Any]]) -> str:
    """Return the best sentence, with the second where it is about as good and of the same section."""
    if not sentences or sentences[0]["score"] < LEAST_SCORE:
        return DECLINED
    best = sentences[0]
    chosen = [best] + [
        one
        for one in sentences[1:2]
        if one["section"] == best["section"] and one["score"] >= SECOND_SHARE * best["score"]
    ]
    return " ".join(one["text"] for one in sorted(chosen, key=lambda one: one["position"]))


agent = LlmAgent(
    name="product_manual",
    model=os.environ.get("PRODUCT_MANUAL_MODEL") or ScriptedModel(),
    instruction=INSTRUCTION,
    tools=[search_manual],
)
runner = InMemoryRunner(agent, app_name="product_manual")
