"""Questions and a case for the tests of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentRequest
from assay.model.case import Case, Turn

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def question() -> Callable[..., AgentRequest]:
    """Return a function that makes a question; `number` makes it another one."""

    def make(number: int = 0, **changes: Any) -> AgentRequest:
        fields = {"request_id": f"k{number}#0", "idempotency_key": f"k{number}", "input": f"q{number}"} | changes
        return AgentRequest(run_id="r", case_id=f"c{number}", **fields)

    return make


@pytest.fixture
def case() -> Case:
    """Return a case without a recorded answer."""
    return Case("c0", (Turn("q0"),))
