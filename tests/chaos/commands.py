"""`assay run` as a user insists on it: started again, for the same run, until its report is there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
from tests.chaos.topologies import Ending

if TYPE_CHECKING:
    import signal
    from pathlib import Path

    from tests.chaos.drills import Drill
    from tests.chaos.histories import History

_AGENT = """
import json
import urllib.request

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answer(request):
    body = json.dumps({"input": request.input}).encode()
    call = urllib.request.Request("URL", body, {"idempotency-key": request.idempotency_key})
    with OPENER.open(call, timeout=20) as reply:
        return json.load(reply)["text"]
"""
_END_S = 90.0
_LATE_S = 2.0
"""A thread that was to call the agent calls it, whether or not the orchestrator that asked is there still."""


@dataclass(slots=True)
class Command:
    """A command that hosts its run's agent.

    Args:
        drill: Whose orchestrator it uses, and what it runs.
        armed: Failpoints of the processes to come, the next one's first; those after the last have none.
        address: The orchestrator's, where it is not the topology's own.
    """

    drill: Drill
    armed: list[str] = field(default_factory=list)
    address: str = ""
    statuses: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Where spec, agent and report are."""
        return self.drill.folder / "client"

    @property
    def report(self) -> Path:
        """The report, once it is there."""
        return self.folder / "out" / "results.json"

    def write_project(self) -> None:
        """Write spec, dataset and agent."""
        self.folder.mkdir()
        plan = self.drill.plan
        (self.folder / "agent.py").write_text(_AGENT.replace("URL", self.drill.agent.url))
        spec = {**plan.mapping({"adapter": "python", "target": "agent:answer"}), "dataset": "qa.jsonl"}
        (self.folder / "assay.yaml").write_text(json.dumps(spec))
        lines = [
            {"id": case.case_id, "question": case.turns[0].input, "answer": case.turns[0].references[0],
             "category": case.category}
            for case in plan.cases()
        ]  # fmt: skip
        (self.folder / "qa.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def start(self, run_id: str) -> None:
        """Start the command once, for a run that is there."""
        self.write_project()
        self._start(run_id)

    async def insist(self) -> History:
        """Start the command, for the run that it has made if it made one, until it has ended by itself."""
        self.write_project()
        while not self.statuses or self.statuses[-1] not in (0, 1):
            known = await self.drill.insist(lambda client: client.list_runs())
            self._start(known[-1].run_id if known else None)
            assert self.process is not None
            async with asyncio.timeout(_END_S):
                status = await asyncio.to_thread(self.process.wait)
            self.drill.topology.endings.append(Ending("command", time.time(), status))
            self.statuses.append(status)
            if self.report.exists():
                json.loads(self.report.read_text())  # complete or absent
            assert len(self.statuses) < 30, self.said()
        (run,) = await self.drill.insist(lambda client: client.list_runs())
        history = self.drill.follow(run.run_id)
        history.late_s = _LATE_S
        await self.drill.watch_to_the_end(history)
        return history

    def send(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        assert self.process is not None, "it was not started"
        self.drill.topology.disturbed("command")
        self.process.send_signal(number)

    async def until_stopped(self) -> None:
        """Wait until the command has stopped at a failpoint."""
        async with asyncio.timeout(_END_S):
            while True:
                if self.process and psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED:
                    return
                await asyncio.sleep(0.02)

    def said(self) -> str:
        """Return the end of what the commands have printed."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def close(self) -> None:
        """End the command if it is there still."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _start(self, run_id: str | None) -> None:
        topology = self.drill.topology
        arguments = ["run", "assay.yaml", "--server", self.address or topology.address, "--output-dir", "out"]
        arguments += ["--resume", run_id] if run_id is not None else []
        failpoints = self.armed.pop(0) if self.armed else ""
        environ = {
            **os.environ,
            "ASSAY_HOME": str(self.folder / "home"),
            "TMPDIR": str(topology.temporary),
            **topology.failpoint_environment(failpoints),
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "assay_cli", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environ, cwd=self.folder,
            )  # fmt: skip
