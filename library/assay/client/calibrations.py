"""Calibrations of judges on an orchestrator; `Run.calibrations` has those of a run's judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.v1 import calibration_pb2 as pb
from assay.v1.calibration_pb2_grpc import CalibrationServiceStub
from assay.wire.run import CALIBRATION

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.judge_calibration import JudgeCalibration


async def set_calibration(client: Client, calibration: JudgeCalibration) -> JudgeCalibration:
    """Store a calibration; it replaces an earlier one with the same rubric, criterion and fingerprints.

    Raises:
        InvalidInputError: The calibration is wrong; lists every problem.
    """
    request = pb.SetCalibrationRequest(calibration=CALIBRATION.to_wire(calibration))
    return CALIBRATION.from_wire(
        (await client.call(CalibrationServiceStub, lambda stub: stub.SetCalibration(request))).calibration
    )


async def list_calibrations(client: Client) -> list[JudgeCalibration]:
    """Return all calibrations, newest first."""
    found: list[JudgeCalibration] = []
    request = pb.ListCalibrationsRequest()
    while True:
        page = await client.call(CalibrationServiceStub, lambda stub: stub.ListCalibrations(request))
        found += map(CALIBRATION.from_wire, page.calibrations)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


async def delete_calibration(client: Client, calibration_id: str) -> JudgeCalibration:
    """Delete and return a calibration; runs with its judge no longer cite it.

    Raises:
        NotFoundError: The calibration does not exist.
    """
    request = pb.DeleteCalibrationRequest(calibration_id=calibration_id)
    return CALIBRATION.from_wire(
        (await client.call(CalibrationServiceStub, lambda stub: stub.DeleteCalibration(request))).calibration
    )
