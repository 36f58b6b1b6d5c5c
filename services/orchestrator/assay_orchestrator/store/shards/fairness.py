"""The next shards to queue: how teams, runs and limited agents share the workers, and how groups advance together.

Fairness is self-clocked fair queueing (S. J. Golestani, "A self-clocked fair queueing scheme for broadband
applications", 1994). A queued shard has a finish tag: the greater of the virtual time and its run's last tag, plus its
rows divided by its run's weight. The lowest tag is served first. The virtual time is the tag of the last started
shard. A run's weight is its team's, divided among the team's active runs. Since each run counts only from its own
start, a shard gets the team's next tag instead if that is lower: many runs started at once are served one by one.

Runs of a group advance together: a shard is queued only if its run is then less than a window of shards ahead of the
slowest run of its group that workers take shards of. Rows that only await a verdict do not hold a run back.

"Team" here is the name in a run's spec, stored as its `fair_share`: no right depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.identity.quotas import Quota
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.run_conditions import is_active, is_runnable
from assay_orchestrator.store.shards import fair_clock, shards
from assay_orchestrator.store.shards.shards import SUMMARY, ShardJob
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_ROWS_AT_ONCE = 32
_WINDOW = 64
_SUMMARY_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FairShares:
    """How teams and agents share the workers.

    Args:
        team_weights: Weight by team; 1 for others.
        agent_limits: Maximum questions in flight at an agent, across all runs, by the agent's key; others have none.
    """

    team_weights: Mapping[str, float]
    agent_limits: Mapping[str, int]


def next_jobs(connection: sa.Connection, run_id: str, shares: FairShares) -> list[ShardJob]:
    """Return the next jobs of a run, and of the runs linked with it."""
    shards.lock_sharing(connection, run_id)
    linked = least_served(connection, shards.linked_runs(connection, run_id))
    jobs = [job for other in linked for job in top_up(connection, other, shares)]
    for other in linked:
        spread_slots(connection, other, shares)
    if all(job.run_id != run_id for job in jobs) and shards.all_done(connection, run_id):
        jobs.append(ShardJob(run_id, SUMMARY, _SUMMARY_PRIORITY, shards.is_hosted(connection, run_id)))
    return jobs


def top_up(connection: sa.Connection, run_id: str, shares: FairShares) -> list[ShardJob]:
    """Queue waiting shards of a run, as many as its window and its concurrency allow; return their jobs.

    A run's questions in flight are divided among its queued shards, so the number of workers cannot exceed them. The
    caller holds the locks of the linked runs, as `next_jobs` does.
    """
    run = _runnable(connection, run_id)
    if run is None:
        return []
    queued, used = _queued(connection, run_id)
    window = min(_WINDOW, max(2, -(-run.concurrency // _ROWS_AT_ONCE)))
    room = window - queued
    free = min(run.concurrency - used, _room(connection, run, shares))
    waiting = _waiting(connection, run, window, min(room, free)) if room > 0 and free > 0 else []
    if not waiting:
        return []
    team_weight, run_weight, team_tag = _weights(connection, run, shares)
    virtual_time = fair_clock.virtual_time(connection)
    run_tag, team_tag = max(virtual_time, run.finish_tag), max(virtual_time, team_tag)
    jobs: list[ShardJob] = []
    for position, shard in enumerate(waiting):
        slots = free // len(waiting) + (position < free % len(waiting))
        run_tag, team_tag = run_tag + shard.row_count / run_weight, team_tag + shard.row_count / team_weight
        tag = min(run_tag, team_tag)
        ticket = shard.ticket + 1
        shards.change_shard(connection, run_id, shard.shard_index, state="queued", slots=slots, tag=tag, ticket=ticket)
        jobs.append(ShardJob(run_id, shard.shard_index, fair_clock.priority_of(tag), run.hosted, ticket))
    connection.execute(
        schema.runs.update().where(schema.runs.c.run_id == run_id).values(finish_tag=run_tag, team_tag=team_tag)
    )
    return jobs


def spread_slots(connection: sa.Connection, run_id: str, shares: FairShares) -> None:
    """Divide a run's unused questions in flight among its queued shards.

    No waiting shard could use them then. The worker of a queued shard sees its new share when it next stores rows.
    """
    run = _runnable(connection, run_id)
    if run is None:
        return
    table = schema.shards
    queued = connection.execute(
        sa.select(table.c.shard_index, table.c.slots)
        .where(table.c.run_id == run_id, table.c.state.in_(shards.IN_WORK))
        .order_by(table.c.slots, table.c.shard_index)
    ).all()
    free = min(run.concurrency - sum(shard.slots for shard in queued), _room(connection, run, shares))
    for position, shard in enumerate(queued[: max(0, free)]):
        more = free // len(queued) + (position < free % len(queued))
        shards.change_shard(connection, run_id, shard.shard_index, slots=shard.slots + more)


def reset_tags(connection: sa.Connection, run_id: str) -> None:
    """Reset the tags of a resumed run: it is served like a new one."""
    connection.execute(schema.runs.update().where(schema.runs.c.run_id == run_id).values(finish_tag=0.0, team_tag=0.0))


def least_served(connection: sa.Connection, run_ids: Collection[str]) -> list[str]:
    """Return the stored runs among some, the least served first."""
    table = schema.runs
    query = sa.select(table.c.run_id).where(table.c.run_id.in_(run_ids)).order_by(table.c.finish_tag, table.c.run_id)
    return list(connection.execute(query).scalars())


def _runnable(connection: sa.Connection, run_id: str) -> Any:
    """Return the row of a run if workers take its shards, else None."""
    query = sa.select(schema.runs).where(schema.runs.c.run_id == run_id, is_runnable())
    return connection.execute(query).one_or_none()


def _queued(connection: sa.Connection, run_id: str) -> tuple[int, int]:
    """Return the number of a run's queued shards, and of their questions in flight."""
    table = schema.shards
    row = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(table.c.slots), 0)).where(
            table.c.run_id == run_id, table.c.state.in_(shards.IN_WORK)
        )
    ).one()
    return int(row[0]), int(row[1])


