"""Figures of a benchmark, saved with the machine that they were measured on."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any


def save(path: Path | None, figures: Any) -> None:
    """Write the figures and the machine as JSON; without a path, do nothing."""
    if path is not None:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        path.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n", encoding="utf-8")
