"""The Python of docs/compare.md runs as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.docs.guides import blocks

if TYPE_CHECKING:
    import pytest


def test_the_python_of_the_guide(shared_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two evaluations are compared, and the result says what the comment says."""
    monkeypatch.setenv("ASSAY_HOME", str(shared_home))
    names: dict[str, Any] = {
        "spec": {"name": "guide", "metrics": ["exact_match"]},
        "cases": [{"id": str(at), "question": f"{at}?", "answer": str(at)} for at in range(5)],
        "old_agent": lambda question: question.rstrip("?"),
        "new_agent": lambda question: question.rstrip("?") if question != "0?" else "",
    }
    (block,) = blocks("docs/compare.md", "python")
    exec(compile(block.text, "docs/compare.md", "exec"), names)
    result = names["result"]
    assert result.verdict.value == "inconclusive"
    assert "'inconclusive'" in block.text
    assert result.exit_status == 0
    assert "inconclusive" in repr(result)
    assert result.to_pandas()["metric"].iloc[0] == "exact_match"
