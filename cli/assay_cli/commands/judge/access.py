"""Access to a judge: the options that name it, and a judge service at an address or started by the command."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.errors import AssayError, InvalidInputError, Problem, SetupError
from assay.identity.quotas import nano_from_usd
from assay.local_stack.install_hint import install_hint
from assay.parsing.names import unknown_name
from assay_cli.options.groups import combined
from assay_cli.options.shared import check_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.model.model_price import ModelPrice
    from assay.model.run_spec import JudgeModel


SERVICE_NAME = "assay.judge.v1.JudgeService"
_START_S = 60.0
_REACH_S = 10.0
_STOP_S = 10.0
_LOOK_S = 0.05
_LOG_TAIL_LINES = 12
T = TypeVar("T")

_PROVIDERS = ("openai", "anthropic", "replay")


@dataclass(frozen=True, slots=True)
class JudgeName:
    """The name and parameters of a judge.

    Args:
        provider: "openai", "anthropic" or "replay".
        model: Id of the model.
        base_url: Address of the service; empty for the provider's own.
        key_variable: Environment variable with the API key; empty for the provider's usual variable at its own service.
        temperature: Sampling temperature from the spec; None for the judge service's default.
        max_tokens: Maximum tokens of a verdict from the spec; 0 for the judge service's default.
        prices: Prices of the model from the spec; None for the judge service's table.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    temperature: float | None = None
    max_tokens: int = 0
    prices: ModelPrice | None = None

    def __str__(self) -> str:
        where = f"@{self.base_url}" if self.base_url else ""
        return f"{self.provider}:{self.model}{where}" if self.model else self.provider


@dataclass(frozen=True, slots=True)
class JudgeAccess:
    """Judges, judge service and limits of a command.

    Args:
        address: Address of the judge service; empty to start one for this command.
        names: The judges; empty for the service's default judge.
        replay: Recorded verdicts for the provider "replay" of a service that is started here.
        prices: Price list for a service that is started here.
        spend_cap_nano_usd: Spend cap of this command in billionths of a US dollar; None for no cap.
        concurrency: Maximum verdicts in flight.
        temperature: Sampling temperature; None for the judge service's default.
        max_tokens: Maximum tokens of a verdict; 0 for the judge service's default.
    """

    address: str = ""
    names: tuple[JudgeName, ...] = ()
    replay: str = ""
    prices: str = ""
    spend_cap_nano_usd: int | None = None
    concurrency: int = 8
    temperature: float | None = None
    max_tokens: int = 0
    run_id: str = field(default_factory=lambda: f"judge-{secrets.token_hex(8)}")

    @property
    def replays(self) -> bool:
        """Whether verdicts come from a recording, which cannot give new ones."""
        return any(name.provider == "replay" for name in self.names)


judge_options = combined(
    click.option("--spec", type=click.Path(path_type=Path), metavar="SPEC",
                 help="Use the judge of this spec, with its parameters, prices and spend cap; default: none."),
    click.option("--judge-name", metavar="NAME",
                 help="Name of the judge in --spec; default: the spec's first judge."),
    click.option("--judge", "--server", "address", metavar="HOST:PORT", envvar="ASSAY_JUDGE",
                 callback=check_address,
                 help="Judge service to use; default: $ASSAY_JUDGE, else one that this command starts and stops."),
    click.option("--provider", metavar="NAME",
                 help="Protocol: openai, anthropic or replay; default: that of --spec or --judge."),
    click.option("--model", metavar="MODEL",
                 help="Model of the judge; default: that of --spec or --judge."),
    click.option("--base-url", metavar="URL",
                 help="Address of a service with the provider's protocol; default: the provider's own."),
    click.option("--key-variable", metavar="NAME",
                 help="Environment variable with the API key; default: the provider's, or none with --base-url."),
    click.option("--replay", metavar="FILE", help="Recorded verdicts for --provider replay; default: none."),
    click.option("--prices", metavar="FILE",
                 help="Price list for a judge that this command starts; default: Assay's list."),
    click.option("--spend-cap", "spend_cap", type=float, metavar="USD",
                 help="Spend cap for verdicts, in US dollars; default: the spec's, else no cap."),
    click.option("--temperature", type=click.FloatRange(0, 2), metavar="NUMBER",
                 help="Sampling temperature; use the judged run's; default: that of --spec or --judge, else 0.1."),
    click.option("--max-tokens", type=click.IntRange(1, 100_000), metavar="N",
                 help="Maximum tokens of a verdict; use the judged run's; default: that of --spec or --judge, "
                      "else 2,048."),
    click.option("--concurrency", type=click.IntRange(1, 64), default=8, help="Verdicts in flight; default: 8."),
)  # fmt: skip
"""Options that name the judge; `judge_access` reads them."""


