"""Keys of judges that a spec names as secrets: which of them a run's team may have sent to its judges."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.parsing.secret_references import SCHEME, parse_path
from assay_orchestrator.agents.targets import judge_address

if TYPE_CHECKING:
    from assay.model.run import JudgeSettings
    from assay_orchestrator.agents.access import AgentAccess

_WHERE = "of the judge service, or a variable with --secret-variables"


def judge_key_problems(judge: JudgeSettings, access: AgentAccess) -> list[Problem]:
    """Return why the secrets used as judge keys may not be sent to the judges, as far as this process knows."""
    problems = []
    for place, judge_settings in enumerate(judge.judges):
        reference = parse_path(judge_settings.key_variable.removeprefix(SCHEME)) if _is_secret(judge_settings) else None
        if reference is not None and (
            problem := access.secret_problem(reference, judge_address(judge_settings), _WHERE)
        ):
            where = f"judge.jury[{place}]" if judge.others else "judge"
            problems.append(Problem(problem, f"{where}.key_variable"))
    return problems


def with_team(judge: JudgeSettings, team: str) -> JudgeSettings:
    """Return the judge for a request: its secrets name the team, which the judge service does not know."""
    key = judge.key_variable
    if _is_secret(judge):
        reference = parse_path(key.removeprefix(SCHEME))
        key = str(reference.of(team)) if reference is not None else key
    return dataclasses.replace(judge, key_variable=key, others=tuple(with_team(other, team) for other in judge.others))


def _is_secret(judge: JudgeSettings) -> bool:
    return judge.key_variable.startswith(SCHEME)
