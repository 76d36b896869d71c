"""What PATCH does to an existing field: its record, its column, its name (decisions, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict, reporting_nulls
from cms.database.statements import statement
from cms.errors import Problem, Refused, abbreviated, collect_problems, invalid_payload
from cms.fragment import Fragment, concat, text
from cms.schema import ddl
from cms.schema.build import ALIAS_SPECIALS
from cms.schema.defaults import default_of, is_database_expression
from cms.schema.definitions import (
    IMPLIED_SPECIALS,
    faults_of_hash,
    faults_of_precision,
    faults_of_special,
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
from cms.schema.names import fault_of_name
from cms.schema.types import TYPES, Family
from cms.structure import metadata
from cms.structure.indexes import add_index
from cms.structure.lookup import require_table

_FIXED_SETTINGS = {"is_primary_key": "primary_key", "has_auto_increment": "auto_increment"}
_SEQUENCE_TYPES = ("integer", "bigInteger")
_MARKERS = {Family.HASH: "hash", Family.CSV: "cast-csv"}
_UNCHANGEABLE_FAMILIES = frozenset({Family.GEOMETRY, Family.HASH, Family.ALIAS, Family.CSV})


def alter(
    transaction: Transaction, owner: Collection, field: Field, payload: Mapping[str, object]
) -> None:
    """Change what the payload says of a field; raises `Refused` for what cannot be without losing data."""
    problems: list[Problem] = []
    wanted, meta, schema = _settings_of(field, payload, problems)
    said = collect_problems(
        problems, lambda: _fitting_special(_special(meta, field), field, wanted)
    )
    problems += _faults_of_fixed(owner, field, schema, wanted)
    if problems or said is None:
        raise Refused(problems)
    if field.column and owner.kind is Kind.TABLE:
        _alter_column(transaction, field, field.column, wanted=wanted, schema=schema)
    elif wanted != field.type_name or not _is_unchanged(field, schema):
        raise invalid_payload(f'"{field.name}" has no column that could change', field="schema")
    if (
        payload.get("meta") is not None or said
    ):  # null is what GET answers for a field that nobody spoke of
        keys = {"collection": owner.name, "field": field.name}
        metadata.save_record(transaction, "system_fields", keys, changes=said, settings=FIELD_META)


def problems_of_change(field: Field, payload: Mapping[str, object]) -> list[Problem]:
    """Return what is wrong with a change by itself, whatever the field holds."""
    problems: list[Problem] = []
    with suppress(Refused):
        _settings_of(field, payload, problems)
    return problems


def _settings_of(
    field: Field, payload: Mapping[str, object], problems: list[Problem]
) -> tuple[str, MetaSettings, MetaSettings]:
    """Return the type, `meta` and `schema` of a change; raises `Refused` with what cannot be read of them."""
    problems += unknown_keys(payload, FIELD_KEYS)
    wanted = collect_problems(problems, lambda: _type_of(payload, field))
    meta = parse_settings(payload.get("meta"), FIELD_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, "schema", problems)
    if problems or wanted is None:
        raise Refused(problems)
    return wanted, meta, schema


def rename(transaction: Transaction, field: Field, name: object, *, catalogue: Catalogue) -> None:
    """Rename a field, with every reference to it following."""
    if fault := fault_of_name(name):
        raise invalid_payload(f"field: {fault}", field="field", value=abbreviated(name))
    owner, new = catalogue.collections[field.collection], str(name)
    if new in owner.fields:
        raise invalid_payload(f'There is a field "{new}" already', field="field", value=new)
    if field.column:
        require_table(owner, "columns")
        transaction.execute_ddl(ddl.rename_column(owner.name, field.name, new))
    metadata.rename_field(transaction, owner.name, field.name, new, catalogue=catalogue)


def _type_of(payload: Mapping[str, object], field: Field) -> str:
    wanted = payload.get("type", field.type_name)
    wanted = "datetime" if wanted == "dateTime" else wanted
    if not isinstance(wanted, str) or wanted not in TYPES:
        raise invalid_payload(
            f"type: it must be one of {', '.join(TYPES)}", field="type", value=abbreviated(wanted)
        )
    if wanted != field.type_name and (
        wanted == "unknown" or _UNCHANGEABLE_FAMILIES & {TYPES[wanted].family, field.type.family}
    ):
        raise invalid_payload(
            f"type: {field.type_name} cannot become {wanted}", field="type", value=wanted
        )
    return wanted


def _is_unchanged(field: Field, schema: MetaSettings) -> bool:
    """A client may send a whole record back."""
    if field.column is None:
        return all(value is None for value in schema.values())
    return all(
        value == _current_settings(field, field.column).get(key) for key, value in schema.items()
    )


def _special(meta: MetaSettings, field: Field) -> MetaSettings:
    """Keep the markers that tell the type: without them a hash would read as plain text, and an alias vanish."""
    if "special" not in meta:
        return meta
    given = meta["special"] or []
    assert isinstance(given, list)
    if field.column is None and not ALIAS_SPECIALS.intersection(given):
        reason = f"meta.special: an alias is one of {', '.join(sorted(ALIAS_SPECIALS))}"
        raise invalid_payload(reason, field="meta.special")
    needed = _MARKERS.get(field.type.family)
    if needed is None or needed in given:
        return meta
    return MetaSettings({**meta, "special": [*given, needed]})


def _fitting_special(meta: MetaSettings, field: Field, wanted: str) -> MetaSettings:
    """Refuse markers that do not fit the type; the one that the former type brought along goes with it."""
    special = meta["special"] if "special" in meta else list(field.special)
    if (
        wanted != field.type_name
        and isinstance(special, list)
        and IMPLIED_SPECIALS.get(field.type_name) in special
    ):
        special = [marker for marker in special if marker != IMPLIED_SPECIALS[field.type_name]]
        meta = MetaSettings({**meta, "special": special or None})
    before, length = (
        list(field.special),
        {"max_length": field.column.max_length if field.column else None},
    )
    old = faults_of_special(field.type_name, before) + faults_of_hash(
        field.type_name, before, length
    )
    faults = faults_of_special(wanted, special) + faults_of_hash(wanted, special, length)
    new = [
        fault for fault in faults if fault not in old
    ]  # what was there before is sent back with a record
    if new:
        raise Refused(_problem(place, reason) for place, reason in new)
    return meta


def _problem(place: str, reason: str) -> Problem:
    return invalid_payload(f"{place}: {reason}", field=place).problems[0]


def _current_settings(field: Field, column: Column) -> dict[str, object]:
    """Return the column as the settings that would make it."""
    return {
        "default_value": default_of(field, column),
        "max_length": column.max_length,
        "numeric_precision": column.precision,
        "numeric_scale": column.scale,
        "is_nullable": column.is_nullable,
        "is_unique": column.is_unique,
        "is_indexed": column.is_indexed,
        "is_primary_key": column.primary_key,
        "has_auto_increment": column.auto_increment,
        "comment": column.comment,
    }


def _alter_column(
    transaction: Transaction, field: Field, column: Column, *, wanted: str, schema: MetaSettings
) -> None:
    present = _current_settings(field, column)
    changed = _changed(field, column, schema)
    whole = MetaSettings({**present, **changed})
    if wanted != field.type_name:
        whole.update(_sizes_for(wanted, schema))
        if not column.auto_increment:
            changed.setdefault("default_value", whole["default_value"])
    if wanted != field.type_name or any(whole[key] != present[key] for key in _SIZES):
        _change_type(transaction, field, column, wanted=wanted, schema=whole)
    if changed.get("default_value") is not None:
        default = changed["default_value"]
        changed["default_value"] = ddl.default_value(
            field.name, wanted, default, length=whole["max_length"]
        )
    for key, change in _CHANGES.items():
        if key in changed:
            change(transaction, field, column, changed[key])


def _changed(field: Field, column: Column, schema: MetaSettings) -> MetaSettings:
    """Return the settings that are not what they are already."""
    present = _current_settings(field, column)
    return MetaSettings({key: value for key, value in schema.items() if value != present[key]})


def _faults_of_fixed(
    owner: Collection, field: Field, schema: MetaSettings, wanted: str
) -> list[Problem]:
    """Return what PostgreSQL would refuse with a syntax error, or do by halves."""
    if not field.column or owner.kind is not Kind.TABLE:
        return []
    changed = _changed(field, field.column, schema)
    faults = [
        *_fixed_setting_faults(field.column, changed, wanted),
        *_fixed_type_faults(field, field.column, changed, wanted),
    ]
    return [_problem(place, reason) for place, reason in faults]


def _fixed_setting_faults(
    column: Column, changed: MetaSettings, wanted: str
) -> Iterator[tuple[str, str]]:
    for key in _FIXED_SETTINGS:
        if key in changed:
            yield f"schema.{key}", "it is fixed when the field is made"
    yield from faults_of_hash(wanted, None, changed)
    if changed.get("is_indexed") is False and (
        column.primary_key or changed.get("is_unique", column.is_unique)
    ):
        yield "schema.is_indexed", "what makes a field unique is an index"
    takes_length = wanted in ("string", "hash") and not (column.choices and wanted == "string")
    if changed.get("max_length") is not None and not takes_length:
        yield "schema.max_length", "only strings have a length"
    if changed.get("is_nullable") and (column.primary_key or column.auto_increment):
        yield "schema.is_nullable", "a key is never null"
    if "default_value" in changed and (column.is_generated or column.auto_increment):
        yield "schema.default_value", "the database fills this field"


def _fixed_type_faults(
    field: Field, column: Column, changed: MetaSettings, wanted: str
) -> Iterator[tuple[str, str]]:
    if wanted == field.type_name:
        return
    if column.is_generated or (column.auto_increment and wanted not in _SEQUENCE_TYPES):
        yield "type", "the database fills this field"
    elif is_database_expression(field, column) and "default_value" not in changed:
        yield "type", "the default is an expression of the database's; set another one as well"


def _change_type(
    transaction: Transaction, field: Field, column: Column, *, wanted: str, schema: MetaSettings
) -> None:
    """Change type, length or precision, after a look whether any value would be lost.

    The lock comes first: a row that is written between look and change would be cut without a word.
    """
    sizes = {key: schema[key] for key in ("numeric_precision", "numeric_scale")}
    for place, reason in faults_of_precision(wanted, sizes):
        raise invalid_payload(f"{place}: {reason}", field=place)
    data_type = ddl.column_type(wanted, schema)
    transaction.execute_ddl(ddl.lock(field.collection))
    if _would_lose(transaction, field, column, data_type):
        reason = f'Values of "{field.name}" would be lost as {data_type}'
        raise invalid_payload(reason, field="type", collection=field.collection, value=wanted)
    if wanted != field.type_name and column.default is not None and not column.auto_increment:
        transaction.execute_ddl(
            ddl.alter_column(field.collection, field.name, text("DROP DEFAULT"))
        )
    transaction.execute_ddl(ddl.change_type(field.collection, field.name, data_type))


def _would_lose(transaction: Transaction, field: Field, column: Column, data_type: str) -> bool:
    """Tell whether a value would be another one, or none at all. Which it is nobody is told: nobody has sent it."""
    try:
        return bool(transaction.run(ddl.lossy_change(field.collection, column, data_type))[0][0])
    except Conflict:
        return True


def check_text_is_json(transaction: Transaction, before: Field | None, after: Field) -> None:
    """Refuse to read a column of text as JSON where it holds anything else: one such value would spoil every list."""
    if after.type_name != "json" or before is None or before.type.family is not Family.TEXT:
        return
    try:
        transaction.run(ddl.cast_every_value(after.collection, after.name, "json"))
    except Conflict:
        reason = f'meta.special: "{after.name}" holds text that is no JSON'
        raise invalid_payload(reason, field="meta.special", collection=after.collection) from None


_SIZES = ("max_length", "numeric_precision", "numeric_scale")


def _sizes_for(wanted: str, schema: MetaSettings) -> MetaSettings:
    """Keep the sizes that were sent with the new type and that it has."""
    kept = {"string": {"max_length"}, "decimal": {"numeric_precision", "numeric_scale"}}.get(
        wanted, set()
    )
    return MetaSettings({key: schema.get(key) if key in kept else None for key in _SIZES})


def _nullable(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP NOT NULL" if value else "SET NOT NULL")
    with reporting_nulls(field.collection, field.name):
        transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))


def _default(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    change = text("DROP DEFAULT")
    if isinstance(value, Fragment):
        change = concat("SET DEFAULT ", value)
    transaction.execute_ddl(ddl.alter_column(field.collection, field.name, change))


def _unique(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        transaction.execute_ddl(ddl.add_unique(field.collection, field.name))
        return
    if column.primary_key:
        raise invalid_payload("A primary key is unique", field="schema.is_unique")
    for (constraint,) in transaction.execute(
        statement("unique_constraints"), (field.collection, field.name)
    ):
        transaction.execute_ddl(ddl.drop_constraint(field.collection, constraint))
    for (index,) in transaction.execute(
        statement("unique_indexes"), (field.collection, field.name)
    ):
        transaction.execute_ddl(ddl.drop_index(index))


def _indexed(transaction: Transaction, field: Field, column: Column, value: object) -> None:
    if value:
        add_index(transaction, field.collection, field.name, ddl.index_kind(field.type_name))
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
