"""Texts of charts: shaped as people write them, cut between characters, never boxes, never formulas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.text import Text
from tests.support.reports.charts import drawn_document, summed, texts
from tests.support.reports.report_documents import row

from assay.reports.charts.fonts import FIRST, Fonts
from assay.reports.charts.sheet import Sheet, cut_line

ARABIC = "كم عدد المناقصات المطروحة؟"
_NOTDEF = 0


def glyphs(text: str, families: list[str]) -> list[int]:
    """The glyphs with which matplotlib draws a text, from left to right."""
    font = get_font([findfont(FontProperties(family=[family])) for family in families])
    font.set_size(12, 72)
    return [int(item.glyph_index) for item in font._layout(text, LoadFlags.NO_HINTING)]


def test_arabic_is_joined_and_runs_from_right_to_left() -> None:
    """No letter is a box; a letter inside a word has another form than alone; the first letter is at the right."""
    fonts = Fonts(ARABIC)
    assert fonts.drawable(ARABIC) == ARABIC
    assert (fonts.families, fonts.missing) == ([FIRST], None)
    assert _NOTDEF not in glyphs(ARABIC, fonts.families)
    assert set(glyphs("عدد", fonts.families)).isdisjoint(glyphs("ع", fonts.families))
    assert glyphs("نعم", fonts.families)[-1] == glyphs("نع", fonts.families)[-1]
    assert glyphs("نعم", fonts.families)[0] != glyphs("نع", fonts.families)[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\tand\x00 \x1b[31ma control", "two lines and �[31ma control"),
        ("\u202egnp.exe\u2066x\u2069", "gnp.exex"),
        ("half \ud800 a character", "half a character"),
        ("Z" + "\u0301" * 50, "Z" + "\u0301" * 3),
        ("क्‍ष", "\\u0915\\u094d\u200d\\u0937"),
        ("東京 2", "\\u6771\\u4eac 2"),
        ("\U000f0000", "\\U000f0000"),
    ],
    ids=["controls", "bidi", "surrogate", "pile", "joiner", "Chinese", "private"],
)
def test_what_cannot_be_drawn_is_removed_or_a_code(text: str, line: str) -> None:
    """Controls go, piles of marks are cut, and a character that no font has is its code: none is a box."""
    fonts = Fonts(text)
    assert fonts.drawable(text) == line
    assert _NOTDEF not in glyphs(fonts.drawable(text), fonts.families)


def test_one_sentence_names_scripts_and_what_to_install() -> None:
    """It counts the characters that were drawn as codes; those that were not drawn do not count."""
    fonts = Fonts("\U000f0000\U000f0001\U000f0002 text")
    before = fonts.missing
    fonts.drawable("\U000f0000 \U000f0001 text")
    after = fonts.missing or ""
    assert before is None
    assert "no installed font has 2 characters (private or unassigned), drawn as codes such as \\U000f0000" in after
    assert "fonts-noto-cjk" in after


def test_a_font_that_was_installed_just_now_is_found(tmp_path: Path) -> None:
    """matplotlib keeps a list of fonts; one that came later draws its characters all the same."""
    folder = tmp_path / "share" / "fonts"
    folder.mkdir(parents=True)
    code = (
        "import matplotlib.font_manager, sys\n"
        "from assay.reports.charts.fonts import Fonts\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.unit.charts.test_charts_text import write_font\n"
        f"write_font({str(folder / 'late.ttf')!r})\n"
        "fonts = Fonts('\\U0010fedc')\n"
        "print(fonts.families, fonts.drawable('\\U0010fedc') == '\\U0010fedc', fonts.missing)\n"
    )
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "share"), "MPLCONFIGDIR": str(tmp_path / "list")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"['{FIRST}', 'Late Sans'] True None\n"


def write_font(path: str) -> None:
    """Write a font that has one character, U+10FEDC, which no other font has."""
    pen = TTGlyphPen(None)
    for step, point in enumerate([(0, 0), (0, 500), (500, 500)]):
        (pen.lineTo if step else pen.moveTo)(point)
    pen.closePath()
    glyph = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "triangle"])
    builder.setupCharacterMap({0x10FEDC: "triangle"})
    builder.setupGlyf({".notdef": glyph, "triangle": glyph})
    builder.setupHorizontalMetrics({".notdef": (600, 0), "triangle": (600, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Late Sans", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWeightClass=400)
    builder.setupPost()
    builder.save(path)


@pytest.mark.parametrize(
    ("text", "length", "cut"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab…"),
        ("a bc", 2, "a…"),
        ("ae\u0301x", 2, "a…"),
        ("aक\u093fx", 2, "a…"),
        ("a👩\u200d👧x", 3, "a…"),
        ("a👩\u200d👧x", 2, "a…"),
        ("a👍\U0001f3ffx", 2, "a…"),
        ("\u0301\u0301", 1, "…"),
    ],
)
def test_a_cut_keeps_what_people_see_as_one_character(text: str, length: int, cut: str) -> None:
    """A letter with its marks and vowel signs, and joined signs, stay whole or go whole."""
    assert cut_line(text, length) == cut


@pytest.mark.parametrize("text", ["e\u0301" * 40, "👩‍👩‍👧" * 20, "نُ" * 60, "a" * 500])
def test_a_long_text_is_cut_between_characters(text: str) -> None:
    """It ends with an ellipsis, keeps marks and joined signs with their letters, and takes the room that it has."""
    sheet = Sheet(Fonts(text))
    assert sheet.text((10, 10), text, width=150) <= 150
    (line,) = texts(sheet)
    assert line.endswith("…")
    whole = Fonts(text).drawable(text)
    rest = whole.removeprefix(line[:-1])
    assert rest[0] not in "\u0301\u064f\u200d"
    assert line[-2] != "\u200d"


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    """Dollars, carets and backslashes are drawn as they are."""
    name = r"$\alpha^2$ costs $5_000"
    charts = drawn_document(tmp_path, summed([row(category=name, question=name)]))
    assert name in texts(charts["category_breakdown"])
    assert name in texts(charts["detailed_results"])
    drawn = [artist for sheet in charts.values() for artist in sheet.figure.get_children() if isinstance(artist, Text)]
    assert {(artist.get_parse_math(), artist.get_usetex()) for artist in drawn} == {(False, False)}


def test_an_arabic_question_stands_at_the_right_of_its_column(tmp_path: Path) -> None:
    """As its readers expect; a Latin one stands at the left."""
    charts = drawn_document(tmp_path, summed([row("a", question=ARABIC), row("b", question="What?")]))
    alignments = {
        artist.get_text(): artist.get_horizontalalignment()
        for artist in charts["detailed_results"].figure.get_children()
        if isinstance(artist, Text)
    }
    assert (alignments[ARABIC], alignments["What?"]) == ("right", "left")
