"""The behaviours of agents, each with the one result that is expected of it in every framework.

The scripted models cost 10 and 5 tokens a call. `track` knows where parcels 7 (Lima) and 8 (Quito) are and raises a
LookupError for others; `pay` answers "paid AMOUNT"; `quote` answers "CITY: 5 EUR"; `hang` never answers.
"""

from __future__ import annotations

from tests.frameworks.behaviours.behaviour import Behaviour, Call, Failure, Turn, Wait

TRACK = Call("track", {"parcel": 7}, "Lima")
LOST = Call("track", {"parcel": 9}, "no parcel 9", failed=True)
PAID = Call("pay", {"amount": 5}, "paid 5")
PENDING = Call("pay", {"amount": 5})
DENIED = Call("pay", {"amount": 5}, None, failed=True)
INNER = Call("tracker", None, "Lima")


def _fails(status: int, *, retryable: bool) -> Behaviour:
    failure = Failure("http_status", retryable=retryable, http_status=status)
    return Behaviour(
        f"The model's service refuses with {status}, by the exception that the framework has for it.",
        (Turn("hello", None, "error", requests=None, failure=failure),),
    )


BEHAVIOURS = {
    # Answers.
    "last_answer": Behaviour("The model answers.", (Turn("Capital of Peru?", "Lima."),)),
    "tool_call": Behaviour(
        "The model calls `track` and answers with its result.",
        (Turn("Where is parcel 7?", "It is in Lima.", calls=(TRACK,), requests=2),),
    ),
    "direct_return": Behaviour(
        "The result of the tool `quote` is the answer; the model is not asked again.",
        (Turn("Quote Lima", "Lima: 5 EUR", calls=(Call("quote", {"city": "Lima"}, "Lima: 5 EUR"),)),),
    ),
    "structured_output": Behaviour(
        "The framework makes a typed value of the model's reply, a City with the fields answer and people.",
        (Turn("Capital of Peru?", "Lima", output={"answer": "Lima", "people": 10}),),
    ),
    "structured_output_after_a_tool": Behaviour(
        "The model calls `track`, then gives a typed value.",
        (Turn("Where is parcel 7?", "Lima", output={"answer": "Lima", "people": 10}, calls=(TRACK,), requests=2),),
    ),
    "output_tool": Behaviour(
        "The model delivers its typed value by calling a tool that the user named `deliver`.",
        (Turn("Capital of Peru?", "Lima", output={"answer": "Lima", "people": 10}),),
    ),
    "output_tool_refused": Behaviour(
        "The model calls `deliver` with wrong arguments until the framework gives up after two requests.",
        (Turn("Capital of Peru?", None, "error", requests=2, failure=Failure()),),
    ),
    "no_answer": Behaviour(
        "The agent calls `track` and then ends with nothing at all: None.",
        (Turn("Where is parcel 7?", None, "error", calls=(TRACK,), requests=2, failure=Failure("malformed")),),
    ),
    "no_usage": Behaviour(
        "The model's reply has no usage, so no tokens are known.", (Turn("Capital of Peru?", "Lima.", requests=None),)
    ),
    "stream": Behaviour(
        "The model streams its answer in pieces and counts its tokens in the last one.",
        (Turn("Capital of Peru?", "Lima."),),
    ),
    "middleware": Behaviour(
        "A middleware, hook or callback of the framework answers in the model's place: no model is called.",
        (Turn("Capital of Peru?", "From the cache.", requests=None),),
    ),
    # Several agents.
    "handoff": Behaviour(
        "`support` hands the conversation to `refunds`, which pays and answers.",
        (Turn("Refund 5", "Refunded: paid 5", calls=(Call("handoff", None, None), PAID), requests=3),),
    ),
    "conversation_after_handoff": Behaviour(
        "After the handoff the second turn still sees the first, and lists none of its calls.",
        (
            Turn("Refund 5", "Refunded.", calls=(Call("handoff", None, None),), requests=2),
            Turn("Again?", "2 questions"),
        ),
    ),
    "nested_agent": Behaviour(
        "`manager` calls the agent `tracker` as a tool, which calls `track`: by the framework's own way.",
        (Turn("Where is parcel 7?", "It is in Lima.", calls=(INNER, TRACK), requests=4),),
    ),
    "nested_run": Behaviour(
        "As nested_agent, by a tool function `tracker` that runs the inner agent itself.",
        (Turn("Where is parcel 7?", "It is in Lima.", calls=(INNER, TRACK), requests=4),),
    ),
    "nested_agents_at_once": Behaviour(
        "`manager` calls `tracker` twice in one reply; each runs the inner agent, which calls `track`.",
        (Turn("Where are parcels 7 and 7?", "It is in Lima.", calls=(INNER, INNER, TRACK, TRACK), requests=6),),
    ),
    "nested_agent_fails": Behaviour(
        "The inner agent's `track` raises a LookupError, and nothing handles it.",
        (
            Turn(
                "Where is parcel 9?",
                None,
                "error",
                calls=(Call("tracker", None, None, failed=True), LOST),
                requests=2,
                failure=Failure(says="no parcel 9"),
            ),
        ),
    ),
    # Tools.
    "parallel_tools": Behaviour(
        "One reply calls `track` for 7 and for 8; the calls stay in the order of the reply.",
        (
            Turn(
                "Where are 7 and 8?",
                "Lima and Quito.",
                calls=(TRACK, Call("track", {"parcel": 8}, "Quito")),
                requests=2,
            ),
        ),
    ),
    "failing_tool": Behaviour(
        "`track` raises for 9; the framework tells the model, which answers.",
        (Turn("Where is parcel 9?", "I do not know.", calls=(LOST,), requests=2),),
    ),
    "raising_tool": Behaviour(
        "`track` raises for 9, which ends the run.",
        (Turn("Where is parcel 9?", None, "error", calls=(LOST,), requests=1, failure=Failure(says="no parcel 9")),),
    ),
    "parallel_tools_one_fails": Behaviour(
        "One reply calls `track` for 7 and for 9, which raises; the framework tells the model, which answers.",
        (Turn("Where are 7 and 9?", "One is in Lima.", calls=(TRACK, LOST), requests=2),),
    ),
    "retried_tool": Behaviour(
        "`track` fails for 9, and the model calls it again, for 7.",
        (Turn("Where is my parcel?", "It is in Lima.", calls=(LOST, TRACK), requests=3),),
    ),
    "wrong_arguments": Behaviour(
        "The model calls `track` with parcel `seven`, which the framework refuses, and then with 7.",
        (
            Turn(
                "Where is parcel 7?",
                "It is in Lima.",
                calls=(Call("track", {"parcel": "seven"}, None, failed=True), TRACK),
                requests=3,
            ),
        ),
    ),
    "mcp_server": Behaviour(
        "`add` is a tool of an MCP server that the agent's file names and that is not connected yet. The server writes "
        "`opened` when it starts and `closed` when it ends.",
        (Turn("2 + 3?", "It is 5.", calls=(Call("add", {"a": 2, "b": 3}, "5"),), requests=2),),
        opened="run",
    ),
    "mcp_failing_tool": Behaviour(
        "The MCP server's tool `add` raises for more than 9, so that its result has `isError`.",
        (Turn("10 + 3?", "I cannot add.", calls=(Call("add", {"a": 10, "b": 3}, None, failed=True),), requests=2),),
        opened="run",
    ),
    # Waiting for a person.
    "approval": Behaviour(
        "The call of `pay` waits for the approval of a person.",
        (Turn("Pay 5", None, "interrupted", calls=(PENDING,), waits=(Wait("approval", "pay", {"amount": 5}),)),),
    ),
    "approval_given": Behaviour(
        "As approval; the case approves.",
        (
            Turn(
                "Pay 5",
                "Done: paid 5",
                calls=(PAID,),
                requests=2,
                waits=(Wait("approval", "pay", {"amount": 5}, "approve"),),
            ),
        ),
        approvals=({"tool": "pay", "approve": True},),
    ),
    "approval_denied": Behaviour(
        "As approval; the case denies, and the model answers without the tool.",
        (
            Turn(
                "Pay 5",
                "Not paid.",
                calls=(DENIED,),
                requests=2,
                waits=(Wait("approval", "pay", {"amount": 5}, "deny"),),
            ),
        ),
        approvals=({"deny": "too much"},),
    ),
    "approval_edited": Behaviour(
        "As approval; the case approves with other arguments.",
        (
            Turn(
                "Pay 5",
                "Done: paid 3",
                calls=(Call("pay", {"amount": 3}, "paid 3"),),
                requests=2,
                waits=(Wait("approval", "pay", {"amount": 5}, "edit"),),
            ),
        ),
        approvals=({"edit": {"amount": 3}},),
    ),
    "approvals_at_once": Behaviour(
        "Two calls of `pay` in one reply, for 5 and 6; the case approves one and leaves the other open.",
        (
            Turn(
                "Pay 5 and 6",
                None,
                "interrupted",
                calls=(Call("pay", {"amount": 5}, None), Call("pay", {"amount": 6})),
                waits=(Wait("approval", "pay", {"amount": 5}, "approve"), Wait("approval", "pay", {"amount": 6})),
            ),
        ),
        approvals=({"approve": True, "times": 1},),
    ),
    "approvals_one_after_the_other": Behaviour(
        "`pay` for 5, then for 6: the run stops twice, and the case approves both.",
        (
            Turn(
                "Pay 5, then 6",
                "Done: paid 6",
                calls=(PAID, Call("pay", {"amount": 6}, "paid 6")),
                requests=3,
                waits=(
                    Wait("approval", "pay", {"amount": 5}, "approve"),
                    Wait("approval", "pay", {"amount": 6}, "approve"),
                ),
            ),
        ),
        approvals=({"approve": True, "times": 2},),
    ),
    "approval_in_a_nested_agent": Behaviour(
        "The agent `payer`, a tool of `manager`, calls `pay`, which waits; the case approves.",
        (
            Turn(
                "Pay 5",
                "Done: paid 5",
                calls=(Call("payer", None, "paid 5"), PAID),
                requests=4,
                waits=(Wait("approval", "pay", {"amount": 5}, "approve"),),
            ),
        ),
        approvals=({"tool": "pay", "approve": True},),
    ),
    "conversation_after_approval": Behaviour(
        "As approval_given; the second turn sees the first, and lists none of its calls and stops.",
        (
            Turn(
                "Pay 5",
                "Done: paid 5",
                calls=(PAID,),
                requests=2,
                waits=(Wait("approval", "pay", {"amount": 5}, "approve"),),
            ),
            Turn("Paid?", "2 questions"),
        ),
        approvals=({"approve": True},),
    ),
    "static_interrupt": Behaviour(
        "The graph is to stop before its node `send`; the draft of the node before is not the answer.",
        (Turn("Mail Ann", None, "interrupted", waits=(Wait("input", None),)),),
    ),
    "static_interrupt_passed": Behaviour(
        "As static_interrupt; the case lets it pass.",
        (Turn("Mail Ann", "Sent.", requests=2, waits=(Wait("input", None, decision="approve"),)),),
        approvals=({"approve": True},),
    ),
    "question_to_a_person": Behaviour(
        "The agent asks a person for a city, before it calls a model.",
        (Turn("Capital?", None, "interrupted", requests=None, waits=(Wait("input", None),)),),
    ),
    "question_answered": Behaviour(
        "As question_to_a_person; the case answers Lima, with which the model is then asked.",
        (Turn("Capital?", "It is Lima.", waits=(Wait("input", None, decision="answer"),)),),
        approvals=({"answer": "Lima"},),
    ),
    "long_running_tool": Behaviour(
        "`ship`, for parcel 7, is run by something outside, and its result is not there yet.",
        (
            Turn(
                "Ship 7",
                None,
                "interrupted",
                calls=(Call("ship", {"parcel": 7}),),
                waits=(Wait("call", "ship", {"parcel": 7}),),
            ),
        ),
    ),
    "long_running_tool_answered": Behaviour(
        "As long_running_tool; the case answers with its result.",
        (
            Turn(
                "Ship 7",
                "Done: on its way",
                calls=(Call("ship", {"parcel": 7}, "on its way"),),
                requests=2,
                waits=(Wait("call", "ship", {"parcel": 7}, "answer"),),
            ),
        ),
        approvals=({"tool": "ship", "answer": "on its way"},),
    ),
    # What ends a run.
    "limit": Behaviour(
        "The model calls `track` for ever; the framework's limit ends the run after three calls of the model.",
        (Turn("Loop", None, "error", calls=(TRACK, TRACK, TRACK), requests=3, failure=Failure()),),
    ),
    "input_guardrail": Behaviour(
        "A guardrail refuses the question before a model is called.",
        (Turn("Bad question", None, "error", requests=None, failure=Failure()),),
    ),
    "output_guardrail": Behaviour(
        "A guardrail refuses the model's answer.", (Turn("Question", None, "error", requests=1, failure=Failure()),)
    ),
    "refusal": Behaviour(
        "The model refuses, in the way that the framework has for it.",
        (Turn("Bad question", None, "error", requests=1, failure=Failure()),),
    ),
    "model_400": _fails(400, retryable=False),
    "model_401": _fails(401, retryable=False),
    "model_404": _fails(404, retryable=False),
    "model_422": _fails(422, retryable=False),
    "model_429": _fails(429, retryable=True),
    "model_503": _fails(503, retryable=True),
    "model_fails_later": Behaviour(
        "The model calls `track`, and its service refuses the second request with 503.",
        (
            Turn(
                "Where is parcel 7?",
                None,
                "error",
                calls=(TRACK,),
                requests=1,
                failure=Failure("http_status", retryable=True, http_status=503),
            ),
        ),
    ),
    "timeout": Behaviour(
        "The model calls `track`, then `hang`, which does not return before the time limit.",
        (
            Turn(
                "Where is parcel 7?",
                None,
                "error",
                calls=(TRACK, Call("hang")),
                requests=2,
                failure=Failure("timeout", retryable=True),
                timeout_s=2,
            ),
        ),
    ),
    "timeout_in_a_nested_agent": Behaviour(
        "`manager` calls the agent `tracker`, which calls `track`, then `hang`.",
        (
            Turn(
                "Where is parcel 7?",
                None,
                "error",
                calls=(Call("tracker", None), TRACK, Call("hang")),
                requests=3,
                failure=Failure("timeout", retryable=True),
                timeout_s=2,
            ),
        ),
    ),
    # What is kept, and for how long.
    "conversation": Behaviour(
        "The second turn sees the first, with its calls, and lists none of them.",
        (
            Turn("Where is parcel 7?", "It is in Lima.", calls=(TRACK,), requests=2),
            Turn("Again?", "2 questions"),
        ),
    ),
    "saver": Behaviour(
        "As conversation, with the framework's saver, session or checkpointer, one object for all conversations.",
        (
            Turn("Where is parcel 7?", "It is in Lima.", calls=(TRACK,), requests=2),
            Turn("Again?", "2 questions"),
        ),
    ),
    "store": Behaviour(
        "The agent keeps facts in the framework's store or memory; each conversation begins with none.",
        (
            Turn("A fact", "I know 0 facts.", requests=None),
            Turn("Another", "I know 1 facts.", requests=None),
        ),
    ),
    "turn_that_cannot_be_held": Behaviour(
        "The agent has nowhere to keep the first turn, so a second one is refused with what to change.",
        (
            Turn("First", "One.", requests=None),
            Turn("Second", None, "error", requests=None, failure=Failure(says="history")),
        ),
    ),
    "lifespan": Behaviour(
        "`lifespan` names a context manager that logs `opened` and `closed`; what it yields answers the question.",
        (Turn("Where is parcel 7?", "It is in Lima.", calls=(TRACK,), requests=2),),
        opened="run",
    ),
    "lifespan_per_case": Behaviour(
        "As lifespan, once for each case.",
        (Turn("Where is parcel 7?", "It is in Lima.", calls=(TRACK,), requests=2),),
        opened="case",
    ),
}
"""The behaviours by name."""
