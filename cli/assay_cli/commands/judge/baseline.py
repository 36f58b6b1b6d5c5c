"""Baseline files of drift checks: a judge's scores of frozen answers, and checks that two are comparable."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay_cli.commands.judge.calls import Judged
    from assay_cli.commands.judge.labels import Labels
    from assay_cli.commands.judge.rubrics import AskedRubric

SCHEMA = "assay/judge-baseline/1"
_TEXTS = ("anchors", "judge", "rubric", "saved_at")


@dataclass(frozen=True, slots=True)
class Baseline:
    """A judge's scores of the anchors.

    Args:
        anchors: SHA-256 of the judged answers.
        judge: Name of the judge.
        rubric: Name of the rubric.
        criterion: The criterion that counted; empty for the overall score.
        minimum: Lowest score.
        maximum: Highest score.
        fingerprints: Fingerprints of judge and rubric.
        models: Models as the provider names them.
        saved_at: Time in UTC.
        scores: Scores by anchor; None without a valid verdict.
    """

    anchors: str
    judge: str
    rubric: str
    criterion: str
    minimum: float
    maximum: float
    fingerprints: tuple[str, ...]
    models: tuple[str, ...]
    saved_at: str
    scores: Mapping[str, float | None]

    def document(self) -> dict[str, Any]:
        """Return the baseline as a JSON document."""
        return {"schema": SCHEMA, **asdict(self), "criterion": self.criterion or None}


def baseline_of(judged: Judged, items: Labels, rubric: AskedRubric, criterion: str | None) -> Baseline:
    """Return a baseline of a judge's current scores."""
    scores = judged.scores(items.items, rubric, criterion)
    return Baseline(
        _digest(items),
        judged.name,
        rubric.name,
        criterion or "",
        rubric.minimum,
        rubric.maximum,
        tuple(sorted(judged.fingerprints)),
        tuple(sorted(judged.models)),
        datetime.now(UTC).isoformat(timespec="seconds"),
        {item.name: score for item, score in zip(items.items, scores, strict=True)},
    )


def read_baseline(path: Path) -> Baseline:
    """Read a saved baseline.

    Raises:
        InvalidInputError: The file is missing or not a baseline.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _refused(path, "does not exist: save a baseline with --save first") from None
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _refused(path, f"is not a baseline of this version ({SCHEMA}): save one with --save")
    scores = data.get("scores")
    texts = [data.get(name) for name in _TEXTS]
    ends = data.get("minimum"), data.get("maximum")
    lists = [data.get(name) for name in ("fingerprints", "models")]
    is_whole = (
        isinstance(scores, dict)
        and all(score is None or _is_number(score) for score in scores.values())
        and all(isinstance(text, str) for text in texts)
        and all(map(_is_number, ends))
        and all(isinstance(column, list) for column in lists)
    )
    if not is_whole or not isinstance(scores, dict):
        raise _refused(path, "is damaged: save a new one with --save")
    return Baseline(
        **{name: str(data[name]) for name in _TEXTS},
        criterion=str(data.get("criterion") or ""),
        minimum=float(data["minimum"]),
        maximum=float(data["maximum"]),
        fingerprints=tuple(map(str, data["fingerprints"])),
        models=tuple(map(str, data["models"])),
        scores=scores,
    )


def check_comparable(old: Baseline, items: Labels, rubric: AskedRubric, criterion: str | None) -> None:
    """Refuse settings that cannot be compared with a baseline, before the judge is called.

    Raises:
        InvalidInputError: The settings differ; lists every reason.
    """
    remedy = "or save a new baseline"
    problems = []
    if old.anchors != _digest(items):
        problems.append(Problem(f"are not those of the baseline: use the same file, {remedy}", "--anchors", items.file))
    if (old.minimum, old.maximum) != (rubric.minimum, rubric.maximum):
        message = (
            f"has another scale than the baseline, {old.minimum:g} to {old.maximum:g}: use {old.rubric!r}, {remedy}"
        )
        problems.append(Problem(message, "--rubric"))
    if old.criterion != (criterion or ""):
        difference = f"was {old.criterion!r} in the baseline" if old.criterion else "was not given for the baseline"
        problems.append(Problem(f"{difference}: do the same, {remedy}", "--criterion"))
    if problems:
        raise InvalidInputError(problems)


def changes_of(old: Baseline, new: Baseline) -> list[str]:
    """Return the differences from the baseline other than scores."""
    pairs = [
        ("judge", old.judge, new.judge),
        ("rubric", old.rubric, new.rubric),
        ("model as the provider names it", ", ".join(old.models), ", ".join(new.models)),
        ("fingerprint", _short(old.fingerprints), _short(new.fingerprints)),
    ]
    return [f"another {name}: {before or 'none'} -> {now or 'none'}" for name, before, now in pairs if before != now]


def _short(fingerprints: tuple[str, ...]) -> str:
    return ", ".join(fingerprint.removeprefix("sha256:")[:12] for fingerprint in fingerprints)


def _digest(items: Labels) -> str:
    texts = [[item.name, item.question, item.answer, item.reference, list(item.contexts)] for item in items.items]
    return "sha256:" + hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode()).hexdigest()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refused(path: Path, message: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, "--baseline", str(path))])
