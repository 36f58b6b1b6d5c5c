"""Orders: stored requests for verdicts that wait for a batch or for its results."""

from __future__ import annotations

import dataclasses
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.judging.rubric import Criterion, Example, Rubric
from assay.model.model_price import ModelPrice
from assay_judge.calls.usage import CallAttempt, CallUsage
from assay_judge.judges import JudgeChoice
from assay_judge.model import Material, Prompt, RunKey, Tokens
from assay_judge.providers.batch_api import BatchRequest
from assay_judge.providers.verdict_request import Form, JudgeParameters
from assay_judge.verdicts.cache import outcome_from_record, verdict_record
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import verdict_schema

if TYPE_CHECKING:
    from assay_judge.model import Asker

MOST_ORDERS = 3
"""How often a request is ordered, in all, before it fails because its batches did not answer it."""


class OrderName(NamedTuple):
    """The name of an order without an outcome; a team has at most one per key.

    Args:
        team: The team that ordered it.
        key: The key of the verdict.
    """

    team: str
    key: str


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a batch.

    Args:
        item_id: Its id in the batch; random, and new for each turn.
        key: The cache key of the verdict.
        run: The run that pays, and its team.
        cap: The lower of the run's cap and its allowance, in billionths of a dollar; None for no limit.
        reserved: The amount reserved for it, in billionths of a dollar.
        material: The material to judge.
        prompt: The prompt, which contains the verdict_id.
        sent: The parameters of the request.
        turn: 1, or 2 after an invalid reply.
        usage: The usage of earlier turns.
        round: The round in which it was ordered.
        orders: How often this turn was ordered, this time included.
        reservation: The id of the reservation; empty if no run pays.
    """

    item_id: str
    key: str
    run: RunKey
    cap: int | None
    reserved: int
    judge: JudgeChoice
    rubric: Rubric
    material: Material
    prompt: Prompt
    sent: JudgeParameters
    turn: int = 1
    usage: CallUsage = field(default_factory=CallUsage)
    round: int = 0
    orders: int = 1
    reservation: str = ""

    @property
    def name(self) -> OrderName:
        """The order's name until it has an outcome."""
        return OrderName(self.run.team, self.key)

    @property
    def request(self) -> BatchRequest:
        """The request to the provider."""
        return BatchRequest(self.item_id, self.prompt, verdict_schema(self.rubric), self.sent)

    @property
    def client_key(self) -> str:
        """The key of the judge's provider client."""
        return client_key_of(self.judge)

    @property
    def text(self) -> str:
        """The fields that have no column of their own, as JSON."""
        parts = {
            "judge": {name: value for name, value in dataclasses.asdict(self.judge).items() if name != "prices"},
            "prices": None if self.judge.prices is None else dataclasses.asdict(self.judge.prices),
            "rubric": _rubric_data(self.rubric),
            "material": dataclasses.asdict(self.material),
            "prompt": dataclasses.asdict(self.prompt),
            "sent": dataclasses.asdict(self.sent),
            "turn": self.turn,
            "tally": _usage_data(self.usage),
            "round": self.round,
            "orders": self.orders,
        }
        return _json(parts)

    @classmethod
    def from_row(
        cls, item_id: str, key: str, team: str, run_id: str, cap: int | None, reserved: int, reservation: str, text: str
    ) -> Order:  # fmt: skip
        """Return a stored order."""
        data = json.loads(text)
        return cls(
            item_id,
            key,
            RunKey(team, run_id),
            cap,
            reserved,
            _judge_from(data),
            _rubric_from(data["rubric"]),
            _material_from(data["material"]),
            Prompt(**data["prompt"]),
            JudgeParameters(**{**data["sent"], "form": Form(data["sent"]["form"])}),
            data["turn"],
            _usage_from(data["tally"]),
            data["round"],
            data["orders"],
            reservation,
        )


def new_id() -> str:
    """Return a random unique id."""
    return secrets.token_hex(16)


