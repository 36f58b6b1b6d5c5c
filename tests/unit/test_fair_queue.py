"""The queue of scoring jobs: the next is of the run that has used the least time."""

from __future__ import annotations

from assay_orchestrator.scorers.pool import FairQueue


def taken(queue: FairQueue[str], costs: dict[str, float], count: int) -> list[str]:
    """Take some jobs, each of which costs its owner what such a job costs; return whose they were."""
    owners = []
    for _ in range(count):
        owner, _ = queue.take()
        queue.charge(owner, costs[owner])
        owners.append(owner)
    return owners


def test_jobs_of_one_owner_keep_their_order() -> None:
    """Jobs of a run are served in order of arrival."""
    queue: FairQueue[str] = FairQueue()
    for job in ("a", "b", "c"):
        queue.put("run", job)
    assert [queue.take()[1] for _ in range(3)] == ["a", "b", "c"]
    assert len(queue) == 0


def test_owners_get_the_same_time_not_the_same_number() -> None:
    """Beside a run with jobs of 5 s, a run with jobs of 0.125 s has forty of them done for each."""
    queue: FairQueue[str] = FairQueue()
    for index in range(100):
        queue.put("slow", f"s{index}")
        queue.put("quick", f"q{index}")
    owners = taken(queue, {"slow": 5.0, "quick": 0.125}, 2 + 80)
    assert (owners.count("slow"), owners.count("quick")) == (2, 80)


def test_unused_time_is_not_saved() -> None:
    """An owner that was idle for long does not get all turns when it returns."""
    queue: FairQueue[str] = FairQueue()
    costs = {"busy": 1.0, "rare": 1.0}
    queue.put("rare", "r")
    for index in range(50):
        queue.put("busy", f"b{index}")
    taken(queue, costs, 41)
    for index in range(20):
        queue.put("rare", f"r{index}")
    assert taken(queue, costs, 10).count("busy") == 5


def test_owners_that_are_gone_are_forgotten() -> None:
    """Memory does not grow with the number of runs."""
    queue: FairQueue[str] = FairQueue()
    for index in range(5_000):
        queue.put(f"run{index}", "job")
        taken(queue, {f"run{index}": 0.001}, 1)
    assert len(queue._used) <= 1_001
