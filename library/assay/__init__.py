"""Assay: shared scoring infrastructure for LLM agents."""

import importlib
import os
from typing import TYPE_CHECKING

from assay.version import __version__

# gRPC reads this when it is imported, which any module below this package may do first; its own log
# lines (GOAWAY and the like) mean nothing to a user.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# With it, gRPC starts threads in every process that an agent forks, and these crash.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from assay import errors as errors
    from assay import types as types
    from assay.agent_host.agent_server import AgentServer, agent_server
    from assay.client.api.evaluate import evaluate, evaluate_async
    from assay.client.api.evaluation import Evaluation
    from assay.client.api.rescore import rescore
    from assay.client.api.stored import get_run, list_runs
    from assay.client.client import Client
    from assay.client.comparison.api import ComparisonResult, compare
    from assay.datasets.warnings import DatasetWarning
    from assay.errors import AssayError
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.approvals import ScriptedApprovals
    from assay.model.answers.interrupts import Interrupt
    from assay.model.metric_call import MetricResult
    from assay.model.run import CaseSelection, Score
    from assay.scoring.scorer import Scorer, score, score_file, score_many

__all__ = [
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
]

_WHERE = {
    "AgentRequest": "assay.model.answers.agent_request",
    "AgentServer": "assay.agent_host.agent_server",
    "AssayError": "assay.errors",
    "CaseSelection": "assay.model.run",
    "Client": "assay.client.client",
    "ComparisonResult": "assay.client.comparison.api",
    "DatasetWarning": "assay.datasets.warnings",
    "Evaluation": "assay.client.api.evaluation",
    "Interrupt": "assay.model.answers.interrupts",
    "MetricResult": "assay.model.metric_call",
    "Score": "assay.model.run",
    "Scorer": "assay.scoring.scorer",
    "ScriptedApprovals": "assay.model.answers.approvals",
    "agent_server": "assay.agent_host.agent_server",
    "compare": "assay.client.comparison.api",
    "evaluate": "assay.client.api.evaluate",
    "evaluate_async": "assay.client.api.evaluate",
    "get_run": "assay.client.api.stored",
    "list_runs": "assay.client.api.stored",
    "rescore": "assay.client.api.rescore",
    "score": "assay.scoring.scorer",
    "score_file": "assay.scoring.scorer",
    "score_many": "assay.scoring.scorer",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `import assay` itself stays quick."""
    if name in ("errors", "types"):
        return importlib.import_module(f"assay.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """Return the public names, which are imported when they are first used."""
    return sorted(__all__)
