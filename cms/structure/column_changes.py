"""Changes of one column by DDL, unless they would lose a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cms.database.connections import Transaction, single_value
from cms.database.error_mapping import Conflict, reporting_nulls
from cms.database.statements import statement
from cms.errors import STATUS, Problem, Refused, abbreviated, invalid_payload
from cms.fragment import Fragment, concat, text
from cms.schema import ddl
from cms.schema.definitions import precision_inconsistencies
from cms.schema.meta_settings import COLUMN_SCHEMA, COLUMN_SIZES, MetaSettings
from cms.schema.model import BuildKind, Column, Field
from cms.schema.payload import parse_list
from cms.schema.records import column_record
from cms.schema.types.field_type import FieldType
from cms.schema.types.structures import TEXT_JSON
from cms.structure.index_requests import (
    add_index,
    add_unique,
    check_order,
    drop_search_indexes,
    interrupt_builds,
    keep_index,
    keep_unique,
    withdraw_build,
)
from cms.structure.indexes import drop_invalid_beside_change, drop_path_indexes


class ValuesLost(Refused):
    """A change of a column's type to which some of its values cannot be converted."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of a field: its type afterwards, and the settings of `meta` and `schema` to set."""

    field: Field
    field_type: FieldType
    meta: MetaSettings
    schema: MetaSettings

    @property
    def changes_type(self) -> bool:
        # By identity: several types share a name, and the column decides which one is meant.
        return self.field_type is not self.field.type


def current_settings(field: Field, column: Column) -> dict[str, object]:
    """Return the settings with which the column would be created."""
    record = column_record(field, column)
    return {key: record[key] for key in COLUMN_SCHEMA}


def changed_settings(alteration: Alteration, column: Column) -> MetaSettings:
    """Return the settings of `schema` that differ from the current ones."""
    current = current_settings(alteration.field, column)
    changed = MetaSettings()
    for key, value in alteration.schema.items():
        # A request may be repeated, where a build has failed, and be withdrawn.
        if value != current[key] or key in _pending_settings(column):
            changed[key] = value
    # A unique column needs no second index. Snapshots have it as an indexed one.
    if changed.get("is_unique") and changed.get("is_indexed"):
        del changed["is_indexed"]
    return changed


def _pending_settings(column: Column) -> set[str]:
    settings: set[str] = set()
    if column.is_index_pending:
        settings.add("is_indexed")
    if column.is_unique_pending:
        settings.add("is_unique")
    return settings


def alter_column(transaction: Transaction, alteration: Alteration, column: Column) -> None:
    """Change type and settings of a column; raises `Refused` if a value would be lost."""
    field = alteration.field
    current = current_settings(field, column)
    changed = changed_settings(alteration, column)
    result = MetaSettings({**current, **changed})
    if alteration.changes_type:
        result.update(_sizes_of_new_type(alteration))
        # The default of the former type is dropped with it, and set again as one of the new type.
        if not column.has_auto_increment:
            changed.setdefault("default_value", result["default_value"])
    # New indexes are all that leaves the column as it is.
    if alteration.changes_type or changed.keys() - {"is_indexed", "is_unique"}:
        interrupt_builds(transaction, field.collection)
    # The type first: it decides how a new default is written.
    if alteration.changes_type or any(result[key] != current[key] for key in COLUMN_SIZES):
        _change_type(transaction, alteration, column, settings=result)
        # PostgreSQL looks at the indexes that are there.
        if _will_be_indexed(column, changed):
            check_order(transaction, field.collection, field.name)
    if changed.get("default_value") is not None:
        changed["default_value"] = _default_value(alteration, column, changed, result)
    for key, change in _CHANGES.items():
        if key in changed:
            change(transaction, field, column, changed[key])
    _keep_indexes(transaction, alteration, column)


def _keep_indexes(transaction: Transaction, alteration: Alteration, column: Column) -> None:
    """Keep the indexes that were given up, are still there, and are asked for again."""
    field = alteration.field
    if alteration.schema.get("is_indexed") and column.is_indexed:
        keep_index(transaction, field.collection, field.name)
    if alteration.schema.get("is_unique") and column.is_unique and not column.is_primary_key:
        keep_unique(transaction, field.collection, field.name)


def _will_be_indexed(column: Column, changed: MetaSettings) -> bool:
    """Tell whether an index of the values was asked for, and is not withdrawn."""
    if column.is_index_pending and changed.get("is_indexed", True):
        return True
    return column.is_unique_pending and bool(changed.get("is_unique", True))


def _sizes_of_new_type(alteration: Alteration) -> MetaSettings:
    """Return the sizes that were sent for a new type; None for those that it does not have."""
    sizes = MetaSettings(dict.fromkeys(COLUMN_SIZES))
    for key in COLUMN_SIZES:
        if key in alteration.field_type.size_settings:
            sizes[key] = alteration.schema.get(key)
    return sizes


def _default_value(
    alteration: Alteration, column: Column, changed: MetaSettings, result: MetaSettings
) -> Fragment:
    """Return a new default as SQL."""
    parse = None
    # A column that is an array of the database takes a list as its default.
    if column.element and not alteration.changes_type:
        parse = parse_list(column)
    return ddl.default_value(
        alteration.field.name,
        alteration.field_type,
        changed["default_value"],
        length=result["max_length"],
        parse=parse,
    )


