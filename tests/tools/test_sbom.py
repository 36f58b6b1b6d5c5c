"""The bill of materials of an image: what its environment has installed, in the form of CycloneDX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("orchestrator", "embedder", "judge")


def environment_of(folder: Path) -> Path:
    """Make an environment with Assay and a package that it needs; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, version, more in (
        ("assay-scoring", "0.1.0", "License-Expression: Apache-2.0\nRequires-Dist: small>=1"),
        ("small", "1.0+cpu", "License-Expression: MIT"),
    ):
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{more}\n")
    return folder / "bin" / "python"


def test_every_package_of_an_image_is_listed(tmp_path: Path) -> None:
    """With version, licence and what needs it, by the schema of CycloneDX; the same packages give the same file."""
    python = environment_of(tmp_path / "environment")
    texts = []
    for name in ("first.json", "second.json"):
        command: list[str | Path] = [sys.executable, ROOT / "tools/sbom.py", "judge", python, tmp_path / name]
        subprocess.run(command, check=True, cwd=ROOT)  # it ends with a sentence where its schema is not met
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    top = document["metadata"]["component"]
    assert (top["type"], top["name"], top["version"]) == ("container", "assay-judge", "0.1.0")
    parts = {each["name"]: each for each in document["components"]}
    assert {name: each["version"] for name, each in parts.items()} == {"assay-scoring": "0.1.0", "small": "1.0+cpu"}
    assert "MIT" in json.dumps(parts["small"]["licenses"])
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert needs[parts["assay-scoring"]["bom-ref"]] == [parts["small"]["bom-ref"]]
    assert set(needs["assay-judge"]) == {each["bom-ref"] for each in parts.values()}


def test_a_document_that_is_none_is_refused(tmp_path: Path) -> None:
    """The schema is compared strictly: a field that it does not know is a problem."""
    script = (
        "import json, sys; sys.path.insert(0, 'tools'); import sbom\n"
        "document = {'bomFormat': 'CycloneDX', 'specVersion': '1.6', 'version': 1}\n"
        "assert sbom.problem_of(json.dumps(document)) == ''\n"
        "assert 'colour' in sbom.problem_of(json.dumps(document | {'colour': 'red'}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
