"""Changes of an existing field: its record, its column, its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict, reporting_nulls
from cms.database.statements import statement
from cms.errors import STATUS, Problem, Refused, abbreviated, collect_problems, invalid_payload
from cms.fragment import Fragment, concat, text
from cms.schema import ddl
from cms.schema.array_columns import parse_list
from cms.schema.defaults import is_database_expression
from cms.schema.definitions import (
    hash_inconsistencies,
    precision_inconsistencies,
    special_inconsistencies,
)
from cms.schema.meta_settings import (
    COLUMN_SCHEMA,
    FIELD_KEYS,
    FIELD_META,
    MetaSettings,
    parse_settings,
    unknown_keys,
)
from cms.schema.model import Catalogue, Collection, Column, Field, Kind
from cms.schema.names import invalid_name_reason
from cms.schema.records import column_record
from cms.schema.types import ALIAS_SPECIALS, TYPES
from cms.schema.types.field_type import FieldType
from cms.schema.types.structures import TEXT_JSON
from cms.structure import metadata
from cms.structure.indexes import add_index
from cms.structure.lookup import require_table

_FIXED_SETTINGS = ("is_primary_key", "has_auto_increment")


def alter(
    transaction: Transaction, owner: Collection, field: Field, payload: Mapping[str, object]
) -> None:
    """Change a field as the payload says; raises `Refused` for a change that would lose data."""
    problems: list[Problem] = []
    field_type, meta, schema = _settings_of(field, payload, problems)
    meta_with_markers = collect_problems(
        problems, lambda: _fitting_special(_with_marker(meta, field), field, field_type)
    )
    problems += _problems_of_fixed(owner, field, schema, field_type)
    if problems or meta_with_markers is None:
        raise Refused(problems)
    if field.column and owner.kind is Kind.TABLE:
        _alter_column(transaction, field, field.column, field_type=field_type, schema=schema)
    elif field_type is not field.type or not _is_unchanged(field, schema):
        raise invalid_payload(f'"{field.name}" has no column that could change', field="schema")
    # GET answers null for a field without a record: to send that back makes none.
    if payload.get("meta") is not None or meta_with_markers:
        keys = {"collection": owner.name, "field": field.name}
        metadata.save_record(
            transaction, "system_fields", keys, changes=meta_with_markers, settings=FIELD_META
        )


def problems_of_change(field: Field, payload: Mapping[str, object]) -> list[Problem]:
    """Return the problems that a change has whatever the field holds."""
    problems: list[Problem] = []
    with suppress(Refused):
        _settings_of(field, payload, problems)
    return problems


def _settings_of(
    field: Field, payload: Mapping[str, object], problems: list[Problem]
) -> tuple[FieldType, MetaSettings, MetaSettings]:
    """Return the type, `meta` and `schema` of a change; raises `Refused` for invalid ones."""
    problems += unknown_keys(payload, FIELD_KEYS)
    field_type = collect_problems(problems, lambda: _type_of(payload, field))
    meta = parse_settings(payload.get("meta"), FIELD_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, "schema", problems)
    if problems or field_type is None:
        raise Refused(problems)
    return field_type, meta, schema


def rename_field(
    transaction: Transaction, field: Field, name: object, *, catalogue: Catalogue
) -> None:
    """Rename a field, and every reference to it."""
    if fault := invalid_name_reason(name):
        raise invalid_payload(f"field: {fault}", field="field", value=abbreviated(name))
    owner = catalogue.collections[field.collection]
    new_name = str(name)
    if new_name in owner.fields:
        reason = f'There is a field "{new_name}" already'
        raise invalid_payload(reason, field="field", value=new_name)
    if field.column:
        require_table(owner, "columns")
        transaction.execute_ddl(ddl.rename_column(owner.name, field.name, new_name))
    metadata.rename_field(transaction, owner.name, field.name, new_name, catalogue=catalogue)


def _type_of(payload: Mapping[str, object], field: Field) -> FieldType:
    """Return the type that a field gets; its own is a variant that its column decides."""
    type_name = payload.get("type", field.type.name)
    type_name = "datetime" if type_name == "dateTime" else type_name
    if not isinstance(type_name, str) or type_name not in TYPES:
        raise invalid_payload(
            f"type: it must be one of {', '.join(TYPES)}",
            field="type",
            value=abbreviated(type_name),
        )
    if type_name == field.type.name:
        return field.type
    field_type = TYPES[type_name]
    if not (field_type.is_known and field_type.can_change and field.type.can_change):
        raise invalid_payload(
            f"type: {field.type.name} cannot become {type_name}", field="type", value=type_name
        )
    return field_type


def _is_unchanged(field: Field, schema: MetaSettings) -> bool:
    """Tell whether settings are those of the field: a client may send a whole record back."""
    if field.column is None:
        return all(value is None for value in schema.values())
    current = _current_settings(field, field.column)
    return all(value == current.get(key) for key, value in schema.items())


def _with_marker(meta: MetaSettings, field: Field) -> MetaSettings:
    """Return `meta` with the marker of the type: without it a hash would read as plain text."""
    if "special" not in meta:
        return meta
    special = meta["special"] or []
    assert isinstance(special, list)
    # An alias without one would vanish.
    if field.column is None and not ALIAS_SPECIALS.intersection(special):
        reason = f"meta.special: an alias is one of {', '.join(sorted(ALIAS_SPECIALS))}"
        raise invalid_payload(reason, field="meta.special")
    marker = field.type.marker
    if field.type.can_change or not field.type.marked_types or marker in special:
        return meta
    return MetaSettings({**meta, "special": [*special, marker]})


def _fitting_special(meta: MetaSettings, field: Field, field_type: FieldType) -> MetaSettings:
    """Refuse markers that do not fit the type; the one of a former type is removed."""
    special = meta["special"] if "special" in meta else list(field.special)
    implied = field.type.marker
    if field_type is not field.type and isinstance(special, list) and implied in special:
        special = [marker for marker in special if marker != implied]
        meta = MetaSettings({**meta, "special": special or None})
    before = list(field.special)
    length = {"max_length": field.column.max_length if field.column else None}
    old = special_inconsistencies(field.type, before)
    old += hash_inconsistencies(field.type, before, length)
    faults = special_inconsistencies(field_type, special) + hash_inconsistencies(
        field_type, special, length
    )
    # Faults that the field has already are sent back with a whole record.
    new = [fault for fault in faults if fault not in old]
    if new:
        raise Refused(_problem(setting, reason) for setting, reason in new)
    return meta


def _problem(setting: str, reason: str) -> Problem:
    return invalid_payload(f"{setting}: {reason}", field=setting).problems[0]


def _current_settings(field: Field, column: Column) -> dict[str, object]:
    """Return the settings that would make the column."""
    record = column_record(field, column)
    return {key: record[key] for key in COLUMN_SCHEMA}


def _alter_column(
    transaction: Transaction,
    field: Field,
    column: Column,
    *,
    field_type: FieldType,
    schema: MetaSettings,
) -> None:
    current = _current_settings(field, column)
    changed = _changed(field, column, schema)
    whole = MetaSettings({**current, **changed})
    changes_type = field_type is not field.type
    if changes_type:
        whole.update(_sizes_for(field_type, schema))
        if not column.has_auto_increment:
            changed.setdefault("default_value", whole["default_value"])
    if changes_type or any(whole[key] != current[key] for key in _SIZES):
        _change_type(transaction, field, column, field_type=field_type, schema=whole)
    if changed.get("default_value") is not None:
        default = changed["default_value"]
        is_array = column.element and not changes_type
        changed["default_value"] = ddl.default_value(
            field.name,
            field_type,
            default,
            length=whole["max_length"],
            parse=parse_list(column) if is_array else None,
        )
    for key, change in _CHANGES.items():
        if key in changed:
            change(transaction, field, column, changed[key])


def _changed(field: Field, column: Column, schema: MetaSettings) -> MetaSettings:
    """Return the settings that differ from the current ones."""
    current = _current_settings(field, column)
    return MetaSettings({key: value for key, value in schema.items() if value != current[key]})


def _problems_of_fixed(
    owner: Collection, field: Field, schema: MetaSettings, field_type: FieldType
) -> list[Problem]:
    """Return changes that PostgreSQL would refuse with a syntax error, or do by halves."""
    if not field.column or owner.kind is not Kind.TABLE:
        return []
    changed = _changed(field, field.column, schema)
    faults = [
        *_fixed_setting_faults(field.column, changed, field_type),
        *_fixed_type_faults(field, field.column, changed, field_type),
    ]
    return [_problem(setting, reason) for setting, reason in faults]


def _fixed_setting_faults(
    column: Column, changed: MetaSettings, field_type: FieldType
) -> Iterator[tuple[str, str]]:
    for key in _FIXED_SETTINGS:
        if key in changed:
            yield f"schema.{key}", "it is fixed when the field is made"
    yield from hash_inconsistencies(field_type, None, changed)
    is_unique = column.is_primary_key or changed.get("is_unique", column.is_unique)
    if changed.get("is_indexed") is False and is_unique:
        yield "schema.is_indexed", "what makes a field unique is an index"
    if changed.get("max_length") is not None and "max_length" not in field_type.size_settings:
        yield "schema.max_length", "only strings have a length"
    if changed.get("is_nullable") and (column.is_primary_key or column.has_auto_increment):
        yield "schema.is_nullable", "a key is never null"
    if "default_value" in changed and (column.is_generated or column.has_auto_increment):
        yield "schema.default_value", "the database fills this field"


def _fixed_type_faults(
    field: Field, column: Column, changed: MetaSettings, field_type: FieldType
) -> Iterator[tuple[str, str]]:
    if field_type is field.type:
        return
    if column.is_generated or (column.has_auto_increment and not field_type.is_whole_number):
        yield "type", "the database fills this field"
    elif is_database_expression(field, column) and "default_value" not in changed:
        yield "type", "the default is an expression of the database's; set another one as well"


def _change_type(
    transaction: Transaction,
    field: Field,
    column: Column,
    *,
    field_type: FieldType,
    schema: MetaSettings,
) -> None:
    """Change type, length or precision, unless a value would be lost.

    The lock comes first: a value that is written between check and change would be cut silently.
    """
    sizes = {key: schema[key] for key in ("numeric_precision", "numeric_scale")}
    for setting, reason in precision_inconsistencies(field_type, sizes):
        raise invalid_payload(f"{setting}: {reason}", field=setting)
    data_type = ddl.column_type(field_type, schema)
    transaction.execute_ddl(ddl.lock(field.collection))
    if _would_lose(transaction, field, column, data_type):
        reason = f'Values of "{field.name}" would be lost as {data_type}'
        raise invalid_payload(
            reason, field="type", collection=field.collection, value=field_type.name
        )
    if (
        field_type is not field.type
        and column.default is not None
        and not column.has_auto_increment
    ):
        transaction.execute_ddl(
            ddl.alter_column(field.collection, field.name, text("DROP DEFAULT"))
        )
    transaction.execute_ddl(ddl.change_type(field.collection, field.name, data_type))


def _would_lose(transaction: Transaction, field: Field, column: Column, data_type: str) -> bool:
    """Tell whether any value would change or be lost. The answer never names it: nobody sent it."""
    try:
        return bool(transaction.run(ddl.lossy_change(field, column, data_type))[0][0])
    except Conflict:
        return True


def check_text_is_json(transaction: Transaction, before: Field | None, after: Field) -> None:
    """Refuse to read text as JSON if any value is none: it would make every list invalid."""
    if after.type is not TEXT_JSON or before is None:
        return
    if before.type.name not in TEXT_JSON.marked_types:
        return
    try:
        transaction.run(ddl.cast_every_value(after.collection, after.name, "json"))
    except Conflict:
        reason = f'meta.special: "{after.name}" holds text that is no JSON'
        raise invalid_payload(reason, field="meta.special", collection=after.collection) from None


_SIZES = ("max_length", "numeric_precision", "numeric_scale")


def _sizes_for(field_type: FieldType, schema: MetaSettings) -> MetaSettings:
    """Return the sizes that were sent with a new type and that it has; None for the others."""
    own = field_type.size_settings
    return MetaSettings({key: schema.get(key) if key in own else None for key in _SIZES})


def _nullable(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP NOT NULL" if value else "SET NOT NULL")
    with reporting_nulls(field.collection, field.name):
        transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))


def _default(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP DEFAULT")
    if isinstance(value, Fragment):
        change = concat("SET DEFAULT ", value)
    try:
        transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))
    except Refused as refused:
        if refused.status != STATUS["INVALID_PAYLOAD"]:
            raise
        # A type of the database's own: only the database knows which values it takes.
        raise refused.map_problems(partial(_with_default, value)) from None


def _with_default(default: object, problem: Problem) -> Problem:
    """Return a problem with a default as that of the setting."""
    if not isinstance(default, Fragment) or problem.extensions.get("field"):
        return problem
    _, values = default.numbered()
    named = {"field": "schema.default_value", "value": abbreviated(values[0] if values else None)}
    return replace(problem, extensions={**problem.extensions, **named})


def _unique(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        transaction.execute_ddl(ddl.add_unique(field.collection, field.name))
        return
    if column.is_primary_key:
        raise invalid_payload("A primary key is unique", field="schema.is_unique")
    column_name = (field.collection, field.name)
    for (constraint,) in transaction.execute(statement("unique_constraints"), column_name):
        transaction.execute_ddl(ddl.drop_constraint(field.collection, constraint))
    for (index,) in transaction.execute(statement("unique_indexes"), column_name):
        transaction.execute_ddl(ddl.drop_index(index))


def _indexed(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        add_index(transaction, field.collection, field.name, field.type.index_kind)
        return
    for (index,) in transaction.execute(statement("plain_indexes"), (field.collection, field.name)):
        transaction.execute_ddl(ddl.drop_index(index))


def _comment(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    transaction.execute_ddl(ddl.comment_on_column(field.collection, field.name, value))


ColumnChange = Callable[[Transaction, Field, Column, object], None]

_CHANGES: Mapping[str, ColumnChange] = {
    "is_nullable": _nullable,
    "default_value": _default,
    "is_unique": _unique,
    "is_indexed": _indexed,
    "comment": _comment,
}
