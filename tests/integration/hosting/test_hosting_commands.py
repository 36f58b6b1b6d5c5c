"""The command adapter: programs that answer, and programs that do not; none of their processes is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.support.docs.guides import blocks
from tests.support.processes.child_process import child_process
from tests.support.processes.waiting import until, wait_until

from assay.agent_host.command.launcher import MAX_FRUITLESS
from assay.agent_host.user_code import open_caller
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Interrupt,
    Message,
)
from assay.model.run import AgentSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from assay.agent_host.protocol import Caller

AGENT = """\
import json, os, signal, sys, time

def say(question, text="", **more):
    print(json.dumps({"request_id": question["request_id"], "text": text or str(os.getpid()), **more}), flush=True)

def fork():
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    return child

if "banner" in sys.argv:
    print("Server ready.", flush=True)
if "deaf" in sys.argv:
    time.sleep(600)
if "flood" in sys.argv:
    while True:
        print("y")
held = []
for line in sys.stdin:
    q = json.loads(line)
    match q["input"]:
        case "echo": say(q, line)
        case "hold": held.append(q)
        case "release": [say(one, "held") for one in (q, *reversed(held))]
        case "debug": print("got it\\x1b[31m"); say(q)
        case "other": say({"request_id": "no-such-request"})
        case "no id": print(json.dumps({"text": "hi"}), flush=True)
        case "list": print("[1]", flush=True)
        case "number": print(json.dumps({"request_id": q["request_id"], "text": ["a"]}), flush=True)
        case "latin": sys.stdout.buffer.write("é\\n".encode("latin-1")); sys.stdout.flush()
        case "blank": print(); say(q)
        case "exit": sys.exit("Traceback: \\x1b]0;title\\x07 out of luck")
        case "status": os._exit(3)
        case "twice": say(q, "once"); say(q, "again")
        case "half": sys.stdout.write('{"request_id": "' + q["request_id"]); sys.stdout.flush(); os._exit(3)
        case "last output": sys.stdout.write(json.dumps({"request_id": q["request_id"], "text": "bye"})); sys.exit(1)
        case "crash": os.kill(os.getpid(), signal.SIGSEGV)
        case "hang": signal.signal(signal.SIGTERM, signal.SIG_IGN); fork(); time.sleep(600)
        case "fork": say(q, str(fork()))
        case "fork and end": fork(); os._exit(0)
        case "long":
            for _ in range(200): sys.stdout.write("x" * 2**20)
        case "close stdout": os.close(1); time.sleep(600)
        case "close stdin": os.close(0); time.sleep(600)
        case "log": sys.stderr.write("noise\\n" * 200_000); say(q)
        case "key": sys.exit("the key is " + os.environ["AGENT_KEY"])
        case "cwd": say(q, os.getcwd())
        case _: say(q)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
"""
ONE = """\
import json, os, sys, time
q = json.load(sys.stdin)
match q["input"]:
    case "pretty": print(json.dumps({"text": q["case_id"], "usage": {"total_tokens": 3}}, indent=2))
    case "id": print(json.dumps({"request_id": q["request_id"], "text": "t"}))
    case "wait": print(json.dumps({"status": "interrupted", "text": "May I?"}))
    case "other": print(json.dumps({"request_id": "no-such-request", "text": "t"}))
    case "none": pass
    case "text": print("Paris")
    case "exit": print("{}"); sys.exit("no luck")
    case "hang": os.fork(); time.sleep(600)
    case "long":
        for _ in range(200): sys.stdout.write("x" * 2**20)
    case "fork":
        if os.fork() == 0: time.sleep(600)
        print(json.dumps({"text": "forked"}))
