"""Agents of frameworks are refused before anything is paid: the framework, the target and the options."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from assay.agent_host.frameworks.targets import require_framework
from assay.agent_host.loader import load_object
from assay.agent_host.user_code import open_caller
from assay.errors import InvalidInputError
from assay.local_stack.install_hint import install_hint
from assay.model.frameworks import FRAMEWORKS, Framework, OptionKind
from assay.model.run import AgentSpec
from assay.specs.agents import check_hosted

YAML = Framework(
    "PyYAML", "yaml", {"pyyaml": ("6", "7"), "pytest": ("1", "100")}, "yaml", "a loader", {"depth": OptionKind.COUNT}
)


def _needing(package: str, least: str, unknown: str) -> Framework:
    return dataclasses.replace(YAML, packages={**YAML.packages, package: (least, unknown)})


@pytest.mark.parametrize(
    ("framework", "message"),
    [
        (
            dataclasses.replace(YAML, module="no_such.framework"),
            f"agent.adapter: PyYAML is not installed here: {install_hint('yaml')}",
        ),
        (dataclasses.replace(YAML, module="yaml.nothing"), "PyYAML is not installed here"),
        (_needing("pyyaml", "1", "6"), "is installed, and this version of Assay reads 1 or later, below 6: "),
        (_needing("pyyaml", "6.999", "7"), "reads 6.999 or later, below 7: "),
        (_needing("pytest", "1", "2"), "reads 1 or later, below 2: "),
    ],
)
def test_a_framework_must_be_installed_in_a_known_version(framework: Framework, message: str) -> None:
    """The refusal names the command that helps."""
    require_framework(YAML)
    with pytest.raises(InvalidInputError) as caught:
        require_framework(framework)
    assert message in str(caught.value)
    assert install_hint("yaml") in str(caught.value)
    assert caught.value.reason == "FRAMEWORK_MISSING"


def test_versions_are_those_of_the_extras() -> None:
    """What is refused is what the extra would not have installed; the list of floors holds the least of them."""
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked = (root / "requirements" / "floors.txt").read_text()
    for framework in FRAMEWORKS.values():
        named = [f"{package}>={least},<{unknown}" for package, (least, unknown) in framework.packages.items()]
        assert sorted(extras[framework.extra]) == sorted(named)
        for package, (least, _) in framework.packages.items():
            assert re.search(rf"^{package}=={re.escape(least)}(\.0)* ", locked, re.MULTILINE)


def test_all_problems_of_a_framework_agent_are_reported_at_once() -> None:
    """The target, unknown options with the nearest known one, and values of another kind."""
    for adapter, framework in FRAMEWORKS.items():
        settings = AgentSpec(adapter, "not a target", options={"no_such_option": 1})
        problems = {problem.field: problem.message for problem in check_hosted(settings)}
        assert set(problems) == {"agent.target", "agent.no_such_option"}
        assert f"of {framework.accepts}" in problems["agent.target"]
    assert YAML.option_problems({"depth": 3}) == []
    assert [str(one) for one in YAML.option_problems({"depth": True})] == [
        "agent.depth: must be a whole number from 1, not True"
    ]
    assert "did you mean 'depth'?" in str(YAML.option_problems({"dept": 3})[0])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (OptionKind.OBJECT, ["m:f", "a.b:c.d", "file.py:f"], ["m", "", 1, None, "m:f:g "]),
        (OptionKind.TEXT, ["a"], ["", " ", "a\x00", "a\nb", 1]),
        (OptionKind.COUNT, [1, 500], [0, -1, True, 1.0, "1"]),
        (OptionKind.FLAG, [True, False], [0, 1, "true", None]),
    ],
)
def test_kinds_of_options(kind: OptionKind, good: list[object], bad: list[object]) -> None:
    """Each kind takes its values and no others."""
    assert all(kind.allows(value) for value in good)
    assert not any(kind.allows(value) for value in bad)


def test_an_object_of_an_option_is_refused_at_the_option(tmp_path: Path) -> None:
    """The field is the option's, not the target's."""
    for target in ("no_module_of_that_name:x", "no_file.py:x", "json:no_such"):
        with pytest.raises(InvalidInputError) as caught:
            load_object(target, tmp_path, "object", "agent.session_service")
        assert [problem.field for problem in caught.value.problems] == ["agent.session_service"]


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_a_missing_framework_is_refused_with_its_extra(adapter: str, tmp_path: Path) -> None:
    """Before the user's code is imported, which would fail for the same reason with a traceback."""
    if next(iter(FRAMEWORKS[adapter].packages)) in {each.name for each in importlib.metadata.distributions()}:
        pytest.skip("it is installed here")
    (tmp_path / "agent.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec(adapter, "agent:agent"), tmp_path)
    assert str(caught.value).startswith(f"agent.adapter: {FRAMEWORKS[adapter].label} is not installed here: ")
    assert str(caught.value).endswith(install_hint(FRAMEWORKS[adapter].extra))


def test_an_adk_server_is_not_hosted(tmp_path: Path) -> None:
    """A URL is called by the orchestrator: nothing is loaded on this side."""
    assert open_caller(AgentSpec("adk", "http://127.0.0.1:8000"), tmp_path) is None
    assert AgentSpec("adk", "agent:root_agent").is_hosted
    assert AgentSpec("python", "http://127.0.0.1").is_hosted


@pytest.mark.parametrize("adapter", ["langgraph", "pydantic_ai", "openai_agents"])
def test_a_missing_framework_is_refused_before_its_agent_is_loaded(tmp_path: Path, adapter: str) -> None:
    """The message is the command that installs it, not the traceback of the user's import."""
    (tmp_path / "agent.py").write_text("raise ImportError('no such framework')\nagent = 1\n")
    with pytest.raises(InvalidInputError) as caught:
        open_caller(AgentSpec(adapter, "agent.py:agent"), tmp_path)
    framework = FRAMEWORKS[adapter]
    hint = install_hint(framework.extra)
    assert str(caught.value) == f"agent.adapter: {framework.label} is not installed here: {hint}"
