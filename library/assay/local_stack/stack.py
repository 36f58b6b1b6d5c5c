"""The local stack: services started on demand, shared while used, stopped when unused."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local_stack.home import VECTORS_FILE, Home
from assay.local_stack.install_hint import install_hint
from assay.local_stack.lease import Lease, is_leased, is_locked
from assay.local_stack.model_files import is_on_disk, model_problem
from assay.local_stack.service_environment import (
    KEY_VARIABLES,
    changed_variables,
    environment_of_service,
    record_variables,
)
from assay.local_stack.service_logs import last_words, open_log
from assay.local_stack.unused_stacks import idle_seconds, keep_stack, keeps_stacks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path

SERVICES = ("orchestrator", "embedder", "judge")
_PACKAGES = {"orchestrator": "assay_orchestrator", "embedder": "assay_embedder", "judge": "assay_judge"}
_NEEDS = {"orchestrator": "sqlalchemy", "embedder": "sentence_transformers", "judge": "httpx2"}
_RENEWED = ("judge", "embedder")
"""Services that are restarted where a command needs other settings of them, even if they stay."""
_IDLE_SHARES = {"orchestrator": 1.0, "embedder": 0.5, "judge": 0.5}
"""How long a service waits idle, as a share of the time of the stack: models and verdicts take memory."""
_STOP_TIMEOUT_S = 15.0
_LOOK_S = 0.05
_MOST_RESTARTS = 3
_LEASED, _STAYING = b"ends with its last user", b"stays"


class LocalStack:
    """Services as child processes on private unix sockets.

    They run as long as any process holds the lease, and wait idle for a while after (`idle_seconds`); `stay` starts
    them without it, until `assay down`. An idle service is replaced where the environment differs.

    Args:
        home: The state directory.
        stay: Whether the services outlive their last user.
    """

    def __init__(self, home: Home, *, stay: bool = False) -> None:
        self._home = home
        self._stay = stay
        self._lease = Lease(home.sockets / "lease")
        # The same shares on a file that services never lock: it shows whether other commands are left.
        self._user = Lease(home.sockets / "users")
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[str, int] = {}
        self._leased: set[str] = set()  # those of them that end when unused
        self._models: tuple[str, ...] = ()
        self._judge_keys: tuple[str, ...] = KEY_VARIABLES
        self._needed: tuple[str, ...] = ()
        self._checked: set[str] = set()  # against this process's environment, which user code may change later
        self._restart_count = 0

    @property
    def address(self) -> str:
        """The orchestrator's address."""
        return f"unix:{self._home.socket('orchestrator')}"

    def socket(self, service: str) -> Path:
        """Return the socket of a service."""
        return self._home.socket(service)

    def start(
        self,
        *,
        models: Sequence[str] = (),
        judge: bool = False,
        judge_keys: Sequence[str] = KEY_VARIABLES,
        orchestrator: bool = True,
    ) -> None:
        """Start the services that are needed and not running: the orchestrator, and embedder and judge on demand.

        A judge or embedder whose keys or settings differ from this process's environment is restarted, and so is an
        idle service with any other environment. A model whose files show that it cannot be loaded is refused before
        anything is started.

        Args:
            models: Embedding models that will be needed.
            judge: Whether a judge is needed.
            judge_keys: The environment variables with the keys that the judge needs.
            orchestrator: Whether the orchestrator is needed.

        Raises:
            SetupError: A service is not installed or cannot be started.
        """
        for model in models:
            if problem := model_problem(model):
                raise SetupError(f"the embedding model {model!r} {problem}", reason="MODEL_NOT_FOUND")
        self._lease.take()
        self._user.take()
        self._models, self._judge_keys = tuple(models), tuple(judge_keys)
        wanted = {"orchestrator": orchestrator, "embedder": bool(models), "judge": judge}
        self._needed = tuple(service for service in SERVICES if wanted[service])
        for service in (service for service in self._needed if service not in self._checked):
            self._renew(service)
        self._checked.update(self._needed)
        self.start_missing()

    def start_missing(self) -> bool:
        """Start needed services that no command has started yet; return whether any was started.

        Raises:
            SetupError: A service is not installed or cannot be started.
        """
        with _starting(self._home):
            missing = [service for service in self._needed if not _runs(self._home, service)]
            passing = [service for service in self._needed if service not in missing and self._ends_soon(service)]
            if self._stay and passing:
                raise SetupError(
                    f"the {' and the '.join(passing)} is in use by an active run and would stop with it: "
                    "retry when that run has finished",
                    reason="SERVICE_OF_A_RUN",
                )
            for service in missing:  # before any is started: a stack that stays would keep the first of them
                _check_installed(service)
            for service in missing:
                self._spawn(service)
        return bool(missing)

    @property
    def models_to_download(self) -> tuple[str, ...]:
        """The models that this command needs and this machine lacks."""
        return tuple(model for model in self._models if not is_on_disk(model, os.environ))

    def _renew(self, service: str) -> None:
        """Restart a service that must not be used as it is: see `_changed`; also an idle one that shall stay.

        Raises:
            SetupError: Another command uses it, or it does not stop.
        """
        with _starting(self._home):
            if not _runs(self._home, service):
                return
            is_free, ends = self._user.is_only(), self._ends_with_lease(service)
            is_idle = is_free and ends
            changed = _changed(self._home, service, is_idle=is_idle, keys=self._judge_keys)
            if not changed and not (is_idle and self._stay):
                return
            if not is_free:
                raise SetupError(
                    f"the local {service} serves another command with another {', '.join(changed)}: call this again "
                    "when that command is done, or set ASSAY_HOME to another folder",
                    reason="SERVICE_OF_A_RUN",
                )
            _check_installed(service)
            _stop(self._home, service)
            self._spawn(service, stays=self._stay or not ends)

    def check(self) -> None:
        """Raise if a service that was started here has ended by itself.

        Raises:
            SetupError: It has; the message contains the end of its log.
        """
        for service, child in self._children.items():
            if child.poll() == 0:
                raise _stopped(service)
            if child.poll() is not None:
                tail = last_words(self._home.log(service), self._log_starts[service], service)
                raise SetupError(
                    f"the local {service} exited with status {child.returncode}; the end of its log:\n{tail}",
                    reason="SERVICE_ENDED",
                )

    async def watched(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait until services are ready, or raise if one ends.

        Raises:
            SetupError: A service that was started here has ended.
        """
        import asyncio  # here: it is imported while the services start

        task = asyncio.ensure_future(waiting)
        try:
            while not task.done():
                self.check()
                await asyncio.wait({task}, timeout=_LOOK_S)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def started(self) -> Mapping[str, Path]:
        """The sockets of the services that were started here, by the services' names."""
        return {service: self._home.socket(service) for service in self._children}

    @property
    def listens(self) -> bool:
        """Whether the orchestrator accepts connections."""
        return _listens(self._home.socket("orchestrator"))

    @property
    def outlives_command(self) -> bool:
        """Whether the orchestrator stays when this command ends with an active run: `assay up` started it, or another
        process holds the lease."""
        return not self._ends_with_lease("orchestrator") or not self._lease.is_only()

    def restart_killed(self) -> bool:
        """Restart services that a signal has ended, also those of other commands; return whether there were any.

        Raises:
            SetupError: A service has ended by itself, and would only do so again, keeps being killed, or was stopped
                by another command.
        """
        ended = [service for service in self._needed if not self._goes_on(service)]
        if not ended:
            return False
        if any(service in self._children and self._children[service].returncode >= 0 for service in ended):
            self.check()
        for service in ended:
            # A service that stops in order removes its socket; one that was killed leaves it behind.
            if service not in self._children and not self._home.socket(service).exists():
                raise _stopped(service)
        if not self.start_missing():
            return False
        self._restart_count += 1
        if self._restart_count > _MOST_RESTARTS:
            self.check()
            logs = " and ".join(str(self._home.log(service)) for service in ended)
            names = " and the ".join(ended)
            raise SetupError(f"the local {names} ended again after {_MOST_RESTARTS} restarts: read {logs}")
        return True

    def _ends_soon(self, service: str) -> bool:
        """Return whether another command started a service that ends when unused."""
        return service not in self._children and self._ends_with_lease(service)

    def _ends_with_lease(self, service: str) -> bool:
        return _has_life(self._home, service, _LEASED)

    def _goes_on(self, service: str) -> bool:
        if service in self._children and self._children[service].poll() is None:
            return True
        return _runs(self._home, service)

    def abandon(self) -> None:
        """Release the lease and stop the services started here at once, unless another command uses them.

        For services that got no request: a command that refuses its input had already started the orchestrator. A state
        directory that this process created is removed again. Has no effect after `wait_until_stopped`.
        """
        if self._lease.is_closed:
            return
        self.release()
        if _is_shared(self._home):
            return
        for service in self._leased:
            self._children[service].terminate()
        for service in self._leased:
            self._children[service].wait()
        if self._home.is_new and not self._stay and not _is_shared(self._home):
            self._home.remove()

    def release(self) -> None:
        """Release the lease; the services stop unless another command uses them."""
        self._lease.close()
        self._user.close()

    async def wait_until_stopped(self, timeout_s: float = 15.0) -> None:
        """Release the lease and wait until the services have stopped, unless another process holds it.

        Does not wait for services that stay: those of `assay up`, a judge restarted in place of one, and those that
        wait idle.
        """
        import asyncio  # here: it is imported while the services start

        self.release()
        leased = [self._children[service] for service in self._leased if not idle_seconds(os.environ)]
        try:
            async with asyncio.timeout(timeout_s):
                while any(child.poll() is None for child in leased):
                    if is_leased(self._home.sockets / "lease"):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            for child in leased:
                child.terminate()

    async def leave(self) -> None:
        """Keep the services for the next call of this process, which holds the lease until it ends; or, if
        ASSAY_IDLE_S is 0, stop them as `wait_until_stopped` does."""
        if not keeps_stacks(os.environ):
            await self.wait_until_stopped()
        elif not self._lease.is_closed:
            self._user.close()
            keep_stack(self._home, self._lease, [self._children[service] for service in self._leased])

    def _spawn(self, service: str, *, stays: bool | None = None) -> None:
        stays = self._stay if stays is None else stays
        with open_log(self._home.log(service)) as log, _held(_life(self._home, service)) as life:
            self._log_starts[service] = log.tell()
            child = subprocess.Popen(  # noqa: S603 - our own module, no shell
                # -P: the current folder must not shadow a module of the service.
                [sys.executable, "-P", "-m", _PACKAGES[service], *self._arguments(service, stays)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(life,),  # it holds this lock for as long as it lives, whatever becomes of us
                start_new_session=True,  # Ctrl-C is for the command; the service ends with its lease
            )
        _life(self._home, service).write_bytes(_STAYING if stays else _LEASED)
        record_variables(_record(self._home, service), environment_of_service())
        with open(self._home.sockets / f"{service}.pid", "w", opener=_private) as file:
            file.write(str(child.pid))
        self._children[service] = child
        (self._leased.discard if stays else self._leased.add)(service)

    def _arguments(self, service: str, stays: bool) -> list[str]:
        arguments = ["--listen", f"unix:{self._home.socket(service)}"]
        if service == "orchestrator":
            # The local stack keeps to its own file, whatever database the environment names for a shared one.
            arguments += ["--database", str(self._home.database), "--database-url", "", "--recover", "on-request"]
            for other in ("embedder", "judge"):
                arguments += [f"--{other}", f"unix:{self._home.socket(other)}"]
            arguments += ["--http-hosts", "*", "--egress-networks", "*", "--agent-env", "*", "--no-reflection"]
            # A model may take its time to download; one that cannot be loaded ends the embedder, which is seen here.
            arguments += ["--embedder-patience-s", "3600"]
        elif service == "judge":
            # Runs name their judge; no other user can reach it here. Its verdicts outlive it.
            for kind in ("judges", "base-urls", "key-variables"):
                arguments += [f"--allow-{kind}", "*"]
            # `batch` beside an address of one's own states that the address has a batch API.
            arguments += ["--batch-base-urls", "*", "--egress-networks", "*"]
            arguments += ["--state-dir", str(self._home.verdicts), "--database-url", "", "--no-reflection"]
        else:
            for model in self._models:
                arguments += ["--model", model]
            arguments += ["--allow-models", "*", "--allow-models", "/*"]
            if not os.environ.get("ASSAY_EMBEDDER_CACHE_DIR") and _keeps_vectors(self._home):
                arguments += ["--cache-dir", str(self._home.vectors)]
        if not stays:
            arguments += ["--exit-with-lock", str(self._home.sockets / "lease")]
            arguments += ["--exit-idle-s", f"{idle_seconds(os.environ) * _IDLE_SHARES[service]:g}"]
        return arguments


def _keeps_vectors(home: Home) -> bool:
    """Return whether the local embedder can keep vectors; otherwise, as on a full disk, it computes all of them."""
    try:
        home.vectors.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(home.vectors / VECTORS_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def environment_for(server: str | None, service: str = "orchestrator") -> Mapping[str, str] | None:
    """Return the environment of the process that calls agents, or of the judge: this process's own if it starts that
    process.

    Args:
        server: The orchestrator's address; None for the local stack.
        service: The orchestrator, which calls agents, or the judge.

    Returns:
        None if it is already running, with its own environment. A judge with other settings, and an idle service with
        another environment, is restarted in this environment.
    """
    if server is not None:
        return None
    home = Home.find()
    if not _listens(home.socket(service)):
        return os.environ
    is_idle = _has_life(home, service, _LEASED) and not _is_shared(home)
    return os.environ if is_idle or _changed(home, service, is_idle=False) else None


def _changed(home: Home, service: str, *, is_idle: bool, keys: Sequence[str] = ()) -> list[str]:
    """Return the variables in which a running service differs from one that this process would start.

    Of a service that another command uses, or that stays, only the settings of judge and embedder count, and the keys
    that are needed.
    """
    if is_idle:
        return changed_variables(_record(home, service), environment_of_service())
    if service not in _RENEWED:
        return []
    return changed_variables(_record(home, service), os.environ, _prefix(service), keys if service == "judge" else ())


def running_services(home: Home) -> dict[str, int]:
    """Return the process ids of the running local services, including those still starting or stopping."""
    return {service: _pid(home, service) for service in SERVICES if _runs(home, service)}


def stop_services(home: Home) -> list[str]:
    """Ask every running local service to stop; return their names."""
    stopped = []
    for service, pid in running_services(home).items():
        if pid > 0:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            stopped.append(service)
    return stopped


@contextmanager
def without_service(home: Home, service: str) -> Iterator[None]:
    """Keep a local service from running inside the block; an idle one is stopped.

    Raises:
        SetupError: A command uses it, `assay up` started it, or it does not stop.
    """
    with _starting(home):
        if _runs(home, service):
            if _is_shared(home) or not _has_life(home, service, _LEASED):
                raise SetupError(
                    f"the local {service} is in use: call this again when the other command is done, or after "
                    "`assay down` if `assay up` started it",
                    reason="SERVICE_OF_A_RUN",
                )
            _stop(home, service)
        yield


def _check_installed(service: str) -> None:
    if importlib.util.find_spec(_PACKAGES[service]) is None or importlib.util.find_spec(_NEEDS[service]) is None:
        raise SetupError(
            f"this run needs the {service}, which is not installed: {install_hint(service)}", reason="NOT_INSTALLED"
        )


@contextmanager
def _starting(home: Home) -> Iterator[None]:
    """Keep two commands from starting the same service at once."""
    lock = Lease(home.sockets / "starting")
    try:
        lock.take_alone()
        yield
    finally:
        lock.close()


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """Hold a file's exclusive lock and yield its descriptor; a process that inherits the descriptor keeps the lock."""
    lock = Lease(path)
    try:
        yield lock.take_alone()
    finally:
        lock.close()


def _life(home: Home, service: str) -> Path:
    """The file that a service locks while it runs."""
    return home.sockets / f"{service}.life"


def _has_life(home: Home, service: str, life: bytes) -> bool:
    with suppress(OSError):
        return _life(home, service).read_bytes() == life
    return False


def _record(home: Home, service: str) -> Path:
    """The file that records the keys and settings a service was started with."""
    return home.sockets / f"{service}.environment"


def _prefix(service: str) -> str:
    return f"ASSAY_{service.upper()}_"


def _stop(home: Home, service: str) -> None:
    """Stop a service and wait until it has ended; its running calls finish first."""
    pid = _pid(home, service)
    if pid > 0:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _runs(home, service):
        if time.monotonic() > deadline:
            raise SetupError(
                f"the local {service} does not stop (process {pid}): stop it with `assay down`",
                reason="SERVICE_OF_A_RUN",
            )
        time.sleep(0.02)


def _runs(home: Home, service: str) -> bool:
    """Return whether a service has a process, even if it does not listen yet or no longer."""
    return is_locked(_life(home, service), fcntl.LOCK_SH) or _listens(home.socket(service))


def _stopped(service: str) -> SetupError:
    return SetupError(
        f"the local {service} was stopped, as `assay down` does; nothing stored is lost", reason="SERVICE_STOPPED"
    )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _is_shared(home: Home) -> bool:
    """Return whether another command uses the stack, by its lock on the file of users."""
    return is_locked(home.sockets / "users", fcntl.LOCK_EX)


def _pid(home: Home, service: str) -> int:
    try:
        return int((home.sockets / f"{service}.pid").read_text())
    except (OSError, ValueError):
        return 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