def _room(connection: sa.Connection, run: Any, shares: FairShares) -> int:
    """Return how many more questions the limits of a run's agent and team allow."""
    limit = quotas.read_quotas(connection, run.team).get(Quota.CONCURRENT_QUESTIONS)
    agent_room = _agent_room(connection, run.agent_key, shares)
    if limit is None:
        return agent_room
    return min(agent_room, limit - quotas.use_of(connection, run.team, Quota.CONCURRENT_QUESTIONS))


def _agent_room(connection: sa.Connection, key: str, shares: FairShares) -> int:
    """Return how many more questions an agent's limit allows, across all its runs."""
    limit = shares.agent_limits.get(key)
    if limit is None:
        return 2**31
    table, owners = schema.shards, schema.runs
    used = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(table.c.slots), 0))
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(owners.c.agent_key == key, table.c.state.in_(shards.IN_WORK))
    ).scalar_one()
    return limit - int(used)


def _waiting(connection: sa.Connection, run: Any, window: int, count: int) -> Sequence[Any]:
    """Return up to `count` waiting shards of a run that may be queued."""
    table = schema.shards
    query = (
        sa.select(table.c.shard_index, table.c.row_count, table.c.ticket)
        .where(table.c.run_id == run.run_id, table.c.state == "waiting")
        .order_by(table.c.shard_index)
        .limit(count)
    )
    if run.group_id:
        query = query.where(table.c.shard_index < _slowest(connection, run) + window)
    return connection.execute(query).all()


def _slowest(connection: sa.Connection, run: Any) -> int:
    """Return the first unfinished shard of the slowest runnable run in a run's group, itself included."""
    table, owners = schema.shards, schema.runs
    query = (
        sa.select(sa.func.coalesce(sa.func.min(table.c.shard_index), 0))
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(
            owners.c.team == run.team,
            owners.c.group_id == run.group_id,
            is_runnable(),
            table.c.state.in_(("waiting", *shards.IN_WORK)),
        )
    )
    return int(connection.execute(query).scalar_one())


def _weights(connection: sa.Connection, run: Any, shares: FairShares) -> tuple[float, float, float]:
    """Return the weight of a run's team, the weight of the run, and the team's last tag."""
    table = schema.runs
    total, tag = connection.execute(
        sa.select(sa.func.sum(table.c.weight), sa.func.max(table.c.team_tag)).where(
            table.c.fair_share == run.fair_share, is_active()
        )
    ).one()
    weight = shares.team_weights.get(run.fair_share, 1.0)
    return weight, weight * run.weight / float(total), float(tag)
