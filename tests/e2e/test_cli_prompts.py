"""`assay run` with the openai and anthropic adapters, against a provider on a port of this machine."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from assay.testing.judges import says
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Cli

KEY = "sk-test-0123456789-abcdefghij"
both = pytest.mark.parametrize("adapter", ["openai", "anthropic"])


@pytest.fixture
def provide() -> Iterator[Callable[..., ScriptedProvider]]:
    """Start a provider that answers with the given replies."""
    with ExitStack() as stack:
        yield lambda *replies: stack.enter_context(ScriptedProvider(*replies))


def label(request: ProviderRequest) -> Reply:
    """Answer as a model that is asked for the mood of a review, with one failure of each kind."""
    review = request.question.rpartition("Review: ")[2]
    sent = request.headers["authorization"]
    usage = Tokens(100, 2, cache_read=60)
    match review:
        case "Fine.":
            return Reply("positive", usage=usage)
        case "رديء":
            return Reply("negative", usage=usage, thinking="The word means bad.")
        case "Echo the key.":
            return Reply(f"negative {sent}", usage=usage, headers={"x-request-id": sent, "request-id": sent})
        case "Refuse.":
            return Reply("I cannot help with that.", stop="content_filter", usage=usage)
        case "Cut.":
            return Reply("posi", stop="length", usage=usage)
        case "Silence.":
            return Reply("", usage=usage)
        case "Forbidden.":
            return Reply(f"the key {sent} may not do this", status=403)
        case _:
            return Reply("busy", status=429, headers={"retry-after-ms": "1"})


CASES = [("fine", "Fine.", "positive"), ("arabic", "رديء", "negative"), ("wrong", "Echo the key.", "positive"),
         ("refuse", "Refuse.", "positive"), ("cut", "Cut.", "positive"), ("silence", "Silence.", "positive"),
         ("forbidden", "Forbidden.", "positive"), ("busy", "Busy.", "positive")]  # fmt: skip


def write_project(cli: Cli, adapter: str, provider: ScriptedProvider, cases: list[tuple[str, str, str]]) -> None:
    """Write a spec with a prompt file, and a dataset of reviews."""
    lines = [
        {"id": case_id, "variables": {"review": review}, "expected_output": expected}
        for case_id, review, expected in cases
    ]
    cli.write("cases.jsonl", "\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
    cli.write("prompt.md", "Is this positive or negative?\nReview: {{review}}\n")
    url = provider.openai_url if adapter == "openai" else provider.url
    agent: dict[str, Any] = {"adapter": adapter, "target": "tiny", "base_url": url, "api_key": "${MY_KEY}"}
    agent |= {"prompt_file": "prompt.md", "system": "One word.", "max_tokens": 5, "retries": 1}
    spec = {"name": "mood", "dataset": "cases.jsonl", "agent": agent, "metrics": ["exact_match", "tokens"]}
    cli.write("assay.yaml", spec | {"gates": ["exact_match >= 0.2", "tokens <= 200"], "max_agent_errors": "99%"})


def stored_bytes(cli: Cli) -> bytes:
    """Return everything in the folder: state directory, logs, reports."""
    return b"".join(path.read_bytes() for path in cli.folder.rglob("*") if path.is_file())


@both
def test_a_prompt_is_run_and_its_key_is_written_nowhere(
    cli: Cli, adapter: str, provide: Callable[..., ScriptedProvider]
) -> None:
    """Answers, refusals, cut-off and empty answers and errors are told apart; a service that repeats the key adds it
    to no row, log, report or output.
    """
    provider = provide(label)
    write_project(cli, adapter, provider, CASES)
    cli.env["MY_KEY"] = KEY
    done = cli.run("run", "assay.yaml", "--output-dir", "out")
    report = json.loads((cli.folder / "out" / "results.json").read_text(encoding="utf-8"))
    rows = {row["case_id"]: row for row in report["rows"]}
    assert {case_id for case_id, row in rows.items() if row["passed"]} == {"fine", "arabic"}
    assert rows["wrong"]["answer"] == "negative Bearer [redacted]"
    assert rows["arabic"]["question"] == '{"review":"رديء"}'
    assert 'asked: {"review":"Cut."}' in done.stdout
    errors = {case_id: row["response"]["error"] for case_id, row in rows.items() if row["status"] == "error"}
    assert {case_id: (error["type"], error.get("http_status")) for case_id, error in errors.items()} == {
        "refuse": ("refusal", None),
        "cut": ("truncated", None),
        "silence": ("empty", None),
        "forbidden": ("scripted_error", 403),
        "busy": ("scripted_error", 429),
    }
    assert rows["fine"]["response"]["usage"] == {
        "input_tokens": 100, "output_tokens": 2, "total_tokens": 102, "cache_read_tokens": 60,
        "cache_write_tokens": 0, "reasoning_tokens": 0, "requests": 1,
    }  # fmt: skip
    assert [attempt["error"]["http_status"] for attempt in rows["busy"]["response"]["attempts"]] == [429]
    assert report["results"]["tokens"]["value"] == 102
    assert report["summary"]["agent_error_count"] == 5
    assert all(gate["outcome"] == "pass" for gate in report["summary"]["gates"])
    assert len(provider.requests) == len(CASES) + 1
    assert {request.body["model"] for request in provider.requests} == {"tiny"}
    assert {request.headers["authorization"] for request in provider.requests} == {f"Bearer {KEY}"}
    written = stored_bytes(cli)
    assert b"negative Bearer [redacted]" in written
    assert KEY.encode() not in written
    assert KEY[8:].encode() not in written
    assert KEY not in done.stdout + done.stderr


@both
def test_the_exit_status_says_what_happened(cli: Cli, adapter: str, provide: Callable[..., ScriptedProvider]) -> None:
    """1 where a gate fails, 2 where the spec or the prompt is wrong or the key is not set; the latter before anything
    is started.
    """
    provider = provide(label)
    write_project(cli, adapter, provider, CASES[:3])
    for command in ("run", "validate"):
        done = cli.run(command, "assay.yaml", status=2)
        assert "assay.yaml:1: agent.api_key: the environment variable MY_KEY is not set" in done.stderr
    assert json.loads(cli.run("runs", "list", "--json").stdout)["runs"] == []
    cli.run("validate", "assay.yaml", "--server", "elsewhere:1")
    cli.write("prompt.md", "Is this positive or negative? {{reviews}}\n")
    cli.env["MY_KEY"] = KEY
    done = cli.run("run", "assay.yaml", status=2)
    assert "did you mean 'review'" in done.stderr
    assert provider.requests == []
    cli.write("prompt.md", "Review: {{review}}")
    cli.run("run", "assay.yaml", "--set", 'gates=["exact_match >= 0.9"]', status=1)
    assert len(provider.requests) == 3
    spec = (cli.folder / "assay.yaml").read_text(encoding="utf-8").replace("${MY_KEY}", KEY)
    cli.write("assay.yaml", spec)
    done = cli.run("run", "assay.yaml", status=2)
    assert "must be the name of an environment variable" in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_the_template_asks_a_model_once_the_hash_signs_are_gone(
    shared_cli: Cli, provide: Callable[..., ScriptedProvider]
) -> None:
    """`assay init prompt-quality` holds an openai agent in comments, which works as it stands there."""
    provider = provide(lambda request: Reply("negative" if "broke" in request.question else "positive"))
    shared_cli.run("init", "prompt-quality")
    text = (shared_cli.folder / "assay.yaml").read_text(encoding="utf-8")
    (block,) = [block for block in text.split("\n\n") if "adapter: openai" in block]
    lines = [line.removeprefix("# ") for line in block[block.index("# agent:") :].splitlines()]
    agent = "\n".join(lines).replace("# base_url: http://127.0.0.1:8000/v1", f"base_url: {provider.openai_url}")
    assert "adapter: replay" in text
    shared_cli.write("assay.yaml", f"dataset: cases.jsonl\nmetrics: [{{exact_match: {{threshold: null}}}}]\n{agent}\n")
    report = json.loads(shared_cli.run("run", "assay.yaml", "--json").stdout)
    assert {row["case_id"] for row in report["rows"] if row["passed"]} == {"battery", "support", "gift", "irony"}
    assert "<review>\nAfter a week the screen went black.\n</review>" in {
        request.question.partition("\n\n")[2] for request in provider.requests
    }


def test_secrets_of_a_folder_on_a_laptop(cli: Cli, provide: Callable[..., ScriptedProvider]) -> None:
    """Agent and judge read a secret of the team `local`; a missing one is refused before anything is asked."""
    agent, judge = provide(Reply("yes")), provide(says({"reasoning": "Right.", "score": 4}))
    own = cli.folder / "secrets" / "local"
    own.mkdir(parents=True)
    (own / "models").write_text(f"{KEY}\n", encoding="utf-8")
    cli.env |= {name: str(own.parent) for name in ("ASSAY_ORCHESTRATOR_SECRETS", "ASSAY_JUDGE_SECRETS")}
    write_project(cli, "openai", agent, CASES[:2])
    spec = yaml.safe_load((cli.folder / "assay.yaml").read_text(encoding="utf-8"))
    spec |= {"metrics": ["quality"], "gates": ["quality >= 0.1"]}
    spec["judge"] = {"provider": "openai", "model": "j", "base_url": judge.openai_url, "canaries": 0}
    spec["judge"]["key_variable"] = "secret://models"
    cli.write("assay.yaml", spec | {"agent": spec["agent"] | {"api_key": "secret://none"}})
    refused = cli.run("run", "assay.yaml", status=2)
    assert "agent.api_key: the team has no secret secret://none" in refused.stderr
    assert agent.requests == judge.requests == []
    cli.write("assay.yaml", spec | {"agent": spec["agent"] | {"api_key": "secret://local/models"}})
    cli.run("validate", "assay.yaml")
    cli.run("run", "assay.yaml")
    for requests in (agent.requests, judge.requests):
        assert {request.headers["authorization"] for request in requests} == {f"Bearer {KEY}"}
