"""Every name that a client gives is looked up within its scope; functions without one are listed here, with reasons."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "services/orchestrator/assay_orchestrator"
NAMES = {"run_id", "run_ids", "dataset_id", "request_id", "upload_id"}
SCOPES = {"scope", "team"}

WITHOUT_SCOPE = {
    "work in the background, for all teams: the run ids come from shards, jobs and the tables themselves": {
        "attendance": {"note_attended"},
        "control": {"conclude", "reopen_incomplete", "pause_for_quota"},
        "fairness": {"next_jobs", "top_up", "spread_slots", "reset_tags", "least_served"},
        "runs": {
            "load_run",
            "change_state",
            "apply_command",
            "lock_phase",
            "read_phase",
            "read_statuses",
        }
        | {"count_pauses", "count_answered", "read_origin", "drain"},
        "spending": {"add_spent"},
        "shards": {"create_shards", "start_shard", "require_epochs", "require_active", "lock_sharing", "finish_pause"}
        | {"release_shard", "release_queued", "reopen_incomplete", "all_done", "is_hosted"}
        | {"list_active", "linked_runs", "change_shard"},
        "unjudged": {"release_shards", "release_unjudged", "await_batch", "requeue_ordered", "pause_if_stuck"},
    },
    "parts of a run: the caller has looked the run up, in the same transaction or as its worker": {
        "attempts": {"count_attempts", "journal_attempts", "clear_journal", "has_errors", "request_retry"}
        | {"is_retry_requested", "read_attempts", "count_repeated"},
        "datasets": {"read_cases", "find_case", "find_copies", "read_questions", "read_case", "upload_of_run"},
        "results": {
            "put_rows",
            "without_stored",
            "remove_rows",
            "remove_orphaned_values",
            "store_recount",
            "finished_keys",
            "stored_answers",
        }
        | {"read_answers", "count_finished", "read_sequence", "read_case", "read_rows", "read_in_order", "read_all"},
        "row_costs": {"read_counts", "read_usage"},
        "runs": {"read_state_changes"},
        "stops": {"is_stopped", "read_stop"},
    },
    "uploads: their ids are made here, and no client sees them": {"datasets": {"add_cases", "discard_upload"}},
    "of the run that its caller has just deleted": {"spending": {"forget_run"}},
    "no query": {"lifecycle": {"require_transition", "refusal"}},
}
CALLED_WITHIN_A_SCOPE = {
    ("_accept", "shards.create_shards"): "of the run that it has just created",
    ("_add", "datasets.add_cases"): "of the upload that the call has begun",
    ("_discard", "datasets.discard_upload"): "of the upload that the call has begun",
    ("read_case", "datasets.read_case"): "of the run whose case it has looked up in the same transaction",
    ("_resume", "shards.list_active"): "of the run that its caller has looked up",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}


def store_functions() -> dict[str, set[str]]:
    """Return the parameters of every public function of the store, by module and name."""
    return {
        f"{path.stem}.{node.name}": parameters(node)
        for path in (ROOT / "store").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def unscoped() -> set[str]:
    return {name for name, given in store_functions().items() if given & NAMES and not given & SCOPES}


def test_store_functions_take_a_scope_or_are_listed() -> None:
    """A function of the store that takes a name takes the scope, or the team of a record, or has a reason not to."""
    listed = {
        f"{module}.{name}" for modules in WITHOUT_SCOPE.values() for module, names in modules.items() for name in names
    }
    assert unscoped() == listed


def test_requests_reach_the_store_within_their_scope() -> None:
    """Code that has the scope of a request calls no function of the store that would look a name up without it."""
    paths = [
        *(ROOT / "service").glob("*.py"),
        *(ROOT / "runs").glob("*.py"),
        *(ROOT / "watch").glob("*.py"),
        *(ROOT / "queries").glob("*.py"),
    ]
    without = unscoped()
    used = {
        (function.name, call)
        for path in paths
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and ("scope" in parameters(function) or path.parent.name == "service")
        for call in calls(function) & without
    }
    assert used == set(CALLED_WITHIN_A_SCOPE)


def calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return what a function uses of modules, as module.name."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
