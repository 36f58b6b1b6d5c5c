"""Sends made-up messages to every method of every service, and says what was wrong with how the calls ended."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import psutil
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from tests.fuzz.documented import EVERY_METHOD, NEVER, documented_ends
from tests.fuzz.messages import MessageMaker

from assay.rpc.status import DETAILS_KEY, from_rpc_error, from_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import MethodDescriptor
    from tests.fuzz.targets import Target

_IN_FLIGHT = 48
_ANSWER_S = 60.0
LASTING = frozenset({"Health.Watch", "RunService.WatchRun", "HostService.Host"})
"""Streams that may last as long as their client wants: read for a moment, while every other call has to end."""
_LASTING_S = 0.5
_ANSWERS = 20
_CHECK_EVERY = 500
_KNOWN_LIMIT = 50
_WARM_SAMPLES = 5
_MOST_GROWTH_MIB = 128
_WRITE_FAILED = "Internal error from Core"
# Services indent the lines of a traceback, other programs do not; those of a group of errors begin with a bar.
_TRACEBACK = re.compile(
    r"^(?P<indent> *)(?:\+ Exception Group )?Traceback \(most recent call last\):\n"
    r"(?:(?P=indent)[ |+].*\n)*(?P=indent)(?:\| )?(?P<error>[^\s|+].*)",
    re.MULTILINE,
)
_PLACE = re.compile(r"assay-fuzz-|Traceback|File \"")


@dataclass
class Findings:
    """What became of the calls.

    Args:
        seed: From which the messages follow; every problem names it.
        messages: Messages that were sent.
        calls: Calls by method.
        ends: How they ended, as code and reason, by method.
        problems: What was wrong, by its kind, with the first call that showed it.
        memory_mib: Own memory of each service's process, in MiB, every so many calls.
    """

    seed: int
    messages: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    ends: dict[str, Counter[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    memory_mib: dict[str, list[int]] = field(default_factory=dict)
    duration_s: float = 0.0

    def note(self, method: str, end: str) -> None:
        self.calls[method] += 1
        self.ends.setdefault(method, Counter())[end] += 1

    def wrong(self, kind: str, problem: str) -> None:
        """Note a problem, the first of its kind only."""
        self.problems.setdefault(kind, f"seed {self.seed}: {problem}")


async def fuzz(targets: list[Target], *, messages: int, seed: int) -> Findings:
    """Send so many messages, in calls to all methods in turn, several at once.

    Args:
        targets: The services.
        messages: How many.
        seed: From this and its number, the bytes of a call follow, as far as they hold nothing the server said.
    """
    findings = Findings(seed)
    documented = documented_ends()
    begun = time.monotonic()
    calls = _calls(targets, findings, messages)

    async def work() -> None:
        for number, target, method in calls:
            await _Call(target, method, random.Random(f"{seed}/{number}"), findings, documented, number).make()
            if number % _CHECK_EVERY == 0:
                await _check_alive(target, findings)
                _sample_memory(targets, findings)

    await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))
    for target in targets:
        await _check_alive(target, findings)
        _check_log(target, findings)
    check_memory(findings)
    findings.duration_s = time.monotonic() - begun
    return findings


def _calls(targets: list[Target], findings: Findings, messages: int) -> Iterator[tuple[int, Target, MethodDescriptor]]:
    number = 0
    everything = [(target, method) for target in targets for method in target.methods()]
    while findings.messages < messages:
        for target, method in everything:
            number += 1
            yield number, target, method


async def _check_alive(target: Target, findings: Findings) -> None:
    try:
        if not await target.is_serving():
            findings.wrong(
                f"{target.service} ended",
                f"{target.service} does not serve: process ended with {target.process.poll()}",
            )
    except grpc.aio.AioRpcError as error:
        findings.wrong(
            f"{target.service} silent",
            f"{target.service} does not answer its health check: {error.code()} {error.details()}",
        )


def _sample_memory(targets: list[Target], findings: Findings) -> None:
    for target in targets:
        with suppress(psutil.NoSuchProcess):  # it has ended, which is found elsewhere
            memory = psutil.Process(target.process.pid).memory_info()
            # Without pages of files, of which a mapped database has the more the larger it is.
            findings.memory_mib.setdefault(target.service, []).append((memory.rss - memory.shared) // 2**20)


def check_memory(findings: Findings) -> None:
    """Note processes whose memory grows with the messages: caches are full after a few samples."""
    for service, samples in findings.memory_mib.items():
        warm = samples[_WARM_SAMPLES:]
        if warm and max(warm) - warm[0] > _MOST_GROWTH_MIB:
            findings.wrong(f"{service} memory", f"{service} has grown from {warm[0]} to {max(warm)} MiB")


def _check_log(target: Target, findings: Findings) -> None:
    for place, error in logged_tracebacks(target.log.read_text(errors="replace")):
        findings.wrong(f"log {place} {error}", f"{target.service} logged, at {place}: {error}")


def logged_tracebacks(text: str) -> list[tuple[str, str]]:
    """Return the tracebacks in a log: the last place in Assay's code, as file:line, and the error."""
    found = []
    for traceback in _TRACEBACK.finditer(text):
        frames = re.findall(r'  File "([^"]+)", line (\d+)', traceback[0])
        place = ":".join(next((frame for frame in reversed(frames) if "assay" in frame[0]), ("", "")))
        found.append((place, traceback["error"]))
    return found


