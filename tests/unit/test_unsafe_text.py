"""Text of datasets, clients and models on terminals, in JSON and in logs: nothing in it changes what is around it."""

from __future__ import annotations

import json
import sys
import unicodedata

import click
import pytest

from assay.errors import SetupError
from assay.text.unsafe_text import UNSAFE, clean, json_text, shorten
from assay_cli.failures import exit_status
from assay_cli.output.terminal import table

# Signs and joiners of scripts, with which people write; all other format characters are unsafe.
WRITTEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x200C, 0x200D, 0x110BD, 0x110CD,
           *range(0x13430, 0x13440)}  # fmt: skip
BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
HOSTILE = [
    "\x1b]52;c;x\x07",
    "\x9b2J",
    "\x1b[2J",
    "a\nb",
    "a\rb",
    "\u2028",
    "\u202ex",
    "\u2069",
    "\u200b",
    "\x85",
    "\x00",
]


@pytest.mark.parametrize("code", BIDI, ids=hex)
def test_no_bidi_control_reaches_a_terminal(code: int) -> None:
    """Text is shown in the order in which it was written."""
    assert clean(f"a{chr(code)}b") == "ab"


def test_no_control_of_any_kind_reaches_a_terminal() -> None:
    """Escape sequences of both sets, line ends of every kind, zero-width and other invisible characters."""
    controls = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and ord(char) not in WRITTEN
    ]
    assert {*map(chr, BIDI), "\x1b", "\x9b", "\u200b", "\ufeff"} <= set(controls)
    for char in controls:
        assert UNSAFE.match(char), hex(ord(char))
        for shown in (clean(char), shorten(f"a{char}b", 9), table([("h",), (char,)]).replace("\n", "")):
            assert not UNSAFE.search(shown), hex(ord(char))
        if char not in "\n\t":
            assert not UNSAFE.search(clean(char, keep_lines=True)), hex(ord(char))
    assert clean("a\n\tb", keep_lines=True) == "a\n\tb"


def test_what_people_write_stays() -> None:
    """Every script, joiners and emoji included."""
    for text in ("سلام می‌خواهم ١٢٣", "שלום", "नमस्ते", "日本語", "naïve – “quoted”", "👩‍👩‍👧", "\u0600١"):
        assert clean(text) == text
        assert json.loads(json_text(text)) == text
        assert json_text(text) == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_every_cell_of_a_table_is_clean(hostile: str) -> None:
    """Whoever wrote the cell: only the colours that the program adds itself pass."""
    shown = table([("metric", "value"), (f"m{hostile}", f"PASS{hostile}")], lambda cell: f"\x1b[32m{cell}\x1b[0m")
    lines = shown.split("\n")
    assert len(lines) == 2
    for line in lines:
        assert not UNSAFE.search(line.replace("\x1b[32m", "").replace("\x1b[0m", ""))


def test_no_line_of_an_error_is_a_command_to_a_ci(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub Actions takes lines that begin with two colons, after spaces as well, for its own commands."""

    @click.command()
    def failing() -> None:
        raise SetupError("the server says:\n::stop-commands::x\n  ::set-output name=a::b\nrun::1 is lost")

    monkeypatch.setattr(sys, "argv", ["assay"])
    assert exit_status(failing) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: the server says:", "| ::stop-commands::x", "|   ::set-output name=a::b", "run::1 is lost"
    ]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_json_shows_no_control_and_says_the_same(hostile: str) -> None:
    """What is printed is the same JSON, with escapes."""
    document = {hostile: [hostile, {"a": f"مرحبا{hostile}"}]}
    text = json_text(document, indent=1)
    assert json.loads(text) == document
    assert not UNSAFE.search(text.replace("\n", ""))
    assert "مرحبا" in text
