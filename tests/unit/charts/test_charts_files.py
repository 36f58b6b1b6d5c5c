"""Files of charts: PNG and SVG that any program reads, the same from the same report, whatever else is set."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import matplotlib
import pytest
from matplotlib import style
from matplotlib.image import imread
from tests.support.reports.charts import NAMES, summed
from tests.support.reports.report_documents import HOSTILE, failed, metric, row, written

from assay_cli.commands import assay

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_SVG = "{http://www.w3.org/2000/svg}"


def run_of_all_kinds() -> dict[str, Any]:
    """A run with hostile names, Arabic, failures and categories."""
    rows = [failed(f"c{index}", category=HOSTILE, question="<script>alert(1)</script> --> مرحبا") for index in range(9)]
    return summed([*rows, row("p", category="x")], {"<b>&": metric(), "two": metric(0.2, meets_threshold=False)})


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The charts of `run_of_all_kinds`, by format."""
    folder, document = tmp_path_factory.mktemp("charts"), run_of_all_kinds()
    return {name: written(folder, document, "charts", plot_format=name) for name in ("png", "svg")}


def test_six_pictures_are_png_of_a_slides_size(pictures: dict[str, list[Path]]) -> None:
    """1920 by 1080 pixels; nothing in them says when or by which version they were made."""
    assert [path.name for path in pictures["png"]] == [f"{name}.png" for name in NAMES]
    for path in pictures["png"]:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert b"tEXt" not in path.read_bytes()
        assert imread(path).shape == (1080, 1920, 4)


def test_svg_needs_neither_scripts_nor_fonts_nor_other_files(pictures: dict[str, list[Path]]) -> None:
    """Letters are outlines; a hostile name is in no comment and in no script, and every reference is inside."""
    for path in pictures["svg"]:
        assert path.suffix == ".svg"
        text = path.read_text("utf-8")
        names = {element.tag for element in ET.fromstring(text).iter()}
        assert names <= {
            _SVG + name for name in ("svg", "title", "defs", "style", "g", "path", "use", "pattern", "rect")
        }
        assert "<!" not in text
        ids = set(re.findall(r' id="([^"]+)"', text))
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) <= {(name, "") for name in ids} | {
            ("", name) for name in ids
        }
        assert re.findall(r'href="(?!#)', text) == []


@pytest.mark.parametrize("plot_format", ["png", "svg"])
def test_equal_reports_give_equal_bytes_whatever_the_style(
    plot_format: str, pictures: dict[str, list[Path]], tmp_path: Path
) -> None:
    """A person's matplotlib style, set for the whole process, changes nothing in any thread, and is not changed."""
    document = run_of_all_kinds()
    styled: list[Path] = []
    thread = threading.Thread(
        target=lambda: styled.extend(written(tmp_path, document, "charts", plot_format=plot_format))
    )
    with matplotlib.rc_context(), style.context(["dark_background", "ggplot"]):
        matplotlib.rcParams.update({"font.size": 30, "font.family": "STIXGeneral", "lines.linewidth": 9})
        matplotlib.rcParams.update({"path.sketch": (1, 100, 2), "axes.facecolor": "red", "savefig.dpi": 20})
        before = dict(matplotlib.rcParams)
        thread.start()
        thread.join()
        assert dict(matplotlib.rcParams) == before
    plain = [path.read_bytes() for path in pictures[plot_format]]
    assert [path.read_bytes() for path in styled] == plain


def test_pyplot_and_displays_are_not_used() -> None:
    """pyplot keeps figures for ever and looks for the display that its settings name."""
    code = "import sys, assay.reports.formats.charts_report; print('matplotlib.pyplot' in sys.modules)"
    environment = {**os.environ, "MPLBACKEND": "TkAgg", "DISPLAY": ":99"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_missing_characters_are_a_note_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the command, whatever the number of charts and rows."""
    (tmp_path / "results.json").write_text(json.dumps(summed([row(question="\ue000")] * 30)), encoding="utf-8")
    assay.main(["report", str(tmp_path / "results.json"), "--format", "charts"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"report: {tmp_path}/charts/ (6 files)"
    assert [line[:48] for line in lines[1:]] == ["note: charts: no installed font has 1 character "]
