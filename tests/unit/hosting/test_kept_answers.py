"""What a client keeps of its answers until the orchestrator has stored them."""

from __future__ import annotations

from assay.agent.v1 import agent_pb2
from assay.agent_host.serve_stream import KeptAnswers
from assay.v1 import host_pb2 as pb


def test_all_attempts_of_a_question_go_together() -> None:
    """An acknowledged answer drops its failed attempts and metric values, and those of no other question."""
    kept = KeptAnswers()
    failed, answered = agent_pb2.AgentResponse(request_id="a#0"), agent_pb2.AgentResponse(request_id="a#1", text="t")
    scored, other = pb.MetricResponse(request_id="a#metrics"), agent_pb2.AgentResponse(request_id="b#0")
    for key, answer in (("a", failed), ("a", answered), ("a", scored), ("b", other)):
        kept.keep(key, answer)
    assert [kept.find("a", name) for name in ("a#0", "a#1", "a#metrics", "a#2")] == [failed, answered, scored, None]
    kept.drop(["a", "never answered"])
    assert [kept.find("a", "a#1"), kept.find("b", "b#0")] == [None, other]


def test_what_is_kept_is_bounded() -> None:
    """The oldest questions go first; what was dropped or answered anew takes no room."""
    kept = KeptAnswers(max_bytes=1000)
    for number in range(10):
        kept.keep("again", agent_pb2.AgentResponse(request_id="again", text=str(number) * 300))
    assert kept.find("again", "again") is not None
    kept.drop(["again"])
    for number in range(6):
        kept.keep(str(number), agent_pb2.AgentResponse(request_id=str(number), text="x" * 300))
    assert [kept.find(str(number), str(number)) is not None for number in range(6)] == [False] * 3 + [True] * 3
