"""The comment of the GitHub action: one per spec and key, updated in place; a warning where it cannot be written."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
BOT = "github-actions[bot]"
TEXT = "<!-- assay:manual:default -->\n## PASS: `manual`\n"


def tool(name: str) -> ModuleType:
    """Return a module of tools/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


COMMENT = tool("action_comment")


class Hub(ThreadingHTTPServer):
    """The comments of one pull request, as GitHub's API serves them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = []
        self.writes: list[str] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []

    def add(self, body: str, author: str = BOT) -> None:
        """Add a comment."""
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"login": author}})


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        """List a page of the comments."""
        page = re.fullmatch(r"/repos/org/repo/issues/7/comments\?per_page=100&page=(\d+)", self.path)
        assert page is not None, self.path
        start = (int(page[1]) - 1) * 100
        self._answer(200, self.server.comments[start : start + 100])

    def do_POST(self) -> None:
        """Create a comment."""
        assert self.path == "/repos/org/repo/issues/7/comments"
        self._write(lambda body: self.server.add(body), 201)

    def do_PATCH(self) -> None:
        """Update a comment."""
        index = int(self.path.removeprefix("/repos/org/repo/issues/comments/")) - 1
        self._write(lambda body: self.server.comments[index].update(body=body), 200)

    def _write(self, change: Callable[[str], None], status: int) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))["body"]
        assert self.headers["authorization"] == "Bearer secret"
        if self.server.refusals:
            code, headers = self.server.refusals.pop(0)
            self._answer(code, {"message": "no\n::error::forged"}, headers)
            return
        self.server.writes.append(self.command)
        change(body)
        self._answer(status, self.server.comments[-1])

    def _answer(self, status: int, document: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A server on this machine."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def post(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What writes a text as the comment of a pull request and returns the line of the log."""

    def write(text: str | None = TEXT, head: str = "org/repo", **event: Any) -> str:
        path = tmp_path / "comment.md"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text, encoding="utf-8")
        sides = {side: {"repo": {"full_name": name}} for side, name in (("head", head), ("base", "org/repo"))}
        events = tmp_path / "event.json"
        events.write_text(json.dumps(event or {"pull_request": {"number": 7, **sides}}), encoding="utf-8")
        environ = {
            "GITHUB_EVENT_PATH": str(events),
            "GITHUB_API_URL": f"http://127.0.0.1:{hub.server_port}",
            "GITHUB_REPOSITORY": "org/repo",
            "GITHUB_TOKEN": "secret",
        }
        assert COMMENT.main([str(path)], environ) == 0
        return capsys.readouterr().out.strip()

    return write


def test_a_comment_is_created_then_updated_in_place(hub: Hub, post: Callable[..., str]) -> None:
    """A second report updates the first one's comment, and an unchanged report writes nothing."""
    hub.add("a person's comment", "anna")
    assert post() == "created comment 2"
    assert post() == "comment 2 is up to date"
    hub.comments[1]["body"] = hub.comments[1]["body"].replace("\n", "\r\n")  # as browsers send it
    assert post() == "comment 2 is up to date"
    assert post(TEXT.replace("PASS", "FAIL")) == "updated comment 2"
    assert [comment["body"] for comment in hub.comments] == ["a person's comment", TEXT.replace("PASS", "FAIL")]
    assert hub.writes == ["POST", "PATCH"]


def test_two_keys_have_two_comments(hub: Hub, post: Callable[..., str]) -> None:
    """Jobs of a matrix do not overwrite each other's comments."""
    other = TEXT.replace("default", "linux")
    assert [post(), post(other), post(), post(other)] == [
        "created comment 1", "created comment 2", "comment 1 is up to date", "comment 2 is up to date",
    ]  # fmt: skip


def test_a_comment_beyond_the_first_page_is_found(hub: Hub, post: Callable[..., str]) -> None:
    """A long discussion does not lead to a second comment."""
    for index in range(130):
        hub.add(f"comment {index}", "anna")
    hub.add(TEXT)
    assert post() == "comment 131 is up to date"


def test_a_copy_of_the_marker_by_someone_else_is_left_as_it_is(hub: Hub, post: Callable[..., str]) -> None:
    """Only a comment of the action's own author with the marker in its first line is updated."""
    hub.add(TEXT, "mallory")
    hub.add(f"quoting {TEXT}")
    assert post(TEXT.replace("PASS", "FAIL")) == "created comment 3"


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_refused_comment_is_a_warning(hub: Hub, post: Callable[..., str], status: int) -> None:
    """The job continues, the line says what is missing, and nothing of the answer is printed."""
    hub.refusals = [(status, {})]
    line = post()
    assert line.startswith("::warning::no comment: ")
    assert line.endswith("; see the job's summary")
    assert "forged" not in line
    assert ("pull-requests: write" in line) == (status != 500)


def test_a_rate_limit_is_waited_for(hub: Hub, post: Callable[..., str]) -> None:
    """GitHub's word on when to come again is followed; where that is too late the job continues."""
    past = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}
    hub.refusals = [(403, {"retry-after": "0"}), (403, past)]
    assert post() == "created comment 1"
    hub.refusals = [(429, {"retry-after": "0"})] * 3
    assert "rate limit" in post(TEXT.replace("PASS", "FAIL"))
    assert hub.refusals == []
    late = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 3600)}
    hub.refusals = [(403, late), (500, {})]
    assert "rate limit" in post(TEXT.replace("PASS", "FAIL"))
    assert len(hub.refusals) == 1


def test_where_a_comment_has_no_place(hub: Hub, post: Callable[..., str]) -> None:
    """Pull requests of forks, pushes and runs without a report send nothing and log the reason."""
    assert post(head="mallory/repo").startswith("::notice::no comment: the pull request comes from a fork")
    assert post(pull_request=None) == "no comment: the job does not belong to a pull request"
    assert post(None) == "::warning::no comment: the run wrote no report"
    assert hub.writes == []


def test_an_api_that_cannot_be_reached_is_a_warning(hub: Hub, post: Callable[..., str]) -> None:
    """A refused connection does not fail the job."""
    hub.server_port = 1
    assert "GitHub cannot be reached" in post()
