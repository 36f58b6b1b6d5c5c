"""Environment variables of a spec: filled in where allowed, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from assay.errors import InvalidInputError, Problem
from assay.http.addresses import NOWHERE
from assay.model.answers.agent_response import AgentResponse, Source, Usage
from assay.model.run import AgentSpec
from assay.specs.agents import check_agent
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.http import HttpAgent
from assay_orchestrator.agents.http_hosts import check_http_target
from assay_orchestrator.agents.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping


KEY = 'sk-"1234/5678 9é'
ENV = {"AGENT_KEY": KEY, "AGENT_EMPTY": "", "AGENT_NEW_LINE": "a\nb", "PATH_LIKE": "x", "AGENT_HOST": "evil.test"}


def secrets(problems: list[Problem]) -> Secrets:
    """Return the secrets of an agent that may name AGENT_*."""
    return Secrets(AgentAccess([], ["AGENT_*"], ENV), NOWHERE, problems)


def test_variables_are_filled_in_everywhere_in_a_tree() -> None:
    """Variables are filled in texts at any depth; other values and keys stay."""
    problems: list[Problem] = []
    tree = {"${AGENT_KEY}": ["Bearer ${AGENT_KEY}", 1, None, {"b": "${AGENT_KEY}${AGENT_KEY}"}]}
    assert secrets(problems).resolve_tree(tree, "agent.body") == {
        "${AGENT_KEY}": [f"Bearer {KEY}", 1, None, {"b": KEY + KEY}]
    }
    assert not problems


@pytest.mark.parametrize(
    ("name", "message"), [("PATH_LIKE", "--agent-env"), ("AGENT_NONE", "is not set"), ("AGENT_EMPTY", "is not set")]
)
def test_variables_that_are_not_allowed_or_missing_are_named(name: str, message: str) -> None:
    """The problem names the variable and the field."""
    problems: list[Problem] = []
    secrets(problems).resolve_tree({"body": ["${" + name + "}"]}, "agent")
    assert [problem.field for problem in problems] == ["agent.body[0]"]
    assert name in problems[0].message
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("shown", "clean"),
    [
        (f"key {KEY} is wrong", "key [redacted] is wrong"),
        ("GET /?key=sk-%221234/5678%209%C3%A9", "GET /?key=[redacted]"),
        ("GET /?key=sk-%221234%2f5678+9%c3%a9&x=1", "GET /?key=[redacted]&x=1"),
        ('{"key": "sk-\\"1234/5678 9\\u00e9"}', '{"key": "[redacted]"}'),
        ('{"key": "sk-\\"1234\\/5678 9\\u00E9"}', '{"key": "[redacted]"}'),
        (r'"{\"key\": \"sk-\\\"1234/5678 9\\u00e9\"}"', r'"{\"key\": \"[redacted]\"}"'),
        ("<b>sk-&quot;1234/5678 9&#233;</b>", "<b>[redacted]</b>"),
        ("cut off: " + KEY[:12] + "...", "cut off: [redacted]..."),
        ("cut off: " + KEY[:8], "cut off: [redacted]"),
        ("cut off: " + KEY[:12], "cut off: [redacted]"),
        ("cut off: sk-%221234%2F5678%20...", "cut off: [redacted]..."),
        ("twice " + KEY + KEY, "twice [redacted][redacted]"),
        ("twice cut off: " + KEY[:12] + " " + KEY[:10] + "!", "twice cut off: [redacted] [redacted]!"),
    ],
)
def test_values_are_taken_out_of_messages(shown: str, clean: str) -> None:
    """A secret value is redacted: plain, in a URL, in JSON, in HTML, and its beginning at the end of a cut text."""
    one = secrets([])
    one.resolve("${AGENT_KEY}", "agent.target")
    assert one.redact(shown) == clean


def test_a_value_that_is_no_unicode_is_taken_out_too() -> None:
    """Values that are not valid UTF-8, which appear as lone surrogates, are redacted too."""
    value = "key-\udce9-of-the-agent"
    one = Secrets(AgentAccess([], ["AGENT_*"], {"AGENT_KEY": value}), NOWHERE, [])
    assert one.resolve("${AGENT_KEY}", "agent.target") == value
    assert one.redact(f"401 for {value}") == "401 for [redacted]"


def test_other_text_is_left_alone() -> None:
    """A message without a secret is unchanged."""
    one = secrets([])
    one.resolve("${AGENT_KEY}", "agent.target")
    assert one.redact("HTTP 500: sk-other") == "HTTP 500: sk-other"


def test_numbers_and_names_that_hold_a_secret_are_taken_out_of_answers() -> None:
    """A key of digits may come back as a number, one too large for a float with its last digits lost, or as a name."""
    pin = "4815162342108"
    one = Secrets(AgentAccess([], ["AGENT_*"], {"AGENT_KEY": pin}), NOWHERE, [])
    one.resolve("${AGENT_KEY}", "agent.target")
    numbers: list[object] = [int(pin), -int(pin), int(f"7{pin}7"), float(pin), float(f"{pin}e9"), float(f"0.{pin}")]
    kept: list[object] = [True, 0, 4815162, 4.5, None, 10**40]
    redacted = one.redact_answer(
        AgentResponse(
            text="t",
            output={"found": numbers, "kept": kept, f"n{pin}": 1},
            data_rows=int(pin),
            usage=Usage(input_tokens=int(pin), output_tokens=7),
            sources=(Source(score=float(pin), metadata={pin: int(pin)}),),
        )
    )
    assert redacted.output == {"found": ["[redacted]"] * len(numbers), "kept": kept, "n[redacted]": 1}
    assert (redacted.data_rows, redacted.usage) == (None, Usage(output_tokens=7))
    assert redacted.sources == (Source(metadata={"[redacted]": "[redacted]"}),)


@pytest.mark.parametrize(
    ("target", "options", "field"),
    [
        ("http://${AGENT_HOST}/", {}, "agent.target"),
        ("http://127.0.0.1@evil.test/", {}, "agent.target"),
        ("http://[evil.test]/", {}, "agent.target"),
        ("http:///ask", {}, "agent.target"),
        ("ftp://127.0.0.1/", {}, "agent.target"),
        ("http://127.0.0.1\n/", {}, "agent.target"),
        ("http://127.0.0.1/", {"headers": {"x-key": "${AGENT_NEW_LINE}"}}, "agent.headers.x-key"),
        ("http://127.0.0.1/", {"headers": {"x-key": "${AGENT_KEY}"}}, "agent.headers.x-key"),
        ("http://127.0.0.1/", {"body": {"k": "${AGENT_NONE}"}}, "agent.body.k"),
        ("http://127.0.0.1/", {"query": {"k": "${AGENT_NONE}"}}, "agent.query.k"),
    ],
)
def test_an_agent_that_cannot_be_called_is_refused_at_once(
    target: str, options: Mapping[str, object], field: str
) -> None:
    """Hosts that are not allowed, invalid URLs and unusable headers are refused before any call."""
    settings = AgentSpec("http", target, options=options)
    with pytest.raises(InvalidInputError) as refusal:
        HttpAgent(settings, AgentAccess(["127.0.0.1", ""], ["AGENT_*"], ENV))
    assert {problem.field for problem in refusal.value.problems} == {field}
    assert "1234" not in refusal.value.message


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("https://api.example.org/ask", True),
        ("https://API.example.org:8443/ask", True),
        ("https://example.org.evil.test/", False),
        ("https://evil.test/?x=.example.org", False),
        ("https://user@evil.test/", False),
        ("https://[evil.test]/", False),
        ("no url", False),
    ],
)
def test_hosts_are_matched_by_pattern(target: str, allowed: bool) -> None:
    """Only the host decides, whatever else stands in the URL."""
    assert (check_http_target(target, AgentAccess(["*.example.org"], [])) == []) is allowed


@pytest.mark.parametrize(
    "url",
    [
        "http://xn--bcher-kva.example/",  # one reader has the name, the other its code
        "http://allowed.example\u3002evil.example/",  # an ideographic full stop: a dot for one of two readers
        "http://a\uff0eb.example/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://\u24d4xample.com/",
        "http://a.example\t.b.example/",
        "http://[v1.a]/",
        "http://a.example\\@b.example/",
        "http://a.example:80@b.example/",
        "ftp://a.example/",
        "//a.example/",
        "http://a b/",
        "http://good.test:80:80/",
        "http://good.test\u200b/",
        "http:\\\\good.test/",
        "http:good.test",
        "http:///x@good.test/",
        "http://user:word@good.test/",
        "http://user@good.test/",
        "http://good.test:word@evil.test/",
        "http://${AGENT_USER}@good.test/",
    ],
)
def test_a_host_that_two_parsers_read_differently_is_refused(url: str) -> None:
    """The allow-list and the connection would see different hosts, or the URL holds a login."""
    environ = {"AGENT_USER": "user:word"}
    with pytest.raises(InvalidInputError) as refusal:
        HttpAgent(AgentSpec("http", url), AgentAccess(["*"], ["AGENT_*"], environ))
    assert {problem.field for problem in refusal.value.problems} == {"agent.target"}


@pytest.mark.parametrize("url", ["http://user:word@good.test/", "https://user@good.test", "http://:word@good.test/x"])
def test_a_login_in_a_target_is_refused_and_not_shown(url: str) -> None:
    """It would be stored with the run and stand in its report."""
    (problem,) = check_agent(AgentSpec("http", url))
    assert problem.field == "agent.target"
    assert "holds a name or password" in problem.message
    assert "word@" not in str(problem)


@pytest.mark.parametrize(
    "name",
    ["Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade",
     "Expect", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate"],
)  # fmt: skip
def test_headers_of_the_connection_are_not_the_specs(name: str) -> None:
    """A spec cannot set the connection's headers: Host would bypass the allow-list, a wrong length break it."""
    for value in ("x", "${AGENT_KEY}"):
        (problem,) = check_agent(AgentSpec("http", "http://good.test/", options={"headers": {name: value}}))
        assert (problem.field, "set by Assay" in problem.message) == (f"agent.headers.{name}", True)


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "X-Api-Key", "api-key", "X-Auth-Token", "x-goog-api-key"])
def test_a_literal_credential_is_refused_and_not_shown(name: str) -> None:
    """It would be stored with the run; a variable is not."""
    target = "http://good.test/"
    (problem,) = check_agent(AgentSpec("http", target, options={"headers": {name: "Bearer word"}}))
    assert (problem.field, "environment variable" in problem.message) == (f"agent.headers.{name}", True)
    assert "Bearer word" not in str(problem)
    assert not check_agent(AgentSpec("http", target, options={"headers": {name: "Bearer ${AGENT_KEY}"}}))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/", "a.example"),
        ("https://A.example:8443/x?y=1#z", "a.example"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://[::1]/", "::1"),
        ("http://a.example?@b.example/", "a.example"),
        ("http://a.example#@b.example/", "a.example"),
        ("http://API.good.test:8080/a//b@c?d=e@f#g@h", "api.good.test"),
    ],
)
async def test_a_plain_address_is_accepted(url: str, host: str) -> None:
    """The host that the allow-list checks is the host that is called."""
    await HttpAgent(AgentSpec("http", url), AgentAccess(["*"], [], {})).aclose()
    assert not check_agent(AgentSpec("http", url))
    assert check_http_target(url, AgentAccess([host], [])) == []
    assert [problem.field for problem in check_http_target(url, AgentAccess(["other.example"], []))] == ["agent.target"]
    assert httpx2.URL(url).host == host
