"""The orchestrator's services on the wire, a servicer a file; `registration` makes all of them."""

SERVICES = (
    "assay.v1.DatasetService",
    "assay.v1.RunService",
    "assay.v1.ComparisonService",
    "assay.v1.CalibrationService",
    "assay.v1.HostService",
    "assay.v1.ServerService",
)
"""The names of the services that every orchestrator serves."""
