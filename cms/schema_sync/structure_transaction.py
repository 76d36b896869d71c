"""The transaction in which a snapshot is applied, with the structure as its changes leave it."""

from __future__ import annotations

from dataclasses import dataclass

from cms.database.connections import Transaction
from cms.schema.model import Catalogue
from cms.schema_sync.comparison import RecordDiff, compare
from cms.schema_sync.schema_snapshot import SchemaSnapshot, snapshot_of
from cms.store.context import RequestContext
from cms.store.snapshot import load_snapshot


@dataclass
class StructureTransaction:
    """A transaction with the structure as its changes have left it."""

    transaction: Transaction
    _context: RequestContext
    allows_loss: bool
    _has_changed: bool = False

    @property
    def context(self) -> RequestContext:
        """The context with the structure as it was at the last call of `reload`, or newer."""
        # Loaded at its next use only, because that takes as long as most changes.
        if self._has_changed:
            self._context = self._context._replace(snapshot=load_snapshot(self.transaction))
            self._has_changed = False
        return self._context

    @property
    def catalogue(self) -> Catalogue:
        return self.context.snapshot.catalogue

    def reload(self) -> None:
        self._has_changed = True

    def differences(self, target: SchemaSnapshot) -> list[RecordDiff]:
        return compare(snapshot_of(self.catalogue), target)
