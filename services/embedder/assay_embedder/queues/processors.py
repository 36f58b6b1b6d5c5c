"""The number of processors that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def available_processors(*, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Return the processors that this process may use: its affinity, and the quota of its cgroup, rounded up.

    Args:
        mount: Where the cgroup file system is mounted.
        membership: The file that names the process's cgroups.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(mount, membership)
    return usable if quota is None else max(1, min(usable, math.ceil(quota)))


def cgroup_quota(mount: Path, membership: Path) -> float | None:
    """Return how many processors' time the process's cgroups allow, e.g. 1.5; None where they set no limit.

    Version 2 names it in `cpu.max`, version 1 in `cpu.cfs_quota_us` and `cpu.cfs_period_us`. A parent's limit holds,
    too. In a container the path of the group is often that outside, while the mount shows the group itself.
    """
    quotas = [_quota(folder) for folder in _folders(mount, membership)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(mount: Path, membership: Path) -> Iterator[Path]:
    for line in _text(membership).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [mount / "cpu", mount / controllers]
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:  # a group outside of what this process sees
            inside = PurePosixPath()
        yield from (root / each for root in roots for each in (inside, *inside.parents))


def _quota(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split() or [
        *_text(folder / "cpu.cfs_quota_us").split(),
        *_text(folder / "cpu.cfs_period_us").split(),
    ]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max", or nothing
        return None
    return quota / period if quota > 0 and period > 0 else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
