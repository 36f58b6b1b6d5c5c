"""PostgreSQL's errors as readable sentences, without the password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Sequence

_REMEDIES: Sequence[tuple[str, str]] = (
    # SQLSTATE, or the beginning of it; the first that fits.
    ("53100", "its disk is full: free some space"),
    ("53200", "it is out of memory: give it more"),
    ("53300", "it has no connection left: raise its max_connections, or close other programs"),
    ("53", "it lacks a resource: see its log"),
    ("54", "a limit of the server is exceeded: see its log"),
    ("55P03", "another session holds a lock for longer than lock_timeout: end that session, or let it finish"),
    ("55", "another session keeps what is needed from being changed: end that session, or let it finish"),
    ("57014", "a statement was cancelled or ran into statement_timeout: see whether a lock or load slows it down"),
    ("25006", "it may only be read, as a standby is: name the primary in --database-url"),
    ("25P03", "a transaction idled until the server ended it: this process stood still"),
    ("42501", "this user lacks the right: GRANT it what it needs, CREATE on the schema included"),
    ("58", "its disk or operating system failed: see its log"),
    ("XX", "it is damaged or has a defect: see its log, and restore a backup if needed"),
    ("28", "it refuses this user or password: check --database-url, PGPASSWORD and pg_hba.conf"),
    ("3D000", "there is no such database: create it with CREATE DATABASE"),
    ("57P04", "the database was dropped: restore it from a backup"),
    ("57P", "the server is stopping, starting or was restarted"),
    ("08", "the connection broke"),
)
# libpq gives no SQLSTATE for a connection that never came to be; these are the server's English words.
_WORDS: Sequence[tuple[str, str]] = (
    ("too many clients", "53300"),
    ("connection slots", "53300"),
    ("too many connections", "53300"),
    ("authentication failed", "28"),
    ("no password supplied", "28"),
    ("pg_hba.conf", "28"),
    ("role ", "28"),
    ("does not exist", "3D000"),
    ("starting up", "57P"),
    ("shutting down", "57P"),
    ("recovery mode", "57P"),
)
# The connection broke, the server is restarting or has no connection left, a deadlock was resolved, this process stood
# still in the midst of a transaction.
_PASSING = ("08", "25P03", "57P01", "57P02", "57P03", "57P05", "53300", "40")


def is_passing(problem: BaseException) -> bool:
    """Return whether the same statement may soon succeed without intervention."""
    state = getattr(problem, "sqlstate", None) or _guess(problem, str(problem))
    if not state:
        return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return state == "57P" or state.startswith(_PASSING)


def is_data_exception(problem: BaseException | None) -> bool:
    """Return whether a value is at fault: out of the column's range, or invalid for its type."""
    return (getattr(problem, "sqlstate", None) or "").startswith("22") or isinstance(problem, psycopg.DataError)


def sentence(place: str, problem: BaseException | None, password: str) -> str:
    """Return what is wrong with the database and what to do, as a sentence.

    Args:
        place: The database as users know it.
        problem: The driver's error.
        password: Replaced by stars in the driver's words; may be empty.
    """
    text = " ".join(str(problem).split()).removeprefix("connection failed: ")
    if password:
        text = text.replace(password, "***")
    state = getattr(problem, "sqlstate", None) or _guess(problem, text)
    for prefix, remedy in _REMEDIES:
        if state.startswith(prefix):
            return f"{place}: {remedy} ({text})"
    if not state and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return f"{place} cannot be reached: check that the server runs and --database-url is right ({text})"
    return f"{place} failed: {text}"


def client_sentence(place: str, problem: BaseException | None) -> str:
    """Return the part for clients, without the database's address and the driver's words.

    Args:
        place: The database as clients know it.
        problem: The driver's error.
    """
    state = getattr(problem, "sqlstate", None) or _guess(problem, str(problem))
    for prefix, remedy in _REMEDIES:
        if state.startswith(prefix):
            return f"{place}: {remedy}"
    if not state and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return f"{place} cannot be reached: runs resume by themselves when it is back"
    return f"{place} failed: the service's log has the cause"


def _guess(problem: BaseException | None, text: str) -> str:
    if isinstance(problem, psycopg.OperationalError):
        for words, state in _WORDS:
            if words in text:
                return state
    return ""
