"""Reaching a judge: the options that say which, a service at an address or one started for this command, the calls."""

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
from typing import TYPE_CHECKING, Any

import click

from assay.errors import AssayError, InvalidInputError, Problem, SetupError
from assay.local_stack.install_hint import install_hint
from assay_cli.options.shared import check_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.model.model_price import ModelPrice
    from assay.model.run_settings import JudgeSettings


SERVICE_NAME = "assay.v1.JudgeService"
_START_S = 60.0
_REACH_S = 10.0
_STOP_S = 10.0
_LOOK_S = 0.05
_LOG_TAIL_LINES = 12
_PROVIDERS = ("openai", "anthropic", "replay")


@dataclass(frozen=True, slots=True)
class JudgeName:
    """A judge to ask.

    Args:
        provider: "openai", "anthropic" or "replay".
        model: The model's id.
        base_url: Where the service is; empty for the provider's own.
        key_variable: Environment variable with its key; empty for the provider's usual one at its own service.
        temperature: Sampling temperature as its spec says; None for the judge service's own.
        max_tokens: Most tokens of a verdict likewise; 0 for the judge service's own.
        prices: What the model costs as its spec says; None for the judge service's table.
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
    """Who judges, where, and for how much.

    Args:
        address: The judge service; empty to start one for this command.
        names: The judges; empty for the service's own.
        replay: Recorded verdicts for the provider "replay", of a service that is started here.
        prices: Prices of models for a service that is started here.
        spend_cap_usd: Most that this command may spend; None for no cap.
        concurrency: Most verdicts in flight.
        temperature: Sampling temperature; None for the judge service's own.
        max_tokens: Most tokens of a verdict; 0 for the judge service's own.
    """

    address: str = ""
    names: tuple[JudgeName, ...] = ()
    replay: str = ""
    prices: str = ""
    spend_cap_usd: float | None = None
    concurrency: int = 8
    temperature: float | None = None
    max_tokens: int = 0
    run_id: str = field(default_factory=lambda: f"judge-{secrets.token_hex(8)}")

    @property
    def replays(self) -> bool:
        """Whether verdicts come from a recording, so that asking anew makes no sense."""
        return any(name.provider == "replay" for name in self.names)


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which judge is asked; `judge_access` reads them."""
    options = [
        click.option("--spec", type=click.Path(path_type=Path), metavar="SPEC",
                     help="Ask the judge of this spec, with its parameters, prices and spend cap; default: none."),
        click.option("--judge", "--server", "address", metavar="HOST:PORT", envvar="ASSAY_JUDGE",
                     callback=check_address,
                     help="Judge service to use; default: $ASSAY_JUDGE, else one that this command starts and stops."),
        click.option("--provider", metavar="NAME",
                     help="Protocol: openai, anthropic or replay; default: that of --spec or --judge, else required."),
        click.option("--model", metavar="MODEL",
                     help="Model of the judge; default: that of --spec or --judge, else required."),
        click.option("--base-url", metavar="URL",
                     help="Service with the provider's protocol; default: the provider's own."),
        click.option("--key-variable", metavar="NAME",
                     help="Environment variable with the key; default: the provider's, with --base-url none."),
        click.option("--replay", metavar="FILE", help="Recorded verdicts for --provider replay; default: none."),
        click.option("--prices", metavar="FILE",
                     help="Prices of a judge that this command starts; default: Assay's list prices."),
        click.option("--spend-cap", "spend_cap", type=float, metavar="USD",
                     help="Most to spend on verdicts, in US dollars; default: that of --spec, else no cap."),
        click.option("--temperature", type=click.FloatRange(0, 2), metavar="NUMBER",
                     help="Temperature, as in the judged run; default: 0.1, or that of --spec or --judge."),
        click.option("--max-tokens", type=click.IntRange(1, 100_000), metavar="N",
                     help="Most tokens of a verdict, likewise; default: 2,048, or that of --spec or --judge."),
        click.option("--concurrency", type=click.IntRange(1, 64), default=8, help="Verdicts in flight; default: 8."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def judge_name(text: str, key_variable: str = "") -> JudgeName:
    """Return the judge that "provider:model" or "provider:model@base_url" names.

    Raises:
        InvalidInputError: It is no such name.
    """
    provider, _, rest = text.partition(":")
    model, _, url = rest.partition("@http")
    if provider not in _PROVIDERS or not (model or provider == "replay"):
        message = f"must be PROVIDER:MODEL, e.g. openai:gpt-4o-mini, with one of {', '.join(_PROVIDERS)}, not {text!r}"
        raise InvalidInputError([Problem(message, "--judge-model")])
    return JudgeName(provider, model, f"http{url}".rstrip("/") if url else "", key_variable if url else "")


def judge_access(jury: tuple[str, ...] = (), **given: Any) -> JudgeAccess:
    """Return what the options of `judge_options` say.

    Args:
        jury: Judges by name, several of which are a jury.
        given: The options.

    Raises:
        InvalidInputError: All that is wrong with them.
    """
    problems: list[Problem] = []
    key_variable = given["key_variable"] or ""
    names: list[JudgeName] = []
    for text in jury:
        try:
            names.append(judge_name(text, key_variable))
        except InvalidInputError as error:
            problems += error.problems
    problems += _option_problems(jury, given)
    if given["provider"]:
        url = (given["base_url"] or "").rstrip("/")
        names.append(JudgeName(given["provider"], given["model"] or "", url, key_variable))
    cap = given["spend_cap"]
    if given["spec"] and (judge := _judge_of_spec(given["spec"], problems)) is not None:
        names += map(_named_in_spec, judge.judges)
        cap = judge.spend_cap_usd if cap is None else cap
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        problems.append(Problem(f"names {twice[0]} twice", "--judge-model"))
    access = JudgeAccess(
        given["address"] or "", tuple(names), given["replay"] or "", given["prices"] or "", cap,
        given["concurrency"], given["temperature"], given["max_tokens"] or 0,
    )  # fmt: skip
    if access.replays and not access.address and not access.replay:
        problems.append(Problem("is missing: name the recorded verdicts", "--replay"))
    if problems:
        raise InvalidInputError(problems)
    return access


def _judge_of_spec(path: Path, problems: list[Problem]) -> JudgeSettings | None:
    """Return the judge of a spec; None where it has none, which is added to `problems` as all that is wrong with it."""
    from assay.specs.judging import JudgeReader
    from assay.specs.loader import read_spec_file

    file = read_spec_file(path)
    found: list[Problem] = list(file.problems)
    judge = JudgeReader(file.path.parent, found).read(file.data.get("judge"))
    if judge is not None and judge.recorded_file:
        found.append(Problem("has recorded verdicts, and no judge to ask", "judge.replay"))
    if judge is None and not found:
        found.append(Problem("has no judge: name one with --provider and --model", "judge"))
    problems += [
        each if each.file else replace(each, file=str(file.path), line=file.lines.get(each.field)) for each in found
    ]
    return None if found else judge


def _named_in_spec(judge: JudgeSettings) -> JudgeName:
    return JudgeName(
        judge.provider, judge.model, judge.base_url, judge.key_variable, judge.temperature, judge.max_tokens,
        judge.prices,
    )  # fmt: skip


def _option_problems(jury: tuple[str, ...], given: dict[str, Any]) -> list[Problem]:
    cap, provider = given["spend_cap"], given["provider"]
    asks = provider in ("openai", "anthropic")
    here_only = [name for name in ("replay", "prices") if given[name] and given["address"]]
    named = [option for option in ("provider", "model", "base_url", "key_variable") if given[option]]
    checks = [
        (not (jury or provider or given["address"] or given["spec"]), "--provider",
         "is missing: name a judge with --provider and --model, one of a spec with --spec, or a service with --judge"),
        (bool(given["spec"] and (jury or named)), "--spec",
         "names the judge: leave out --judge-model, --provider, --model, --base-url and --key-variable"),
        (bool(provider) and provider not in _PROVIDERS, "--provider", f"must be one of {', '.join(_PROVIDERS)}"),
        (asks and not given["model"], "--model", "is missing: name the model that judges"),
        (not provider and bool(given["model"] or given["base_url"]), "--provider", "is missing beside --model"),
        (cap is not None and not (math.isfinite(cap) and cap >= 0), "--spend-cap", "must be at least 0, in US dollars"),
    ]  # fmt: skip
    found = [Problem(message, option) for wrong, option, message in checks if wrong]
    return found + [Problem("belongs to a service that is started here: leave out --judge", f"--{name}")
                    for name in here_only]  # fmt: skip


@asynccontextmanager
async def open_judge(access: JudgeAccess) -> AsyncIterator[Any]:
    """Open a judge service that is ready, and yield its stub.

    Raises:
        SetupError: It is not installed, or cannot be started.
        UnavailableError: Nothing answers at the address.
    """
    from assay.local_stack.home import Home
    from assay.rpc.channel import open_channel, wait_for_ready
    from assay.v1.judge_pb2_grpc import JudgeServiceStub

    if access.address:
        async with open_channel(access.address) as channel:
            await wait_for_ready(channel, SERVICE_NAME, _REACH_S)
            yield JudgeServiceStub(channel)
        return
    # A short name: the path of a socket has room for little more than that of this folder.
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
            env=os.environ, start_new_session=True,  # Ctrl-C is for the command; the service ends with its lease
        )  # fmt: skip
    return process, lease


async def _until_ready(process: subprocess.Popen[bytes], ready: asyncio.Future[None], log: Path) -> None:
    """Wait until a service is ready, or say why it has ended."""
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
    """Return what a service that ended by itself has said."""
    said = log.read_text(errors="replace").strip()
    words = "\n".join(said.splitlines()[-_LOG_TAIL_LINES:])
    if status == 2:  # about a file or a setting that is the user's
        return InvalidInputError(words.removeprefix("assay judge: "))
    return SetupError(f"the judge service ended (status {status}); its last words:\n{words}")
