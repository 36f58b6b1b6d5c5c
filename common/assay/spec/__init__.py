"""The spec, `assay.yaml`: read, completed from its preset, checked; every problem at once."""

from __future__ import annotations

from assay.spec.loading import load_spec, spec_from_mapping
from assay.spec.model import REPORTS, Spec

__all__ = ["REPORTS", "Spec", "load_spec", "spec_from_mapping"]
