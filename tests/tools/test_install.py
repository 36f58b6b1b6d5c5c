"""tools/install, as `make demo` calls it: it shows what pip does while pip does it."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.tools
TOOLS = Path(__file__).resolve().parents[2] / "tools"
WHEEL = "small-1.0-py3-none-any.whl"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Return the address of a package index on this machine with one small package."""
    folder = tmp_path / "index" / "small"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("small.py", "")
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("small-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<!DOCTYPE html><a href="{WHEEL}">{WHEEL}</a>', encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def make_environment(folder: Path) -> None:
    """Make an environment in which nothing will be installed: with the pip of this machine it takes no time."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder / "env"], check=True
    )


def installed(folder: Path, index: str, digest: str) -> subprocess.CompletedProcess[str]:
    """Run tools/install in a folder whose list has one package."""
    shutil.copytree(TOOLS, folder / "tools", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (folder / "pyproject.toml").touch()
    (folder / "requirements").mkdir(exist_ok=True)
    entry = f"small==1.0 \\\n    --hash=sha256:{digest}\n"
    (folder / "requirements" / "protos.txt").write_text(entry, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index,
        "HOME": str(folder),
    }
    return subprocess.run(
        ["tools/install", "env", "protos", sys.executable],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_pip_does_is_shown_and_logged(tmp_path: Path, index: str) -> None:
    """The log is named before pip begins; each file and the silent unpacking has a line; the log has all of it."""
    digest = hashlib.sha256((tmp_path / "index" / "small" / WHEEL).read_bytes()).hexdigest()
    done = installed(tmp_path, index, digest)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["making env", "installing the stub generators into env; log: env/install-protos.log"]
    assert said[2].startswith(f"  downloading {WHEEL} (")
    assert said[3] == "  unpacking packages: 1"
    assert "Successfully installed small-1.0" in (tmp_path / "env" / "install-protos.log").read_text(encoding="utf-8")
    assert installed(tmp_path, index, digest).stdout == ""


def test_an_installation_that_fails_is_no_success(tmp_path: Path, index: str) -> None:
    """The status is pip's, not that of what shows its lines; the end of the log and its name are on stderr."""
    make_environment(tmp_path)
    done = installed(tmp_path, index, "0" * 64)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "the whole log is in env/install-protos.log" in done.stderr
    assert not (tmp_path / "env" / "protos.stamp").exists()


@pytest.mark.parametrize("what", ["run", "dev"])
def test_how_long_it_takes_is_said_for_what_is_large(what: str, tmp_path: Path) -> None:
    """`make demo` and `make test` say how much is fetched and how long that takes before they fetch it."""
    shutil.copytree(TOOLS, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "build.txt").write_text("no requirement at all ==\n", encoding="utf-8")
    make_environment(tmp_path)
    done = subprocess.run(
        ["tools/install", "env", what, sys.executable],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"2 to 10 minutes the first time); log: env/install-{what}.log" in done.stdout
