"""Statistics as pure arithmetic; numpy and scipy are imported only on use, so that importing Assay stays light."""

from __future__ import annotations
