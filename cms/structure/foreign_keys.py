"""Foreign keys, which are added and changed beside builds on their tables."""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.schema import ddl
from cms.schema.meta_settings import MetaSettings
from cms.schema.model import BuildKind, Column, ForeignKey
from cms.structure.index_requests import (
    interrupt_builds,
    request_build,
    withdraw_build,
)
from cms.structure.indexes import is_large


def add_foreign_key(transaction: Transaction, key: ForeignKey) -> None:
    """Add a foreign key; PostgreSQL chooses its name if it has none.

    The rows of a large table are checked in the background, because nobody can write meanwhile.
    """
    # Another program may have dropped the key that was asked for before.
    _withdraw_check(transaction, key)
    interrupt_builds(transaction, key.foreign_table)
    # Checks are asked for by column.
    is_checked = len(key.columns) > 1 or not is_large(transaction, key.table)
    transaction.execute_ddl(ddl.add_foreign_key(key, checked=is_checked))
    if not is_checked:
        request_build(transaction, key.table, key.columns[0], BuildKind.FOREIGN_KEY)


def _withdraw_check(transaction: Transaction, key: ForeignKey) -> None:
    for column in key.columns:
        withdraw_build(transaction, key.table, column, BuildKind.FOREIGN_KEY)


def drop_foreign_key(transaction: Transaction, key: ForeignKey) -> None:
    """Drop a foreign key."""
    _withdraw_check(transaction, key)
    interrupt_builds(transaction, key.foreign_table)
    transaction.execute_ddl(ddl.drop_constraint(key.table, key.name))


def change_actions(
    transaction: Transaction, present: ForeignKey, schema: MetaSettings, column: Column | None
) -> None:
    """Replace a foreign key by one with the actions of `schema`, or have it checked again."""
    changed = ForeignKey(
        name=present.name,
        table=present.table,
        columns=present.columns,
        foreign_table=present.foreign_table,
        foreign_columns=present.foreign_columns,
        on_update=str(schema.get("on_update", present.on_update)),
        on_delete=str(schema.get("on_delete", present.on_delete)),
    )
    # PostgreSQL cannot alter the actions of a constraint. Both statements are of one transaction,
    # so that no row can lose its target in between.
    if changed != present:
        drop_foreign_key(transaction, present)
        add_foreign_key(transaction, changed)
    # To set an action again has stored rows checked again.
    elif column is not None and column.is_foreign_key_pending:
        request_build(transaction, present.table, column.name, BuildKind.FOREIGN_KEY)
