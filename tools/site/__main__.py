"""Build the site into .site/html: `make docs`. Every warning of Sphinx is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.site.contracts import write_contracts
from tools.site.pages import ROOT, copy_pages, start_over, write_index
from tools.site.python_api import write_python_api


def main() -> int:
    """Write the source, build it, and return Sphinx's exit status."""
    source = start_over(ROOT / ".site/source")
    reference = start_over(source / "reference")
    copy_pages(source)
    names = [write_python_api(reference), *write_contracts(reference)]
    write_index(source, names)
    options = ["-q", "-E", "-W", "--keep-going", "-j", "auto", "-c", str(Path(__file__).parent)]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, source, start_over(ROOT / ".site/html")], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
