"""`make chaos`: kills at random, over all processes and stages, until there were enough; prints what became of it.

Every round is one run, with some kills, over one topology; its randomness follows from seed and round alone:
`python -m tests.chaos.random_kills --seed 7 --round 31` repeats it, as far as the machine takes part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import psycopg
from tests.chaos.commands import Command
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import Cluster, OneOrchestrator
from tests.support.processes.postgres_server import PostgresServer, own_server

from assay.process.failpoints import FAILPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.drills import Drill
    from tests.chaos.histories import History

PLANS = (
    Plan(case_count=150, repeats=2),
    Plan(case_count=80, turn_count=3, repeats=1),
    Plan(case_count=100, repeats=3, embeds=False),
    Plan(case_count=1200, repeats=1, embeds=False),  # two shards
)
HOSTED_PLANS = (Plan(case_count=200, repeats=1), Plan(case_count=100, repeats=2, embeds=False))
SERVING = [
    name
    for name in FAILPOINTS
    if not name.startswith(("client", "host", "report", "retry", "deletion", "team", "stop", "judge"))
]
HOSTING = [name for name in FAILPOINTS if name.startswith(("client", "host", "report"))]
KINDS = ("sqlite", "postgres", "command", "cluster")
VICTIMS = {
    "sqlite": ("orchestrator",),
    "postgres": ("orchestrator", "database"),
    "command": ("command", "orchestrator"),
    "cluster": ("api", "worker0", "worker1", "database"),
}
_LATEST_S = 1.5


@dataclass(slots=True)
class Count:
    """What became of the rounds of one kind.

    Args:
        rounds: Runs.
        kills: Processes that were killed.
        results: Results that are stored.
        lost: Acknowledged results that are not.
        duplicated: Results too many.
        repaid: Questions that were asked although their answer was stored.
        repeated: Questions in flight at a kill, which were asked again.
        victims: How often each process was killed.
        problems: Everything else that was wrong, with seed and round.
    """

    rounds: int = 0
    kills: int = 0
    results: int = 0
    lost: int = 0
    duplicated: int = 0
    repaid: int = 0
    repeated: int = 0
    victims: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Round:
    """One run and the kills that it gets.

    Args:
        kind: One of KINDS.
        chance: Decides everything.
        postgres: The server of the kinds "postgres" and "cluster".
        places: Where processes were killed, counted over all rounds.
    """

    kind: str
    chance: random.Random
    postgres: PostgresServer
    places: Counter[str]

    async def run(self, folder: Path, count: Count) -> tuple[Plan, list[str], dict[str, Any]]:
        """Run, kill, and add to the count; return the plan, what was wrong, and the summary."""
        plan = self.chance.choice(HOSTED_PLANS if self.kind == "command" else PLANS)
        url = self.postgres.url if self.kind in ("postgres", "cluster") else ""
        async with drilling(plan, folder, Cluster if self.kind == "cluster" else OneOrchestrator, url) as drill:
            drill.agent.delay_s = self.chance.choice((0.002, 0.01))
            for slot in drill.topology.slots.values():
                most = 6 if len(drill.topology.slots) == 1 else 2
                slot.armed += [self._failpoint(SERVING) for _ in range(self.chance.randint(most // 3, most))]
            command = Command(drill, [self._failpoint(HOSTING) for _ in range(3)] if self.kind == "command" else [])
            killing: asyncio.Task[None] | None = None
            try:
                drill.topology.start()
                killing = asyncio.create_task(self._kill_at_random(drill, command))
                if self.kind == "command":
                    history: History = await command.insist()
                else:
                    history = await drill.submit()
                    await drill.watch_to_the_end(history)
            finally:
                if killing is not None:
                    killing.cancel()
                    await asyncio.gather(killing, return_exceptions=True)
                command.close()
            (verdict,) = await drill.conclude()
            self._count(drill, count)
        count.results += history.row_count
        count.lost += verdict.lost
        count.duplicated += verdict.duplicated
        count.repaid += verdict.repaid
        count.repeated += verdict.repeated
        return plan, verdict.problems, verdict.summary

    def _failpoint(self, names: Sequence[str]) -> str:
        return f"{self.chance.choice(names)}=kill@{self.chance.choice((1, 1, 2, 3, 5, 8, 13))}"

    async def _kill_at_random(self, drill: Drill, command: Command) -> None:
        for _ in range(self.chance.randint(2, 7)):
            with suppress(Exception):  # killed while it starts: the next kill comes all the same
                await drill.topology.ready(5.0)
            await asyncio.sleep(self.chance.uniform(0, _LATEST_S))
            victim = self.chance.choice(VICTIMS[self.kind])
            if victim in drill.topology.slots:
                drill.topology.send(victim, signal.SIGKILL)
            elif victim == "command" and command.process is not None:
                command.send(signal.SIGKILL)
            elif victim == "database":
                drill.topology.disturbed("database")
                await asyncio.to_thread(self.postgres.kill)
                self.places["database"] += 1
                await asyncio.to_thread(self.postgres.start)

    def _count(self, drill: Drill, count: Count) -> None:
        killed = Counter(ending.slot for ending in drill.topology.endings if ending.status == -signal.SIGKILL)
        databases = sum(ending.slot == "database" for ending in drill.topology.endings)
        count.kills += sum(killed.values()) + databases
        at = Counter(name for name, action in drill.topology.passed() if action == "kill")
        self.places.update(at)
        for name, times in (killed + Counter(database=databases)).items():
            count.victims[name] = count.victims.get(name, 0) + times
        commands = killed.pop("command", 0)
        serving = "process of a cluster" if self.kind == "cluster" else "orchestrator"
        for name, times, points in (("command", commands, HOSTING), (serving, killed.total(), SERVING)):
            self.places[f"{name}, at any moment"] += times - sum(at[point] for point in points)


async def undisturbed(plan: Plan, known: dict[Plan, dict[str, Any]]) -> dict[str, Any]:
    """Return the summary of a run in which nothing happens."""
    if plan not in known:
        folder = Path(mkdtemp(prefix="assay-chaos-"))
        async with drilling(plan, folder, OneOrchestrator) as drill:
            drill.topology.start()
            await drill.watch_to_the_end(await drill.submit())
            known[plan] = (await drill.conclude())[0].summary
        shutil.rmtree(folder)
    return known[plan]


@dataclass(slots=True)
class Report:
    """What is saved and printed.

    Args:
        seed: Of all rounds.
        path: Where it is saved after each round; None for nowhere.
        kinds: Which rounds there are; what the file says of others is kept.
    """

    seed: int
    path: Path | None
    kinds: Sequence[str] = KINDS
    counts: dict[str, Count] = field(default_factory=lambda: {kind: Count() for kind in KINDS})
    places: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    wall_s: float = 0.0
    kept_kills: int = 0

    def __post_init__(self) -> None:
        if self.path is None or self.kinds == KINDS or not self.path.exists():
            return
        kept = json.loads(self.path.read_text(encoding="utf-8"))
        self.wall_s = kept["wall_s"]
        self.places.update(kept["killed_at"])
        for kind, count in kept["kinds"].items():
            if kind not in self.kinds:
                self.counts[kind] = Count(**count)
        self.kept_kills = self.kills

    @property
    def kills(self) -> int:
        """How many processes were killed so far."""
        return sum(count.kills for count in self.counts.values())

    @property
    def problems(self) -> list[str]:
        """All that was wrong."""
        return [problem for count in self.counts.values() for problem in count.problems]

    def save(self) -> None:
        """Write the figures there are."""
        if self.path is None:
            return
        document = {
            "seed": self.seed,
            "wall_s": round(self.wall_s + time.monotonic() - self.began),
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "kills": self.kills,
            "kinds": {kind: asdict(count) for kind, count in self.counts.items()},
            "killed_at": dict(self.places.most_common()),
        }
        self.path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


async def kill_many(kills: int, only: int | None, report: Report) -> None:
    """Do rounds until there were so many kills, or only one round."""
    known: dict[Plan, dict[str, Any]] = {}
    with own_server() as postgres:
        for number in _numbers(report, kills, only):
            kind = report.kinds[number % len(report.kinds)]
            folder = Path(mkdtemp(prefix="assay-chaos-"))
            count = report.counts[kind]
            try:
                one = Round(kind, random.Random(f"{report.seed}/{number}"), postgres, report.places)
                plan, problems, summary = await one.run(folder, count)
                if summary != await undisturbed(plan, known):
                    problems.append("the summary differs from that of an undisturbed run")
            except Exception as problem:  # noqa: BLE001 - told with its round; the others go on
                problems = [f"{type(problem).__name__}: {problem}"]
            count.rounds += 1
            count.problems += [f"seed {report.seed}, round {number}, {kind}: {text}" for text in problems]
            if problems and only is not None:
                _show_logs(folder)
            shutil.rmtree(folder, ignore_errors=True)
            sys.stderr.write(f"round {number} ({kind}): {report.kills} kills so far\n")
            sys.stderr.writelines(f"  {problem}\n" for problem in problems)
            report.save()
            _forget(postgres)


def _show_logs(folder: Path) -> None:
    sys.stderr.writelines(log.read_text(errors="replace") for log in sorted(folder.glob("*.log")))


def _numbers(report: Report, kills: int, only: int | None) -> Iterator[int]:
    if only is not None:
        yield only
        return
    number = 0
    while report.kills - report.kept_kills < kills:
        yield number
        number += 1


def _forget(postgres: PostgresServer) -> None:
    """Empty the database for the next round."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def table(counts: dict[str, Count]) -> str:
    """Return the counts as a table, with a line for all together."""
    columns = ("rounds", "kills", "results", "lost", "duplicated", "repaid", "repeated")
    titles = ("rounds", "kills", "results", "lost", "duplicated", "re-paid stored answers", "repeated in flight")
    lines = ["| processes | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for kind, count in counts.items():
        lines.append(f"| {kind} | " + " | ".join(f"{getattr(count, column):,}" for column in columns) + " |")
    sums = [sum(getattr(count, column) for count in counts.values()) for column in columns]
    return "\n".join([*lines, "| together | " + " | ".join(f"{number:,}" for number in sums) + " |"])


def main() -> None:
    """Kill, print, save, and end with 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description="Kills processes at random and checks that nothing is lost.")
    parser.add_argument("--kills", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="decides what is killed when (default: 1)")
    parser.add_argument("--round", type=int, help="do this round alone")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of which processes (default: all)")
    parser.add_argument("--json", type=Path, help="save the figures here")
    given = parser.parse_args()
    report = Report(given.seed, given.json, tuple(given.kinds))
    asyncio.run(kill_many(given.kills, given.round, report))
    sys.stdout.write(table(report.counts) + "\n")
    sys.exit("\n".join(report.problems) if report.problems else 0)


if __name__ == "__main__":
    main()
