"""A stand-in for a model, so that the prompts can be tried without one: it counts words and understands nothing.

It reads a prompt as prompts/triage.md writes it: lists of answers ("- delivery: parcel, courier, ..."), then the mail.
Of each list it answers with the entry of whose words the mail holds most, the first of several, and with the last
entry if there is none. With a temperature above 0 it overlooks some words of the mail, other ones each time, so that
mails with few telling words get different answers. It speaks the protocols of both adapters, openai and anthropic:

    python examples/prompt-quality/keyword_model.py
"""

from __future__ import annotations

import contextlib
import random
import re
import threading

from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens

PORT = 8017
_ENTRY = re.compile(r"^- (?P<name>\w+)(?:: (?P<words>.*))?$")
_MAIL = re.compile(r"<mail\b[^>]*>(?P<text>.*?)</mail>", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+")
_ENDINGS = ("", "s", "es", "ed", "d", "ing")
_OVERLOOKED = 0.1  # of the words of a mail


def reply(request: ProviderRequest) -> Reply:
    """Answer one request, and count every word as a token."""
    said = "\n".join(str(message["content"]) for message in request.body["messages"])
    chance = random.Random() if request.body.get("temperature") else None  # noqa: S311 - no secret
    text = answer(said, chance)
    return Reply(text, usage=Tokens(input=len(_WORD.findall(said)), output=len(_WORD.findall(text))))


def answer(prompt: str, chance: random.Random | None = None) -> str:
    """Return one entry of each list of the prompt, separated by commas.

    Args:
        prompt: The prompt.
        chance: By which words are overlooked; None for a temperature of 0.
    """
    found = _MAIL.search(prompt)
    if found is None:
        return "There is no mail in this."
    mail = {
        word.casefold() for word in _WORD.findall(found["text"]) if chance is None or chance.random() >= _OVERLOOKED
    }
    return ", ".join(_best(entries, mail) for entries in _lists(prompt[: found.start()]))


def _lists(text: str) -> list[dict[str, list[str]]]:
    lists: list[dict[str, list[str]]] = []
    previous = None
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            if previous is None:
                lists.append({})
            words = _WORD.findall(entry["words"] or "")
            lists[-1][entry["name"]] = [word.casefold() for word in (entry["name"], *words)]
        previous = entry
    return lists


def _best(entries: dict[str, list[str]], mail: set[str]) -> str:
    counts = {
        name: sum(any(f"{word}{ending}" in mail for ending in _ENDINGS) for word in words)
        for name, words in entries.items()
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else list(entries)[-1]


def main() -> None:
    """Answer until Ctrl-C."""
    with ScriptedProvider(reply, port=PORT) as provider:
        print(
            f"openai: base_url: {provider.openai_url}\nanthropic: base_url: {provider.url}\nCtrl-C ends it", flush=True
        )
        threading.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
