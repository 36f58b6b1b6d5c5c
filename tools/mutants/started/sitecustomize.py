"""Python imports this when it starts: record which lines a process runs for the test that started it.

A process that is killed records nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import uuid
from pathlib import Path

if "COVERING_TEST" in os.environ:
    import coverage

    _root = Path(os.environ["COVERING_ROOT"])
    _test = os.environ["COVERING_TEST"]
    _file = Path(os.environ["COVERING_FOLDER"]) / f"{uuid.uuid4()}.json"
    _coverage = coverage.Coverage(
        data_file=None,
        source=[str(_root / each) for each in ("common", "cli", "services")],
        config_file=False,
        messages=False,
    )

    def _write() -> None:
        _coverage.stop()
        data = _coverage.get_data()
        lines = {
            str(Path(name).relative_to(_root)): {line: [0] for line in sorted(data.lines(name) or ())}
            for name in sorted(data.measured_files())
        }
        _file.write_text(json.dumps({"tests": [_test], "lines": lines}), encoding="utf-8")

    _coverage.set_option("run:disable_warnings", ["no-data-collected"])
    _coverage.start()
    atexit.register(_write)
