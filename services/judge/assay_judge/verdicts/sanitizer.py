"""Escape text in the material that a model could take for structure: markers, conversation turns, hidden text.

Models read some texts as the start of a turn or of a tool's result, and servers of open models turn such a text into
the token itself. Such texts get other brackets, so a reader still sees them. Characters that are invisible to readers
but not to models are removed.
"""

from __future__ import annotations

import re

_OPEN, _SHUT, _BAR = "[<＜﹤]", "[>＞﹥]", "[|｜￨]"
_IN_ANGLES = (
    rf"{_BAR}[^<>＜＞|｜\n]{{0,60}}{_BAR}",  # <|im_start|>, and <｜User｜> with wide bars
    rf"{_BAR}/?\w{{1,40}}",  # bars on one side: <|turn>, <turn|>
    rf"/?\w{{1,40}}{_BAR}",
    r"/?(?:start|end|begin|beginning)_of_\w{1,20}",
    r"/?(?:\w{1,30}:)?(?:tool|function)s?_?(?:calls?|responses?|results?|outputs?)",
    r"\w{1,20}_soft_token",  # <image_soft_token>
    r"(?:extra_id|reserved|unused|special|ctrl|control)_?(?:token_?)?\d{1,6}",
    r"0x[0-9a-f]{2}",  # one byte
    r"seed:\w{1,30}",
    "[se]op",
)
_IN_BRACKETS = (
    "INST", "gMASK", r"control_\d{1,4}",
    r"(?:[A-Z]{2,12}_){0,2}(?:SYSTEM|TOOL|TOOLS|MODEL)(?:_[A-Z0-9]{1,12}){1,3}",  # [BEGIN_TOOL_RESULTS]
    r"(?:[A-Z]{2,12}_){1,2}TOOLS?", r"REFERENCE_DOC_\d{1,4}",
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
    rf"{_OPEN}/?(?:s|bos|eos|pad|unk|cls|sep|mask|think|thinking|thought|tools|system|user|assistant|image|audio|video"
    # By form: words joined by underscores, or a namespace before a word about turns or tools.
    r"|[a-z]{1,20}(?:_[a-z0-9]{1,20}){1,5}|[a-z]{3,20}\d{2,6}"
    rf"|\w{{1,30}}:\w{{0,20}}(?:invoke|parameter|think|turn|system|user|assistant)\w{{0,20}}){_SHUT}"
    r"|(?-i:[\[［]/?(?:THINK|ARGS|CALL_ID|PAD|UNK|CLS|SEP|MASK|BOS|EOS|IMG|[A-Z]{2,20}(?:_[A-Z0-9]{1,20}){1,5})[\]］])",
    re.IGNORECASE,
)
"""Markers of some models that also occur in ordinary answers: escaped, but not flagged."""

# Single brackets that look like < and >. Double ones, such as « and 《, quote in some languages.
_LIKE_OPEN, _LIKE_SHUT = "<＜﹤‹⟨〈〈❬❰❮˂⧼⦓ᐸᚲ𐊨", ">＞﹥›⟩〉〉❭❱❯˃⧽⦔ᐳ"
_GAP = "[ \u00a0\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\u115f\u1160\uffa0]{0,3}"
_DOUBLE_OPEN = "⟪«≪⋘《⦅⸨"
_ANGLES = re.compile(rf"[{_LIKE_OPEN}](?:{_GAP}[{_LIKE_OPEN}])+|[{_LIKE_SHUT}](?:{_GAP}[{_LIKE_SHUT}])+")
_PART = "(?:first |second )?(?:question|criterion|reference|answer|passage|turn)"
# Our own markers in other brackets. Double brackets count only with text that a quoted word does not have.
_DOUBLES = re.compile(rf"[{_DOUBLE_OPEN}](?={_GAP}(?:end of {_PART}|{_PART} (?=[a-f]*\d)[0-9a-f]+))", re.IGNORECASE)
_FENCES = re.compile(
    rf"[{_LIKE_OPEN}]{_GAP}[{_LIKE_OPEN}]{_GAP}(?:end of )?{_PART}\b|{_DOUBLES.pattern}", re.IGNORECASE
)
_DISARMED = str.maketrans(
    {
        **dict.fromkeys(_LIKE_OPEN + _DOUBLE_OPEN, "‹"),
        **dict.fromkeys(_LIKE_SHUT, "›"),
        **dict.fromkeys("[［", "⟦"),
        **dict.fromkeys("]］", "⟧"),
    }
)
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAG_CHARACTERS = "\U000e0000-\U000e007f"
_JOINERS = "\u200c\u200d\u034f\ufe00-\ufe0f"
_BRACKETS = "<>＜＞﹤﹥|｜￨\\[\\]［］"
_UNSEEN = re.compile(f"[{_BIDI}{_TAG_CHARACTERS}\u200b\u2060-\u2064\ufeff\u00ad\u180e]")
# Joiners and variation selectors, which letters and emoji need, are removed only beside brackets. A run of them is
# matched only from its start: matching from every position of a long run would take quadratic time.
_JOINED = re.compile(f"(?<=[{_BRACKETS}/])[{_JOINERS}]+|(?<![{_JOINERS}])[{_JOINERS}]+(?=[{_BRACKETS}])")
_HIDING = re.compile(f"[{_TAG_CHARACTERS}]{{2,}}|[\u202a-\u202e\u2066-\u2069]|[\U000e0100-\U000e01ef]{{4,}}")
_FLAG_OF_A_REGION = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,6}\U000e007f")


def escape_markers(text: str, nonce: str) -> str:
    """Escape everything in the material that could be taken for a marker of this call or a conversation turn.

    Args:
        text: The material.
        nonce: The number in the markers of this call.
    """
    # First, because removing a character may join its neighbours to a marker.
    text = _visible(text).replace(nonce, "…")
    for pattern in (_TURN_MARKERS, _TAGS, _ANGLES, _DOUBLES):
        text = pattern.sub(lambda marker: marker[0].translate(_DISARMED), text)
    return text


def holds_turn_markers(text: str) -> bool:
    """Return whether a text contains a model's conversation turn marker or a look-alike of our own markers."""
    seen = _visible(text)
    return _TURN_MARKERS.search(seen) is not None or _FENCES.search(seen) is not None


def hides_characters(text: str) -> bool:
    """Return whether a text contains text hidden from readers: tag characters, or a forced writing direction."""
    return not text.isascii() and _HIDING.search(_FLAG_OF_A_REGION.sub("", text)) is not None


def _visible(text: str) -> str:
    """Return a text without invisible characters."""
    return text if text.isascii() else _JOINED.sub("", _UNSEEN.sub("", text))
