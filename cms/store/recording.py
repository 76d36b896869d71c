"""The history of rows of system collections that fixed statements write, and not the functions of cms/store/rows.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.query.arrays import array
from cms.query.bind import Context, bound
from cms.query.compared import note_written
from cms.query.gates import contents
from cms.query.write import Arguments
from cms.schema.model import Catalogue, Collection
from cms.store.database import Transaction
from cms.store.rows import finished
from cms.store.store import Caller


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
        return dict(self.transaction.run(contents(self.collection, keys, masks=False)))

    def created(self, keys: Sequence[str]) -> None:
        """Write down that rows have been made."""
        self._note("create", dict.fromkeys(keys))

    def changed(self, before: Mapping[str, str | None]) -> None:
        """Write down that rows have been changed; those that look as before leave no revision."""
        self._note("update", before)

    def _note(self, action: str, rows: Mapping[str, str | None]) -> None:
        statement = finished(note_written(self.collection, Arguments(), action=action))
        literals = (*self.author, array(list(rows)), array(list(rows.values())))
        self.transaction.execute(statement.text, bound(statement.values, Context(literals)))


def recorder(
    transaction: Transaction, catalogue: Catalogue, name: str, *, user: str | None = None, caller: Caller | None = None
) -> Recorder:
    """Return what writes down changes of a system collection; without a caller it is done on the command line."""
    found = caller or Caller()
    author = user, found.ip, found.user_agent, found.origin
    return Recorder(transaction, catalogue.collections[name], author)
