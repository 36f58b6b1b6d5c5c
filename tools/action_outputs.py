"""Print the outputs of the GitHub action, as lines for $GITHUB_OUTPUT, from the results.json of a run.

    python tools/action_outputs.py RESULTS

Reads the document only up to its rows. Needs only Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def output_lines(path: Path) -> list[str]:
    """Return the run's id, its verdict and its pass rate, one per line; the rate is empty if no row has a verdict."""
    head = ""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(' "rows": ['):
                break
            head += line
    document = json.loads(head.rstrip().rstrip(",") + "}")
    summary = document["summary"]
    rate = "" if summary["pass_rate"] is None else f"{summary['pass_rate']:.4f}"
    values = {"run-id": document["run"]["run_id"], "verdict": summary["overall_status"], "pass-rate": rate}
    return [f"{name}={' '.join(str(value).split())}" for name, value in values.items()]


if __name__ == "__main__":
    print("\n".join(output_lines(Path(sys.argv[1]))))
