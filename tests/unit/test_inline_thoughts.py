"""Thoughts in the text of an answer: kept beside it, and no part of what is scored."""

from __future__ import annotations

import pytest

import assay
from assay.model.answers.agent_response import (
    AgentResponse,
    AgentStatus,
    ToolCall,
    response_from_json,
    response_to_json,
)
from assay.model.answers.answer_thoughts import with_thoughts_apart
from assay.text.inline_thoughts import split_thoughts
from assay.wire.agent import response_from_wire, response_to_wire

GPT_OSS = "<|channel|>analysis<|message|>Lima?<|end|><|start|>assistant<|channel|>final<|message|>Quito<|return|>"


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("<think>Lima?</think>\nQuito", "Lima?", "Quito"),
        ("\ufeff\n <Think>\nLima?\n\n</THINK>Quito\n", "Lima?", "Quito\n"),
        ("<thinking>Lima?</thinking> Quito", "Lima?", "Quito"),
        ("<thought>Lima?</thought>Quito", "Lima?", "Quito"),
        ("<reasoning>Lima?</reasoning>\n<answer>Quito</answer>", "Lima?", "<answer>Quito</answer>"),
        ("<seed:think>Lima?</seed:think>Quito", "Lima?", "Quito"),
        ("[THINK]Lima?[/THINK]Quito", "Lima?", "Quito"),
        ("◁think▷Lima?◁/think▷Quito", "Lima?", "Quito"),
        ("<|START_THINKING|>Lima?<|END_THINKING|>Quito", "Lima?", "Quito"),
        ("<|channel>thought\nLima?<channel|>Quito", "Lima?", "Quito"),
        (GPT_OSS, "Lima?", "Quito"),
        (f"<|start|>assistant{GPT_OSS.removesuffix('<|return|>')}", "Lima?", "Quito"),
        ("<|channel|>analysis Lima? <|channel|>final Quito", "Lima?", "Quito"),
        ("analysisLima?assistantfinalQuito", "Lima?", "Quito"),
        ("<|channel|>analysis<|message|>Lima?", "Lima?", ""),
        ("<|channel|>final<|message|>Quito", "", "Quito"),
        ("<think>Lima?</think><think>No.</think>Quito", "Lima?\nNo.", "Quito"),
        ("<think></think>\n\nQuito", "", "Quito"),
        ("<think>Lima?", "Lima?", ""),
        ("[THINK]Lima?", "Lima?", ""),
        ("<think >Lima?</think>Quito", "Lima?", "Quito"),
        ('<think type="deep">Lima?</think>Quito', "Lima?", "Quito"),
        ("<think>Lima? <think>No.</think> Well.</think>Quito", "Lima? <think>No.\nWell.", "Quito"),
        ("\u200b\u00a0<antThinking>Lima?</antThinking>Quito", "Lima?", "Quito"),
        ("<scratchpad>Lima?</scratchpad>Quito", "Lima?", "Quito"),
        ("<|im_start|>assistant\n<think>Lima?</think>Quito", "Lima?", "Quito"),
        ("<unused94>thought\nLima?<unused95>Quito", "Lima?", "Quito"),
        ("<|START_THINKING|>Lima?<|END_THINKING|><|START_RESPONSE|>Quito<|END_RESPONSE|>", "Lima?", "Quito"),
        # the beginning stood in the prompt
        ("Lima? No.</think>\n\nQuito", "Lima? No.", "Quito"),
        ("Lima?\n</think>\nQuito", "Lima?", "Quito"),
        ("Lima? No.</think>Quito", "Lima? No.", "Quito"),
        ("</think>\n\nQuito", "", "Quito"),
        ("I close with `</think>`.\n</think>\nQuito", "I close with `</think>`.", "Quito"),
        ("Lima?[/THINK]Quito", "Lima?", "Quito"),
    ],
)
def test_thoughts_at_the_beginning_are_taken_out(text: str, thoughts: str, answer: str) -> None:
    """In all the forms that models write, whole, begun alone or ended alone."""
    assert split_thoughts(text) == (thoughts, answer)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Quito",
        "Wrap it in <think> and </think> tags.",
        "Everything before </think> is hidden.",
        "The tag `</think>` ends thoughts.\nQuito",
        "`<think>` begins thoughts, </think>\nends them.",
        'Use "</think>"\nto end.',
        "Example:\n```\nLima?\n</think>\nQuito\n```\n",
        '{"quote": "Lima?</think>Quito"}',
        "```xml\n<a></think>\n```",
        "<html></think></html>",
        "Quito.\n<think>Lima?</think>",
        "analysis of lamps",
        "analysisLima?",
        "<thinker>x</thinker>",
        "<|channel|>other<|message|>Quito",
    ],
)
def test_a_text_that_mentions_thoughts_is_left_as_it_is(text: str) -> None:
    """In prose, in code, in JSON, and after its beginning."""
    assert split_thoughts(text) == ("", text)


@pytest.mark.parametrize("unit", ["<think>", "</think>", "`</think>`\n", "<|channel|>final", "<think></think>", "x```"])
def test_long_texts_take_linear_time(unit: str) -> None:
    """400,000 characters are read in one pass."""
    split_thoughts(unit * (400_000 // len(unit)))


def test_thoughts_are_kept_beside_the_answer() -> None:
    """They come back from JSON and from the wire, and a second reading takes nothing more."""
    response = with_thoughts_apart(response_from_json({"text": "<think>Lima?</think>Quito", "thoughts": "Hm."}))
    assert (response.text, response.thoughts, response.status) == ("Quito", "Hm.\nLima?", AgentStatus.SUCCESS)
    assert response_from_json(response_to_json(response)) == response
    assert response_from_wire(response_to_wire(response)) == response
    assert response_from_json({"text": "t", "thoughts": ["a"]}).metadata == {"thoughts": ["a"]}


def test_thoughts_alone_are_no_answer() -> None:
    """Thoughts alone are no answer unless there is something else, such as tool calls."""
    alone = with_thoughts_apart(AgentResponse(text="<think>Hm.</think>", finish_reason="stop"))
    assert alone.error is not None
    assert (alone.error.type, alone.text, alone.thoughts) == ("empty", "", "Hm.")
    assert alone.error.message == "the answer holds thoughts alone (it stopped with 'stop')"
    calls = with_thoughts_apart(AgentResponse(text="<think>Hm.</think>", tool_calls=(ToolCall("f"),)))
    assert (calls.error, calls.text) == (None, "")
    assert with_thoughts_apart(AgentResponse()).error is None


def test_thoughts_are_not_scored() -> None:
    """A word that the thoughts alone have is not in the answer."""
    text = "<think>Perhaps Lima? No.</think>\nQuito"
    assert assay.score("exact_match", text, "Quito").value == 1.0
    assert assay.score("contains", text, values=["Lima"]).value == 0.0
