"""The mutation tests' own parts: mutants, their sample, and the map from lines to tests."""

from __future__ import annotations

import ast
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools.mutants import __main__ as command
from tools.mutants import trial
from tools.mutants.areas import AREAS, files_of_areas
from tools.mutants.covering import Covering, update_covering
from tools.mutants.covering import test_files_of as files_of_tests
from tools.mutants.operators import mutants_of
from tools.mutants.sample import all_mutants, chosen_mutants

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.mutants.operators import Mutant

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def mutants() -> dict[str, list[Mutant]]:
    """Return the mutants of each area."""
    return all_mutants(ROOT)


def changes(source: str) -> set[str]:
    """Return what mutants make of a module's line."""
    return {mutant.after for mutant in mutants_of("m.py", source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = (a) not  in (b)", {"x = (a) in (b)"}),
        ("x = a <= b != c", {"x = a < b != c", "x = a <= b == c"}),
        ("x = not a", {"x = a"}),
        ("x = a and b", {"x = a or b", "x = ((a))", "x = ((b))"}),
        ("x = a // b", {"x = a * b"}),
        ("x -= y", {"x += y"}),
        ("x = 'é è' + a", set()),
        ("x = max(a)", {"x = min(a)"}),
        ("x = sorted(a, key=f)", set()),
        ("x = a.endswith(b)", {"x = a.startswith(b)"}),
        ("x = f(flag=True, encoding='utf-8')", {"x = f(flag=False, encoding='utf-8')"}),
        ("x = 'name'", {"x = 'XXname'"}),
        ("x = 'a sentence for people'", set()),
        ("x = 1.5", {"x = 2.5"}),
        ("if a: b()", {"if False: b()", "if True: b()", "if a: pass"}),
        ("x.y = z", {"pass"}),
        ("'''Text.'''", set()),
        ("_log.warning('a', b + c)", set()),
        ("failpoint('run.before_commit')", set()),
        ("assert a < b", set()),
        ("x: int = 1", {"x: int = 2"}),
        ("raise ValueError", {"pass"}),
        ("def f(a: int = 1): return a", {"def f(a: int = 2): return a", "def f(a: int = 1): return None"}),
    ],
)  # fmt: skip
def test_what_is_changed(source: str, expected: set[str]) -> None:
    """Operators change what a result may depend on: no types, messages, logs, failpoints, assertions or docstrings."""
    assert changes(source) == expected


def test_every_mutant_is_another_module_that_python_reads(mutants: dict[str, list[Mutant]]) -> None:
    """A change that is no change, or no Python, would count for nothing."""
    for chosen in chosen_mutants(mutants, 200, 3).values():
        for mutant in chosen:
            source = (ROOT / mutant.path).read_bytes()
            mutated = mutant.applied_to(source)
            assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))


def test_every_mutant_has_a_name_of_its_own(mutants: dict[str, list[Mutant]]) -> None:
    """A verdict belongs to one mutant."""
    names = [mutant.name for found in mutants.values() for mutant in found]
    assert len(names) == len(set(names))


def test_a_sample_is_stratified_and_stays_when_other_code_changes(mutants: dict[str, list[Mutant]]) -> None:
    """Small areas are tried whole, the others in equal parts; removing mutants leaves the order of the rest."""
    sample = chosen_mutants(mutants, 440, 1)
    assert sum(map(len, sample.values())) == 440
    assert min(map(len, sample.values())) >= 50
    assert [each.name for each in chosen_mutants(mutants, 440, 2)["store"]] != [each.name for each in sample["store"]]
    gone = sample["metrics"][0]
    fewer: dict[str, list[Mutant]] = {area: [each for each in all_ if each != gone] for area, all_ in mutants.items()}
    assert chosen_mutants(fewer, 440, 1)["metrics"][:-1] == sample["metrics"][1:]


def test_a_renamed_module_is_missed() -> None:
    """A pattern that matches nothing is refused: an area must not become empty without notice."""
    assert set(files_of_areas(ROOT)) == set(AREAS)
    with pytest.raises(ValueError, match="no file matches"):
        files_of_areas(ROOT / "docs")


def test_what_is_called_equivalent_is_there(mutants: dict[str, list[Mutant]]) -> None:
    """An entry whose mutant is gone, as after a change of the line, is removed or renewed."""
    names = {mutant.name for found in mutants.values() for mutant in found}
    for name, reason in command.read_equivalents().items():
        assert name in names, f"tools/mutants/equivalents.toml lists {name!r}, which is no mutant any more"
        assert len(reason) > 20


