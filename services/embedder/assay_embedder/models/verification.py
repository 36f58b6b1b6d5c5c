"""Verification that a packed network agrees with sentence-transformers on probe texts, done once and remembered."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.local_stack.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_SHORT = (
    "",
    "yes",
    "The agent is online.",
    "Refunds are completed within five days; order 4711 was refunded on Monday.",
    "تمت معالجة طلب الاسترداد خلال خمسة أيام.",
    "ההזמנה נשלחה אתמול בערב.",
    "Заказ отправлен вчера вечером.",
    "Η παραγγελία στάλθηκε χθες.",
    "आपका ऑर्डर कल भेज दिया गया था।",
    "คำสั่งซื้อของคุณถูกจัดส่งแล้ว",
    "您的订单已于昨天发货。",
    "ご注文は昨日発送されました。",
    "주문하신 상품이 어제 발송되었습니다.",
    "\U0001f680 naïve\tcafé\u200b — “quoted”\r\n x≥3",
    "Press the red button, then wait until the light turns green. " * 40,
)
PROBES = (*_SHORT, " ".join(_SHORT[1:8]), " ".join(_SHORT[:-1]) + _SHORT[-1][:600])
"""Of one word piece to more than a short window, with some of about 100 and 300: kernels differ by length."""
_EXACT_COSINE, _EXACT_LENGTH = 1e-5, 1e-4
_FAST_MOST, _FAST_MEAN = 4e-3, 1e-3
_REMEMBERED = 200
_STORED = Path(__file__).parent / "minilm_probes.npy"


def disagreement(vectors: NDArray[Any], expected: NDArray[Any], precision: str) -> str:
    """Return a description of how far the probe texts' vectors are off; empty within the bounds.

    Args:
        vectors: Vectors of `PROBES`, shape (texts, dimension).
        expected: The same by sentence-transformers in float32.
        precision: "exact": cosines with the expected vectors within 1e-5 of 1, lengths within 1e-4;
            "fast": cosines of pairs of texts within 4e-3, 1e-3 on average.
    """
    if vectors.shape != expected.shape:
        return f"vectors have {vectors.shape[1]} values instead of {expected.shape[1]}"
    (directions, lengths), (expected_directions, expected_lengths) = _directions(vectors), _directions(expected)
    if not np.isfinite(directions).all():
        return "a vector is not finite"
    apart = float((1 - (directions * expected_directions).sum(1)).max())
    stretched = float(np.abs(lengths / expected_lengths - 1).max())
    if precision == "exact":
        problem = f"cosines are off by {apart:.1e}, lengths by {stretched:.1e}"
        return problem if apart > _EXACT_COSINE or stretched > _EXACT_LENGTH else ""
    pairs = np.abs(directions @ directions.T - expected_directions @ expected_directions.T)[
        np.triu_indices(len(directions), 1)
    ]
    problem = f"cosines of pairs are off by {pairs.max():.1e}, {pairs.mean():.1e} on average"
    return problem if pairs.max() > _FAST_MOST or pairs.mean() > _FAST_MEAN else ""


def stored_vectors() -> NDArray[np.float32]:
    """Return the stored sentence-transformers vectors of `PROBES` for the packaged model."""
    vectors: NDArray[np.float32] = np.load(_STORED)
    return vectors


def _directions(vectors: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return vectors scaled to length 1, and their original lengths."""
    values = vectors.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(values, axis=1), 1e-30)
    return values / lengths[:, None], lengths


class Memory:
    """Outcomes of verification, in a small file below ASSAY_HOME, so that a model is compared once.

    Args:
        file: Where they are; None for embedder/verified.json in the state directory.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _default_file()

    def outcome(self, key: str) -> str | None:
        """Return the stored outcome: empty for agreement, else the disagreement; None if there is none."""
        stored = self._read().get(key)
        return stored if isinstance(stored, str) else None

    def remember(self, key: str, outcome: str) -> None:
        """Store an outcome; if that fails, the next start compares again."""
        if self._file is None:
            return
        outcomes = {**self._read(), key: outcome}
        kept = dict(list(outcomes.items())[-_REMEMBERED:])
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, written = tempfile.mkstemp(dir=self._file.parent, prefix=".verified-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(kept, stream, indent=1)
            Path(written).replace(self._file)
        except OSError as error:
            logger.warning("outcome of the comparison not stored: file=%s error=%s", self._file, error.strerror)

    def _read(self) -> dict[str, Any]:
        try:
            outcomes = json.loads(self._file.read_text(encoding="utf-8")) if self._file else {}
        except (OSError, ValueError):
            return {}
        return outcomes if isinstance(outcomes, dict) else {}


def memory_key(parts: Mapping[str, str]) -> str:
    """Return a key for everything that an outcome depends on: weights, configuration, engine, versions."""
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()


def _default_file() -> Path | None:
    try:
        return Home.find().path / "embedder" / "verified.json"
    except RuntimeError:  # no ASSAY_HOME, and the user has no home folder
        return None