def _material_from(data: dict[str, Any]) -> Material:
    history = tuple((role, text) for role, text in data["history"])
    return Material(**{**data, "contexts": tuple(data["contexts"]), "history": history})


def _judge_from(data: dict[str, Any]) -> JudgeChoice:
    prices = data["prices"]
    return JudgeChoice(**data["judge"], prices=None if prices is None else ModelPrice(**prices))


def client_key_of(judge: JudgeChoice) -> str:
    """Return the key of a judge's provider client; judges with the same key share batches."""
    return json.dumps([judge.provider, judge.model, judge.base_url, judge.key_variable])


def judge_from_client_key(client_key: str) -> JudgeChoice:
    """Return the judge of a client key; its parameters are defaults."""
    return JudgeChoice(*json.loads(client_key))


def outcome_text(outcome: Outcome, order_round: int) -> str:
    """Return an outcome as text, to be stored for the row that ordered it."""
    return _json(
        {
            "status": outcome.status,
            "reason": outcome.reason,
            "message": outcome.message,
            "verdict": None if outcome.verdict is None else verdict_record(outcome.verdict),
            "temperature": outcome.temperature,
            "model": outcome.model,
            "tally": _usage_data(outcome.usage),
            "round": order_round,
        }
    )


def outcome_for_row(asker: Asker, text: str, rubric: Rubric) -> tuple[Outcome | None, str]:
    """Return a stored outcome as an asker sees it, and the text to store from now on; an empty text deletes it.

    The first row to fetch it gets the usage, each time; other rows get it without usage. The outcome is None if the
    asker must order again: the verdict is no longer valid, or there was none and this is a later round.
    """
    data = json.loads(text)
    outcome = _outcome_from(data, rubric)
    if outcome is None or (outcome.verdict is None and asker.round > data.get("round", 0)):
        return None, ""
    owner = data.get("row")
    if owner is None:
        text = _json({**data, "row": asker.row}) if asker.row else ""
    elif owner != asker.row:
        outcome = outcome.as_found()
    return outcome, text


def outcome_from_text(text: str, rubric: Rubric) -> Outcome | None:
    """Return a stored outcome; None if its verdict is no longer valid."""
    return _outcome_from(json.loads(text), rubric)


def _outcome_from(data: dict[str, Any], rubric: Rubric) -> Outcome | None:
    """Return a stored outcome with its verdict checked again; None if the verdict is no longer valid."""
    if data["status"] == Status.VALID:
        outcome = outcome_from_record(data, rubric)
        if outcome is None:
            return None
    else:
        outcome = Outcome(Status(data["status"]), reason=data["reason"], message=data["message"], model=data["model"])
    return dataclasses.replace(outcome, usage=_usage_from(data["tally"]), temperature=data["temperature"], batched=True)


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def _usage_data(usage: CallUsage) -> dict[str, Any]:
    """Return usage as JSON; stored orders call the attempts `tries`."""
    data = dataclasses.asdict(usage)
    data["tries"] = data.pop("attempts")
    del data["charged"]  # only direct calls have it
    return data


def _usage_from(data: dict[str, Any]) -> CallUsage:
    data = dict(data)
    attempts = [CallAttempt(**attempt) for attempt in data.pop("tries")]
    return CallUsage(**{**data, "tokens": [Tokens(**tokens) for tokens in data["tokens"]]}, attempts=attempts)


def _rubric_data(rubric: Rubric) -> dict[str, Any]:
    data = dataclasses.asdict(rubric)
    for criterion in data["criteria"]:
        criterion["anchors"] = list(criterion["anchors"].items())  # a JSON object would turn the scores into strings
    return data


def _rubric_from(data: dict[str, Any]) -> Rubric:
    criteria = tuple(
        Criterion(**{**criterion, "anchors": dict(map(tuple, criterion["anchors"]))}) for criterion in data["criteria"]
    )
    return Rubric(
        **{**data, "criteria": criteria, "examples": tuple(Example(**example) for example in data["examples"])}
    )
