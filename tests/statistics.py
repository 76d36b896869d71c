"""What PostgreSQL has counted of the service's work on a table."""

from __future__ import annotations

from typing import NamedTuple

from tests.things import Stage
from tests.waiting import eventually

_OTHERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
"""


class TableStatistics(NamedTuple):
    """Counts of one table: updates, those of them that touched no index, and whole scans."""

    updates: int
    hot_updates: int
    scans: int

    def since(self, before: TableStatistics) -> TableStatistics:
        pairs = zip(self, before, strict=True)
        return TableStatistics(*(now - earlier for now, earlier in pairs))


def statistics_of(stage: Stage, name: str) -> TableStatistics:
    """Return the counts of a table, those of the service's last statements among them."""
    # A server process that ends passes its counts on; others may keep them for a second.
    stage.admin.app.store.database.close()
    with stage.side_door.connection() as connection:
        eventually(lambda: not connection.execute(_OTHERS).fetchone())
        row = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd, seq_scan FROM pg_stat_all_tables WHERE relname = %s",
            [name],
        ).fetchone()
        assert row
        return TableStatistics(*row)
