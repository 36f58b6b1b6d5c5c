"""`assay.evaluate` over the local stack."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

PROGRAM = """
import json
import assay

def agent(request):
    return request.input.upper()

cases = [{"question": "a", "answer": "A"}, {"question": "b", "answer": "nope"}]
seen = []
result = assay.evaluate({"name": "api", "metrics": ["exact_match"]}, agent, dataset=cases, on_event=seen.append)
print(json.dumps({
    "pass_rate": result.summary.pass_rate,
    "answers": [row.response.text for row in result.rows],
    "events": len(seen),
}))
"""


def test_evaluate_runs_a_function_over_cases_in_memory(cli: Cli) -> None:
    """A callable and a list of cases give summary, rows and events; no service is left behind."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"pass_rate": 0.5, "answers": ["A", "B"], "events": 5}


def test_evaluate_warns_of_what_is_odd_about_cases_in_memory(cli: Cli) -> None:
    """Without a file whose reading is kept with the run, nobody else would ever say it; nor are files silent."""
    program = (
        "import assay\n"
        "cases = [{'question': 'a', 'answer': 'a'}, {'question': 'b', 'answer': 'b', 'skip': True}]\n"
        "found = assay.evaluate({'metrics': ['exact_match']}, lambda request: request.input, dataset=cases)\n"
        "print(found.summary.pass_rate)\n"
    )
    (cli.folder / "mine.py").write_text(program)
    done = subprocess.run([sys.executable, "mine.py"], cwd=cli.folder, env=cli.env, capture_output=True, text=True)
    assert done.stdout.strip() == "1.0", done.stderr
    assert "mine.py:3: DatasetWarning: 1 record is skipped: `skip` is true" in done.stderr


def test_evaluate_refuses_wrong_input_before_anything_starts(cli: Cli) -> None:
    """A wrong spec raises with every problem, and no state directory is made."""
    program = (
        "import assay\n"
        "try: assay.evaluate({'metrics': ['exact_mach'], 'repeats': 0}, str, dataset=[{'question': 'a'}])\n"
        "except assay.AssayError as error: print(len(error.problems), error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=cli.folder, env=cli.env, capture_output=True, text=True)
    assert done.stdout.startswith("2 "), done.stderr
    assert "did you mean 'exact_match'" in done.stdout
    assert not cli.home.exists()
