"""Parts of torch that its import loads although the packed forward pass on a CPU never uses them.

They are a third of that import: what compilers of torch's graphs know of each operator, and the export of graphs.
"""

from __future__ import annotations

from assay.process.deferred_imports import defer_imports, import_deferred

_UNUSED = ("torch._meta_registrations", "torch.export", "torch.masked", "torch.distributions")


def defer_unused_parts() -> None:
    """Make the import of torch skip these parts; call before importing torch."""
    defer_imports(*_UNUSED)


def import_all_parts() -> None:
    """Import the deferred parts; transformers and GPU kernels may need all of torch."""
    import torch  # noqa: F401 - first: they are parts of it

    import_deferred(*_UNUSED)
