"""Calibrations of judges: by team, rubric, criterion and fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import InvalidInputError, NotFoundError, Problem
from assay.model.judge_calibration import (
    MAX_CALIBRATION_BYTES,
    MOST_CALIBRATIONS,
    MOST_FINGERPRINTS,
    AgreementMeasure,
    JudgeCalibration,
    JudgeTrust,
    LabelDrawing,
)
from assay.parsing.names import name_problem
from assay.storage.times import now
from assay.wire.run import CALIBRATION
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import audit, tokens

if TYPE_CHECKING:
    from collections.abc import Collection

    from assay.model.scope import Scope

_table = schema.calibrations


_TEXTS = {"rubric": 100, "criterion": 100, "judge": 1_000}
_CHOICES = {
    "measure": tuple(AgreementMeasure),
    "trust": tuple(JudgeTrust),
    "rule": ("", "at_least", "more_than"),
    "drawing": tuple(LabelDrawing),
}
_SHARES = ("sensitivity", "specificity")
_NUMBERS = ("alpha", "threshold")


def check_calibration(calibration: JudgeCalibration) -> None:
    """Refuse a calibration that no judge can have.

    Raises:
        InvalidInputError: Something is wrong; contains every problem.
    """
    problems = [
        Problem(problem, f"calibration.{name}")
        for name, most in _TEXTS.items()
        if (problem := name_problem(getattr(calibration, name), most, required=name == "rubric"))
    ]
    for name, choices in _CHOICES.items():
        if getattr(calibration, name) not in choices:
            problems.append(Problem(f"must be {' or '.join(filter(None, choices))}", f"calibration.{name}"))
    fingerprints = calibration.fingerprints
    if not 1 <= len(fingerprints) <= MOST_FINGERPRINTS or any(
        not 1 <= len(fingerprint) <= 100 for fingerprint in fingerprints
    ):
        problem_text = f"must be 1 to {MOST_FINGERPRINTS} texts of 1 to 100 characters"
        problems.append(Problem(problem_text, "calibration.fingerprints"))
    for name in (*_NUMBERS, *_SHARES):
        value = getattr(calibration, name)
        if value is not None and not (math.isfinite(value) and (name not in _SHARES or 0 <= value <= 1)):
            problem_text = "must be from 0 to 1" if name in _SHARES else "must be a finite number"
            problems.append(Problem(problem_text, f"calibration.{name}"))
    interval = calibration.interval
    if interval is not None and not -math.inf < interval.low <= interval.high < math.inf:
        problems.append(Problem("must be two finite numbers in order", "calibration.interval"))
    if calibration.answer_count < 1:
        problems.append(Problem("must be at least 1", "calibration.answer_count"))
    if not problems and len(_json_of(calibration).encode()) > MAX_CALIBRATION_BYTES:
        problems.append(Problem(f"is larger than {MAX_CALIBRATION_BYTES:,} bytes: shorten `judge`", "calibration"))
    if problems:
        raise InvalidInputError(problems)


def set_calibration(connection: sa.Connection, scope: Scope, calibration: JudgeCalibration) -> JudgeCalibration:
    """Store a calibration, replacing an earlier one with the same rubric, criterion and fingerprints."""
    tokens.require_not_deleted(connection, scope.team)
    fingerprints = tuple(sorted(set(calibration.fingerprints)))
    stored = dataclasses.replace(calibration, fingerprints=fingerprints, calibrated_at=now())
    stored = dataclasses.replace(stored, calibration_id=_id_of(stored))
    _delete(connection, scope.team, stored)
    _make_room(connection, scope.team)
    values = {"calibration_json": _json_of(stored), "set_at": stored.calibrated_at}
    connection.execute(sa.insert(_table).values(**_key(scope.team, stored), **values))
    audit.record(connection, scope.call, team=scope.team, resource=stored.rubric)
    return stored


def _make_room(connection: sa.Connection, team: str) -> None:
    """Delete the oldest calibrations of a team that has reached the limit."""
    own = _table.c.team == team
    newest = sa.select(_table.c.set_at).where(own).order_by(_table.c.set_at.desc())
    oldest_kept = connection.execute(newest.offset(MOST_CALIBRATIONS - 2).limit(1)).scalar()
    if oldest_kept is not None:
        connection.execute(sa.delete(_table).where(own, _table.c.set_at < oldest_kept))


def delete_calibration(connection: sa.Connection, scope: Scope, calibration_id: str) -> JudgeCalibration:
    """Delete a calibration of a team, and return it.

    Raises:
        NotFoundError: The team has no such calibration.
    """
    stored = next(
        (
            calibration
            for calibration in list_calibrations(connection, scope.team)
            if calibration.calibration_id == calibration_id
        ),
        None,
    )
    if stored is None:
        raise NotFoundError(
            f"there is no calibration {calibration_id!r}: `assay judge calibrations list` lists the calibrations",
            reason="CALIBRATION_NOT_FOUND",
        )
    _delete(connection, scope.team, stored)
    audit.record(connection, scope.call, team=scope.team, resource=stored.rubric)
    return stored


def list_calibrations(connection: sa.Connection, team: str) -> tuple[JudgeCalibration, ...]:
    """Return the calibrations of a team, newest first; those of the same time by id."""
    rows = connection.execute(sa.select(_table.c.calibration_json).where(_table.c.team == team)).scalars()
    stored = [CALIBRATION.from_json(json.loads(row)) for row in rows]
    stored.sort(key=lambda calibration: calibration.calibration_id)
    return tuple(sorted(stored, key=lambda calibration: calibration.calibrated_at, reverse=True))


def calibrations_of(
    connection: sa.Connection, team: str, fingerprints: Collection[str]
) -> tuple[JudgeCalibration, ...]:
    """Return a team's calibrations of judges with these fingerprints, newest first."""
    return tuple(calibration for calibration in list_calibrations(connection, team) if calibration.is_of(fingerprints))


def _key(team: str, calibration: JudgeCalibration) -> dict[str, str]:
    """Return the key of a team's calibration."""
    return {
        "team": team,
        "rubric": calibration.rubric,
        "criterion": calibration.criterion,
        "fingerprints": " ".join(calibration.fingerprints),
    }


def _id_of(calibration: JudgeCalibration) -> str:
    return hashlib.sha256(json.dumps(_key("", calibration)).encode()).hexdigest()[:12]


def _delete(connection: sa.Connection, team: str, calibration: JudgeCalibration) -> None:
    key = _key(team, calibration)
    connection.execute(sa.delete(_table).where(*(_table.c[name] == value for name, value in key.items())))


def _json_of(calibration: JudgeCalibration) -> str:
    return json.dumps(dataclasses.asdict(calibration))
