"""Generation fidelity: whether the text looks true to the retrieved data.

    value = 1 when at least three of four checks hold, else 0

1. Status: the agent says success, the case is not of the category `out_of_scope` and the stripped text has
   more than `min_chars` characters; or the agent says out of scope and a refusal marker is in the text.
2. Script: the share of the script's letters in all letters is more than `script_threshold`.
3. Numbers: data came back and the text holds a digit of any script.
4. Markers: the text holds none of the phrases by which models betray that they guess.

Phrases are looked for as whole words in folded text. Letters are counted after composing the text; digits,
punctuation and diacritics are no letters, and a text without letters has the share 0. A refusal never earns
the third point, so a right one has exactly three. On a case that is out of scope, only a refusal earns the
first. An agent error is computed from what the row holds. A row passes with 1. The aggregate is the mean; a
threshold applies to it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import listed, quoted
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import RightFold, ThresholdMetric
from assay.metrics.retrieval_accuracy import is_out_of_scope
from assay.model.answers.agent_response import AgentStatus
from assay.statistics.thresholds import exceeds
from assay.text.equality import plain
from assay.text.folding import containment_work, contains_word, fold, without_marks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import Score

_HALLUCINATION_MARKERS = [
    "كنموذج لغوي", "كنموذج ذكاء اصطناعي", "بصفتي نموذج", "بيانات افتراضية", "بيانات وهمية", "لنفترض",
    "على سبيل الافتراض", "حسب معرفتي", "حسب معلوماتي", "لا أملك معلومات", "ربما", "من المحتمل", "على الأرجح",
    "أعتقد أن", "as an ai", "as a language model", "i don't have access", "i do not have access",
    "i cannot verify", "i can't verify", "i'm not sure", "i am not sure", "i think", "i believe", "probably",
    "to the best of my knowledge", "knowledge cutoff", "hypothetical", "placeholder", "lorem ipsum",
]  # fmt: skip

INFO = MetricInfo(
    "generation_fidelity",
    "Generation fidelity",
    "Whether the text looks true to what was retrieved.",
    (
        Parameter("refusal_markers", "text_list", ["عذرا"], "Phrases that mark a refusal."),
        Parameter("hallucination_markers", "text_list", _HALLUCINATION_MARKERS, "Phrases that mark a guess."),
        Parameter("script", "text", "arabic", "The script the text should be in.", choices=("arabic", "latin", "any")),
        Parameter("script_threshold", "number", 0.30, "More than this share of letters must be of it.", 0.0, 1.0),
        Parameter("min_chars", "integer", 30, "An answer has more than this many characters.", 0),
        Parameter("threshold", "number", None, "Least share of right rows of the run.", 0.0, 1.0),
    ),
    reads=("answer", "data_rows", "status", "category"),
    decides="always",
    values="0 or 1",
    unit="%",
    stats=("right", "total"),
)

_REFUSAL_PARTICLES = "وف"
_POINTS_NEEDED = 3
_DIGIT = re.compile(r"\d")
_ARABIC_BLOCKS = (
    range(0x0600, 0x0700), range(0x0750, 0x0780), range(0x0870, 0x0900), range(0xFB50, 0xFE00),
    range(0xFE70, 0xFF00), range(0x10E60, 0x10E80), range(0x1EE00, 0x1EF00),
)  # fmt: skip


def script_ratio(text: str, script: str) -> float:
    """Return the share of a script's letters in all letters of a text; 0 for a text without letters.

    Args:
        text: Any text.
        script: "arabic", "latin" or "any".
    """
    letters = [char for char in unicodedata.normalize("NFC", without_marks(text)) if char.isalpha()]
    if not letters:
        return 0.0
    match script:
        case "arabic":
            return sum(_is_arabic(char) for char in letters) / len(letters)
        case "latin":
            return sum(char.isascii() or "LATIN" in unicodedata.name(char, "") for char in letters) / len(letters)
    return 1.0


def _is_arabic(letter: str) -> bool:
    return any(ord(letter) in block for block in _ARABIC_BLOCKS)


class GenerationFidelity(ThresholdMetric):
    """Parameters: the markers, `script`, `script_threshold`, `min_chars`, `threshold` (on the mean)."""

    info = INFO
    fold_class = RightFold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._refusals: list[str] = [marker for marker in parameters["refusal_markers"] if fold(marker)]
        self._guesses: list[str] = [marker for marker in parameters["hallucination_markers"] if fold(marker)]
        self._script: str = parameters["script"]
        self._script_threshold: float = parameters["script_threshold"]
        self._min_chars: int = parameters["min_chars"]

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking for the markers."""
        return containment_work(row.response.text, [*self._refusals, *self._guesses])

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        text = row.response.text
        folded = fold(text)
        markers = [marker for marker in self._guesses if contains_word(folded, marker)]
        ratio = script_ratio(text, self._script)
        checks = {
            "status_ok": self._status_ok(row, folded),
            "script_ok": exceeds(ratio, self._script_threshold),
            "numbers_ok": (row.response.data_rows or 0) > 0 and _DIGIT.search(text) is not None,
            "markers_ok": not markers,
        }
        points = sum(checks.values())
        right = points >= _POINTS_NEEDED
        detail = {"version": self.version, "points": points, **checks, "markers": markers, "script_ratio": ratio}
        return self._checked(right, self._reason(row, checks), detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the checks that the answer fails, with expected and actual values."""
        detail, text = score.detail, row.response.text
        refuses = row.response.status is AgentStatus.OUT_OF_SCOPE or is_out_of_scope(row.case)
        length = f"{len(text.strip()):,} characters where more than {self._min_chars:,} are expected"
        share = f"{detail['script_ratio']:.0%} of the letters are {self._script}"
        faults = (
            ("status_ok", "a refusal is expected, and the answer is none" if refuses else length),
            ("script_ok", f"{share}, where more than {self._script_threshold:.0%} are expected"),
            ("numbers_ok", "no number in the answer, or no rows came back"),
            ("markers_ok", f"the answer guesses ({listed(detail['markers'])})"),
        )
        complaints = [complaint for check, complaint in faults if not detail[check]]
        return "; ".join([*complaints, f"the answer is {quoted(text)}"])

    def _status_ok(self, row: Row, folded: str) -> bool:
        match row.response.status:
            case AgentStatus.SUCCESS:
                return not is_out_of_scope(row.case) and len(plain(row.response.text)) > self._min_chars
            case AgentStatus.OUT_OF_SCOPE:
                return any(contains_word(folded, marker, particles=_REFUSAL_PARTICLES) for marker in self._refusals)
        return False

    def _reason(self, row: Row, checks: Mapping[str, bool]) -> str:
        if row.response.is_failed:
            return "agent_error"
        refuses = row.response.status is AgentStatus.OUT_OF_SCOPE or is_out_of_scope(row.case)
        reasons = {
            "status_ok": "no_refusal" if refuses else "too_short",
            "script_ok": "other_script",
            "numbers_ok": "no_numbers",
            "markers_ok": "marker_found",
        }
        return ", ".join(reason for check, reason in reasons.items() if not checks[check])
