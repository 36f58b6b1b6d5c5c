"""Finding the user's agent, and what is said where it cannot be found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.loader import AgentImportError, load_agent
from assay.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENT = """
import abc
def answer(request):
    return "hello"

class Bot:
    async def reply(self, request):
        return "hi"

class Asked(Bot):
    def run(self, request):
        return "later"

    def answer(self, request):
        return "first"

class Abstract(Asked, abc.ABC):
    @abc.abstractmethod
    def more(self): ...

class NeedsModel(Asked):
    def __init__(self, model): ...

class TakesNothing:
    def answer(self): ...

class Static:
    @staticmethod
    def run(question):
        return "static"

bot = Bot()
number = 3

def no_argument():
    return ""

def two_arguments(request, other):
    return ""

def with_default(request, other=1):
    return "default"
"""


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Forget what a test imported, so that the folders of tests do not meet."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a spec's folder with an agent, in a module and in a package."""
    (tmp_path / "loadable_agent.py").write_text(AGENT)
    (tmp_path / "loadable_package").mkdir()
    (tmp_path / "loadable_package" / "__init__.py").write_text("")
    (tmp_path / "loadable_package" / "inner.py").write_text("from loadable_agent import answer\n")
    return tmp_path


@pytest.mark.parametrize(
    "target",
    ["loadable_agent:answer", "loadable_agent.py:answer", "loadable_package.inner:answer",
     "loadable_package/inner.py:answer"],
)  # fmt: skip
def test_modules_packages_and_files_are_found(folder: Path, target: str) -> None:
    """A target names a module or a file next to the spec, whatever the working directory."""
    assert load_agent(target, folder)(None) == "hello"


def test_an_attribute_path_reaches_a_method(folder: Path) -> None:
    """`module:object.method` names a bound method."""
    assert load_agent("loadable_agent:bot.reply", folder).__name__ == "reply"


def test_a_function_with_further_defaults_is_taken(folder: Path) -> None:
    """Parameters with defaults do not count."""
    assert load_agent("loadable_agent:with_default", folder)(None) == "default"


@pytest.mark.parametrize("name", ["Asked", "Static"])
def test_a_class_whose_objects_can_be_asked_is_taken(folder: Path, name: str) -> None:
    """A class can be a target if it needs no arguments and its objects have a method of one question."""
    assert load_agent(f"loadable_agent:{name}", folder).__name__ == name


def test_a_builtin_without_a_signature_is_taken(folder: Path) -> None:
    """A callable without a signature is accepted."""
    assert load_agent("builtins:dir", folder) is dir


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("loadable_agent:anwser", "no 'anwser'; did you mean 'answer'?"),
        ("loadable_agent:bot.repyl", "no 'repyl'; did you mean 'reply'?"),
        ("loadable_agent:zzzzzz", "has no 'zzzzzz'"),
        ("no_such_module:answer", "no module 'no_such_module'"),
        ("loadable_package.missing:answer", "no module 'loadable_package.missing'"),
        ("missing.py:answer", "there is no file"),
        ("loadable_agent:Bot", "is a class without a method __call__, answer or run"),
        ("loadable_agent:Abstract", "is an abstract class"),
        ("loadable_agent:NeedsModel", "made without arguments, one for each conversation, but it takes (model)"),
        (
            "loadable_agent:TakesNothing",
            "has a method answer, called with one argument, the question, but it takes (self)",
        ),
        ("loadable_agent:number", "a value of type int, which cannot be called"),
        ("loadable_agent:no_argument", "called with one argument, the question, but it takes ()"),
        ("loadable_agent:two_arguments", "but it takes (request, other)"),
        ("loadable_agent:Bot.reply", "but it takes (self, request)"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_a_way_out(folder: Path, target: str, message: str) -> None:
    """The message names the wrong part of the target, and the nearest name if there is one."""
    with pytest.raises(InvalidInputError) as caught:
        load_agent(target, folder)
    assert message in str(caught.value)
    assert caught.value.problems[0].field == "agent.target"
    assert caught.value.reason == "AGENT_NOT_FOUND"


@pytest.mark.parametrize("target", ["raising_agent:answer", "raising_agent.py:answer"])
@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("import surely_not_installed", "ModuleNotFoundError: No module named 'surely_not_installed'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
    ],
)
def test_an_import_that_raises_shows_the_users_frames_alone(tmp_path: Path, target: str, code: str, last: str) -> None:
    """The traceback has the user's frames and none of the import machinery or of Assay."""
    (tmp_path / "raising_agent.py").write_text(f"def answer(request): ...\n{code}\n")
    with pytest.raises(AgentImportError) as caught:
        load_agent(target, tmp_path)
    lines = caught.value.user_traceback.splitlines()
    assert lines[-1] == last
    assert 'raising_agent.py", line 2' in caught.value.user_traceback
    assert "importlib" not in caught.value.user_traceback
    assert "loading.py" not in caught.value.user_traceback
    assert "failed to import (traceback below)" in str(caught.value)


def test_a_file_that_failed_to_import_is_not_half_there(tmp_path: Path) -> None:
    """A file whose import failed is read again the next time."""
    file = tmp_path / "mended_agent.py"
    file.write_text("raise ValueError('first')\n")
    with pytest.raises(AgentImportError):
        load_agent("mended_agent.py:answer", tmp_path)
    assert "mended_agent" not in sys.modules
    file.write_text("def answer(request):\n    return 'mended, and longer'\n")
    assert load_agent("mended_agent.py:answer", tmp_path)(None) == "mended, and longer"


def test_a_file_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    """A refused file does not shadow a module of its name."""
    with pytest.raises(InvalidInputError):
        load_agent("json.py:answer", tmp_path)
    assert sys.modules["json"].__name__ == "json"
