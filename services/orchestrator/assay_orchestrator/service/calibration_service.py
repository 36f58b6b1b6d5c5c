"""CalibrationService on the wire: how far judges agree with people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.v1 import calibration_pb2, calibration_pb2_grpc
from assay.wire.run import CALIBRATION
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.store.teams import calibrations

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database


class CalibrationService(calibration_pb2_grpc.CalibrationServiceServicer):
    """Stores calibrations of judges.

    Args:
        database: The store.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, database: Database, scope: Scope | None) -> None:
        self._database = database
        self._fixed_scope = scope

    async def SetCalibration(
        self, request: calibration_pb2.SetCalibrationRequest, context: Context
    ) -> calibration_pb2.SetCalibrationResponse:
        """Store a calibration of a judge."""
        scope = call_scope(self._fixed_scope)
        request.calibration.ClearField("create_time")  # set when it is stored
        calibration = CALIBRATION.from_wire(request.calibration)
        calibrations.check_calibration(calibration)
        stored = await self._database.write(lambda c: calibrations.set_calibration(c, scope, calibration))
        return calibration_pb2.SetCalibrationResponse(calibration=CALIBRATION.to_wire(stored))

    async def ListCalibrations(
        self, request: calibration_pb2.ListCalibrationsRequest, context: Context
    ) -> calibration_pb2.ListCalibrationsResponse:
        """Return all calibrations."""
        scope = call_scope(self._fixed_scope)
        stored = await self._database.read(lambda c: calibrations.list_calibrations(c, scope.team))
        return calibration_pb2.ListCalibrationsResponse(calibrations=map(CALIBRATION.to_wire, stored))

    async def DeleteCalibration(
        self, request: calibration_pb2.DeleteCalibrationRequest, context: Context
    ) -> calibration_pb2.DeleteCalibrationResponse:
        """Delete a calibration."""
        scope = call_scope(self._fixed_scope)
        deleted = await self._database.write(
            lambda c: calibrations.delete_calibration(c, scope, request.calibration_id)
        )
        return calibration_pb2.DeleteCalibrationResponse(calibration=CALIBRATION.to_wire(deleted))
