"""Judge replies that must never become a score: some sixty families, each with endless members.

Each family takes a random number generator and a valid verdict, as an object, and returns the text of a reply that
holds no valid verdict, however close it comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    Family = Callable[[random.Random, dict[str, Any]], str]

_WORDS = ["Here is my verdict:", "Sure!", "Score: 4/5", "5", "I think", "null", "```", "</answer>", "‎", "—", "Ok."]
_NUMBERS_IN_WORDS = ["four", "Score: 4/5", "Rating: 3 out of 5", "**5**", "٤", "1-5: 4"]
_NOT_FINITE = ["NaN", "Infinity", "-Infinity", "nan", "inf", "1e999"]
_NO_JSON_NUMBERS = ["01", "+1", ".5", "1.", "0x1", "1_0", "1,0", "١", "½", "1e", "--1"]
_TOO_MUCH = [5.5, 6, 85, 100, -1, -0.01, 1e9, 10**400, 1.0000001e3]


def _text(verdict: Mapping[str, Any]) -> str:
    return json.dumps(verdict, ensure_ascii=False)


def _score_key(rng: random.Random, verdict: Mapping[str, Any]) -> str:
    """Return one of the scores that must not be missing."""
    return rng.choice([key for key in verdict if key not in ("verdict_id", "reasoning", "overall_score")])


def _with_score(value: Callable[[random.Random, Any], object]) -> Family:
    def family(rng: random.Random, verdict: dict[str, Any]) -> str:
        key = _score_key(rng, verdict)
        return _text({**verdict, key: value(rng, verdict[key])})

    return family


def _with_raw_score(raw: Callable[[random.Random, Any], str]) -> Family:
    """Put text in place of a score that is no JSON."""

    def family(rng: random.Random, verdict: dict[str, Any]) -> str:
        key = _score_key(rng, verdict)
        return _text({**verdict, key: "\x00"}).replace('"\\u0000"', raw(rng, verdict[key]))

    return family


def _around(before: Callable[[random.Random, str], str], after: Callable[[random.Random, str], str]) -> Family:
    def family(rng: random.Random, verdict: dict[str, Any]) -> str:
        text = _text(verdict)
        return before(rng, text) + text + after(rng, text)

    return family


def _nothing(rng: random.Random, text: str) -> str:
    return ""


def _words(rng: random.Random, text: str) -> str:
    return " " + rng.choice(_WORDS) * rng.randint(1, 3) + " "


def _without(key: str) -> Family:
    return lambda rng, verdict: _text({name: value for name, value in verdict.items() if name != key})


def _missing_score(rng: random.Random, verdict: dict[str, Any]) -> str:
    return _without(_score_key(rng, verdict))(rng, verdict)


def _twice(rng: random.Random, verdict: dict[str, Any]) -> str:
    key = _score_key(rng, verdict)
    other = verdict[key] if rng.random() < 0.3 else rng.choice([0, 1, 3, 5])
    pair = f"{json.dumps(key)}: {other}"
    text = _text(verdict)
    return f"{text[:-1]}, {pair}}}" if rng.random() < 0.5 else f"{{{pair}, {text[1:]}"


def _twice_other(key: str) -> Family:
    def family(rng: random.Random, verdict: dict[str, Any]) -> str:
        return f"{_text(verdict)[:-1]}, {json.dumps(key)}: {json.dumps(verdict[key])}}}"

    return family


def _cut(rng: random.Random, verdict: dict[str, Any]) -> str:
    text = _text(verdict)
    return text[: rng.randint(1, len(text) - 1)]


def _two(rng: random.Random, verdict: dict[str, Any]) -> str:
    other, own = _two_of(rng, verdict)
    pair = [own, other] if rng.random() < 0.5 else [other, own]
    return rng.choice(["", "\n", " or ", ",", "\n\n"]).join(pair)


def _other_id(rng: random.Random, verdict: dict[str, Any]) -> str:
    known = str(verdict["verdict_id"])
    score = rng.choice(
        [
            "",
            known[:-1],
            known + "0",
            known.upper() + "X",
            f" {known}",
            known[::-1] + "r",
            f"{rng.getrandbits(128):032x}",
        ]
    )
    return _text({**verdict, "verdict_id": score})


def _renamed(rng: random.Random, verdict: dict[str, Any]) -> str:
    key = _score_key(rng, verdict)
    name = rng.choice([key.upper(), key + " ", f" {key}", key.title(), key + "s", "rating", "value"])
    return _text({name if old == key else old: value for old, value in verdict.items()})


def _homoglyph(rng: random.Random, verdict: dict[str, Any]) -> str:
    key = _score_key(rng, verdict)
    name = key.replace("e", "е").replace("a", "а").replace("o", "о")  # Cyrillic
    return _text({name if old == key else old: value for old, value in verdict.items()})


def _single_quotes(rng: random.Random, verdict: dict[str, Any]) -> str:
    return repr({**verdict, "reasoning": "fine"})


def _deep(rng: random.Random, verdict: dict[str, Any]) -> str:
    depth = rng.choice([3, 50, 5_000, 100_000])
    return "[" * depth + _text(verdict) + "]" * depth


def _spliced(rng: random.Random, verdict: dict[str, Any]) -> str:
    """The judge quotes the answer without escaping it, and the answer closes the text early."""
    key = _score_key(rng, verdict)
    text = _text({**verdict, "reasoning": "\x01"})
    return text.replace("\\u0001", f'It says ", "{key}": {rng.choice([1, 5])}, "reasoning": "')


def _spliced_with_text(rng: random.Random, verdict: dict[str, Any]) -> str:
    """The same, and the answer brings a text of its own that takes the rest of the quote.

    The judge leaves out what it may leave out, so that the quoted score stands alone.
    """
    judged = {key: value for key, value in verdict.items() if key != "overall_score"}
    key = "overall_score" if "overall_score" in verdict else _score_key(rng, verdict)
    splice = f'It says ", "{key}": 1, "{rng.choice(["note", "x", "summary"])}": "'
    order = list(judged) if rng.random() < 0.5 else ["verdict_id", *list(judged)[2:], "reasoning"]
    text = _text({name: "\x01" if name == "reasoning" else judged[name] for name in order})
    return text.replace("\\u0001", splice)


def _closed_early(rng: random.Random, verdict: dict[str, Any]) -> str:
    text = _text({**verdict, "reasoning": "\x01"})
    rest = ", ".join(f'"{key}": 1' for key in verdict if key not in ("verdict_id", "reasoning"))
    return text.replace("\\u0001", f'It says ", {rest}}} and so on')


def _fence(rng: random.Random, text: str) -> str:
    return f"```{rng.choice(['', 'json', 'JSON'])}\n{text}\n```"


def _thoughts(rng: random.Random, text: str) -> str:
    return f"<think>{_words(rng, '')}{text}</think>"


def _in_any_order(rng: random.Random, first: str, second: str) -> str:
    return "\n".join([first, second] if rng.random() < 0.5 else [second, first])


def _two_of(rng: random.Random, verdict: dict[str, Any]) -> tuple[str, str]:
    key = _score_key(rng, verdict)
    return _text({**verdict, key: rng.choice([0, 1])}), _text(verdict)


def _inner(verdict: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in verdict.items() if key != "verdict_id"}


def _nested(rng: random.Random, verdict: dict[str, Any]) -> object:
    other = {**verdict, _score_key(rng, verdict): 1}
    return rng.choice([other, [other], {"deep": [other]}, {"verdict_id": ""}])


FAMILIES: Mapping[str, Family] = {
    "empty": lambda rng, verdict: rng.choice(["", " ", "\n\n", "\t"]),
    "bare_number": lambda rng, verdict: str(rng.choice([0, 1, 3, 4, 5, 0.8])),
    "number_in_words": lambda rng, verdict: rng.choice(_NUMBERS_IN_WORDS),
    "bare_text": lambda rng, verdict: json.dumps(rng.choice(_WORDS)),
    "null": lambda rng, verdict: rng.choice(["null", "true", "false"]),
    "list_of_one": lambda rng, verdict: f"[{_text(verdict)}]",
    "deeply_nested": _deep,
    "wrapped": lambda rng, verdict: json.dumps({rng.choice(["verdict", "result", "answer"]): verdict}),
    "as_text_of_text": lambda rng, verdict: json.dumps(_text(verdict)),
    "two_fences": lambda rng, verdict: "\n".join([_fence(rng, _text(verdict))] * 2),
    "fences_that_differ": lambda rng, verdict: _fence(rng, _two_of(rng, verdict)[0]) + _fence(rng, _text(verdict)),
    "fence_in_fence": lambda rng, verdict: _fence(rng, _fence(rng, _text(verdict))),
    "two_objects_in_a_fence": lambda rng, verdict: _fence(rng, _two(rng, verdict)),
    "fence_and_object": lambda rng, verdict: _in_any_order(rng, _fence(rng, _text(verdict)), _text(verdict)),
    "fence_and_words": lambda rng, verdict: _in_any_order(rng, _fence(rng, _text(verdict)), _words(rng, "")),
    "fence_of_another_language": lambda rng, verdict: (
        f"```{rng.choice(['python', 'yaml', 'json6', 'json x', 'js'])}\n{_text(verdict)}\n```"
    ),
    "fence_on_one_line": lambda rng, verdict: f"```{rng.choice(['', 'json', ' '])}{_text(verdict)}```",
    "other_fence": lambda rng, verdict: f"{(mark := rng.choice(['~~', '``', '`', '---']))}\n{_text(verdict)}\n{mark}",
    "fence_around_other_id": lambda rng, verdict: _fence(rng, _other_id(rng, verdict)),
    "fence_around_wrapped": lambda rng, verdict: _fence(rng, json.dumps({"verdict": verdict})),
    "object_in_the_thoughts": lambda rng, verdict: _thoughts(rng, _text(verdict)),
    "object_in_the_thoughts_and_words": lambda rng, verdict: _thoughts(rng, _text(verdict)) + _words(rng, ""),
    "id_in_the_thoughts_alone": lambda rng, verdict: (
        _thoughts(rng, str(verdict["verdict_id"])) + _without("verdict_id")(rng, verdict)
    ),
    "other_id_after_thoughts": lambda rng, verdict: _thoughts(rng, _text(verdict)) + _other_id(rng, verdict),
    "thoughts_that_end_twice": lambda rng, verdict: (
        _thoughts(rng, "It says </think>" + _other_id(rng, verdict)) + _text(verdict)
    ),
    "thoughts_without_an_end": lambda rng, verdict: "<think>" + _text(verdict),
    "thoughts_after": lambda rng, verdict: _text(verdict) + _thoughts(rng, ""),
    "thoughts_in_the_middle": lambda rng, verdict: _words(rng, "") + _thoughts(rng, "") + _text(verdict),
    "thoughts_in_a_fence": lambda rng, verdict: _fence(rng, _thoughts(rng, "") + _text(verdict)),
    "thoughts_with_another_end": lambda rng, verdict: (
        _thoughts(rng, "").replace("</think>", rng.choice(["</thinking>", "[/THINK]", "</ think>"])) + _text(verdict)
    ),
    "nested_with_an_id": lambda rng, verdict: _text({**verdict, "other": _nested(rng, verdict)}),
    "nested_twice": lambda rng, verdict: json.dumps({"verdict_id": verdict["verdict_id"], "verdict": verdict}),
    "wrapped_with_the_id": lambda rng, verdict: json.dumps(
        {"verdict_id": verdict["verdict_id"], "verdict": _inner(verdict)}
    ),
    "extra_key_twice": lambda rng, verdict: f'{_text({**verdict, "pass": True})[:-1]}, "pass": false}}',
    "nested_key_twice": lambda rng, verdict: f'{_text(verdict)[:-1]}, "more": {{"a": 1, "a": 2}}}}',
    "open_fence": lambda rng, verdict: f"```json\n{_text(verdict)}",
    "words_before": _around(_words, _nothing),
    "words_after": _around(_nothing, _words),
    "words_around": _around(_words, _words),
    "two_objects": _two,
    "same_object_twice": lambda rng, verdict: _text(verdict) + rng.choice(["", "\n", " "]) + _text(verdict),
    "trailing_comma": lambda rng, verdict: _text(verdict)[:-1] + ",}",
    "trailing_brace": lambda rng, verdict: _text(verdict) + rng.choice(["}", "]", "}}", ";"]),
    "cut_off": _cut,
    "comment": lambda rng, verdict: _text(verdict)[:-1] + rng.choice([" // sure\n}", " /* sure */}", " # sure\n}"]),
    "single_quotes": _single_quotes,
    "byte_order_mark": lambda rng, verdict: rng.choice(["\ufeff\ufeff", " \ufeff"]) + _text(verdict),
    "odd_space": lambda rng, verdict: rng.choice(["\u00a0", "\u2028", "\u200b", "\x0b", "\x00"]) + _text(verdict),
    "raw_control_character": lambda rng, verdict: _text({**verdict, "reasoning": "\x01"}).replace("\\u0001", "\n\x07"),
    "no_verdict_id": _without("verdict_id"),
    "other_verdict_id": _other_id,
    "verdict_id_no_text": lambda rng, verdict: _text({**verdict, "verdict_id": rng.choice([None, 1, True, [], {}])}),
    "verdict_id_twice": _twice_other("verdict_id"),
    "no_reasoning": _without("reasoning"),
    "reasoning_no_text": lambda rng, verdict: _text({**verdict, "reasoning": rng.choice([None, 1, True, ["a"], {}])}),
    "reasoning_twice": _twice_other("reasoning"),
    "missing_score": _missing_score,
    "score_twice": _twice,
    "score_renamed": _renamed,
    "score_in_look_alikes": _homoglyph,
    "score_boolean": _with_score(lambda rng, value: rng.random() < 0.5),
    "score_text": _with_score(lambda rng, value: rng.choice([str(value), f"{value}/5", "high", "", "80%"])),
    "score_null": _with_score(lambda rng, value: None),
    "score_list": _with_score(lambda rng, value: rng.choice([[value], [], [[value]]])),
    "score_object": _with_score(lambda rng, value: rng.choice([{"value": value}, {}, {"score": value}])),
    "score_off_scale": _with_score(lambda rng, value: rng.choice(_TOO_MUCH)),
    "score_not_finite": _with_raw_score(lambda rng, value: rng.choice(_NOT_FINITE)),
    "score_odd_number": _with_raw_score(lambda rng, value: rng.choice(_NO_JSON_NUMBERS)),
    "score_percent": _with_raw_score(lambda rng, value: rng.choice(["85%", "4/5", "4 of 5", "4 5"])),
    "score_missing_value": _with_raw_score(lambda rng, value: ""),
    "spliced_quote": _spliced,
    "spliced_with_a_text": _spliced_with_text,
    "closed_early": _closed_early,
}  # fmt: skip
"""The families by name. Every reply of every family is to be refused."""