def test_the_map_follows_lines_that_move(tmp_path: Path) -> None:
    """Tests stay with their lines when others are added before them; new lines have none yet."""
    (tmp_path / "m.py").write_text("new\na\nb\n", encoding="utf-8")
    covering = Covering({"t::x": 1.0}, {"t": ""}, {"m.py": {1: {"t::x"}, 2: set()}}, {"m.py": ["a", "b", ""]})
    covering.move_to(tmp_path)
    assert covering.tests_of("m.py", 1, 1) == set()
    assert covering.tests_of("m.py", 2, 2) == {"t::x"}
    covering.forget({"t"})
    assert covering.tests_of("m.py", 2, 2) == set()


def test_tests_about_the_module_come_first() -> None:
    """Of two tests of equal length the one that runs more of the module, of two alike the quick one."""
    (mutant,) = mutants_of("m.py", b"x = a < b\n")
    lines = {1: {"about", "quick", "slow"}, 2: {"about"}, 3: {"about", "elsewhere"}}
    covering = Covering({"about": 1.0, "quick": 1.0, "slow": 9.0, "elsewhere": 0.1}, {}, {"m.py": lines}, {})
    assert trial.tests_for(mutant, covering, (1, 9), ()) == ["about", "quick", "slow"]
    assert trial.tests_for(mutant, covering, None, ())[0] in {"about", "elsewhere"}
    assert len(trial.tests_for(mutant, covering, None, ())) == 4


def test_each_line_of_the_function_has_a_test_among_the_first() -> None:
    """Of many tests that run a condition, few may run what it guards: these would come too late."""
    (mutant,) = mutants_of("m.py", b"x = a < b\n")
    many = {f"many {number:04}" for number in range(3_000)}
    covering = Covering(
        dict.fromkeys(many, 0.01) | {"rare": 9.0}, {}, {"m.py": {1: many | {"rare"}, 2: {"rare"}, 3: many}}, {}
    )
    tests = trial.tests_for(mutant, covering, (1, 3), ())
    assert tests[:2] == ["many 0000", "rare"]
    assert len(tests) < len(many)


def test_at_the_top_of_a_module_tests_that_import_it_come_first() -> None:
    """No test runs these lines: they have been run when the first test begins."""
    (mutant,) = mutants_of("m.py", b"x = a < b\n")
    durations = {"tests/a.py::runs": 0.1, "tests/b.py::names": 5.0, "tests/c.py::neither": 0.1}
    covering = Covering(durations, {}, {"m.py": {5: {"tests/a.py::runs"}}}, {})
    assert trial.tests_for(mutant, covering, None, {"tests/b.py"}) == ["tests/b.py::names", "tests/a.py::runs"]
    durations = {"tests/integration/a.py::runs": 0.1, "tests/unit/b.py::names": 0.5}
    covering = Covering(durations, {}, {"m.py": {1: set(durations)}}, {})
    named = {test.partition("::")[0] for test in durations}
    assert trial.tests_for(mutant, covering, (1, 1), named)[0] == "tests/unit/b.py::names"
    digests = files_of_tests(ROOT)
    files = command.files_that_import(
        "services/orchestrator/assay_orchestrator/store/schema.py", Covering(digests=digests)
    )
    assert "tests/integration/orchestrator/test_store_migrations.py" in files
    assert "tests/unit/test_gates.py" not in files


