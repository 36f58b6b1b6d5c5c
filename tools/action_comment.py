"""Write the report of a run as a comment on a pull request: one comment per spec and key, updated in place.

    python tools/action_comment.py FILE

FILE is written by `assay run --comment-file FILE`; its first line identifies the comment on later runs. The script runs
in a GitHub job, with GITHUB_TOKEN in its environment, and needs only Python. If it cannot write the comment, the job
continues with a warning: its summary has the report as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAGE = 100
_MOST_PAGES = 50
_ATTEMPTS = 3
_MOST_WAIT_S = 60.0
_TIMEOUT_S = 30.0
_AUTHOR = "github-actions[bot]"


class ApiError(Exception):
    """GitHub refused a request; the message explains why."""


class Api:
    """The part of GitHub's API that comments need.

    Args:
        base: Its URL, e.g. "https://api.github.com".
        token: A token that may write comments.
    """

    def __init__(self, base: str, token: str) -> None:
        self._base = base.rstrip("/")
        self._token = token

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of the reply. Waits and retries when the rate limit is reached.

        Raises:
            ApiError: GitHub refuses the request or cannot be reached.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(self._request(method, path, body), timeout=_TIMEOUT_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    wait_s = _wait_s(error)
                    if wait_s is None or wait_s > _MOST_WAIT_S or attempt == _ATTEMPTS:
                        raise ApiError(_refusal(error, wait_s)) from None
                time.sleep(wait_s)
            except (OSError, ValueError) as error:
                raise ApiError(f"GitHub cannot be reached ({type(error).__name__})") from None
        raise AssertionError("the last attempt returns or raises")

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> urllib.request.Request:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(self._base + path, data, headers, method=method)


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Write the comment; return the exit status, which is 0 even if the comment cannot be written."""
    if len(arguments) != 1:
        print("usage: action_comment.py FILE", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    request = event.get("pull_request")
    if not request:
        print("no comment: the job does not belong to a pull request")
    elif _is_of_fork(request):
        print(
            "::notice::no comment: the pull request comes from a fork, whose token is read-only; see the job's summary"
        )
    elif not path.is_file():
        print("::warning::no comment: the run wrote no report")
    else:
        api = Api(environ.get("GITHUB_API_URL", "https://api.github.com"), environ["GITHUB_TOKEN"])
        author = environ.get("COMMENT_AUTHOR", _AUTHOR)
        try:
            message = write_comment(
                api, environ["GITHUB_REPOSITORY"], request["number"], path.read_text(encoding="utf-8"), author
            )
        except ApiError as error:
            message = f"::warning::no comment: {error}; see the job's summary"
        print(message)
    return 0


def write_comment(api: Api, repository: str, number: int, text: str, author: str) -> str:
    """Create or update the comment; return a line for the job's log.

    Args:
        api: GitHub's API.
        repository: As "owner/name".
        number: Number of the pull request.
        text: The comment; its first line is the marker.
        author: Only comments of this author are updated, even if others contain the marker.

    Raises:
        ApiError: GitHub refused a request.
    """
    marker = text.partition("\n")[0]
    for comment in _comments(api, repository, number):
        body = comment.get("body") or ""
        if body.partition("\n")[0].rstrip("\r") != marker or (comment.get("user") or {}).get("login") != author:
            continue
        if body.replace("\r\n", "\n").rstrip() == text.rstrip():
            return f"comment {comment['id']} is up to date"
        api.call("PATCH", f"/repos/{repository}/issues/comments/{comment['id']}", {"body": text})
        return f"updated comment {comment['id']}"
    created = api.call("POST", f"/repos/{repository}/issues/{number}/comments", {"body": text})
    return f"created comment {created['id']}"


def _comments(api: Api, repository: str, number: int) -> Iterator[Mapping[str, Any]]:
    for page in range(1, _MOST_PAGES + 1):
        comments = api.call("GET", f"/repos/{repository}/issues/{number}/comments?per_page={_PAGE}&page={page}")
        yield from comments
        if len(comments) < _PAGE:
            return


def _is_of_fork(request: Mapping[str, Any]) -> bool:
    head, base = (request[side].get("repo") or {} for side in ("head", "base"))
    return bool(head.get("full_name") != base.get("full_name"))


def _wait_s(error: urllib.error.HTTPError) -> float | None:
    """Return how long to wait before retrying, in seconds, or None if a retry would not help."""
    headers = error.headers
    if error.code not in (403, 429):
        return None
    if (after := headers.get("retry-after", "")).isdigit():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and (reset := headers.get("x-ratelimit-reset", "")).isdigit():
        return max(0.0, float(reset) - time.time())
    return 1.0 if error.code == 429 else None


def _refusal(error: urllib.error.HTTPError, wait_s: float | None) -> str:
    if wait_s is not None:
        return "GitHub's rate limit is reached"
    if error.code in (401, 403, 404):
        return (
            f"the token may not write comments (HTTP {error.code}): the job needs `permissions: pull-requests: write`"
        )
    return f"GitHub answered with HTTP {error.code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
