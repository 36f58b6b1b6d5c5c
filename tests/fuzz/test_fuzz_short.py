"""The short form of `make fuzz`, and what it stands on."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf import descriptor_pool
from tests.fuzz.documented import EVERY_METHOD, NEVER, documented_ends
from tests.fuzz.fuzzing import fuzz
from tests.fuzz.messages import MessageMaker
from tests.fuzz.targets import NOT_SERVED, running_targets, services

from assay.rpc.methods import METHODS

MESSAGES = 1_500


def short_names(service: str) -> set[str]:
    """Return the methods of a service as the page has them, "RunService.GetRun"."""
    return {f"{service.rpartition('.')[-1]}.{name}" for name in METHODS[service]}


async def test_random_messages_end_as_documented() -> None:
    """Every call to every method ends with a documented code and reason; processes live, serve and log no traceback."""
    with TemporaryDirectory(prefix="assay-fuzz-") as folder:  # a socket's path must be short
        async with running_targets(Path(folder)) as targets:
            findings = await fuzz(targets, messages=MESSAGES, seed=random.randrange(2**32))
    assert not findings.problems
    assert findings.messages >= MESSAGES
    assert set(findings.calls) == {name for service in set(METHODS) - NOT_SERVED for name in short_names(service)}


def test_every_service_is_fuzzed_or_named_as_an_exception() -> None:
    """A new contract is covered by itself, and fails here until a process serves it."""
    assert set(services()) >= NOT_SERVED
    assert {name for name in METHODS if name.startswith("assay.")} == set(services())


def test_documented_methods_exist() -> None:
    """The page names no method that was removed, and no code that always is a defect."""
    documented = documented_ends()
    assert set(documented) - {EVERY_METHOD} <= {name for service in METHODS for name in short_names(service)}
    assert not {code for ends in documented.values() for code, _ in ends} & NEVER


def test_the_same_seed_makes_the_same_messages() -> None:
    """What was found once can be sent again."""
    descriptor = descriptor_pool.Default().FindMessageTypeByName("assay.v1.CreateRunRequest")
    first, second = (MessageMaker(random.Random("1/7"), {}) for _ in range(2))
    assert [first.wire(descriptor) for _ in range(20)] == [second.wire(descriptor) for _ in range(20)]
