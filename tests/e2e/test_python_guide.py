"""docs/python.md: its blocks run one after the other in a running event loop, as the cells of a notebook do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
NOTEBOOK = r"""
import ast, asyncio, contextlib, inspect, io, json, pathlib, re, sys

async def run(node, kind, names):
    code = compile(kind([node], []) if kind is ast.Module else kind(node), "cell", "exec" if kind is ast.Module else
                   "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    return await value if inspect.isawaitable(value) else value

async def main(blocks):
    names, compared = {"address": sys.argv[2]}, 0
    for block in blocks:
        lines, out = block.splitlines(), io.StringIO()
        with contextlib.redirect_stdout(out):
            for node in ast.parse(block).body:
                if isinstance(node, ast.Expr):
                    value = await run(node.value, ast.Expression, names)
                    _, shown, expected = lines[node.end_lineno - 1].partition("  # ")
                    if shown:
                        assert repr(value) == expected, (expected, value)
                        compared += 1
                else:
                    await run(node, ast.Module, names)
        for line in lines:
            call, shown, expected = line.partition("  # ")
            if shown and call.strip().startswith("print("):
                assert expected in out.getvalue().splitlines(), (expected, out.getvalue())
                compared += 1
    print(json.dumps({"blocks": len(blocks), "compared": compared}))

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
asyncio.run(main(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
"""


def test_every_block_of_the_guide_runs_and_yields_what_stands_beside_it(shared_cli: Cli) -> None:
    """Each expression with a comment has that value; the blocks share their names, and one awaits."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, str(GUIDE), f"unix:{shared_cli.home / 'run' / 'orchestrator.sock'}"],
        cwd=shared_cli.folder,
        env=shared_cli.env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["blocks"] == GUIDE.read_text(encoding="utf-8").count("```python\n") > 7
    assert counts["compared"] > 18
