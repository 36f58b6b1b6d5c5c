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
