"""Which modules are mutated: those whose faults would give a wrong score, lose an answer, or open a door."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ORCHESTRATOR = "services/orchestrator/assay_orchestrator"
_JUDGE = "services/judge/assay_judge"

AREAS: dict[str, tuple[str, ...]] = {
    "gates": ("library/assay/gates/gates.py", f"{_ORCHESTRATOR}/summary/gates.py"),
    "parsers": (
        "library/assay/datasets/**/*.py",
        "library/assay/parsing/strict_json.py",
        "library/assay/parsing/yaml_nodes.py",
    ),
    "store": (f"{_ORCHESTRATOR}/store/*.py", "library/assay/storage/*.py"),
    "engine": (
        f"{_ORCHESTRATOR}/engine/*.py",
        f"{_ORCHESTRATOR}/runs/creation.py",
        f"{_ORCHESTRATOR}/pipeline/flusher.py",
    ),
    "ledger": (
        f"{_JUDGE}/state/account.py",
        f"{_JUDGE}/state/ledger.py",
        f"{_JUDGE}/calls/prices.py",
        f"{_JUDGE}/state/store.py",
    ),
    "cache keys": (
        f"{_JUDGE}/verdicts/cache_key.py",
        f"{_JUDGE}/verdicts/cache.py",
        f"{_JUDGE}/grading/single_flight.py",
    ),
    "addresses": (
        f"{_ORCHESTRATOR}/agents/http.py",
        f"{_ORCHESTRATOR}/agents/http_hosts.py",
        f"{_ORCHESTRATOR}/agents/secrets.py",
        "library/assay/process/redaction.py",
        f"{_JUDGE}/judges.py",
        "library/assay/local_stack/home.py",
    ),
    "metrics": (
        "library/assay/metrics/**/*.py",
        *(f"library/assay/statistics/{name}.py" for name in ("exact_sum", "intervals", "thresholds")),
        *(f"library/assay/text/{name}.py" for name in ("edit_distance", "folding", "porter_stemmer", "word_tokens")),
    ),
}
"""Patterns of paths by area. A pattern that matches nothing is an error: the module was renamed."""

FIRST_TESTS = {f"{_ORCHESTRATOR}/store/schema.py": "tests/integration/orchestrator/test_store_migrations.py"}
"""Test files that notice most about modules whose lines run before any test."""


def files_of_areas(root: Path) -> dict[str, list[Path]]:
    """Return the modules of each area, sorted.

    Raises:
        ValueError: A pattern matches nothing.
    """
    found: dict[str, list[Path]] = {}
    for area, patterns in AREAS.items():
        paths: set[Path] = set()
        for pattern in patterns:
            matching = set(root.glob(pattern))
            if not matching:
                raise ValueError(f"no file matches {pattern!r}, which tools/mutants/areas.py names for {area}")
            paths |= matching
        found[area] = sorted(paths)
    return found
