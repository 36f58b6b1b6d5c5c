"""Calibrations of judges on an orchestrator; runs have those of their own judges (`Run.calibrations`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.v1 import orchestrator_pb2 as pb
from assay.wire.run import CALIBRATION

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.judge_calibration import JudgeCalibration


async def set_calibration(client: Client, calibration: JudgeCalibration) -> JudgeCalibration:
    """Store a calibration in place of an earlier one of the same rubric, criterion and fingerprints.

    Raises:
        InvalidInputError: Something of it is wrong; holds every problem.
    """
    request = pb.SetCalibrationRequest(calibration=CALIBRATION.to_wire(calibration))
    return CALIBRATION.from_wire((await client.call(lambda stub: stub.SetCalibration(request))).calibration)


async def list_calibrations(client: Client) -> list[JudgeCalibration]:
    """Return all calibrations, newest first."""
    found = await client.call(lambda stub: stub.ListCalibrations(pb.ListCalibrationsRequest()))
    return [CALIBRATION.from_wire(each) for each in found.calibrations]


async def delete_calibration(client: Client, calibration_id: str) -> JudgeCalibration:
    """Delete a calibration and return it: runs of its judge no longer name it.

    Raises:
        NotFoundError: There is no such calibration.
    """
    request = pb.DeleteCalibrationRequest(calibration_id=calibration_id)
    return CALIBRATION.from_wire((await client.call(lambda stub: stub.DeleteCalibration(request))).calibration)
