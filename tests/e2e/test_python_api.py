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