"""
LONG_S = 120.0
SHORT_S = 0.5


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """No test leaves a process of the command, or a child of one."""
    yield
    wait_until(lambda: processes(tmp_path), lambda found: not found, within_s=60)


def processes(folder: Path) -> list[psutil.Process]:
    """Return the processes whose program lies in a folder, and their forks."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if any(str(folder) in word for word in line) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def caller_of(folder: Path, *arguments: str, code: str = AGENT, **options: Any) -> Caller:
    """Return what asks the agent of a folder."""
    file = folder / "agent.py"
    file.write_text(code, encoding="utf-8")
    target = " ".join([sys.executable, "-I", "-S", str(file), *arguments])
    caller = open_caller(AgentSpec("command", target, options=options), folder)
    assert caller is not None
    return caller


@asynccontextmanager
async def opened(folder: Path, *arguments: str, **options: Any) -> AsyncIterator[Caller]:
    """Yield what asks the agent of a folder, and close it."""
    caller = caller_of(folder, *arguments, **options)
    try:
        yield caller
    finally:
        await caller.aclose()


def question(text: str, number: int = 0, *, timeout_s: float = LONG_S) -> AgentRequest:
    """Return a question."""
    return AgentRequest(
        request_id=f"{text}-{number}", run_id="run", case_id="c", input=text, timeout_s=timeout_s, metadata={"a": "b"}
    )


def kind_of(response: AgentResponse) -> AgentErrorKind:
    """Return the kind of the answer's error."""
    assert response.status is AgentStatus.ERROR, response
    assert response.error is not None
    return response.error.kind


def message_of(response: AgentResponse) -> str:
    """Return the sentence of the answer's error."""
    assert response.error is not None, response
    return response.error.message


async def test_a_process_gets_the_request_and_its_answer_is_read(tmp_path: Path) -> None:
    """A question is one line of JSON with every field of the request; time is measured; the process stays."""
    async with opened(tmp_path) as caller:
        asked = dataclasses.replace(question("echo"), history=(Message("user", "\u2028 ü\n"),), variables={"n": [1]})
        response = await caller.call(asked)
        assert json.loads(response.text) == json.loads(json.dumps(dataclasses.asdict(asked)))
        assert response.latency_ms is not None
        first, second = [await caller.call(question("pid", number)) for number in range(2)]
        assert first.text == second.text
        assert (await caller.call(question("cwd"))).text == str(tmp_path)


async def test_answers_are_matched_by_their_id(tmp_path: Path) -> None:
    """Several questions of one process may be answered in any order."""
    async with opened(tmp_path) as caller:
        held = [asyncio.ensure_future(caller.call(question("hold", number))) for number in range(3)]
        await asyncio.sleep(0)
        responses = await asyncio.gather(caller.call(question("release")), *held)
        assert [response.text for response in responses] == ["held"] * 4


async def test_questions_are_spread_over_processes(tmp_path: Path) -> None:
    """Questions at once go to different processes, as far as there may be."""
    async with opened(tmp_path, processes=2) as caller:
        responses = await asyncio.gather(*(caller.call(question("pid", number)) for number in range(2)))
        assert len({response.text for response in responses}) == 2
        assert (await caller.call(question("pid"))).text == responses[0].text


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("debug", "line 2 of its stdout is not JSON: it begins 'got it"),
        ("other", "line 2 of its stdout answers 'no-such-request', which is not a question in flight"),
        ("no id", "line 2 of its stdout has no request_id"),
        ("list", "line 2 of its stdout is a list, not an object"),
        ("latin", "line 2 of its stdout is not UTF-8"),
        ("number", "text must be a string"),
    ],
)
async def test_a_line_that_is_no_answer_fails_its_question_alone(tmp_path: Path, behaviour: str, said: str) -> None:
    """The error names the line and holds no control character; the process answers the next question."""
    async with opened(tmp_path) as caller:
        before = await caller.call(question("pid", 1))
        response = await caller.call(question(behaviour))
        assert kind_of(response) is AgentErrorKind.MALFORMED
        assert said in message_of(response)
        assert "\x1b" not in message_of(response)
        after = await caller.call(question("pid", 2))
        assert after.text == before.text, after