MODULE = "def answer(x: int) -> int:\n    return x + 1\n"
TEST = "tests/unit/test_m.py::test_it"
PASSES = "def test_it() -> None:\n    import m\n\n    assert m.answer(1) == 2\n"


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], trial.Copy]:
    """Return a function that makes a project of one module and one test file, and returns a copy of it."""

    def make(test: str) -> trial.Copy:
        root = tmp_path / "root"
        shutil.copytree(ROOT / "tools" / "mutants", root / "tools" / "mutants", ignore=shutil.ignore_patterns("*.pyc"))
        (root / "tests" / "unit").mkdir(parents=True)
        (root / "tests" / "unit" / "test_m.py").write_text(test, encoding="utf-8")
        (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
        (root / "library").mkdir()
        (root / "library" / "m.py").write_text(MODULE, encoding="utf-8")
        subprocess.run(["git", "init", "-q", root], check=True)
        return trial.Copy(root, tmp_path / "copy", "")

    return make


def tried(copy: trial.Copy, before: str, after: str) -> trial.Verdict:
    """Try one change of the module with the project's one test."""
    (mutant,) = [
        each for each in mutants_of("library/m.py", MODULE.encode()) if (each.before, each.after) == (before, after)
    ]
    return trial.try_mutant(mutant, copy, [TEST], Covering({TEST: 0.1}, {"tests/unit/test_m.py": ""}))


def test_a_failing_test_kills_and_the_module_is_as_before(project: Callable[[str], trial.Copy]) -> None:
    """The test that failed is named."""
    copy = project(PASSES)
    verdict = tried(copy, "return x + 1", "return x - 1")
    assert (verdict.outcome, verdict.test) == ("killed", TEST)
    assert (copy.folder / "library" / "m.py").read_text() == MODULE


def test_a_crash_kills_only_where_the_change_causes_it(project: Callable[[str], trial.Copy]) -> None:
    """A process that ends without a test's failure says nothing by itself: the same tests run without the change."""
    copy = project("def test_it() -> None:\n    import os, m\n\n    os._exit(3 if m.answer(1) != 2 else 0)\n")
    assert tried(copy, "return x + 1", "return x - 1").outcome == "killed"
    (copy.folder / "tests" / "unit" / "test_m.py").write_text(
        "import os\n\n\ndef test_it() -> None:\n    os._exit(3)\n"
    )
    assert tried(copy, "return x + 1", "return x - 1").outcome == "unclear"


def test_a_test_that_hangs_is_ended_and_named(
    project: Callable[[str], trial.Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a limit of its own: what other tests may take does not matter."""
    monkeypatch.setattr(trial, "TEST_S", 1.0)
    copy = project("def test_it() -> None:\n    import m\n\n    while m.answer(1) != 2: pass\n")
    verdict = tried(copy, "return x + 1", "return x - 1")
    assert (verdict.outcome, verdict.test) == ("timeout", TEST)


def test_only_files_that_were_measured_are_known(project: Callable[[str], trial.Copy], tmp_path: Path) -> None:
    """What a process runs until it is killed counts for its test; a file that cannot be read is measured again."""
    copy = project(
        "import os, subprocess, sys, time\nfrom pathlib import Path\n\n\n"
        "def test_it() -> None:\n"
        "    folder = Path(os.environ['COVERING_FOLDER'])\n"
        "    code = 'import m, time; m.answer(1); print(1, flush=True); time.sleep(100)'\n"
        "    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE) as process:\n"
        "        process.stdout.read(1)\n"
        "        while not any('\"2\"' in each.read_text() for each in folder.glob('*-*.json')): time.sleep(0.01)\n"
        "        process.kill()\n"
    )
    kept = tmp_path / "covering.json"
    covering = update_covering(kept, copy.folder, copy.environment, 1)
    assert covering.tests_of("library/m.py", 2, 2) == {TEST}
    (copy.folder / "tests" / "unit" / "test_m.py").write_text("import nothing_of_this_name\n")
    assert update_covering(kept, copy.folder, copy.environment, 1).digests == {}
    (copy.folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    with pytest.raises(RuntimeError, match="failed with exit status 4"):
        update_covering(kept, copy.folder, copy.environment, 1)


def test_a_verdict_holds_while_its_module_and_its_tests_are_as_they_were(tmp_path: Path) -> None:
    """For a kill the file of the test that failed counts, for a survivor the files of all its tests."""
    mutant = mutants_of("m.py", b"x = a < b\n")[0]
    tests = ["tests/a.py::one", "tests/b.py::two"]
    now = command.Planned(mutant, tests, "m", {"tests/a.py": "a", "tests/b.py": "b"})
    journal = command.Journal(tmp_path / "journal.jsonl")
    journal.add(now, trial.Verdict("killed", "tests/a.py::one", 2, 1.0))

    def is_known(**changes: Any) -> bool:
        return bool(journal.known([replace(now, **changes)], again=False))

    assert is_known(files={"tests/a.py": "a", "tests/b.py": "other"})
    assert not is_known(files={"tests/a.py": "other", "tests/b.py": "b"})
    assert not is_known(module="other")
    journal.add(now, trial.Verdict("survived", "", 2, 1.0))
    assert is_known()
    assert not is_known(files={"tests/a.py": "a", "tests/b.py": "other"})
    assert not journal.known([now], again=True)
    journal.add(now, trial.Verdict("unclear", "pytest ended with 3", 2, 1.0))
    assert not is_known()
