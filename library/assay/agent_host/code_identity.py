"""The identity of an agent's code: a hash of its source files, and their git commit.

The client computes it before creating a run, so that a comparison can report that the agent's code changed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from assay.model.code_identity import CodeIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from assay.model.run_spec import AgentSpec

_MOST_FILES = 1_000
_MOST_BYTES = 64 * 1024**2  # of a single file
_INSTALLED = frozenset({"site-packages", "dist-packages"})

_GIT_TIMEOUT_S = 2.0
_GIT_STATUS = (
    "git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no",
    "--ignore-submodules=dirty",
)  # fmt: skip
_COMMIT = "# branch.oid "


@dataclass(frozen=True, slots=True)
class GitState:
    """The git state of a folder.

    Args:
        commit: The full commit; empty outside a repository, without a commit, or if git failed.
        dirty: Whether tracked files differ from the commit; None if unknown.
    """

    commit: str = ""
    dirty: bool | None = None


def git_state(folder: Path, timeout_s: float = _GIT_TIMEOUT_S) -> GitState:
    """Return the git state of a folder; does not raise if git is missing.

    Args:
        folder: Any folder.
        timeout_s: git's timeout, in seconds.
    """
    with TemporaryFile() as output:
        if not _has_answered(folder, output, timeout_s):
            return GitState()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").splitlines()
    commit = next((line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)), "")
    if not commit or commit == "(initial)":
        return GitState()
    return GitState(commit, dirty=any(not line.startswith("#") for line in lines))


def _has_answered(folder: Path, output: IO[bytes], timeout_s: float) -> bool:
    # A short timeout and no pipe, so that neither git nor its children can block a run.
    # Within a git hook, GIT_DIR and others name the hook's repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - the git on PATH, with words of ours alone
            _GIT_STATUS,
            cwd=folder,
            env={**environ, "GIT_OPTIONAL_LOCKS": "0"},  # without it, status may lock the index of the user's own git
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        return process.wait(timeout_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def code_identity(agent: AgentSpec, folder: Path, function: Callable[..., Any] | None = None) -> CodeIdentity | None:
    """Return the identity of an agent's code; None if it is unknown.

    Args:
        agent: Checked settings.
        folder: The spec's folder, which code and programs are relative to.
        function: A function that replaces the agent of the settings.
    """
    git, digest = git_state(folder), ""
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        digest = _function_hash(function) if function is not None else _agent_hash(agent, folder.resolve())
    return CodeIdentity(git.commit, git.dirty, digest) if git.commit or digest else None


def _agent_hash(agent: AgentSpec, folder: Path) -> str:
    if not agent.is_hosted:
        return ""
    if agent.adapter == "command":
        # Programs found on PATH are not part of the user's code.
        named = [folder / word for word in shlex.split(agent.target) if word]
        return _hash(_with_imports([path for path in named if path.is_file()], folder), folder)
    module = agent.target.rpartition(":")[0]
    if module.endswith(".py"):
        return _hash(_with_imports([folder / module], folder), folder)
    root, parts = folder, module.split(".")
    file = _module_file(root, parts)
    if file is None:
        spec = None if parts[0] in sys.stdlib_module_names else importlib.util.find_spec(parts[0])
        if spec is None or not spec.origin or _INSTALLED & {*Path(spec.origin).parts}:
            return ""
        origin = Path(spec.origin)
        root = origin.parent.parent if origin.name == "__init__.py" else origin.parent
        file = _module_file(root, parts)
    return _hash(_with_imports(_package_of(file, root), root), root) if file is not None else ""


def _function_hash(function: Callable[..., Any]) -> str:
    """Return the hash of a function's module and its imports; for a notebook's function, of the function's text."""
    owner = function if inspect.isfunction(inspect.unwrap(function)) else type(function)
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    name = getattr(module, "__file__", None)
    if name is None or not Path(name).is_file():
        return hashlib.sha256(inspect.getsource(inspect.unwrap(function)).encode()).hexdigest()
    file = Path(name).resolve()
    if _INSTALLED & {*file.parts}:
        return ""
    depth = len(module.__name__.split(".")) - (file.name != "__init__.py") if module is not None else 0
    root = file.parents[depth if module is not None and module.__name__ != "__main__" else 0]
    return _hash(_with_imports(_package_of(file, root), root), root)


def _package_of(file: Path, root: Path) -> list[Path]:
    """Return the source files of a module's package; the module alone if it is in none."""
    top = root / file.relative_to(root).parts[0]
    return sorted(top.rglob("*.py"))[:_MOST_FILES] if (top / "__init__.py").is_file() else [file]


def _module_file(root: Path, parts: Sequence[str]) -> Path | None:
    place = root.joinpath(*parts)
    return next((path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file()), None)


def _with_imports(files: Iterable[Path], root: Path) -> list[Path]:
    """Return files and, recursively, their imports from the folder; for modules, not the programs that they run."""
    modules = dict.fromkeys(files)
    waiting = list(modules)
    while waiting and len(modules) < _MOST_FILES:
        file = waiting.pop()
        if file.suffix != ".py" or file.stat().st_size > _MOST_BYTES:
            continue
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            for parts in _imports(ast.parse(file.read_bytes()), file, root):
                module = _module_file(root, parts)
                if module is not None and module not in modules:
                    modules[module] = None
                    waiting.append(module)
    return list(modules)


def _imports(tree: ast.AST, file: Path, root: Path) -> Iterator[list[str]]:
    """Yield the dotted parts of names that a module may import from a folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = list(file.relative_to(root).parts[: -node.level]) if node.level and root in file.parents else []
            base = [*package, *(node.module.split(".") if node.module else [])]
            yield from ([base] if base else [])
            yield from ([*base, alias.name] for alias in node.names if alias.name != "*")


def _hash(files: Sequence[Path], root: Path) -> str:
    """Return the SHA-256 over the names and contents of files, sorted by name; empty for no files."""
    digest = hashlib.sha256()
    names = {str(file.relative_to(root)) if root in file.parents else file.name: file for file in files}
    for name in sorted(names):
        if names[name].stat().st_size <= _MOST_BYTES:
            digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
            digest.update(hashlib.sha256(names[name].read_bytes()).digest())
    return digest.hexdigest() if names else ""