def judge_name(text: str, key_variable: str = "") -> JudgeName:
    """Parse "provider:model" or "provider:model@base_url".

    Raises:
        InvalidInputError: The text has neither form.
    """
    provider, _, rest = text.partition(":")
    model, _, url = rest.partition("@http")
    if provider not in _PROVIDERS or not (model or provider == "replay"):
        message = f"must be PROVIDER:MODEL, e.g. openai:gpt-4o-mini, with one of {', '.join(_PROVIDERS)}, not {text!r}"
        raise InvalidInputError([Problem(message, "--judge-model")])
    return JudgeName(provider, model, f"http{url}".rstrip("/") if url else "", key_variable if url else "")


def judge_access(jury: tuple[str, ...] = (), **options: Any) -> JudgeAccess:
    """Return the access that the options of `judge_options` describe.

    Args:
        jury: Names of judges; several form a jury.
        options: The options by parameter name.

    Raises:
        InvalidInputError: An option is wrong; lists every problem.
    """
    problems: list[Problem] = []
    key_variable = options["key_variable"] or ""
    names: list[JudgeName] = []
    for text in jury:
        try:
            names.append(judge_name(text, key_variable))
        except InvalidInputError as error:
            problems += error.problems
    problems += _option_problems(jury, options)
    if options["provider"]:
        url = (options["base_url"] or "").rstrip("/")
        names.append(JudgeName(options["provider"], options["model"] or "", url, key_variable))
    cap = None if options["spend_cap"] is None else nano_from_usd(options["spend_cap"])
    if options["spec"]:
        members, spec_cap = _judge_of_spec(options["spec"], options["judge_name"] or "", problems)
        names += map(_named_in_spec, members)
        cap = spec_cap if cap is None else cap
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        problems.append(Problem(f"names {twice[0]} twice", "--judge-model"))
    access = JudgeAccess(
        options["address"] or "", tuple(names), options["replay"] or "", options["prices"] or "", cap,
        options["concurrency"], options["temperature"], options["max_tokens"] or 0,
    )  # fmt: skip
    if access.replays and not access.address and not access.replay:
        problems.append(Problem("is missing: name the recorded verdicts", "--replay"))
    if problems:
        raise InvalidInputError(problems)
    return access


def _judge_of_spec(path: Path, name: str, problems: list[Problem]) -> tuple[tuple[JudgeModel, ...], int | None]:
    """Return the members of a spec's judge, and the spend cap of the spec; the problems of the spec go to `problems`.

    Args:
        path: The spec.
        name: The judge's name; empty for the first.
        problems: Receives the problems, also that there is no such judge.
    """
    from assay.specs.judge_reader import JudgesReader
    from assay.specs.loader import read_spec_file

    file = read_spec_file(path)
    problems_of_spec: list[Problem] = list(file.problems)
    reader = JudgesReader(file.folder, problems_of_spec)
    reader.read(file.data)
    judges = {judge.name: (judge, place) for judge, place in zip(reader.judges, reader.places, strict=True)}
    judge, place = judges.get(name or next(iter(judges), ""), (None, None))
    if judge is not None and place is not None and judge.recorded_file:
        problems_of_spec.append(Problem("has recorded verdicts instead of a judge", f"{place.judge}.replay"))
    if judge is None and judges:
        problems.append(Problem(unknown_name("judge", name, judges), "--judge-name"))
    elif judge is None and not problems_of_spec:
        problems_of_spec.append(Problem("has no judge: name one with --provider and --model", "judge"))
    problems += [
        problem if problem.file else replace(problem, file=str(file.path), line=file.lines.get(problem.field))
        for problem in problems_of_spec
    ]
    members = () if judge is None or problems_of_spec else judge.members
    return members, reader.spend_cap_nano_usd


def _named_in_spec(judge: JudgeModel) -> JudgeName:
    return JudgeName(
        judge.provider, judge.model, judge.base_url, judge.key_variable, judge.temperature, judge.max_tokens,
        judge.prices,
    )  # fmt: skip


