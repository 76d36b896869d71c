"""The history of rows that fixed statements write, and not the functions of cms/items/write/rows.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Transaction
from cms.items.write.rows import finish_statement
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.arrays import array
from cms.query.sql.comparisons import record_changes
from cms.query.sql.row_checks import item_contents
from cms.query.sql.write import ArgumentSlots
from cms.schema.model import Catalogue, Collection
from cms.store.identity import ClientInfo


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes down what is done to rows of a collection, and who did it.

    To write nothing down takes as long as to write something down: nobody learns from it whether there is a row.
    """

    transaction: Transaction
    collection: Collection
    author: tuple[str | None, ...]

    def before(self, keys: Sequence[str]) -> dict[str, str]:
        """Lock the rows that are there, and return what they hold by their keys, for `changed`."""
        return dict(self.transaction.run(item_contents(self.collection, keys, masks=False)))

    def created(self, keys: Sequence[str]) -> None:
        """Write down that rows have been made."""
        self._note("create", dict.fromkeys(keys))

    def changed(self, before: Mapping[str, str | None]) -> None:
        """Write down that rows have been changed; those that look as before leave no revision."""
        self._note("update", before)

    def _note(self, action: str, rows: Mapping[str, str | None]) -> None:
        statement = finish_statement(
            record_changes(self.collection, ArgumentSlots(), action=action)
        )
        literals = (*self.author, array(list(rows)), array(list(rows.values())))
        self.transaction.execute(statement.text, bind_values(statement.values, Bindings(literals)))


def recorder(
    transaction: Transaction,
    catalogue: Catalogue,
    name: str,
    *,
    user: str | None = None,
    client: ClientInfo | None = None,
) -> Recorder:
    """Return what writes down changes of a system collection; without a caller it is done on the command line."""
    found = client or ClientInfo()
    author = user, found.ip, found.user_agent, found.origin
    return Recorder(transaction, catalogue.collections[name], author)
