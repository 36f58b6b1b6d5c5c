"""The source of the site: the checkout's own pages, with an index made from the tables of docs/README.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "clients/*/README.md",
    "services/*/README.md",
    "examples/*/README.md",
    "benchmarks/README.md",
)
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def copy_pages(source: Path) -> None:
    """Copy every page, with the pictures and files it links to, to the same place below a folder."""
    for page in sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)}):
        text = page.read_text(encoding="utf-8")
        for target, _ in _LINK.findall(text):
            linked = (page.parent / target).resolve()
            if "://" not in target and linked.is_dir() and (linked / "README.md").exists():
                text = text.replace(f"]({target})", f"]({target}/README.md)")
            elif "://" not in target and linked.is_file() and linked.suffix != ".md":
                _place(source, linked).write_bytes(linked.read_bytes())
        if page == ROOT / "docs/decisions/README.md":
            names = sorted(path.stem for path in page.parent.glob("[0-9]*.md"))
            text += toctree([f"docs/decisions/{name}" for name in names], ":hidden:")
        _place(source, page).write_text(text, encoding="utf-8")


def _place(source: Path, path: Path) -> Path:
    """Return the place of a file of the checkout in the source of the site, with its folder made."""
    place = source / path.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def write_index(source: Path, references: list[str]) -> None:
    """Write the index and a page for each group of docs/README.md, the examples and the references.

    A page of the checkout that no group lists is in no navigation, which Sphinx reports.
    """
    groups = {"Start": ("", ["README", "docs/README", "CHANGELOG"])}
    for part in (ROOT / "docs/README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, table = part.partition("\n")
        cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| [")]
        linked = [(ROOT / "docs" / target).resolve() for cell in cells for target, _ in _LINK.findall(cell)]
        pages = [str(path.relative_to(ROOT).with_suffix("")) for path in linked]
        groups[heading] = (table.replace("](", "](../docs/"), pages)
    groups["Examples"] = (
        "",
        sorted(f"examples/{path.parent.name}/README" for path in ROOT.glob("examples/*/README.md")),
    )
    groups["Reference"] = ("", [f"reference/{name}" for name in references])
    folder = start_over(source / "groups")
    names = []
    for heading, (table, pages) in groups.items():
        names.append(heading.lower().replace(" ", "-"))
        options = ":hidden:" if table else ":maxdepth: 1"
        (folder / f"{names[-1]}.md").write_text(f"# {heading}\n{table}{toctree(pages, options)}", encoding="utf-8")
    body = toctree([f"groups/{name}" for name in names], ":maxdepth: 1")
    (source / "index.md").write_text(f"# Assay\n{body}", encoding="utf-8")


def toctree(pages: list[str], option: str) -> str:
    """Return a navigation of pages, named by their paths from the root."""
    lines = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n{option}\n{lines}\n```\n"


def start_over(folder: Path) -> Path:
    """Return an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
