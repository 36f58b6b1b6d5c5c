"""None"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from assay.errors import InvalidInputError
from assay_embedder.queues.workers import available_processors, cgroup_quota
from assay_embedder.service import cosine
from assay_embedder.settings import Settings


def test_defaults_without_flags() -> None:
    """No setting is required."""
    assert Settings.read([], {}) == Settings()


def test_flags_win_over_the_environment_over_defaults() -> None:
    """Every flag is also a variable; lists are comma-separated there and repeated as flags."""
    environment = {
        "ASSAY_EMBEDDER_MODEL": "one, two",
        "ASSAY_EMBEDDER_ALLOW_MODELS": "hub/*",
        "ASSAY_EMBEDDER_DEVICE": "cuda",
        "ASSAY_EMBEDDER_QUEUE_LIMIT": "600",
        "ASSAY_EMBEDDER_REFLECTION": "false",
        "ASSAY_EMBEDDER_EXIT_WITH_LOCK": "/run/lock",
        "ASSAY_EMBEDDER_GRACE_S": "2.5",
    }
    settings = Settings.read(["--device", "cpu", "--model", "three", "--model", "four"], environment)
    assert settings.models == ("three", "four")
    assert settings.device == "cpu"
    assert settings.allow_models == ("hub/*",)
    assert settings.queue_limit == 600
    assert settings.reflection is False
    assert settings.exit_with_lock == Path("/run/lock")
    assert settings.grace_s == 2.5
    assert Settings.read([], environment).models == ("one", "two")
    assert Settings.read(["--reflection"], environment).reflection is True


def test_every_setting_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """Operators can set every setting by a flag."""
    with pytest.raises(SystemExit):
        Settings.read(["--help"], {})
    shown = capsys.readouterr().out
    names = {"model" if field.name == "models" else field.name for field in fields(Settings)}
    assert not [name for name in names if f"--{name.replace('_', '-')}" not in shown]


def test_all_problems_are_named_at_once() -> None:
    """One start shows everything that is wrong, each with its flag."""
    with pytest.raises(InvalidInputError) as caught:
        Settings(device="tpu", precision="int3", queue_limit=10, grace_s=-1, threads=-1, stream_in_flight=0)
    assert {problem.field for problem in caught.value.problems} == {
        "--device",
        "--precision",
        "--queue-limit",
        "--grace-s",
        "--threads",
        "--stream-in-flight",
    }


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("listed", True),
        ("hub/small", True),
        ("hub/a/b", True),
        ("other/small", False),
        ("", False),
        ("hub/../etc", False),
        ("/models/../etc", False),
    ],
)
def test_requests_name_only_models_that_the_operator_allows(name: str, allowed: bool) -> None:
    """A pattern cannot be left through parent folders."""
    settings = Settings(models=("listed",), allow_models=("hub/*", "/models/*"))
    assert settings.allows(name) is allowed


@pytest.mark.parametrize(
    ("patterns", "name", "allowed"),
    [
        (("*",), "hub/small", True),
        (("*",), "/etc", False),
        (("*", "/models/*"), "/models/a", True),
        (("*", "/models/*"), "/etc", False),
        (("*/small",), "/models/small", False),
    ],
)
def test_a_request_names_no_folder_unless_a_pattern_does(patterns: tuple[str, ...], name: str, allowed: bool) -> None:
    """`*` allows the models of the hub, and not whatever lies on the server's disk."""
    assert Settings(models=("listed",), allow_models=patterns).allows(name) is allowed


def test_a_request_names_no_folder_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a name refused by an error of the file system that no file can have."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = Settings(models=("listed",), allow_models=("*",))
    assert [settings.allows(name) for name in ("models", ".", "n" * 30_000)] == [False, False, True]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 0), (1, 1), 0.7071067811865475),
        ((3, 4), (4, 3), 0.96),
        ((1, 2, 3), (-1, -2, -3), -1.0),
        ((0.2, 0.1, 0.4), (0.1, 0.3, 0.5), 0.9221388919541468),
        ((0, 0), (1, 1), None),
        ((1, 1), (0, 0), None),
    ],
)
def test_cosine_of_plain_vectors(first: tuple[float, ...], second: tuple[float, ...], expected: float | None) -> None:
    """The arithmetic, by hand; a vector without direction has no cosine."""
    value = cosine(np.array(first), np.array(second))
    assert value is None if expected is None else value == pytest.approx(expected, abs=1e-12)


def test_cosine_stays_in_range() -> None:
    """Rounding never yields a cosine beyond 1."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        vector = rng.normal(size=384).astype(np.float32)
        value = cosine(vector, vector)
        assert value is not None
        assert value <= 1.0
        assert value == pytest.approx(1.0, abs=1e-12)


def test_wrong_settings_end_the_process_with_a_sentence() -> None:
    """Exit code 2, the sentence on stderr, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "assay_embedder", "--device", "tpu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == "assay embedder: --device: must be auto, cpu, cuda or cuda:N, not 'tpu'"


@pytest.mark.parametrize(("device", "taken"), [("cuda:0", True), ("cuda:12", True), ("cuda:", False), ("gpu", False)])
def test_a_gpu_has_a_number(device: str, taken: bool) -> None:
    """One of several GPUs is chosen by its number."""
    if taken:
        assert Settings(device=device).device == device
        return
    with pytest.raises(InvalidInputError, match="must be auto, cpu, cuda or cuda:N"):
        Settings(device=device)


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
