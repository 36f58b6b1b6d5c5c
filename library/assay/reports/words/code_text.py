"""Text on the code of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COMMIT_CHARS, _HASH_CHARS = 12, 12


def code_text(code: Mapping[str, Any] | None) -> str:
    """Return the identity of the code of a run's agent; empty if unknown.

    Args:
        code: `run.code` of the run's document.
    """
    if not code:
        return ""
    parts = [f"commit {commit_text(code)}"] if code.get("commit") else []
    if digest := str(code.get("agent_sha256") or ""):
        parts.append(f"SHA-256 {digest}")
    return "\n".join(parts)


def commit_text(code: Mapping[str, Any]) -> str:
    """Return an abbreviated commit, and whether files differed from it."""
    return str(code["commit"])[:_COMMIT_CHARS] + (", with uncommitted changes" if code.get("dirty") else "")


def code_change(codes: Sequence[Mapping[str, Any]]) -> str:
    """Return the difference of the agent's code between runs; empty if there is none or it is unknown.

    Args:
        codes: `run.code` of each run's document, in order.
    """
    digests = [str(code.get("agent_sha256") or "") for code in codes]
    commits = [commit_text(code) if code.get("commit") else "" for code in codes]
    path = f"commit {' -> '.join(commits)}" if all(commits) and len(set(commits)) > 1 else ""
    if not all(digests):
        return path
    if len(set(digests)) == 1:
        return f"{path}; the agent's code is the same" if path else ""
    if path:
        return f"the agent's code ({path})"
    return f"the agent's code (SHA-256 {' -> '.join(digest[:_HASH_CHARS] for digest in digests)})"
