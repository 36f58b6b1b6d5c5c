"""The short form of `make fuzz`, and what it stands on."""

from __future__ import annotations

import logging
import random
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from google.protobuf import descriptor_pool
from tests.fuzz.documented import EVERY_METHOD, NEVER, documented_ends
from tests.fuzz.examples import EXAMPLES
from tests.fuzz.fuzzing import LASTING, Findings, check_memory, fuzz, logged_tracebacks
from tests.fuzz.messages import MessageMaker
from tests.fuzz.targets import NOT_SERVED, running_targets, services

from assay.process.logs import TextFormatter
from assay.rpc.methods import METHODS
from assay.rpc.status import SETUP_REASONS

MESSAGES = 1_500


def short_names(service: str) -> set[str]:
    """Return the methods of a service as the page has them, "RunService.GetRun"."""
    return {f"{service.rpartition('.')[-1]}.{name}" for name in METHODS[service]}


async def test_random_messages_end_as_documented() -> None:
    """Every call to every method ends with a documented code and reason; processes live, serve and log no traceback."""
    seed = random.randrange(2**32)
    with TemporaryDirectory(prefix="assay-fuzz-") as folder:  # a socket's path must be short
        async with running_targets(Path(folder)) as targets:
            findings = await fuzz(targets, messages=MESSAGES, seed=seed)
    assert not findings.problems, f"seed {seed}"
    assert findings.messages >= MESSAGES, f"seed {seed}"
    called = {name for service in set(METHODS) - NOT_SERVED for name in short_names(service)}
    assert set(findings.calls) == called, f"seed {seed}"


def test_streams_that_last_are_streams_of_services() -> None:
    """Only they may stay open: every other call has to end, and one that does not is a problem."""
    pool = descriptor_pool.Default()
    methods = [method for name in METHODS for method in pool.FindServiceByName(name).methods]
    streams = {f"{method.containing_service.name}.{method.name}" for method in methods if method.server_streaming}
    assert streams >= LASTING


@pytest.mark.parametrize("formatter", [TextFormatter(), logging.Formatter("%(asctime)s %(levelname)s %(message)s")])
def test_tracebacks_in_a_log_are_found(formatter: logging.Formatter) -> None:
    """Whether their lines are indented, as the services' are, or not; single errors, causes and groups of errors."""

    def fail(name: str) -> None:
        raise ValueError(name)

    def fail_in_a_group() -> None:
        try:
            fail("inner")
        except ValueError as problem:
            raise ExceptionGroup("several", [problem]) from None

    lines = []
    for work in (partial(fail, "first"), fail_in_a_group):
        lines.append(formatter.format(logging.makeLogRecord({"msg": "all is well", "levelname": "INFO"})))
        try:
            work()
        except Exception:  # noqa: BLE001 - as where a service logs a defect
            record = logging.makeLogRecord({"msg": "failed", "levelname": "ERROR", "exc_info": sys.exc_info()})
            lines.append(formatter.format(record))
    lines.append(formatter.format(logging.makeLogRecord({"msg": "no Traceback here", "levelname": "INFO"})))
    found = logged_tracebacks("\n".join(lines) + "\n")
    assert [error for _, error in found] == [
        "ValueError: first",
        "ExceptionGroup: several (1 sub-exception)",
    ]


def test_memory_that_grows_is_found() -> None:
    """A process that keeps what it is sent is a problem; one that fills its caches and stays is none."""
    findings = Findings(1, memory_mib={"leaks": [50 + 9 * n for n in range(30)], "caches": [50, 90, *[200] * 20]})
    check_memory(findings)
    assert list(findings.problems.values()) == ["seed 1: leaks has grown from 95 to 311 MiB"]


def test_every_service_is_fuzzed_or_named_as_an_exception() -> None:
    """A new contract is covered by itself, and fails here until a process serves it."""
    assert set(services()) >= NOT_SERVED
    assert {name for name in METHODS if name.startswith("assay.")} == set(services())


def test_requests_with_structure_have_an_example() -> None:
    """Random messages, enum values and masks rarely get past the first checks; plain fields are filled by name."""
    pool = descriptor_pool.Default()
    methods = [method for name in set(METHODS) - NOT_SERVED for method in pool.FindServiceByName(name).methods]
    structured = {
        method.input_type.full_name
        for method in methods
        if method.input_type.full_name.startswith("assay.")
        and any(field.message_type or field.enum_type for field in method.input_type.fields)
    }
    assert structured - EXAMPLES.keys() == set()


def test_documented_methods_exist() -> None:
    """The page names no method that was removed, and no code that always is a defect."""
    documented = documented_ends()
    assert set(documented) - {EVERY_METHOD} <= {name for service in METHODS for name in short_names(service)}
    assert not {code for ends in documented.values() for code, _ in ends} & NEVER


def test_documented_reasons_of_a_setup_are_those_of_judge_and_embedder() -> None:
    """A client tells a service that lacks something from a run in the wrong state by the reason alone."""
    for method, ends in documented_ends().items():
        refusals = {reason for code, reason in ends if code == "FAILED_PRECONDITION"}
        is_setup = method.startswith(("JudgeService", "EmbedderService"))
        assert refusals <= SETUP_REASONS if is_setup else not refusals & SETUP_REASONS, method


def test_the_same_seed_makes_the_same_messages() -> None:
    """What was found once can be sent again."""
    descriptor = descriptor_pool.Default().FindMessageTypeByName("assay.v1.CreateRunRequest")
    first, second = (MessageMaker(random.Random("1/7"), {}) for _ in range(2))
    assert [first.wire(descriptor) for _ in range(20)] == [second.wire(descriptor) for _ in range(20)]
