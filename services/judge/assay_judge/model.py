"""The plain values of the judge: what is graded, on whose behalf, and what is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric
    from assay.model.scope import Scope
    from assay_judge.judges import JudgeChoice


_INLINE_CHARS = 10_000


class RunKey(NamedTuple):
    """The name of a run's account: run ids are the callers' claims, and two teams may make the same one.

    Args:
        team: The team that pays.
        run_id: The run; empty for none.
    """

    team: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Material:
    """What is judged.

    Args:
        answer: The answer; the first one where two are compared.
        second: The second answer, where two are compared.
        reference: The reference answer; None where there is none.
        contexts: Passages that the answer should rest on.
        history: Role and text of what was said before the question, oldest first.
        criterion: What the answer is judged by, in the words of a test's author; None where there is nothing.
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
        """The name and text of each part, in the order in which they are shown."""
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
        """Whether reading all of it takes long enough to be done outside of the event loop."""
        return sum(len(text) for _, text in self.parts) > _INLINE_CHARS


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a judge.

    Args:
        system: The part that is the same for all calls by the rubric.
        call: The system part of this call alone.
        user: The material.
        verdict_id: What the verdict must repeat.
    """

    system: str
    call: str
    user: str
    verdict_id: str

    @property
    def text(self) -> str:
        """All that the judge is sent."""
        return f"{self.system}\n{self.call}\n{self.user}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call is billed for, inclusive: cached tokens are part of the input, thoughts are part of the output.

    `estimated` ones are Assay's own, see `token_usage`.
    """

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf a verdict is ordered.

    Args:
        row: The row of the run; empty for none.
        round: Which round of asking for the row's verdicts this is.
    """

    row: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True)
class Grading:
    """A request for a verdict.

    Args:
        scope: The team that asks, and the teams whose verdicts and accounts it finds.
        material: What is judged.
        timeout_s: How long it may take.
        run_id: The run that pays; empty for none.
        cap: Most that the run may spend, in billionths of a dollar; None for no cap.
        allowance: Most that it may have spent by now, of its team's money; None for no bound.
        token_allowance: Most tokens that it may take over all of its calls; None for no bound.
        sample_index: Which of several verdicts on the same material.
        batch: Whether it goes through the provider's batch API.
        asker: On whose behalf, for a batch.
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
        """The lower of cap and allowance; None where there is neither."""
        return lower_limit(self.cap, self.allowance)


def lower_limit(cap: int | None, allowance: int | None) -> int | None:
    """Return the lower of two limits, each None for none."""
    return min((limit for limit in (cap, allowance) if limit is not None), default=None)
