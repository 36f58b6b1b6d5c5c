"""CalibrationService on the wire: how far judges agree with people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.v1 import calibration_pb2, calibration_pb2_grpc
from assay.wire.run import CALIBRATION
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.store.teams import calibrations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.judge_calibration import JudgeCalibration
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.store.page_tokens import PageTokens


class CalibrationService(calibration_pb2_grpc.CalibrationServiceServicer):
    """Stores calibrations of judges.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, database: Database, tokens: PageTokens, scope: Scope | None) -> None:
        self._database = database
        self._tokens = tokens
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
        """Return a page of the calibrations."""
        scope, query = call_scope(self._fixed_scope), ("ListCalibrations",)
        after = await self._tokens.read(scope, query, request.page_token, (str, str))
        stored = await self._database.read(lambda c: calibrations.list_calibrations(c, scope.team))
        if after is not None:
            stored = tuple(calibration for calibration in stored if _follows(calibration, after))
        page = stored[: min(request.page_size or 100, 500)]
        token = ""
        if len(page) < len(stored):
            token = await self._tokens.make(scope, query, (page[-1].calibrated_at, page[-1].calibration_id))
        return calibration_pb2.ListCalibrationsResponse(
            calibrations=map(CALIBRATION.to_wire, page), next_page_token=token
        )

    async def DeleteCalibration(
        self, request: calibration_pb2.DeleteCalibrationRequest, context: Context
    ) -> calibration_pb2.DeleteCalibrationResponse:
        """Delete a calibration."""
        scope = call_scope(self._fixed_scope)
        deleted = await self._database.write(
            lambda c: calibrations.delete_calibration(c, scope, request.calibration_id)
        )
        return calibration_pb2.DeleteCalibrationResponse(calibration=CALIBRATION.to_wire(deleted))


def _follows(calibration: JudgeCalibration, position: Sequence[str | int]) -> bool:
    """Return whether a calibration comes after a position: it is older, or of the same time with a later id."""
    at, calibration_id = str(position[0]), str(position[1])
    return calibration.calibrated_at < at or (
        calibration.calibrated_at == at and calibration.calibration_id > calibration_id
    )
