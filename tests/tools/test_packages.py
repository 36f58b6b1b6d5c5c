"""The packages of a release: what is in them, and that an installed one works without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from assay.version import __version__

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"assay", "assay_pytest", "assay_cli", "assay_embedder", "assay_judge", "assay_orchestrator"}
CODE = {"library/assay", "library/assay_pytest", "cli/assay_cli"} | {
    f"services/{name}/assay_{name}" for name in ("embedder", "judge", "orchestrator")
}


def build(checkout: Path, target: str, folder: Path) -> Path:
    """Build one package of a checkout with what `python -m build` calls; return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of this checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel but its list of them."""
    with zipfile.ZipFile(wheel) as files:
        return {name: files.read(name) for name in files.namelist() if not name.endswith("/RECORD")}


def test_a_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """Modules, templates, schemas, styles and SQL that git tracks, and nothing else, under their version."""
    listed = subprocess.run(["git", "ls-files", *CODE], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    expected = {name[name.index("assay") :] for name in listed.splitlines() if (ROOT / name).is_file()}
    found = contents(wheel)
    info = f"assay_scoring-{__version__}.dist-info/"
    assert {name for name in found if not name.startswith(info)} == expected
    assert {name.split("/")[0] for name in expected} == PACKAGES
    assert message_from_bytes(found[f"{info}METADATA"])["Version"] == __version__


def test_the_source_package_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Byte for byte: it lacks no file that the build needs, and has no tests or benchmarks."""
    source = build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(source) as files:
        files.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("assay_scoring-*")
    assert contents(build(unpacked, "wheel", tmp_path / "wheel")) == contents(wheel)
    assert not {"tests", "benchmarks", "tools", ".ci"} & {path.name for path in unpacked.iterdir()}


def test_an_installed_wheel_runs_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """`assay init` and `assay run`, services included, with the packages of the wheel alone."""
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    binaries = environment / "bin"
    installed = sysconfig.get_path("purelib")
    install = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    # The dependencies are those of this environment; its editable Assay comes after the wheel's.
    (packages / "dependencies.pth").write_text(f"{installed}\n", encoding="utf-8")
    variables = {"PATH": os.environ["PATH"], "ASSAY_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    def assay(*arguments: str) -> str:
        done = subprocess.run(
            [str(binaries / "assay"), *arguments],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = "import assay, assay_orchestrator; print(assay.__file__, assay_orchestrator.__file__)"
    done = subprocess.run([binaries / "python", "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(path.startswith(str(packages)) for path in done.stdout.split())
    assay("init", "prompt-benchmark", "--dir", "project")
    (tmp_path / "project" / "agent.py").write_text("def answer(question):\n    return question\n", encoding="utf-8")
    (tmp_path / "project" / "qa.jsonl").write_text('{"question": "a", "answer": "a"}\n', encoding="utf-8")
    (tmp_path / "project" / "own.yaml").write_text(
        "name: own\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\n"
        "metrics: [exact_match, latency]\ngates: ['exact_match >= 1']\n",
        encoding="utf-8",
    )
    assert "verdict  PASS" in assay("run", "project/own.yaml")