def _option_problems(jury: tuple[str, ...], options: dict[str, Any]) -> list[Problem]:
    cap, provider = options["spend_cap"], options["provider"]
    asks = provider in ("openai", "anthropic")
    here_only = [name for name in ("replay", "prices") if options[name] and options["address"]]
    named = [option for option in ("provider", "model", "base_url", "key_variable") if options[option]]
    checks = [
        (not (jury or provider or options["address"] or options["spec"]), "--provider",
         "is missing: name a judge with --provider and --model, a spec with --spec, or a service with --judge"),
        (bool(options["spec"] and (jury or named)), "--spec",
         "names the judge: leave out --judge-model, --provider, --model, --base-url and --key-variable"),
        (bool(options["judge_name"]) and not options["spec"], "--judge-name",
         "names a judge of --spec: name the spec too"),
        (bool(provider) and provider not in _PROVIDERS, "--provider", f"must be one of {', '.join(_PROVIDERS)}"),
        (asks and not options["model"], "--model", "is missing: name the model that judges"),
        (not provider and bool(options["model"] or options["base_url"]), "--provider", "is missing beside --model"),
        (cap is not None and not (math.isfinite(cap) and cap >= 0), "--spend-cap", "must be at least 0, in US dollars"),
    ]  # fmt: skip
    problems = [Problem(message, option) for wrong, option, message in checks if wrong]
    return problems + [Problem("applies to a service that is started here: leave out --judge", f"--{name}")
                    for name in here_only]  # fmt: skip


def gathered(check: Callable[[], T], problems: list[Problem]) -> T | None:
    """Return the result of a check, or add its problems and return None."""
    try:
        return check()
    except InvalidInputError as error:
        problems += error.problems
        return None


@asynccontextmanager
async def open_judge(access: JudgeAccess) -> AsyncIterator[Any]:
    """Connect to a judge service, starting one if needed, and yield its stub.

    Raises:
        SetupError: The judge is not installed, or cannot be started.
        UnavailableError: No service answers at the address.
    """
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceStub
    from assay.local_stack.home import Home
    from assay.rpc.channel import open_channel, wait_for_ready

    if access.address:
        async with open_channel(access.address) as channel:
            await wait_for_ready(channel, SERVICE_NAME, _REACH_S)
            yield JudgeServiceStub(channel)
        return
    # Keep the name short: the length of a socket's path is limited, and the folder's path uses most of it.
    with tempfile.TemporaryDirectory(prefix="j-", dir=Home.open().sockets) as folder:
        address = f"unix:{folder}/s"
        process, lease = _started(access, Path(folder), address)
        try:
            async with open_channel(address) as channel:
                await _until_ready(process, asyncio.ensure_future(wait_for_ready(channel, SERVICE_NAME, _START_S)),
                                   Path(folder, "log"))  # fmt: skip
                yield JudgeServiceStub(channel)
        finally:
            lease.close()
            process.terminate()
            try:
                await asyncio.shield(asyncio.to_thread(process.wait, _STOP_S))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(access: JudgeAccess, folder: Path, address: str) -> tuple[subprocess.Popen[bytes], Any]:
    from assay.local_stack.home import Home
    from assay.local_stack.lease import Lease

    if find_spec("assay_judge") is None or find_spec("openai") is None:
        raise SetupError(f"the judge is not installed: {install_hint('judge')}", reason="NOT_INSTALLED")
    lease = Lease(folder / "lease")
    lease.take()
    arguments = [
        "--listen", address, "--state-dir", str(Home.open().path / "judge-trust"), "--database-url", "",
        "--no-reflection",
        "--exit-with-lock", str(folder / "lease"), "--allow-judges", "*", "--allow-base-urls", "*",
        "--allow-key-variables", "*", "--egress-networks", "*", "--provider", "none", "--model", "", "--base-url", "",
    ]  # fmt: skip
    if access.replay:
        arguments += ["--replay", access.replay]
    if access.prices:
        arguments += ["--prices", access.prices]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  # our own module, no shell
            [sys.executable, "-P", "-m", "assay_judge", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=os.environ, start_new_session=True,  # Ctrl-C goes to the command; the service exits with its lease
        )  # fmt: skip
    return process, lease


async def _until_ready(process: subprocess.Popen[bytes], ready: asyncio.Future[None], log: Path) -> None:
    """Wait until a service is ready; raise with its output if it exits."""
    try:
        while not ready.done():
            await asyncio.wait([ready], timeout=_LOOK_S)
            status = process.poll()
            if status is not None:
                raise _ended(status, log)
        ready.result()
    finally:
        ready.cancel()


def _ended(status: int, log: Path) -> AssayError:
    """Return the error for a service that exited, with its last output."""
    output = log.read_text(errors="replace").strip()
    words = "\n".join(output.splitlines()[-_LOG_TAIL_LINES:])
    if status == 2:  # the user's file or setting is wrong
        return InvalidInputError(words.removeprefix("assay judge: "))
    return SetupError(f"the judge service exited (status {status}); its last output:\n{words}")
