"""tools/install-locked installs what the lists name, and no file whose hash they do not have."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "install-locked"


class Lists:
    """A folder with wheels made on the spot, lists of them, and a new environment to install them in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.index = folder / "index"
        (folder / "requirements").mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)

    def wheel(self, name: str, version: str, *, needs: str = "") -> Path:
        """Make a package."""
        path = self.wheels / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        needed = f"Requires-Dist: {needs}\n" if needs else ""
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}.py", "")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return path

    def publish(self, wheel: Path) -> Path:
        """Move a package to an index, which tells pip the hash before the file is fetched."""
        page = self.index / wheel.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True)
        moved = wheel.rename(page.with_name(wheel.name))
        digest = hashlib.sha256(moved.read_bytes()).hexdigest()
        page.write_text(f'<!DOCTYPE html><a href="{moved.name}#sha256={digest}">{moved.name}</a>', encoding="utf-8")
        return moved

    def write(self, name: str, *entries: tuple[str, list[Path]]) -> None:
        """Write a list of requirements with the hashes of their files."""
        lines = []
        for requirement, files in entries:
            hashes = [f"--hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
            lines.append(" \\\n    ".join([requirement, *hashes]))
        (self.folder / "requirements" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def install(self, *names: str, torch_build: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script with pip of this environment, which finds the wheels and nothing else."""
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": self.index.as_uri(), "PIP_FIND_LINKS": str(self.wheels)}
        own = {"PATH": os.environ["PATH"], "INSTALLER": sys.executable, "TORCH_BUILD": torch_build}
        command = ["sh", str(SCRIPT), str(self.folder / "env" / "bin" / "python"), *names]
        return subprocess.run(command, cwd=self.folder, env=own | pip, capture_output=True, text=True, check=False)

    @property
    def installed(self) -> set[str]:
        """Names and versions of what is in the environment."""
        return {path.stem for path in self.folder.glob("env/lib/python*/site-packages/*.dist-info")}


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return Lists(tmp_path)


def test_the_lists_are_installed_and_nothing_else(lists: Lists) -> None:
    """Exact versions, from several lists; what a package requires beside them is not resolved."""
    small, other = lists.wheel("small", "1.0", needs="unlisted"), lists.wheel("other", "2.0")
    lists.wheel("small", "1.1")
    lists.wheel("unlisted", "1.0")
    lists.write("build", ("other==2.0", [other]))
    lists.write("run", ("small==1.0", [small]))
    done = lists.install("build", "run")
    assert done.returncode == 0, done.stderr
    assert lists.installed == {"small-1.0", "other-2.0"}


@pytest.mark.parametrize("name", ["small", "torch"])
def test_a_file_with_another_hash_is_refused(lists: Lists, name: str) -> None:
    """A file that was changed after it was locked stops the installation before anything of its list is installed."""
    changed, other = lists.wheel(name, "1.0"), lists.wheel("other", "2.0")
    lists.write("run", (f"{name}==1.0", [changed]), ("other==2.0", [other]))
    lists.wheel(name, "1.0", needs="unlisted")
    done = lists.install("run")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert lists.installed == set()


def test_an_entry_without_a_hash_is_refused(lists: Lists) -> None:
    """A list whose hashes are lost compares nothing, so that nothing of it is installed."""
    lists.wheel("small", "1.0")
    lists.write("run", ("small==1.0", []))
    done = lists.install("run")
    assert done.returncode != 0
    assert "Hashes are required in --require-hashes mode" in done.stderr
    assert lists.installed == set()


@pytest.mark.parametrize(
    ("has_cpu_build", "installed"), [(True, {"torch-1.0+cpu"}), (False, {"torch-1.0", "nvidia_small-3.0"})]
)
def test_cuda_is_installed_where_the_build_of_torch_needs_it(
    lists: Lists, has_cpu_build: bool, installed: set[str]
) -> None:
    """A CPU build in a folder precedes the published one with CUDA, and needs no package of CUDA."""
    builds = [lists.publish(lists.wheel("torch", "1.0", needs="nvidia-small"))]
    if has_cpu_build:
        builds.append(lists.wheel("torch", "1.0+cpu"))
    lists.write("run", ("torch==1.0", builds))
    lists.write("cuda", ("nvidia-small==3.0", [lists.wheel("nvidia_small", "3.0")]))
    done = lists.install("run")
    assert done.returncode == 0, done.stderr
    assert lists.installed == installed


@pytest.mark.parametrize(
    ("wanted", "offered", "said"),
    [("cpu", "1.0", "no CPU build of torch==1.0 is offered"), ("cuda", "1.0+cpu", "has no CUDA")],
)
def test_another_build_of_torch_than_was_asked_for_is_refused(
    lists: Lists, wanted: str, offered: str, said: str
) -> None:
    """An image of one variant never holds the other, whatever pip is offered."""
    needs = "" if "cpu" in offered else "nvidia-small"
    lists.write("run", ("torch==1.0", [lists.wheel("torch", offered, needs=needs)]))
    done = lists.install("run", torch_build=wanted)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(("wanted", "version"), [("cpu", "1.0+cpu"), ("cuda", "1.0")])
def test_the_build_of_torch_that_was_asked_for_is_installed(lists: Lists, wanted: str, version: str) -> None:
    """The argument of the embedder's image; a list without torch has no variants."""
    needs = "nvidia-small" if wanted == "cuda" else ""
    lists.write("run", ("torch==1.0", [lists.wheel("torch", version, needs=needs)]))
    lists.write("build", ("small==1.0", [lists.wheel("small", "1.0")]))
    lists.write("cuda", ("nvidia-small==3.0", [lists.wheel("nvidia_small", "3.0")]))
    assert [lists.install(name, torch_build=wanted).returncode for name in ("build", "run")] == [0, 0]
    assert f"torch-{version}" in lists.installed
    assert ("nvidia_small-3.0" in lists.installed) is (wanted == "cuda")
