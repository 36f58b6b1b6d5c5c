"""The public door of the library: what `import assay` offers, and nothing else, imported when it is used."""

from __future__ import annotations

import subprocess
import sys

import assay

PUBLIC = {
    "AgentRequest",
    "AgentServer",
    "AssayError",
    "CaseSelection",
    "Client",
    "ComparisonResult",
    "DatasetWarning",
    "Evaluation",
    "Interrupt",
    "MetricResult",
    "Score",
    "Scorer",
    "ScriptedApprovals",
    "__version__",
    "agent_server",
    "compare",
    "evaluate",
    "evaluate_async",
    "rescore",
    "run",
    "runs",
    "score",
    "score_file",
    "score_many",
}


def test_public_names_are_these() -> None:
    """A name that is added, renamed or removed changes what users may rely on: here, in the guide and in CHANGELOG."""
    assert set(assay.__all__) == PUBLIC == set(dir(assay))


def test_every_public_name_can_be_imported() -> None:
    """Each is found where the package looks for it, and belongs to the package."""
    for name in PUBLIC - {"__version__"}:
        assert getattr(assay, name).__module__.startswith("assay."), name


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    """`import assay` stays quick: a script that only reads the version pays for nothing."""
    code = "import assay, sys; print(sorted(name for name in sys.modules if name.startswith('assay.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['assay.version']\n"
