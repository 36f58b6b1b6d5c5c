"""The audit of a server's calls: changes and refusals are recorded."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from assay.errors import AssayError, PermissionDeniedError, StorageError, UnauthenticatedError
from assay.identity.audit import EXPORT, LOGIN, OPERATORS, AuditedCall, AuditEntry, Auditor, set_audited_call
from assay.identity.caller import Identity
from assay.rpc.access import Context, claimed_token_id, values_at
from assay.rpc.methods import Audit, MethodRule, Name

logger = logging.getLogger("assay.rpc")

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class CallAudit:
    """The audit record of one call.

    Args:
        auditor: Stores entries.
        context: The call.
        method: The full name of its method.
        rule: The rule of the method.
    """

    def __init__(self, auditor: Auditor, context: Context, method: str, rule: MethodRule) -> None:
        self._auditor = auditor
        self._context = context
        self._method = method
        self._rule = rule
        self._call: AuditedCall | None = None

    def admitted(self, identity: Identity | None) -> None:
        """Note the caller, and mark the call as recorded for its handler."""
        if identity is not None and self._rule.audit is not None:
            action = EXPORT if self._rule.audit is Audit.EXPORT else action_of(self._method)
            self._call = AuditedCall(action, identity, self._auditor, host_of(self._context.peer()))
            set_audited_call(self._call)

    def received(self, message: Any) -> None:
        """Note the resources that a message of the call names."""
        call = self._call
        if call is None:
            return
        for path, kind in self._rule.names.items():
            resource = next(values_at(message, path.split(".")), "")
            if kind is Name.TEAM:
                call.team = call.team or resource
            elif kind is Name.SCOPED and path not in ("page_token", "request_id"):
                call.named = call.named or resource
        call.named = call.named or call.team
        call.request_id = call.request_id or getattr(message, "request_id", "")
        # A call that only checks changes nothing that an audit could record.
        if getattr(message, "validate_only", False):
            call.settle()

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Record the call inside the block."""
        try:
            yield
        except AssayError as error:
            await self.failed(error)
            raise
        await self.finished()

    async def finished(self) -> None:
        """Record a change that its handler has not recorded itself.

        Raises:
            StorageError: It cannot be stored.
        """
        call = self._call
        if call is not None and self._rule.audit is Audit.CHANGE and not call.settled:
            await self._auditor.record(call.entry())

    async def failed(self, error: AssayError) -> None:
        """Record a refusal, if that is why the call failed."""
        if isinstance(error, UnauthenticatedError):
            claimed, address = claimed_token_id(self._context), host_of(self._context.peer())
            await self._refused(AuditEntry(OPERATORS, LOGIN, claimed, error.reason, address=address))
        elif isinstance(error, PermissionDeniedError) and self._call is not None:
            # The team that is named may be another one, whose members need not know that.
            own = self._call.identity.team
            await self._refused(self._call.entry(team=own, outcome=error.reason))

    async def _refused(self, entry: AuditEntry) -> None:
        try:
            await self._auditor.count(entry)
        except StorageError as problem:  # the caller gets its refusal all the same
            logger.warning("cannot record refusal: action=%s reason=%s: %s", entry.action, entry.outcome, problem)


def action_of(method: str) -> str:
    """Return the action of a method: "delete-run" of "/assay.v1.RunService/DeleteRun"."""
    return _WORD.sub("-", method.rpartition("/")[2]).lower()


def host_of(peer: str) -> str:
    """Return the host of a peer such as "ipv4:192.0.2.1:50000"; empty for a unix socket."""
    kind, _, rest = peer.partition(":")
    return "" if kind == "unix" else unquote(rest.rpartition(":")[0]).strip("[]")
