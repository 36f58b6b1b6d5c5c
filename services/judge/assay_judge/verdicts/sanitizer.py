"""Material without anything that a model could take for structure: markers, turns of a conversation, hidden text.

Models read some texts as the start of a turn or of a tool's result, and servers of open models turn such a text into
the token itself. They are shown with other brackets, so that a reader still sees what was there. Characters that no
reader sees, but a model reads, are left out.
"""

from __future__ import annotations

import re

_OPEN, _SHUT, _BAR = "[<＜﹤]", "[>＞﹥]", "[|｜￨]"
_IN_ANGLES = (
    rf"{_BAR}[^<>＜＞|｜\n]{{0,60}}{_BAR}",  # <|im_start|>, and <｜User｜> with wide bars
    r"/?(?:start|end|begin|beginning)_of_\w{1,20}",
    r"/?(?:tool_calls?|tool_response|function_calls?|function_results)",
    r"extra_id_\d{1,3}",
    r"SPECIAL_\d{1,3}",
    r"seed:\w{1,30}",
    "[se]op",
)
_IN_BRACKETS = (
    "INST", "SYSTEM_PROMPT", "TOOL_RESULTS", "TOOL_CALLS", "TOOL_CONTENT", "AVAILABLE_TOOLS", "MODEL_SETTINGS", "gMASK",
)  # fmt: skip
_TURN_MARKERS = re.compile(
    rf"{_OPEN}(?:{'|'.join(_IN_ANGLES)}){_SHUT}"
    rf"|{_OPEN}{{1,2}}/?SYS{_SHUT}{{1,2}}"
    rf"|(?-i:[\[［]/?(?:{'|'.join(_IN_BRACKETS)})[\]］])"
    rf"|[\[［]{_BAR}[^\[\]|\n]{{0,60}}{_BAR}[\]］]"  # [|assistant|]
    r"|\]~!?b[\[\]]|\[e~\[",
    re.IGNORECASE,
)
_TAGS = re.compile(
    rf"{_OPEN}/?(?:s|bos|eos|think|thinking|thought|tools|system|user|assistant){_SHUT}"
    r"|(?-i:[\[［]/?(?:THINK|ARGS|CALL_ID)[\]］])",
    re.IGNORECASE,
)
"""Markers of some models that ordinary answers may hold as well: disarmed, but no reason for a flag."""

_DISARMED = str.maketrans("<>＜＞﹤﹥[]［］", "‹›‹›‹›⟦⟧⟦⟧")
_ANGLES = re.compile(rf"{_OPEN}{{2,}}|{_SHUT}{{2,}}")
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAG_CHARACTERS = "\U000e0000-\U000e007f"
# Left out wherever they stand; joiners and variation selectors, which letters and emoji need, beside brackets only.
_UNSEEN = re.compile(
    f"[{_BIDI}{_TAG_CHARACTERS}\u200b\u2060-\u2064\ufeff\u00ad\u180e]"
    "|(?<=[<>＜＞﹤﹥|｜￨\\[\\]［］/])[\u200c\u200d\u034f\ufe00-\ufe0f]+"
    "|[\u200c\u200d\u034f\ufe00-\ufe0f]+(?=[<>＜＞﹤﹥|｜￨\\[\\]［］])"
)
_HIDING = re.compile(f"[{_TAG_CHARACTERS}]{{2,}}|[\u202a-\u202e\u2066-\u2069]|[\U000e0100-\U000e01ef]{{4,}}")
_FLAG_OF_A_REGION = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,6}\U000e007f")


def escape_markers(text: str, nonce: str) -> str:
    """Return material in which nothing can be taken for a marker of this call or a turn of a conversation.

    Args:
        text: The material.
        nonce: The number in the markers of this call.
    """
    if not text.isascii():
        # First, because a character left out may bring together what it stood between.
        text = _UNSEEN.sub("", text)
    text = text.replace(nonce, "…")
    for pattern in (_TURN_MARKERS, _TAGS, _ANGLES):
        text = pattern.sub(lambda found: found[0].translate(_DISARMED), text)
    return text


def holds_turn_markers(text: str) -> bool:
    """Return whether a text holds what some model reads as a turn of a conversation."""
    return _TURN_MARKERS.search(text if text.isascii() else _UNSEEN.sub("", text)) is not None


def hides_characters(text: str) -> bool:
    """Return whether a text hides some of itself from its readers: tag characters, or a direction that is forced."""
    return not text.isascii() and _HIDING.search(_FLAG_OF_A_REGION.sub("", text)) is not None
