"""buf refuses changes that break clients of the promised contracts, as `make check` calls it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).with_name("buf")
V1, AGENT, ADMIN, JUDGE = "v1/spec.proto", "agent/v1/agent.proto", "admin/v1/admin.proto", "judge/v1/judge.proto"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the contracts and of buf's settings, with an image of them."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    subprocess.run([BUF, "build", "-o", "before.binpb"], cwd=tmp_path, check=True)
    return tmp_path


def change(checkout: Path, name: str, pattern: str, replacement: str) -> subprocess.CompletedProcess[str]:
    """Change one place of a contract, and compare it with the image."""
    proto = checkout / "protos/assay" / name
    text, count = re.subn(pattern, replacement, proto.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
    assert count == 1
    proto.write_text(text, encoding="utf-8")
    return subprocess.run(
        [BUF, "breaking", "--against", "before.binpb"], cwd=checkout, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", [V1, AGENT, ADMIN])
@pytest.mark.parametrize(
    ("pattern", "replacement", "problem"),
    [
        (r"^  (?:optional )?string \w+ = 1;\n", "", "was deleted"),
        (r"^(  (?:optional )?string) \w+ = 1;\n", r"\1 renamed = 1;\n", "changed name from"),
        (r"^(  (?:optional )?string \w+) = 1;\n", r"\1 = 1001;\n", "was deleted"),
        (r"^(  )(?:optional )?string (\w+) = 1;\n", r"\1uint32 \2 = 1;\n", "changed type from"),
    ],
    ids=["removed", "renamed", "renumbered", "retyped"],
)
def test_a_breaking_change_is_refused(checkout: Path, name: str, pattern: str, replacement: str, problem: str) -> None:
    """The problem names the file."""
    done = change(checkout, name, pattern, replacement)
    assert done.returncode != 0
    assert problem in done.stdout
    assert name in done.stdout


def test_an_added_field_is_accepted(checkout: Path) -> None:
    """Contracts grow."""
    added = r"message AgentSpec {\n  // A new field.\n  string added = 1001;"
    done = change(checkout, V1, r"^message AgentSpec {", added)
    assert (done.returncode, done.stdout) == (0, "")


def test_contracts_between_processes_of_assay_change_freely(checkout: Path) -> None:
    """The judge's contract carries no promise."""
    done = change(checkout, JUDGE, r"^  string \w+ = 1;\n", "")
    assert (done.returncode, done.stdout) == (0, "")
