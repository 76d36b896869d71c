"""Names of foreign keys of several columns, after a change has dropped some of them.

Such a foreign key is named after its table, with a number if there are several. What names one that
is gone has to go too, and what names another one follows it to its new number.
"""

from __future__ import annotations

from typing import NamedTuple

from cms.database.connections import Transaction
from cms.schema.model import Catalogue
from cms.store.snapshot import load_snapshot
from cms.structure import metadata


class _Constraint(NamedTuple):
    collection: str
    name: str


def follow_references(transaction: Transaction, before: Catalogue) -> None:
    """Change all that names references to their present names."""
    names = _names(before)
    # Nearly no database has any.
    if not names:
        return
    after = load_snapshot(transaction).catalogue
    present = _names(after)
    # First those that are gone: another one may have the name now.
    for constraint, name in names.items():
        if constraint not in present and constraint.collection in after.collections:
            metadata.delete_field_records(
                transaction, constraint.collection, name, catalogue=before
            )
    for constraint, name in names.items():
        new_name = present.get(constraint, name)
        if new_name != name:
            metadata.rename_field_records(
                transaction, constraint.collection, name, new_name, catalogue=before
            )


def _names(catalogue: Catalogue) -> dict[_Constraint, str]:
    names: dict[_Constraint, str] = {}
    for relation in catalogue.relations:
        key = relation.constraint
        if key and len(key.columns) > 1:
            names[_Constraint(relation.many_collection, key.name)] = relation.many_field
    return names
