"""The audit of a shared installation: who did what, to what, from where, and with which outcome."""

from __future__ import annotations

import hashlib
import json
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Protocol

from assay.identity.caller import Identity

DONE = "done"
"""The outcome of what was carried out; that of a refusal is its reason."""
EXPORT = "export-results"
"""The action of a call that reads the results of a run as a whole."""
LOGIN = "login"
"""The action of a call whose token was refused."""
OPERATORS = "operators"
"""The team of the first operator, which has the entries that are of no other team."""
MAX_RESOURCE_CHARS = 200
_MAX_REQUEST_ID_CHARS = 100


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry, before the store numbers it.

    Args:
        team: The owner of what was changed or read.
        action: The action, e.g. "delete-run".
        resource: The resource, e.g. the id of a run; empty if none is named.
        outcome: "done", or the reason of a refusal.
        actor: The public part of the caller's token; empty for work of the installation itself and for refused tokens.
        actor_name: The token's name, or the subject of its issuer.
        actor_team: The team of the token.
        role: The role of the token.
        address: The caller's address; empty for a unix socket.
        request_id: The caller's request id; empty for none.
        count: The number of events that it represents: frequent events are counted for a minute.
    """

    team: str
    action: str
    resource: str = ""
    outcome: str = DONE
    actor: str = ""
    actor_name: str = ""
    actor_team: str = ""
    role: str = ""
    address: str = ""
    request_id: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A stored entry.

    Args:
        sequence: Its number within its team, from 1 without gaps.
        at: When it was stored, ISO 8601.
        entry: The entry.
        digest: SHA-256 over the digest of the entry before it and its own content, see `entry_digest`.
    """

    sequence: int
    at: str
    entry: AuditEntry
    digest: str


def entry_digest(previous: str, sequence: int, at: str, entry: AuditEntry) -> str:
    """Return the digest of an entry, as hexadecimal digits.

    Args:
        previous: The digest of the team's previous entry; empty for the first.
        sequence: Its number.
        at: Its time.
        entry: Its content.
    """
    content = [getattr(entry, part.name) for part in fields(entry)]
    text = json.dumps([previous, sequence, at, *content], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Auditor(Protocol):
    """Stores entries."""

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry.

        Raises:
            StorageError: It cannot be stored.
        """

    async def count(self, entry: AuditEntry) -> None:
        """Store an entry that may be frequent: the first at once, the others of the minute as a count.

        Raises:
            StorageError: It cannot be stored.
        """


@dataclass(slots=True)
class AuditedCall:
    """A recorded call.

    Args:
        action: The action of its entry.
        identity: The caller.
        auditor: Stores entries.
        address: The caller's address.
        request_id: The request id; empty for none.
        named: The resource that its request names, if its handler records no entry itself.
        team: The team whose resources it changes; the caller's own unless the request names another.
        settled: Whether an entry was stored with the change, or there is nothing to record.
    """

    action: str
    identity: Identity
    auditor: Auditor = field(repr=False)
    address: str = ""
    request_id: str = ""
    named: str = ""
    team: str = ""
    settled: bool = False

    def entry(self, *, team: str = "", resource: str = "", action: str = "", outcome: str = DONE) -> AuditEntry:
        """Return an entry about this call, completed from the request."""
        own = self.identity
        return AuditEntry(
            team or self.team or own.team,
            action or self.action,
            (resource or self.named)[:MAX_RESOURCE_CHARS],
            outcome,
            own.token_id,
            own.name,
            own.team,
            own.role.value,
            self.address,
            self.request_id[:_MAX_REQUEST_ID_CHARS],
        )

    def settle(self) -> None:
        """Add no further entry: the change's own transaction has stored one, or nothing changed."""
        self.settled = True


_current: ContextVar[AuditedCall | None] = ContextVar("the audited call", default=None)


def set_audited_call(call: AuditedCall) -> None:
    """Set the current call, for its handler."""
    _current.set(call)


def audited_call() -> AuditedCall | None:
    """Return the current call; None if calls are not recorded. Must be called in the handler's own task."""
    return _current.get()


async def record_export(resource: str) -> None:
    """Record a bulk read by the current call; repetitions by the same caller are counted for a minute.

    Raises:
        StorageError: It cannot be stored; nothing may be sent then.
    """
    call = audited_call()
    if call is not None:
        await call.auditor.count(call.entry(resource=resource))
