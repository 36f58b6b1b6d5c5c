"""Triggers that protect audit entries: they refuse every change except removal by retention.

An entry may be removed if it is older than its team's `keep_audit_days` and is not the team's newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

_REFUSAL = "audit entries are never changed, and are removed by the retention of their team alone"

_MAY_GO = """
    EXISTS (SELECT 1 FROM teams WHERE teams.team = OLD.team AND OLD.at < {cutoff})
    AND EXISTS (SELECT 1 FROM audit_entries AS newer WHERE newer.team = OLD.team AND newer.sequence > OLD.sequence)
"""
_SQLITE_MAY_GO = _MAY_GO.format(cutoff="strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-' || teams.keep_audit_days || ' days')")
_POSTGRESQL_MAY_GO = _MAY_GO.format(
    cutoff="to_char((now() AT TIME ZONE 'UTC') - make_interval(days => teams.keep_audit_days), "
    '\'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\') COLLATE "C"'
)
_STATEMENTS = {
    "sqlite": (
        f"""
        CREATE TRIGGER audit_entries_unchanged BEFORE UPDATE ON audit_entries
        BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END
        """,
        f"""
        CREATE TRIGGER audit_entries_kept BEFORE DELETE ON audit_entries WHEN NOT ({_SQLITE_MAY_GO})
        BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END
        """,
    ),
    "postgresql": (
        f"""
        CREATE OR REPLACE FUNCTION keep_audit_entries() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF {_POSTGRESQL_MAY_GO} THEN
                    RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION '{_REFUSAL}';
        END
        $$
        """,
        """
        CREATE TRIGGER audit_entries_kept BEFORE UPDATE OR DELETE ON audit_entries
        FOR EACH ROW EXECUTE FUNCTION keep_audit_entries()
        """,
        """
        CREATE TRIGGER audit_entries_not_emptied BEFORE TRUNCATE ON audit_entries
        FOR EACH STATEMENT EXECUTE FUNCTION keep_audit_entries()
        """,
    ),
}


def create_triggers(connection: sa.Connection) -> None:
    """Create the triggers of new tables."""
    for statement in _STATEMENTS[connection.dialect.name]:
        connection.exec_driver_sql(
            statement.replace("%", "%%") if connection.dialect.name == "postgresql" else statement
        )