async def test_a_line_before_any_question_fails_the_first(tmp_path: Path) -> None:
    """What a program prints when it starts is reported, whether it comes before the question or after it."""
    async with opened(tmp_path, "banner") as caller:
        first = await caller.call(question("pid", 1))
        assert "line 1 of its stdout is not JSON: it begins 'Server ready.'" in message_of(first)
        assert (await caller.call(question("pid", 2))).error is None


async def test_blank_lines_are_ignored(tmp_path: Path) -> None:
    """An empty line is no answer and no error."""
    async with opened(tmp_path) as caller:
        assert (await caller.call(question("blank"))).error is None


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("exit", "the command ended with exit status 1 before it answered; its last line on stderr: Traceback:"),
        ("status", "with exit status 3"),
        ("crash", "by SIGSEGV"),
        ("fork and end", "with exit status 0"),
        ("half", "with exit status 3"),
        ("close stdout", "closed its stdout"),
        ("close stdin", "closed its stdin"),
    ],
)
async def test_a_process_that_ends_fails_what_it_has_and_is_replaced(tmp_path: Path, behaviour: str, said: str) -> None:
    """The question in flight fails with the reason and is retried; the next one has a new process."""
    async with opened(tmp_path) as caller:
        before = await caller.call(question("pid", 1))
        # A process that has closed its input is found out by the next question, or a second later.
        response = await caller.call(question(behaviour))
        assert kind_of(response) is AgentErrorKind.UNREACHABLE
        assert response.error is not None
        assert response.error.retryable
        assert said in response.error.message
        assert not any(mark in response.error.message + response.error.traceback for mark in "\x1b\x07")
        after = await caller.call(question("pid", 2))
        assert after.error is None
        assert after.text != before.text


async def test_an_answer_that_comes_twice_is_no_answer_to_another_question(tmp_path: Path) -> None:
    """The second one is dropped: the next question has its own answer, as often as that happens."""
    async with opened(tmp_path) as caller:
        for number in range(3):
            assert (await caller.call(question("twice", 2 * number))).text == "once"
            following = await caller.call(question("blank", 2 * number + 1))
            assert following.error is None


async def test_a_last_answer_needs_no_end_of_line(tmp_path: Path) -> None:
    """What a process wrote before it ended counts, with the answer of the question that it is."""
    async with opened(tmp_path) as caller:
        assert (await caller.call(question("last output"))).text == "bye"


async def test_a_question_at_its_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    """A process that hangs and ignores SIGTERM is killed with its children; its other question may be retried."""
    async with opened(tmp_path) as caller:
        await caller.call(question("pid"))
        late, beside = await asyncio.gather(
            caller.call(question("hang", timeout_s=SHORT_S)), caller.call(question("hold"))
        )
        assert (kind_of(late), message_of(late)) == (AgentErrorKind.TIMEOUT, "no answer within 0.5 s")
        assert kind_of(beside) is AgentErrorKind.UNREACHABLE
        assert "another question of its process reached its deadline" in message_of(beside)
        await until(lambda: processes(tmp_path), lambda found: not found)
        assert (await caller.call(question("pid"))).error is None


async def test_a_process_that_never_reads_blocks_nothing(tmp_path: Path) -> None:
    """A question larger than a pipe waits until its deadline, and no longer."""
    async with opened(tmp_path, "deaf") as caller:
        response = await caller.call(question("x" * 3_000_000, timeout_s=SHORT_S))
        assert kind_of(response) is AgentErrorKind.TIMEOUT


async def test_a_line_without_end_is_read_to_a_limit(tmp_path: Path) -> None:
    """A process that writes 200 MiB without a line end is stopped after 8; the next question has a new one."""
    async with opened(tmp_path) as caller:
        response = await caller.call(question("long"))
        assert kind_of(response) is AgentErrorKind.TOO_LARGE
        assert "a line of its stdout is longer than 8 MiB" in message_of(response)
        assert (await caller.call(question("pid"))).error is None


