"""Write the lists in requirements/: exact versions with the hashes of all their files, for every platform.

    python tools/lock.py [--upgrade]        as `make lock`, with uv installed beside the Python that runs it

A locked package keeps its version unless --upgrade is given. torch gets the hashes that uv finds and those of the CPU
builds that pip is offered here: other indexes have other files under the same version.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
OLDEST_PYTHON = "3.11"

# The extras of each list. The first list has every extra, and the others take its versions.
LISTS = {
    "dev": ("all", "dev"),
    "run": ("all",),
    "orchestrator": ("orchestrator", "postgres", "providers", "oidc", "prometheus", "otel"),
    "embedder": ("embedder", "prometheus", "otel"),
    "judge": ("judge", "postgres", "prometheus", "otel"),
}
# Installed apart from the first list, whose versions are preferred and not required: frameworks of agents need older
# versions of some packages, and the documentation needs packages that the first list lacks.
APART = {
    "docs": ("docs",),
    "frameworks": ("all", "dev", "frameworks", "frameworks-newest"),
    "floors": ("all", "dev", "frameworks"),
}
# The list that takes the oldest supported versions of these extras' packages.
FLOORS, FLOORED = "floors", ("adk", "langgraph", "pydantic-ai", "openai-agents")
# Later versions need a newer langchain-core than they declare.
FLOORS_HELD = ("langgraph-checkpoint<4",)
# Tools with environments of their own; NAME.in lists their packages.
TOOLS = ("build", "sbom", "protos", "lock", "deploy")
# Needed by builds of torch with CUDA. tools/install-locked installs them if torch asks for them.
CUDA = re.compile(r"nvidia-|cuda-|triton==")
HEAD = """\
# Exact versions with the hashes of all their files, written by `make lock`; change {source} instead.
"""


def main(arguments: list[str]) -> None:
    """Write all lists."""
    options = ["--upgrade"] if arguments == ["--upgrade"] else []
    if arguments and not options:
        sys.exit(__doc__)
    everything = entries_of(compiled("dev", [*extras("dev"), *options]))
    add_builds_of_torch(everything)
    cuda = {name: text for name, text in everything.items() if CUDA.match(name)}
    write("cuda", "torch's version in pyproject.toml", cuda)
    write("dev", "pyproject.toml", without_cuda(everything))
    for name in [name for name in LISTS if name != "dev"]:
        chosen = entries_of(compiled(name, [*extras(name), "--constraint", "requirements/dev.txt"]))
        # From the first list, whose entries have all hashes.
        entries = {key: everything.get(key, text) for key, text in chosen.items()}
        write(name, "pyproject.toml", without_cuda(entries))
    for name in APART:
        pins = floors() if name == FLOORS else []
        resolved = entries_of(compiled(name, [*extras(name), *options], like="dev", pins=pins))
        entries = {key: everything.get(key, text) for key, text in resolved.items()}
        write(name, "pyproject.toml", without_cuda(entries))
    for name in TOOLS:
        source = f"requirements/{name}.in"
        # Build tools share an environment with the packages they build, and cyclonedx-bom with the build tools.
        shared = ["--constraint", "requirements/dev.txt"] if name in ("build", "sbom") else []
        write(name, source, entries_of(compiled(name, [source, *shared, *options])))


def extras(name: str) -> list[str]:
    """Return uv's arguments for a list of extras."""
    return ["pyproject.toml", *(part for extra in {**LISTS, **APART}[name] for part in ("--extra", extra))]


def floors() -> list[str]:
    """Return requirements that pin the extras of frameworks to their oldest supported versions."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return [*(re.sub(r">=([\d.]+),.*", r"==\1", line) for extra in FLOORED for line in known[extra]), *FLOORS_HELD]


def compiled(name: str, arguments: list[str], like: str = "", pins: list[str] | None = None) -> str:
    """Return the text of a list as uv resolves it for all platforms.

    Args:
        name: The list.
        arguments: Requirements and options for uv.
        like: A second list whose versions are preferred for packages that the list lacks.
        pins: Further requirements that fix versions.
    """
    options = ["--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header", "--no-annotate"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.txt"
        # uv keeps the versions of the file that it overwrites. CUDA packages are in a list of their own.
        names = [name, *([like] if like else []), *(["cuda"] if "dev" in (name, like) else [])]
        lists = [FOLDER / f"{list_name}.txt" for list_name in names]
        path.write_text("".join(file.read_text(encoding="utf-8") for file in lists if file.exists()), encoding="utf-8")
        pinned = Path(folder) / "pins.txt"
        pinned.write_text("\n".join(pins or []), encoding="utf-8")
        options += ["--constraint", str(pinned)]
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", *options, *arguments]
        subprocess.run([*command, "--output-file", str(path)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return path.read_text(encoding="utf-8")


def entries_of(text: str) -> dict[str, str]:
    """Return the entries of a list by their first lines, `name==version ; markers`, without uv's comments."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    return {entry.split(" \\\n")[0]: entry for entry in re.split(r"\n(?=\S)", lines.strip() + "\n") if entry.strip()}


def add_builds_of_torch(entries: dict[str, str]) -> None:
    """Add the hashes of the builds of torch that pip finds here, and keep those of the present list."""
    (torch,) = (name for name in entries if name.startswith("torch=="))
    present = FOLDER / "dev.txt"
    known = entries_of(present.read_text(encoding="utf-8")) if present.exists() else {}
    hashes = set(re.findall("sha256:([0-9a-f]{64})", entries[torch] + known.get(torch, "")))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
        # pip prefers a build with a local label, such as +cpu, to the plain one of the same version.
        command = [sys.executable, "-m", "pip", "download", *options, f"{torch}+cpu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"pip fetched no CPU build of {torch}; its known hashes are kept:\n{done.stderr}", file=sys.stderr)
        hashes |= {hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()}
    entries[torch] = " \\\n".join([torch, *(f"    --hash=sha256:{value}" for value in sorted(hashes))])


def without_cuda(entries: dict[str, str]) -> dict[str, str]:
    """Return the entries that every build of torch needs."""
    return {name: text for name, text in entries.items() if not CUDA.match(name)}


def write(name: str, source: str, entries: dict[str, str]) -> None:
    """Write a list."""
    body = "\n".join(entries[key].rstrip("\n") for key in sorted(entries))
    (FOLDER / f"{name}.txt").write_text(f"{HEAD.format(source=source)}{body}\n", encoding="utf-8")
    print(f"requirements/{name}.txt: {len(entries)}")


if __name__ == "__main__":
    main(sys.argv[1:])
