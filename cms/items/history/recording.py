"""History and events of rows that fixed statements write (all others: cms/items/write)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Transaction
from cms.query.plan.bindings import Bindings
from cms.query.sql.arguments import ArgumentSlots, array
from cms.query.sql.locks import item_contents
from cms.query.sql.write_events import creation_runs
from cms.query.sql.write_history import record_changes
from cms.schema.model import Catalogue, Collection
from cms.store.fetching import fetch_fragment
from cms.store.identity import Author, ClientInfo


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records changes of the rows of a collection, and their author.

    It takes the same time without a row: otherwise the time would reveal whether an account exists.
    """

    transaction: Transaction
    collection: Collection
    author: Author

    def before(self, keys: Sequence[str]) -> dict[str, str]:
        """Lock those of the rows that exist, and return their contents by key, for `changed`."""
        # Without masks, like the contents that they are compared with in `changed`.
        return dict(self.transaction.run(item_contents(self.collection, keys, masks=False)))

    def created(self, keys: Sequence[str]) -> None:
        """Record that rows have been created, and queue the runs of flows that wait for it."""
        self._record("create", dict.fromkeys(keys))
        runs = creation_runs(self.collection, ArgumentSlots())
        fetch_fragment(self.transaction.execute, runs, Bindings((*self.author, array(keys))))

    def changed(self, before: Mapping[str, str | None]) -> None:
        """Record that rows have been changed; unchanged ones leave no revision."""
        self._record("update", before)

    def _record(self, action: str, rows: Mapping[str, str | None]) -> None:
        # Nothing is left out for an empty list of rows: see the class.
        changes = record_changes(self.collection, ArgumentSlots(), action=action)
        literals = (*self.author, array(list(rows)), array(list(rows.values())))
        fetch_fragment(self.transaction.execute, changes, Bindings(literals))


def recorder(
    transaction: Transaction,
    catalogue: Catalogue,
    name: str,
    *,
    user: str | None = None,
    client: ClientInfo | None = None,
) -> Recorder:
    """Return the recorder of a system collection; changes on the command line have no author."""
    if client is None:
        client = ClientInfo()
    return Recorder(transaction, catalogue.collections[name], client.author(user))
