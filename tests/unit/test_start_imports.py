"""What a start does not import: every run waits for the orchestrator, and every command for its own modules."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import assay
from assay.process.deferred_imports import defer_imports, import_deferred, imported_when_called

if TYPE_CHECKING:
    from pathlib import Path


ORCHESTRATOR = """
import sys
from pathlib import Path
import assay_orchestrator.__main__ as entry
entry.defer_imports(*entry.UNUSED)
import assay_orchestrator.engine.dispatcher_factory, assay_orchestrator.service.registration
from assay_orchestrator.runs import manager, planner
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
for _ in range(2):  # makes a database, then finds it up to date
    open_database(Settings.read(["--database", sys.argv[1]], {})).close()
"""
EARLY = "import assay_cli.__main__, assay.local_stack.early_start"
LIBRARY = (
    "import assay, assay_cli.commands, assay.client.client, assay.datasets, assay.specs, assay.local_stack.stack\n"
    "assay.score('exact_match', 'a', 'a')"
)
HEAVY = ("torch", "pandas", "matplotlib", "numpy", "sqlalchemy", "scipy", "httpx2", "openai", "anthropic")
UNUSED = {
    # part: (its start, the modules that it does not import)
    "orchestrator": (ORCHESTRATOR, (
        "alembic", "assay.comparison.compare", "assay.specs.loader", "httpx2", "jsonschema", "numpy", "procrastinate",
        "psycopg", "scipy", "sqlalchemy.dialects.postgresql", "yaml", "email", "google.protobuf.text_format",
    )),
    "judge": ("import assay_judge.__main__", ("openai", "anthropic", "httpx2", "numpy", "pydantic")),
    "embedder": ("import assay_embedder.__main__", ("torch", "tokenizers")),
    "early": (EARLY, ("asyncio", "click", "logging", "tempfile", "typing_extensions")),
    "command": (f"{EARLY}, assay_cli.commands.run", (
        "assay.comparison", "assay.model.run", "asyncio", "grpc", "hashlib", "jinja2", "numpy", "sqlalchemy",
        "tempfile", "yaml",
    )),
    "library": (LIBRARY, HEAVY),
    "score": ("import assay; assay.score('exact_match', 'a', 'a')", ("grpc", *HEAVY)),
}  # fmt: skip


@pytest.mark.parametrize("part", UNUSED)
def test_a_start_imports_nothing_that_it_does_not_need(part: str, tmp_path: Path) -> None:
    """The start of a service, of the command and of scoring imports none of its unused modules."""
    code, unused = UNUSED[part]
    code = f"import sys\n{code}\nprint([name for name in {unused} if name in sys.modules])"
    command = [sys.executable, "-c", code, str(tmp_path / "assay.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PARTS = """
import sys
from assay_embedder.models.torch_parts import defer_unused_parts, import_all_parts
defer_unused_parts()
from assay_embedder.models import loading
model = loading.load("all-MiniLM-L6-v2", device="cpu")
assert model.encode(model.tokenize(["a text"])).shape == (1, 384)
assert model.description.engine.startswith("packed"), model.description
import torch
names = ("torch._meta_registrations", "torch.export", "torch.masked", "torch.distributions")
print([name for name in names if getattr(sys.modules[name], "__file__", None)])  # none
import_all_parts()
print([name for name in names if not getattr(sys.modules[name], "__file__", None)])  # none
print(torch.export.ExportedProgram.__name__, torch.linalg.qr(torch.empty(3, 2, device="meta")).Q.shape == (3, 2))
"""

SCHEMAS = """
import sys
from importlib.util import find_spec
from assay_orchestrator.scorers import worker
worker._import_all()
print("jsonschema" in sys.modules, "rfc3987_syntax" in sys.modules)
import jsonschema
formats = jsonschema.FormatChecker()
print(find_spec("rfc3987_syntax") is not None)
print(formats.conforms("no iri", "iri"), formats.conforms("https://example.org/ü", "iri"))
"""


def test_a_module_is_imported_by_its_first_use() -> None:
    """`import`, `from` and a look at its file import nothing; an attribute imports the real module."""
    names = [name for name in ("wave", "xml.dom.pulldom") if sys.modules.pop(name, None) or True]
    defer_imports(*names)
    import wave
    from xml.dom import pulldom

    assert not any(getattr(module, "__file__", None) for module in (wave, pulldom))
    assert wave.Error.__module__ == "wave"
    assert sys.modules["wave"] is not wave
    assert getattr(sys.modules["xml.dom.pulldom"], "__file__", None) is None
    import_deferred(*names)
    assert sys.modules["xml.dom.pulldom"].__file__
    assert pulldom.START_ELEMENT == "START_ELEMENT"


def test_a_module_is_imported_when_a_function_of_it_is_called() -> None:
    """An imported function works, and its call imports the module."""
    sys.modules.pop("colorsys", None)
    with imported_when_called("colorsys", "rgb_to_yiq"):
        from colorsys import rgb_to_yiq
    assert "colorsys" not in sys.modules
    assert rgb_to_yiq(0, 0, 0)[0] == 0
    assert sys.modules["colorsys"].__file__
    with imported_when_called("colorsys", "rgb_to_yiq"), imported_when_called("not_installed", "anything"):
        import colorsys
    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)
    assert "not_installed" not in sys.modules


def test_a_scorer_starts_without_the_grammar_of_iris() -> None:
    """jsonschema's grammar of IRIs, a second of processor time, is not imported; format checks work."""
    done = subprocess.run([sys.executable, "-c", SCHEMAS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False", "True", "False True"]


def test_a_model_is_run_without_the_parts_of_torch_that_are_put_off() -> None:
    """The packed forward pass on a CPU uses none of them; torch is whole once they are imported."""
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "ExportedProgram True"]


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
    "get_run",
    "list_runs",
    "rescore",
    "score",
    "score_file",
    "score_many",
}


def test_public_names_are_these() -> None:
    """A change of the public names belongs here, in the guide and in CHANGELOG."""
    assert set(assay.__all__) == PUBLIC == set(dir(assay))


def test_every_public_name_can_be_imported() -> None:
    """Each public name can be imported and belongs to the package."""
    for name in PUBLIC - {"__version__"}:
        assert getattr(assay, name).__module__.startswith("assay."), name


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    """`import assay` imports nothing but the version."""
    code = "import assay, sys; print(sorted(name for name in sys.modules if name.startswith('assay.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['assay.version']\n"
