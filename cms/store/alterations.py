"""What PATCH does to an existing field: its record, its column, its name (decisions, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cms.errors import Problem, Refused, invalid_payload
from cms.fragment import concat, text
from cms.schema import ddl
from cms.schema.definitions import faults_of_precision
from cms.schema.model import Collection, Column, Field, Kind
from cms.schema.names import fault_of_name
from cms.schema.records import default_of
from cms.schema.settings import COLUMN_SCHEMA, FIELD_META, Settings, parse_settings
from cms.schema.types import TYPES, Family
from cms.store import metadata
from cms.store.database import Transaction
from cms.store.statements import statement

_FIXED = {"is_primary_key": "primary_key", "has_auto_increment": "auto_increment"}
_KEPT = frozenset({Family.GEOMETRY, Family.HASH, Family.ALIAS, Family.CSV})


def alter(transaction: Transaction, owner: Collection, field: Field, payload: Mapping[str, object]) -> None:
    """Change what the payload says of a field; raises `Refused` for what cannot be without losing data."""
    problems: list[Problem] = []
    meta = parse_settings(payload.get("meta"), FIELD_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, "schema", problems)
    if problems:
        raise Refused(problems)
    if field.column and owner.kind is Kind.TABLE:
        _alter_column(transaction, field, field.column, wanted=_type_of(payload, field), schema=schema)
    elif schema and not _changes_nothing(field, schema):
        raise invalid_payload(f'"{field.name}" has no column that could change', field="schema")
    if "meta" in payload:
        keys = {"collection": owner.name, "field": field.name}
        metadata.save(transaction, "system_fields", keys, given=_special(meta, field), known=FIELD_META)


def rename(transaction: Transaction, owner: Collection, field: Field, name: object) -> None:
    """Rename a field, with every reference to it following."""
    if fault := fault_of_name(name):
        raise invalid_payload(f"field: {fault}", field="field")
    new = str(name)
    if new in owner.fields:
        raise invalid_payload(f'There is a field "{new}" already', field="field")
    if field.column:
        if owner.kind is not Kind.TABLE:
            raise invalid_payload(f'"{owner.name}" is a view and keeps its columns', field="field")
        transaction.define(ddl.rename_column(owner.name, field.name, new))
    metadata.rename_field(transaction, owner.name, field.name, new)


def _type_of(payload: Mapping[str, object], field: Field) -> str:
    wanted = payload.get("type", field.type_name)
    wanted = "datetime" if wanted == "dateTime" else wanted
    if not isinstance(wanted, str) or wanted not in TYPES:
        raise invalid_payload(f"type: it must be one of {', '.join(TYPES)}", field="type")
    if wanted != field.type_name and _KEPT & {TYPES[wanted].family, field.type.family}:
        raise invalid_payload(f"type: {field.type_name} cannot become {wanted}", field="type")
    return wanted


def _changes_nothing(field: Field, schema: Settings) -> bool:
    """A client may send a whole record back."""
    if field.column is None:
        return all(value is None for value in schema.values())
    return all(value == _present(field, field.column).get(key) for key, value in schema.items())


def _special(meta: Settings, field: Field) -> Settings:
    """Keep the markers that tell the type: without them a hash would read as plain text."""
    if "special" not in meta or field.type.family not in (Family.HASH, Family.CSV):
        return meta
    needed = "hash" if field.type.family is Family.HASH else "cast-csv"
    given = meta["special"] or []
    assert isinstance(given, list)
    return meta if needed in given else Settings({**meta, "special": [*given, needed]})


def _present(field: Field, column: Column) -> dict[str, object]:
    """Return the column as the settings that would make it."""
    return {
        "default_value": default_of(field, column),
        "max_length": column.max_length,
        "numeric_precision": column.precision,
        "numeric_scale": column.scale,
        "is_nullable": column.nullable,
        "is_unique": column.unique,
        "is_indexed": column.indexed,
        "is_primary_key": column.primary_key,
        "has_auto_increment": column.auto_increment,
        "comment": column.comment,
    }


def _alter_column(
    transaction: Transaction, field: Field, column: Column, *, wanted: str, schema: Settings
) -> None:
    present = _present(field, column)
    changed = Settings({key: value for key, value in schema.items() if value != present[key]})
    for key in _FIXED:
        if key in changed:
            raise invalid_payload(f"schema.{key}: it is fixed when the field is made", field=f"schema.{key}")
    _change_type(transaction, field, column, wanted=wanted, schema=Settings({**present, **changed}))
    altered = replace(field, type_name=wanted)
    for key, change in _CHANGES.items():
        if key in changed:
            change(transaction, altered, column, changed[key])


def _change_type(
    transaction: Transaction, field: Field, column: Column, *, wanted: str, schema: Settings
) -> None:
    """Change type, length or precision, after a look whether any value would be lost."""
    if wanted != field.type_name:
        schema = Settings({**schema, **_fitting(wanted, schema)})
    elif all(schema[key] == _present(field, column)[key] for key in _SIZES):
        return
    faults = faults_of_precision(wanted, {key: schema[key] for key in ("numeric_precision", "numeric_scale")})
    if faults:
        raise invalid_payload(f"{faults[0][0]}: {faults[0][1]}", field=faults[0][0])
    data_type = ddl.column_type(wanted, schema)
    if transaction.run(ddl.losses(field.collection, column, data_type))[0][0]:
        raise invalid_payload(f"Values of {field.name} would be lost as {data_type}", field="type")
    transaction.define(ddl.alter_column(field.collection, field.name, text("DROP DEFAULT")))
    transaction.define(ddl.change_type(field.collection, field.name, data_type))
    if schema["default_value"] is not None:
        default = ddl.default_value(field.name, wanted, schema["default_value"])
        transaction.define(ddl.alter_column(field.collection, field.name, concat("SET DEFAULT ", default)))


_SIZES = ("max_length", "numeric_precision", "numeric_scale")


def _fitting(wanted: str, schema: Settings) -> Settings:
    """Drop sizes that the new type does not have."""
    kept = {"string": {"max_length"}, "decimal": {"numeric_precision", "numeric_scale"}}.get(wanted, set())
    return Settings({key: schema[key] if key in kept else None for key in _SIZES})


def _nullable(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP NOT NULL" if value else "SET NOT NULL")
    transaction.define(ddl.alter_column(field.collection, field.name, change))


def _default(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP DEFAULT")
    if value is not None:
        change = concat("SET DEFAULT ", ddl.default_value(field.name, field.type_name, value))
    transaction.define(ddl.alter_column(field.collection, field.name, change))


def _unique(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        transaction.define(ddl.add_unique(field.collection, field.name))
        return
    if column.primary_key:
        raise invalid_payload("A primary key is unique", field="schema.is_unique")
    for (constraint,) in transaction.execute(statement("unique_constraints"), (field.collection, field.name)):
        transaction.define(ddl.drop_constraint(field.collection, constraint))
    for (index,) in transaction.execute(statement("unique_indexes"), (field.collection, field.name)):
        transaction.define(ddl.drop_index(index))


def _indexed(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        transaction.define(ddl.index(field.collection, field.name))
        return
    for (index,) in transaction.execute(statement("plain_indexes"), (field.collection, field.name)):
        transaction.define(ddl.drop_index(index))


def _comment(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    transaction.define(ddl.comment_on_column(field.collection, field.name, value))


Change = Callable[[Transaction, Field, Column, object], None]

_CHANGES: Mapping[str, Change] = {
    "is_nullable": _nullable,
    "default_value": _default,
    "is_unique": _unique,
    "is_indexed": _indexed,
    "comment": _comment,
}
