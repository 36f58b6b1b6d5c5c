"""What is installed is what the lists in requirements/ lock: exact versions, each file with its hash."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
import tomllib
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LISTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "requirements").glob("*.txt"))}
ENTRY = re.compile(r"([a-z0-9-]+)==([^\s;]+)( ; [^\\\n]+?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
# Files that run code in every process: our own, coverage's, which asks one variable, and setuptools'.
KNOWN_PTH = {"_assay_scoring.pth", "a1_coverage.pth", "distutils-precedence.pth"}


def tool(name: str) -> ModuleType:
    """Return a module of tools/."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOCK = tool("lock")


def is_for_this_platform(entry: tuple[str, str, str, str]) -> bool:
    """Return whether the marker of an entry holds here."""
    return not entry[2] or Marker(entry[2].removeprefix(" ; ")).evaluate()


# Of a package that is locked in two versions, for older and newer Pythons, the one for this Python.
LOCKED = {
    name: {entry[0]: entry[1] for entry in sorted(ENTRY.findall(text), key=is_for_this_platform)}
    for name, text in LISTS.items()
}


def required(extras: tuple[str, ...]) -> dict[str, Requirement]:
    """Return what the project and its extras require directly, by name."""
    project = PROJECT["project"]
    found: dict[str, Requirement] = {}
    pending = [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    while pending:
        requirement = Requirement(pending.pop())
        if requirement.name == "assay-scoring":
            pending += [each for extra in requirement.extras for each in project["optional-dependencies"][extra]]
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def installed_here(name: str) -> set[str]:
    """Return the packages of a list that this platform needs."""
    return {entry[0] for entry in ENTRY.findall(LISTS[name]) if is_for_this_platform(entry)}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_holds_nothing_but_exact_versions_with_hashes(name: str) -> None:
    """No range, no address, no option, no entry without a hash."""
    body = "".join(line for line in LISTS[name].splitlines(keepends=True) if not line.startswith("#"))
    assert ENTRY.sub("", body) == ""
    assert LOCKED[name]


def test_there_is_a_list_for_everything_that_is_installed() -> None:
    """The lists that `make lock` writes are there, and no others."""
    assert set(LISTS) == {*LOCK.LISTS, *LOCK.APART, *LOCK.TOOLS, "cuda"}
    used = (ROOT / "Makefile").read_text(encoding="utf-8") + "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "services").glob("*/Dockerfile")
    )
    for name in LISTS:
        assert f"requirements/{name}.txt" in used


@pytest.mark.parametrize("name", [*LOCK.LISTS, *LOCK.APART])
def test_a_list_has_what_its_extras_require(name: str) -> None:
    """After a change of pyproject.toml: run `make lock`."""
    for key, requirement in required((LOCK.LISTS | LOCK.APART)[name]).items():
        assert key in LOCKED[name], f"{key} is not in requirements/{name}.txt: run 'make lock'"
        assert requirement.specifier.contains(LOCKED[name][key]), f"{requirement}: run 'make lock'"


@pytest.mark.parametrize("name", LOCK.LISTS)
def test_a_list_is_complete(name: str) -> None:
    """Nothing is resolved at installation: what an entry requires on this platform is an entry too."""
    extras = {key: {*requirement.extras} for key, requirement in required(LOCK.LISTS[name]).items()}
    pending = [(key, extra) for key in required(LOCK.LISTS[name]) for extra in {"", *extras[key]}]
    seen = set(pending)
    while pending:
        key, extra = pending.pop()
        for text in distribution(key).requires or []:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            assert needed in LOCKED[name], f"{key} needs {needed}, which requirements/{name}.txt lacks: run 'make lock'"
            new = {(needed, each) for each in ("", *requirement.extras)} - seen
            seen |= new
            pending += new


def test_the_lists_agree_on_versions() -> None:
    """An image has the versions that the tests run with."""
    for name in LOCK.LISTS:
        for key, version in LOCKED[name].items():
            assert LOCKED["dev"][key] == version


def test_everything_installed_here_is_locked() -> None:
    """No package is in the environment that no hash was compared for, and none in another version."""
    locked = LOCKED["dev"] | LOCKED["build"] | LOCKED["cuda"]
    for each in distributions(path=[sysconfig.get_path("purelib")]):
        name = canonicalize_name(each.name)
        if name in {"assay-scoring", "pip"}:  # this one, and what came with the environment
            continue
        assert name in locked, f"{name} is installed here and locked nowhere"
        assert each.version.partition("+")[0] == locked[name]


def test_only_known_packages_run_code_in_every_process() -> None:
    """A .pth file is run whenever Python starts: a new one must be read before it is added here."""
    assert {path.name for path in Path(sysconfig.get_path("purelib")).glob("*.pth")} <= KNOWN_PTH


def test_what_builds_the_project_is_exact_and_locked() -> None:
    """pip's build isolation checks no hashes, so it is switched off, and what builds comes from a list."""
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert str(requirement.specifier) == f"=={LOCKED['build'][canonicalize_name(requirement.name)]}"
    script = (ROOT / "tools" / "install-locked").read_text(encoding="utf-8")
    assert "--require-hashes --no-build-isolation" in script
    assert "--no-build-isolation -e ." in (ROOT / "tools" / "install").read_text(encoding="utf-8")


def test_torch_has_the_hashes_of_its_builds() -> None:
    """More than one platform's, and the CUDA packages of its other builds are in a list of their own."""
    (torch,) = re.findall(r"^torch==(?:.*\\\n)+.*\n", LISTS["run"], re.MULTILINE)
    assert torch.count("sha256:") > 20
    assert not [name for name in LOCKED["run"] if LOCK.CUDA.match(f"{name}==")]
    assert {"triton"} < set(LOCKED["cuda"])


def test_why_pip_fetched_no_build_of_torch_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pip that fails for a reason of its own is not taken for an index without CPU builds; known hashes stay."""
    (tmp_path / "pip.conf").write_text("no section", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    known = f"torch==0.0 \\\n    --hash=sha256:{'0' * 64}"
    entries = {"torch==0.0": known}
    LOCK.add_builds_of_torch(entries)
    assert entries == {"torch==0.0": known}
    assert "Configuration file could not be loaded" in capfd.readouterr().err


def test_licences_of_what_an_image_ships_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each package with its version and licence, the texts, and the GPL, which the LGPL of psycopg refers to."""
    third_party = tool("third_party")
    gpl = tmp_path / "GPL-3"
    gpl.write_text("the text of the GPL", encoding="utf-8")
    monkeypatch.setattr(third_party, "GPL", gpl)
    third_party.main(tmp_path / "THIRD_PARTY.txt")
    text = (tmp_path / "THIRD_PARTY.txt").read_text(encoding="utf-8")
    version = distribution("psycopg").version
    assert f"psycopg {version}: LGPL-3.0-only, https://psycopg.org/" in text
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in text
    assert text.endswith("the text of the GPL")
    named = {canonicalize_name(name) for name in re.findall(r"^(\S+) \S+: \S", text, re.MULTILINE)}
    assert installed_here("orchestrator") <= named
