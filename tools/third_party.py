"""Write the licences of all distributions of an environment into one file: python tools/third_party.py FILE.

Images redistribute their packages and therefore ship this file. It covers the environment that runs this script.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

# The LGPL adds permissions to the GPL, so the text of the GPL must be included. Debian, the base of the images, has it.
GPL = Path("/usr/share/common-licenses/GPL-3")
TEXTS = ("LICEN", "COPYING", "NOTICE", "AUTHORS")
HEAD = """\
This image holds Assay (Apache-2.0) and the packages below, unchanged, as they are published under these names and
versions. The texts of their licences follow the list. Their sources are where their projects' pages say.
"""


def main(target: Path) -> None:
    """Write the file."""
    packages = sorted(distributions(), key=lambda package: package.name.lower())
    if nameless := [package.name for package in packages if not licence_of(package)]:
        sys.exit(f"the metadata of {', '.join(nameless)} names no licence: find out which it is before shipping them")
    rows = [f"{package.name} {package.version}: {licence_of(package)}{page_of(package)}" for package in packages]
    texts = [
        f"{'=' * 100}\n{package.name} {package.version}\n{'=' * 100}\n\n{text}"
        for package in packages
        for text in texts_of(package)
    ]
    if any("LGPL" in licence_of(package) for package in packages):
        texts.append(f"{'=' * 100}\nGNU General Public License 3\n{'=' * 100}\n\n{GPL.read_text(encoding='utf-8')}")
    target.write_text("\n".join([HEAD, *rows, "", *texts]), encoding="utf-8")


def licence_of(distribution: Distribution) -> str:
    """Return the name of a distribution's licence; empty if its metadata names none."""
    named = field(distribution, "License-Expression")
    kinds = [
        classifier.rpartition(" :: ")[2]
        for classifier in distribution.metadata.get_all("Classifier") or []
        if classifier.startswith("License")
    ]
    text = field(distribution, "License").strip()
    # Some packages put the whole licence text into this field.
    return named or (text if text and "\n" not in text else " or ".join(kinds))


def field(distribution: Distribution, name: str) -> str:
    """Return the first value of a metadata field; empty if the field is missing."""
    return next(iter(distribution.metadata.get_all(name) or []), "")


def page_of(distribution: Distribution) -> str:
    """Return ", URL" for the project page of a distribution; empty if its metadata names none."""
    pages = [url.partition(", ")[2] for url in distribution.metadata.get_all("Project-URL") or []]
    page = field(distribution, "Home-page") or next(iter(pages), "")
    return f", {page}" if page else ""


def texts_of(distribution: Distribution) -> list[str]:
    """Return the licence texts that a distribution ships with its metadata."""
    files = [
        file
        for file in distribution.files or []
        if file.parts[0].endswith(".dist-info") and ("licenses" in file.parts or file.name.upper().startswith(TEXTS))
    ]
    return [file.read_text(encoding="utf-8") for file in files]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
