from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from assay_embedder.queues.workers import available_processors, cgroup_quota

if TYPE_CHECKING:
    from pathlib import Path

V1 = {"cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),
        ("0::/outside/of/the/container\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("4:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "300000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 3.0),
        ("4:cpu,cpuacct:/x\n", {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "1\n"}, None),
        ("1:cpu:/\n0::/\n", {"unified/cpu.max": "max 100000", "cpu/cpu.cfs_quota_us": "", "cpu/cpu.max": ""}, None),
        ("1:cpuset:/\n", {"cpu.max": "100000 100000"}, None),
        ("0::/../..\n", {"cpu.max": "100000 100000"}, 1.0),
        ("nonsense\n\n", {}, None),
        ("0::/\n", {"cpu.max": "nonsense"}, None),
        ("0::/\n", {"cpu.max": "100000 0"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_quota_of_the_cgroup(tmp_path: Path, membership: str, files: dict[str, str], quota: float | None) -> None:
    """Both versions, parents, and a container's view of its own group; what cannot be read sets no limit."""
    member = tmp_path / "membership"
    member.write_text(membership)
    mount = tmp_path / "mount"
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text)
    assert cgroup_quota(mount, member) == quota
    usable = len(os.sched_getaffinity(0))
    expected = usable if quota is None else max(1, min(usable, -int(-quota // 1)))
    assert available_processors(mount=mount, membership=member) == expected


def test_machine_without_cgroups(tmp_path: Path) -> None:
    """The affinity alone counts."""
    missing = tmp_path / "missing"
    assert available_processors(mount=missing, membership=missing) == len(os.sched_getaffinity(0))
