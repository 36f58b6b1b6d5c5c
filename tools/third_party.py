"""Write the licences of all distributions of an environment into one file: python tools/third_party.py FILE.

For images, which pass their packages on. It reads the metadata of what the Python that runs it has installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

# The LGPL adds permissions to the GPL, whose text must be beside it. Debian, on which the images rest, ships that.
GPL = Path("/usr/share/common-licenses/GPL-3")
TEXTS = ("LICEN", "COPYING", "NOTICE", "AUTHORS")
HEAD = """\
This image holds Assay (Apache-2.0) and the packages below, unchanged, as they are published under these names and
versions. The texts of their licences follow the list. Their sources are where their projects' pages say.
"""


def main(target: Path) -> None:
    """Write the file."""
    found = sorted(distributions(), key=lambda each: each.name.lower())
    if nameless := [each.name for each in found if not licence_of(each)]:
        sys.exit(f"no licence is named in the metadata of {', '.join(nameless)}: find it out before shipping them")
    rows = [f"{each.name} {each.version}: {licence_of(each)}{page_of(each)}" for each in found]
    texts = [
        f"{'=' * 100}\n{each.name} {each.version}\n{'=' * 100}\n\n{text}" for each in found for text in texts_of(each)
    ]
    if any("LGPL" in licence_of(each) for each in found):
        texts.append(f"{'=' * 100}\nGNU General Public License 3\n{'=' * 100}\n\n{GPL.read_text(encoding='utf-8')}")
    target.write_text("\n".join([HEAD, *rows, "", *texts]), encoding="utf-8")


def licence_of(distribution: Distribution) -> str:
    """Return the name of a distribution's licence; empty where its metadata names none."""
    named = field(distribution, "License-Expression")
    kinds = [
        each.rpartition(" :: ")[2]
        for each in distribution.metadata.get_all("Classifier") or []
        if each.startswith("License")
    ]
    text = field(distribution, "License").strip()
    # Some put the whole text there.
    return named or (text if text and "\n" not in text else " or ".join(kinds))


def field(distribution: Distribution, name: str) -> str:
    """Return the first value of a field of the metadata; empty where there is none."""
    return next(iter(distribution.metadata.get_all(name) or []), "")


def page_of(distribution: Distribution) -> str:
    """Return where a distribution's project is, as the end of a line."""
    pages = [each.partition(", ")[2] for each in distribution.metadata.get_all("Project-URL") or []]
    page = field(distribution, "Home-page") or next(iter(pages), "")
    return f", {page}" if page else ""


def texts_of(distribution: Distribution) -> list[str]:
    """Return the texts that a distribution has beside its metadata."""
    files = [
        file
        for file in distribution.files or []
        if file.parts[0].endswith(".dist-info") and ("licenses" in file.parts or file.name.upper().startswith(TEXTS))
    ]
    return [file.read_text(encoding="utf-8") for file in files]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
