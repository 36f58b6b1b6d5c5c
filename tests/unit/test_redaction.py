"""Secrets are taken out of texts: however they are spelled, and of which parts of them stand at the ends."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import Problem, SpecError
from assay.process.redaction import RECOGNISABLE_CHARS, Redactor
from assay.rpc.status import to_status

SECRET = 'sk-planted/42+é "x" 0123456789abcdef'
_VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=RECOGNISABLE_CHARS, max_size=60
).filter(lambda value: "redacted" not in value)


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(json.dumps(SECRET)),
        quote(SECRET),
        quote(SECRET, safe=""),
        SECRET.encode().hex(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(f"user:{SECRET}".encode()).decode(),
    ],
)
def test_spellings_of_a_value(spelled: str) -> None:
    """Plain, JSON, URL, hex and base64 are recognised in the middle of other text."""
    for clean in (Redactor([SECRET]).redact, Redactor([SECRET]).redact_long, Redactor([SECRET]).redact_line):
        shown = clean(f"before {spelled} after")
        assert shown.startswith("before ")
        assert shown.endswith(" after")
        assert "0123456789" not in shown
        assert base64.b64encode(b"0123456789abcdef").decode()[2:12] not in shown


def windows(text: str) -> set[str]:
    """Return the recognisable parts of a text."""
    return {text[at : at + RECOGNISABLE_CHARS] for at in range(len(text) - RECOGNISABLE_CHARS + 1)}


@given(
    _VALUES.filter(lambda value: len(value) > RECOGNISABLE_CHARS),
    st.lists(st.integers(0, 60), max_size=4),
    st.text("xyz ", max_size=5),
)
def test_no_part_of_a_secret_is_left_where_a_stream_split_it(value: str, cuts: list[int], around: str) -> None:
    """The pieces of a stream begin and end with parts of the secret, or are nothing else."""
    text = f"{around}{value}{around}"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    clean = Redactor(secrets=[value]).redact_long
    for start, end in itertools.pairwise(places):
        piece = text[start:end]
        if not windows(around + around):
            assert not windows(clean(piece)) & (windows(value) - windows("[redacted]"))


@given(_VALUES, st.text(max_size=30), st.text(max_size=30))
def test_a_whole_value_is_left_nowhere(value: str, before: str, after: str) -> None:
    """Whatever stands around it."""
    redactor = Redactor(secrets=[value])
    for clean in (redactor.redact, redactor.redact_long, redactor.redact_line):
        assert value not in clean(before + value + after)


def test_a_value_that_is_not_only_secret_stays_in_parts() -> None:
    """Part of a URL may be an ordinary word, and part of an answer that is scored."""
    redactor = Redactor(["https://api.example.org/v1"])
    assert redactor.redact_long("see https://api.example.org") == "see https://api.example.org"
    assert redactor.redact_line("GET https://other.example.org") == "GET https://other.example.org"
    assert redactor.redact_long("see https://api.example.org/v1/x") == "see [redacted]/x"


def test_errors_that_callers_see_have_no_secret() -> None:
    """Neither the message of a call that failed, nor the problems beside it."""
    problems = [Problem(f"is {SECRET}", "agent.target"), Problem("other")]
    status = to_status(SpecError(problems), Redactor(secrets=[SECRET]).redact_line)
    assert b"0123456789" not in status.SerializeToString()
    assert status.message == "agent.target: is [redacted]\nother"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_logs_have_no_secret(log_format: str) -> None:
    """In messages, their values, tracebacks and stacks; also what other packages log at debug."""
    code = f"""
import json, logging
from assay.process.logs import LogSettings, configure_logging, keep_out_of_logs
configure_logging(LogSettings("debug", {log_format!r}))
secret = {SECRET!r}
keep_out_of_logs([], [secret])
log = logging.getLogger("other")
log.debug("sent: headers=%s", {{"authorization": "Bearer " + secret}})
log.info(secret)
log.warning("cut off: " + secret[:14])
log.error("body: %s", json.dumps({{"key": secret}}))
try:
    raise ValueError(secret)
except ValueError:
    log.exception("failed", stack_info=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sk-plant" not in ended.stderr
    assert "0123456789" not in ended.stderr
    assert ended.stderr.count("[redacted]") >= 5
    assert logging.getLogger().isEnabledFor(logging.WARNING)