class _Call:
    """One call.

    Args:
        target: The service.
        method: Which method.
        rng: Its randomness.
        findings: Where to note what came of it.
        documented: The ends that are documented.
        number: Its number.
    """

    def __init__(
        self,
        target: Target,
        method: MethodDescriptor,
        rng: random.Random,
        findings: Findings,
        documented: Any,
        number: int,
    ) -> None:
        self._target = target
        self._method = method
        self._rng = rng
        self._findings = findings
        self._documented = documented
        self._number = number
        self._name = f"{method.containing_service.name}.{method.name}"
        maker = MessageMaker(rng, target.known, target.examples)
        count = rng.choice((0, 1, 2, 3, 5)) if method.client_streaming else 1
        self._sent = [
            maker.wire(method.input_type, position if method.client_streaming else None) for position in range(count)
        ]

    async def make(self) -> None:
        """Make the call and judge how it ended."""
        self._findings.messages += len(self._sent)
        kind = ("stream_" if self._method.client_streaming else "unary_") + (
            "stream" if self._method.server_streaming else "unary"
        )
        path = f"/{self._method.containing_service.full_name}/{self._method.name}"
        requests: Any = iter(self._sent) if self._method.client_streaming else self._sent[0]
        call = getattr(self._target.channel, kind)(path)(requests, timeout=2 * _ANSWER_S)
        lasting = self._name in LASTING
        try:
            async with asyncio.timeout(_LASTING_S if lasting else _ANSWER_S):
                await self._read(call)
        except grpc.aio.AioRpcError as error:
            self._judge(error)
        except TimeoutError:
            self._findings.note(self._name, "still open")
            if not lasting:
                self._wrong("open", f"did not end within {_ANSWER_S:g} s")
        else:
            self._findings.note(self._name, "OK")
        finally:
            call.cancel()

    async def _read(self, call: Any) -> None:
        if not self._method.server_streaming:
            self._learn(await call)
            return
        count = 0
        async for answer in call:
            self._learn(answer)
            count += 1
            if count >= _ANSWERS or self._rng.random() < 0.02:
                return

    def _learn(self, raw: bytes) -> None:
        """Look for errors inside an answer, and for ids that may be used in further calls."""
        try:
            answer: Any = message_factory.GetMessageClass(self._method.output_type).FromString(raw)
        except DecodeError:
            self._wrong("answer", "its answer cannot be decoded")
            return
        fields = answer.DESCRIPTOR.fields_by_name
        if "error" in fields and answer.HasField("error"):
            reason = from_status(answer.error).reason
            self._judge_end(grpc.StatusCode(_CODES[answer.error.code]), reason, answer.error.message)
        self._keep("page_token", getattr(answer, "next_page_token", ""))
        if "run" in fields and answer.run.run_id:
            self._keep("run_id", answer.run.run_id)

    def _keep(self, name: str, text: str) -> None:
        known = self._target.known.setdefault(name, [])
        if text and text not in known:
            known.append(text)
            if len(known) > _KNOWN_LIMIT:
                known.pop(4)

    def _judge(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() is grpc.StatusCode.INTERNAL and error.details() == _WRITE_FAILED:
            self._findings.note(self._name, "ended while a message was written")  # the client's own words
            return
        has_details = any(key == DETAILS_KEY for key, _ in error.trailing_metadata() or ())
        reason = from_rpc_error(error).reason if has_details else ""
        self._judge_end(error.code(), reason, error.details() or "")

    def _judge_end(self, code: grpc.StatusCode, reason: str, text: str) -> None:
        self._findings.note(self._name, f"{code.name} {reason}".strip())
        allowed = self._documented.get(self._name, self._documented[EVERY_METHOD])
        if code.name in NEVER or (code.name, reason or "GRPC") not in allowed:
            self._wrong(f"{code.name} {reason}", f"{code.name} {reason or '(no reason)'}: {text[:300]}")
        elif _PLACE.search(text):
            self._wrong("place", f"tells too much: {text[:300]}")

    def _wrong(self, kind: str, what: str) -> None:
        sent = ", ".join(repr(raw[:300]) + ("…" if len(raw) > 300 else "") for raw in self._sent)
        self._findings.wrong(f"{self._name} {kind}", f"call {self._number} {self._name}: {what}; sent {sent}")


_CODES = {code.value[0]: code.value for code in grpc.StatusCode}