async def test_a_flood_of_lines_ends_the_process(tmp_path: Path) -> None:
    """Lines without end that answer nothing do not keep the host busy."""
    async with opened(tmp_path, "flood") as caller:
        response = await caller.call(question("pid"))
        assert kind_of(response) is AgentErrorKind.MALFORMED
        await until(lambda: processes(tmp_path), lambda found: not found)


async def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    """A child that ignores SIGTERM ends where its process ends by itself."""
    async with opened(tmp_path) as caller:
        child = int((await caller.call(question("fork"))).text)
        assert psutil.pid_exists(child)
        await caller.call(question("status"))
        await until(lambda: processes(tmp_path), lambda found: not found)


async def test_a_command_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """After processes in a row that ended without an answer no further one is started, and each question says why."""
    file = tmp_path / "starts"
    code = f"open({str(file)!r}, 'a').write('x')\nraise SystemExit('no module named agent')"
    async with opened(tmp_path, code=code, processes=4) as caller:
        responses = [await caller.call(question("pid", number)) for number in range(MAX_FRUITLESS + 2)]
        assert all(kind_of(response) is AgentErrorKind.UNREACHABLE for response in responses)
        last = responses[-1].error
        assert last is not None
        assert not last.retryable
        assert f"{MAX_FRUITLESS} processes in a row ended without an answer" in last.message
        assert "no module named agent" in last.message
        assert file.read_text() == "x" * MAX_FRUITLESS


async def test_a_file_that_cannot_run_is_an_error_of_each_question(tmp_path: Path) -> None:
    """What the system refuses to start is named, and closing is possible."""
    file = tmp_path / "agent.sh"
    file.write_bytes(b"\x00\x01")
    file.chmod(0o755)
    caller = open_caller(AgentSpec("command", "./agent.sh"), tmp_path)
    assert caller is not None
    assert "the command cannot be started: Exec format error" in message_of(await caller.call(question("pid")))
    await caller.aclose()


async def test_closing_ends_processes_that_do_not_want_to(tmp_path: Path) -> None:
    """The end of input ends most programs; one that ignores SIGTERM is killed."""
    async with opened(tmp_path, "stubborn") as caller:
        await caller.call(question("pid"))
    assert not processes(tmp_path)


async def test_a_closed_caller_may_be_asked_again(tmp_path: Path) -> None:
    """A client that has lost its connection closes its agent, and answers with new processes."""
    async with opened(tmp_path) as caller:
        first = await caller.call(question("pid"))
        await caller.aclose()
        assert not processes(tmp_path)
        second = await caller.call(question("pid"))
        assert second.error is None
        assert second.text != first.text


