"""Statistics over labels and verdicts: pure arithmetic, without numpy, so that importing Assay stays light."""

from __future__ import annotations