def _collation(transaction: Transaction, field: Field, data_type: str) -> tuple[str, str] | None:
    """Return the collation that a column keeps with a new type, as schema and name."""
    parameters = field.collection, field.name, data_type
    for schema, name in transaction.execute(statement("find_collation"), parameters):
        return str(schema), str(name)
    return None


def _change_type(
    transaction: Transaction, alteration: Alteration, column: Column, *, settings: MetaSettings
) -> None:
    """Change type, length or precision, unless a value would be lost."""
    field = alteration.field
    field_type = alteration.field_type
    for setting, reason in precision_inconsistencies(field_type, settings):
        raise invalid_payload(f"{setting}: {reason}", field=setting)
    data_type = ddl.column_type(field_type, settings)
    # Before the check: a value that is written after it would be cut without a word.
    transaction.execute_ddl(ddl.lock(field.collection))
    if _would_lose(transaction, field, column, data_type):
        # Without the value, which the caller did not send and may not be allowed to see.
        reason = f'Values of "{field.name}" would be lost as {data_type}'
        refusal = invalid_payload(
            reason, field="type", collection=field.collection, value=field_type.name
        )
        raise ValuesLost(refusal.problems)
    # PostgreSQL does not convert a default together with its column.
    if alteration.changes_type and column.default is not None and not column.has_auto_increment:
        transaction.execute_ddl(
            ddl.alter_column(field.collection, field.name, text("DROP DEFAULT"))
        )
    # Not every type has such an index; the new one gets its own when all changes are made.
    drop_search_indexes(transaction, field)
    drop_path_indexes(transaction, field)
    # PostgreSQL would build them with the type, while nobody can use the table.
    drop_invalid_beside_change(transaction, field.collection, field.name)
    transaction.execute_ddl(
        ddl.change_type(
            field.collection,
            field.name,
            data_type,
            collation=_collation(transaction, field, data_type),
        )
    )


def _would_lose(transaction: Transaction, field: Field, column: Column, data_type: str) -> bool:
    """Tell whether any value would change or be lost."""
    try:
        return bool(single_value(transaction.run(ddl.lossy_change(field, column, data_type))))
    except Refused as refused:
        if refused.status != STATUS["INVALID_PAYLOAD"]:
            raise
        # Some value, or every value, cannot be converted to the new type.
        return True


def check_text_is_json(transaction: Transaction, before: Field | None, after: Field) -> None:
    """Refuse to read text as JSON if any value is none: reads of a list would fail on it."""
    if after.type is not TEXT_JSON or before is None:
        return
    if before.type.name not in TEXT_JSON.marked_types:
        return
    try:
        transaction.run(ddl.cast_every_value(after.collection, after.name, "json"))
    except Conflict:
        reason = f'meta.special: "{after.name}" holds text that is no JSON'
        raise invalid_payload(reason, field="meta.special", collection=after.collection) from None


# One function for each setting that can change by itself


def _set_nullable(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP NOT NULL" if value else "SET NOT NULL")
    with reporting_nulls(field.collection, field.name):
        transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))


def _set_default(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP DEFAULT")
    if isinstance(value, Fragment):
        change = concat("SET DEFAULT ", value)
    try:
        transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))
    except Refused as refused:
        if refused.status != STATUS["INVALID_PAYLOAD"]:
            raise
        # The column has a type of the database: only the database knows which values it takes.
        raise refused.map_problems(partial(_with_default, value)) from None


def _with_default(default: object, problem: Problem) -> Problem:
    """Return a problem that PostgreSQL has with a default as one of its setting."""
    if not isinstance(default, Fragment) or problem.extensions.get("field"):
        return problem
    value = None
    # A default such as `now()` is all SQL, and has no value.
    if default.values:
        value = default.values[0]
    setting = {"field": "schema.default_value", "value": abbreviated(value)}
    return replace(problem, extensions={**problem.extensions, **setting})


def _set_unique(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        add_unique(transaction, field.collection, field.name)
        return
    if column.is_primary_key:
        raise invalid_payload("A primary key is unique", field="schema.is_unique")
    withdraw_build(transaction, field.collection, field.name, BuildKind.UNIQUE)
    # Other tools may have made a column unique several times, and by an index alone.
    column_name = (field.collection, field.name)
    for (constraint,) in transaction.execute(statement("unique_constraints"), column_name):
        transaction.execute_ddl(ddl.drop_constraint(field.collection, constraint))
    _drop_indexes(transaction, field, unique=True)


def _set_indexed(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        add_index(transaction, field.collection, field.name, field.type.index_kind)
        return
    withdraw_build(transaction, field.collection, field.name, BuildKind.INDEX)
    _drop_indexes(transaction, field, unique=False)


def _drop_indexes(transaction: Transaction, field: Field, *, unique: bool) -> None:
    # The lock that DROP INDEX takes: a build that has ended may be about to drop what it has left.
    transaction.execute_ddl(ddl.lock(field.collection))
    parameters = field.collection, field.name, str(unique)
    # Other tools may have made several.
    for (index,) in transaction.execute(statement("column_indexes"), parameters):
        transaction.execute_ddl(ddl.drop_index(index))


def _set_comment(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    transaction.execute_ddl(ddl.comment_on_column(field.collection, field.name, value))


ColumnChange = Callable[[Transaction, Field, Column, object], None]

_CHANGES: Mapping[str, ColumnChange] = {
    "is_nullable": _set_nullable,
    "default_value": _set_default,
    "is_unique": _set_unique,
    "is_indexed": _set_indexed,
    "comment": _set_comment,
}