async def test_a_cancelled_question_ends_its_process(tmp_path: Path) -> None:
    """A process does not work on for a question that no one waits for, while the next one waits behind it."""
    async with opened(tmp_path) as caller:
        await caller.call(question("pid"))
        asked = asyncio.ensure_future(caller.call(question("hang")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert asked.cancelled()
        assert (await caller.call(question("pid"))).error is None


async def test_a_log_of_any_length_is_read(tmp_path: Path) -> None:
    """A process that writes a lot to stderr does not wait for a reader."""
    async with opened(tmp_path) as caller:
        assert (await caller.call(question("log"))).error is None


async def test_keys_in_the_log_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors hold no value of a variable that is a key by its name, which the command inherits."""
    monkeypatch.setenv("AGENT_KEY", "hunter2-hunter2")
    async with opened(tmp_path) as caller:
        error = (await caller.call(question("key"))).error
        assert error is not None
        assert "the key is [redacted]" in error.message
        assert "hunter2" not in error.message + error.traceback


async def test_a_command_may_wait_for_a_person(tmp_path: Path) -> None:
    """The status is its own word, and its text is what it asks."""
    async with opened(tmp_path, code=ONE, mode="per_question") as caller:
        response = await caller.call(question("wait"))
    assert (response.status, response.error) == (AgentStatus.INTERRUPTED, None)
    assert response.interrupts == (Interrupt(message="May I?"),)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [("pretty", "c"), ("id", "t"), ("fork", "forked")],
)
async def test_a_process_for_each_question(tmp_path: Path, behaviour: str, text: str) -> None:
    """With `per_question` all of stdout is the answer, whose id may be left out; children end with the process."""
    async with opened(tmp_path, code=ONE, mode="per_question") as caller:
        responses = await asyncio.gather(*(caller.call(question(behaviour, number)) for number in range(2)))
        assert [response.text for response in responses] == [text] * 2
        await until(lambda: processes(tmp_path), lambda found: not found)


@pytest.mark.parametrize(
    ("behaviour", "kind", "said"),
    [
        ("other", AgentErrorKind.MALFORMED, "its stdout answers 'no-such-request', not this question"),
        ("none", AgentErrorKind.MALFORMED, "wrote no answer"),
        ("text", AgentErrorKind.MALFORMED, "its stdout is not JSON: it begins 'Paris'"),
        ("exit", AgentErrorKind.UNREACHABLE, "exit status 1; its last line on stderr: no luck"),
        ("hang", AgentErrorKind.TIMEOUT, "no answer within 0.5 s"),
        ("long", AgentErrorKind.TOO_LARGE, "its stdout is longer than 8 MiB"),
    ],
)
async def test_a_process_for_one_question_that_fails(
    tmp_path: Path, behaviour: str, kind: AgentErrorKind, said: str
) -> None:
    """Each failure is an error of its question with a reason."""
    async with opened(tmp_path, code=ONE, mode="per_question") as caller:
        asked = question(behaviour, timeout_s=SHORT_S if behaviour == "hang" else LONG_S)
        response = await caller.call(asked)
        assert kind_of(response) is kind
        assert said in message_of(response)


async def test_the_program_of_the_guide_answers(tmp_path: Path) -> None:
    """The program in docs/spec.md answers as it is printed there, with a function that answers."""
    (block,) = blocks("docs/spec.md", "perl")
    (tmp_path / "agent.pl").write_text(f'sub answer {{ return "said: $_[0]" }}\n{block.text}', encoding="utf-8")
    caller = open_caller(AgentSpec("command", "perl agent.pl"), tmp_path)
    assert caller is not None
    responses = [await caller.call(question("a", number)) for number in range(2)]
    await caller.aclose()
    assert [response.text for response in responses] == ["said: a"] * 2


def test_nothing_outlives_a_client_that_is_killed(tmp_path: Path) -> None:
    """After SIGKILL of the client, a process that ignores the end of its input is killed, and its child with it."""
    caller_of(tmp_path)
    client = tmp_path.with_name(f"{tmp_path.name}-client")
    client.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from assay.agent_host.user_code import open_caller\n"
        "from assay.model.answers.agent_request import AgentRequest\n"
        "from assay.model.run import AgentSpec\n"
        "folder = Path(sys.argv[1])\n"
        "caller = open_caller(AgentSpec('command', f'{sys.executable} -I -S agent.py {folder}'), folder)\n"
        "def ask(text): return caller.call(AgentRequest(text, 'run', 'c', text, timeout_s=600))\n"
        "async def main():\n"
        "    print((await ask('fork')).text, flush=True)\n"
        "    await ask('hang')\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )
    command = [sys.executable, str(client), str(tmp_path)]
    with child_process(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        group = os.getpgid(child)
        # The process, its child, and the child of the one that hangs.
        wait_until(lambda: members(group), lambda found: len(found) == 3)
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: members(group), lambda found: not found)


def members(group: int) -> list[int]:
    """Return the living processes of a group."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.info["pid"]) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.info["pid"])
        except ProcessLookupError:
            continue
    return found
