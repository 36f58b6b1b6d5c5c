"""Whether the hub can be reached: one question, answered within seconds."""

from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from assay.testing.providers import ScriptedProvider
from assay_embedder.models.hub import hub_answers


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_hub_that_answers_anything_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror need not like the question: an HTTP error is an answer."""
    with ScriptedProvider() as mirror:
        monkeypatch.setattr(constants, "ENDPOINT", mirror.url)
        assert hub_answers()


def test_a_hub_that_refuses_or_is_silent_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the library's retries."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        assert not hub_answers(timeout_s=0.2)
    assert not hub_answers()


@pytest.mark.parametrize("endpoint", ["", "no address", "http://no-such-host.invalid"])
def test_an_endpoint_that_is_none_is_out_of_reach(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever HF_ENDPOINT holds, the embedder says what it needs."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    assert not hub_answers()


def test_offline_mode_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HUB_OFFLINE is the operator's word."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with ScriptedProvider() as mirror:
        monkeypatch.setattr(constants, "ENDPOINT", mirror.url)
        assert not hub_answers()
        assert mirror.requests == []
