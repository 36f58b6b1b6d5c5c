"""The value types of the judge: the request, the material, the prompt and the tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric
    from assay.model.scope import Scope
    from assay_judge.judges import JudgeChoice


_INLINE_CHARS = 10_000


class RunKey(NamedTuple):
    """The name of a run's account. Callers choose run ids, so two teams may use the same id.

    Args:
        team: The team that pays.
        run_id: The run; empty for none.
    """

    team: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Material:
    """The material to judge.

    Args:
        answer: The answer, or the first of two.
        second: The second answer of a comparison, else None.
        reference: The reference answer; None for none.
        contexts: Passages that should support the answer.
        history: Role and text of each message before the question, oldest first.
        criterion: A criterion in the words of a test's author; None for none.
    """

    question: str
    answer: str
    second: str | None = None
    reference: str | None = None
    contexts: tuple[str, ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    criterion: str | None = None

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The name and text of each part, in the order of the prompt."""
        shown = [(f"turn {number} of {role}", text) for number, (role, text) in enumerate(self.history, start=1)]
        shown.append(("question", self.question))
        if self.criterion is not None:
            shown.append(("criterion", self.criterion))
        if self.reference is not None:
            shown.append(("reference", self.reference))
        shown += [(f"passage {number}", text) for number, text in enumerate(self.contexts, start=1)]
        if self.second is None:
            return [*shown, ("answer", self.answer)]
        return [*shown, ("first answer", self.answer), ("second answer", self.second)]

    @property
    def is_long(self) -> bool:
        """Whether processing it would block the event loop for too long."""
        return sum(len(text) for _, text in self.parts) > _INLINE_CHARS


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one call.

    Args:
        system: The part of the system text that all calls with the rubric share.
        call: The part of the system text that is unique to this call.
        user: The material.
        verdict_id: The id that the verdict must repeat.
    """

    system: str
    call: str
    user: str
    verdict_id: str

    @property
    def text(self) -> str:
        """The whole text of the prompt."""
        return f"{self.system}\n{self.call}\n{self.user}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The billed tokens of a call: input includes cached tokens, output includes thoughts.

    If `estimated`, the numbers are Assay's own; see `token_usage`.
    """

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Asker:
    """The row that orders a verdict.

    Args:
        row: The row of the run; empty for none.
        round: The row's round of requests.
    """

    row: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True)
class Grading:
    """A request for a verdict.

    Args:
        scope: The team of the request, and the teams whose verdicts and accounts it can access.
        material: The material to judge.
        timeout_s: Timeout in seconds.
        run_id: The run that pays; empty for none.
        cap: Most that the run may spend, in billionths of a dollar; None for no cap.
        allowance: Most that the run may have spent by now, of its team's money; None for no limit.
        token_allowance: Most tokens of all calls of the request; None for no limit.
        sample_index: Distinguishes repeated verdicts on the same material.
        batch: Whether it goes through the provider's batch API.
        asker: The row that orders the verdict, for a batch.
    """

    scope: Scope
    rubric: Rubric
    material: Material
    judge: JudgeChoice
    timeout_s: float
    run_id: str = ""
    cap: int | None = None
    allowance: int | None = None
    token_allowance: int | None = None
    sample_index: int = 0
    batch: bool = False
    asker: Asker = field(default_factory=Asker)

    @property
    def limit(self) -> int | None:
        """The lower of cap and allowance; None if there is neither."""
        return lower_limit(self.cap, self.allowance)


def lower_limit(cap: int | None, allowance: int | None) -> int | None:
    """Return the lower of two limits; None means no limit."""
    return min((limit for limit in (cap, allowance) if limit is not None), default=None)
