"""Python imports this when it starts: record which lines a process runs for the test that started it.

It is written again and again, so that of a process that is killed only the last moment is missing.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import uuid
from pathlib import Path

_INTERVAL_S = 0.5

if "COVERING_TEST" in os.environ:
    import coverage

    _root = Path(os.environ["COVERING_ROOT"])
    _test = os.environ["COVERING_TEST"]
    _file = Path(os.environ["COVERING_FOLDER"]) / f"{uuid.uuid4()}.json"
    _coverage = coverage.Coverage(
        data_file=None,
        source=[str(_root / each) for each in ("library", "cli", "services")],
        config_file=False,
        messages=False,
    )
    _lines: dict[str, set[int]] = {}
    _writing = threading.Lock()

    def _write() -> None:
        with _writing:
            before = sum(map(len, _lines.values()))
            data = _coverage.get_data()  # since the last time, in each thread
            for name in data.measured_files():
                _lines.setdefault(str(Path(name).relative_to(_root)), set()).update(data.lines(name) or ())
            if sum(map(len, _lines.values())) == before:
                return
            lines = {name: {line: [0] for line in sorted(found)} for name, found in sorted(_lines.items())}
            whole = _file.with_suffix(".part")
            whole.write_text(json.dumps({"tests": [_test], "lines": lines}), encoding="utf-8")
            whole.replace(_file)

    def _write_often() -> None:
        ended = threading.Event()
        while not ended.wait(_INTERVAL_S):
            _write()

    _coverage.set_option("run:disable_warnings", ["no-data-collected"])
    _coverage.start()
    atexit.register(_write)
    threading.Thread(target=_write_often, name="covering", daemon=True).start()
