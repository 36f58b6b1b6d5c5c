"""Targets of HTTP agents: the host that is allowed is the host that is called, for every reader of an address."""

from __future__ import annotations

import httpx2
import pytest

from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.http_connection import url_problems
from assay_orchestrator.agents.http_hosts import check_http_target


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
        "http:///path",
        "//a.example/",
    ],
)
def test_an_address_that_is_read_in_two_ways_is_refused(url: str) -> None:
    """The allow-list and the connection would see different hosts."""
    assert [problem.field for problem in url_problems(url)] == ["agent.target"]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/", "a.example"),
        ("https://A.example:8443/x?y=1#z", "a.example"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://[::1]/", "::1"),
        ("http://a.example?@b.example/", "a.example"),
        ("http://a.example#@b.example/", "a.example"),
    ],
)
def test_a_plain_address_is_accepted(url: str, host: str) -> None:
    """The host that the allow-list is asked about is the host that is called."""
    assert url_problems(url) == []
    assert check_http_target(url, AgentAccess([host], [])) == []
    assert [problem.field for problem in check_http_target(url, AgentAccess(["other.example"], []))] == ["agent.target"]
    assert httpx2.URL(url).host == host
