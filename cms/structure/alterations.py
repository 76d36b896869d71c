"""Changes of an existing field as clients send them: checked, then made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from cms.database.connections import Transaction
from cms.errors import Problem, Refused, abbreviated, collect_problems, invalid_payload
from cms.mappings import without
from cms.schema import ddl
from cms.schema.defaults import has_unsettable_default
from cms.schema.definitions import (
    Inconsistency,
    hash_inconsistencies,
    in_our_words,
    length_inconsistencies,
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
from cms.schema.names import duplicate_name_problem, invalid_field_name_reason
from cms.schema.reasons import not_one_of
from cms.schema.types import ALIAS_SPECIALS, TYPES, type_named
from cms.schema.types.field_type import FieldType
from cms.structure import metadata
from cms.structure.column_changes import (
    Alteration,
    alter_column,
    changed_settings,
    current_settings,
)
from cms.structure.index_requests import interrupt_builds
from cms.structure.lookup import require_table

_FIXED_SETTINGS = ("is_primary_key", "has_auto_increment")
_FILLED_BY_DATABASE = "the database fills this field"


def alter(
    transaction: Transaction, owner: Collection, field: Field, payload: Mapping[str, object]
) -> None:
    """Change a field as a body asks; raises `Refused` for a change that would lose data."""
    alteration, meta = checked(owner, field, payload)
    if field.column and owner.kind is Kind.TABLE:
        alter_column(transaction, alteration, field.column)
    # GET answers null for a field without a record: sending that back creates no record.
    if payload.get("meta") is not None or meta:
        # Without its marker the record would be that of another alias.
        if field.parts:
            meta = MetaSettings({**meta, "special": list(field.special)})
        metadata.save_field_record(transaction, owner.name, field.name, meta)


def checked(
    owner: Collection, field: Field, payload: Mapping[str, object]
) -> tuple[Alteration, MetaSettings]:
    """Return the change that a body asks for, and the settings of `meta` to save.

    Raises `Refused` for a change that is refused whatever the column holds.
    """
    problems: list[Problem] = []
    alteration = _parse(field, payload, problems)
    meta = collect_problems(problems, lambda: _checked_meta(alteration))
    problems += _problems_of_fixed(owner, alteration)
    if problems or meta is None:
        raise Refused(problems)
    has_column = field.column is not None and owner.kind is Kind.TABLE
    # Of an alias, and of a column of a view, a client may still send the whole record back.
    if not has_column and (alteration.changes_type or not _is_unchanged(alteration)):
        raise invalid_payload(f'"{field.name}" has no column that could change', field="schema")
    return alteration, meta


def problems_of_change(field: Field, payload: Mapping[str, object]) -> list[Problem]:
    """Return the problems of a change that can be found without the field's present settings."""
    problems: list[Problem] = []
    # The refusal holds the same problems as the list.
    with suppress(Refused):
        _parse(field, payload, problems)
    return problems


def is_change_possible(field: Field, payload: Mapping[str, object]) -> bool:
    """Tell whether a field can be changed to match a body; otherwise it has to be created anew.

    A body that cannot be read counts as possible: the change itself refuses it.
    """
    field_type = type_named(payload.get("type", field.type.name))
    if field_type is not None and not _can_become(field.type, field_type):
        return False
    schema = payload.get("schema")
    if field.column is None or not isinstance(schema, Mapping):
        return True
    current = current_settings(field, field.column)
    # A setting that the body leaves out stays as it is.
    return all(schema.get(key, current[key]) == current[key] for key in _FIXED_SETTINGS)


def rename_field(
    transaction: Transaction, field: Field, name: object, *, catalogue: Catalogue
) -> None:
    """Rename a field, and every reference to it."""
    if field.parts:
        raise invalid_payload(
            f'"{field.name}" is named after the table that its columns point to',
            field="field",
            value=abbreviated(name),
        )
    if reason := invalid_field_name_reason(name, is_alias=field.column is None):
        raise invalid_payload(f"field: {reason}", field="field", value=abbreviated(name))
    owner = catalogue.collections[field.collection]
    new_name = str(name)
    if new_name in owner.fields:
        raise Refused(duplicate_name_problem(new_name))
    metadata.rename_in_revisions(transaction, owner.name, field.name, new_name)
    if field.column:
        require_table(owner, "columns")
        interrupt_builds(transaction, owner.name)
        # Indexes, constraints and views follow by themselves; names in stored values do not.
        transaction.execute_ddl(ddl.rename_column(owner.name, field.name, new_name))
    metadata.rename_field_records(
        transaction, owner.name, field.name, new_name, catalogue=catalogue
    )


# Parsing


def _parse(field: Field, payload: Mapping[str, object], problems: list[Problem]) -> Alteration:
    """Return the change that a body asks for; raises `Refused` if it cannot be read."""
    problems += unknown_keys(payload, FIELD_KEYS)
    field_type = collect_problems(problems, lambda: _type_of(payload, field))
    column = field.column
    is_part_of_key = column is not None and column.is_primary_key and not column.is_unique
    payload = in_our_words(payload, field_type, is_part_of_key=is_part_of_key)
    meta = parse_settings(_sent_meta(payload, field), FIELD_META, "meta", problems)
    schema = parse_settings(payload.get("schema"), COLUMN_SCHEMA, "schema", problems)
    if problems or field_type is None:
        raise Refused(problems)
    for key, build in (("is_indexed", "index_build"), ("is_unique", "unique_build")):
        if _is_of_pending_build(payload, key, build):
            schema.pop(key, None)
    # The index of a field that has become unique since then.
    is_unique = field.column is not None and field.column.is_unique
    if is_unique and _is_of_pending_build(payload, "is_indexed", "unique_build"):
        schema.pop("is_indexed", None)
    return Alteration(field, field_type, meta, schema)


def _sent_meta(payload: Mapping[str, object], field: Field) -> object:
    """Return `meta` without the columns of a foreign key of several, which never change."""
    meta = payload.get("meta")
    columns = [part.name for part in field.parts]
    if isinstance(meta, Mapping) and columns and meta.get("columns") == columns:
        return without(meta, ("columns",))
    return meta


def _is_of_pending_build(payload: Mapping[str, object], key: str, build: str) -> bool:
    """Tell whether a body is a record of a field whose index is being built, sent back.

    Such a record says that there is no index, which does not withdraw the request for it.
    """
    schema = payload.get("schema")
    return (
        isinstance(schema, Mapping) and schema.get(key) is False and schema.get(build) is not None
    )


def _type_of(payload: Mapping[str, object], field: Field) -> FieldType:
    type_name = payload.get("type", field.type.name)
    field_type = type_named(type_name)
    if field_type is None:
        raise invalid_payload(
            f"type: {not_one_of(TYPES)}",
            field="type",
            value=abbreviated(type_name),
        )
    if field_type.name == field.type.name:
        # Not the type of that name: the field's own may be a variant that its column decides.
        return field.type
    if not _can_become(field.type, field_type):
        raise invalid_payload(
            f"type: {field.type.name} cannot become {field_type.name}",
            field="type",
            value=field_type.name,
        )
    return field_type


def _can_become(present: FieldType, other: FieldType) -> bool:
    if present.name == other.name:
        return True
    return other.is_known and other.can_change and present.can_change


# Checks of `meta`


def _checked_meta(alteration: Alteration) -> MetaSettings:
    """Return the settings of `meta` to save; raises `Refused` for markers that do not fit."""
    marked = replace(alteration, meta=_with_marker(alteration))
    return _with_fitting_special(marked)


def _with_marker(alteration: Alteration) -> MetaSettings:
    """Return `meta` with the marker of the field's type, if it sets markers at all."""
    field = alteration.field
    meta = alteration.meta
    if "special" not in meta:
        return meta
    special = meta["special"] or []
    assert isinstance(special, list)
    if field.parts:
        if special != list(field.special):
            reason = f"meta.special: that of this field is {', '.join(field.special)}"
            raise invalid_payload(reason, field="meta.special")
        return meta
    # Without a marker there would be nothing left of an alias.
    if field.column is None and not ALIAS_SPECIALS.intersection(special):
        reason = f"meta.special: an alias is one of {', '.join(sorted(ALIAS_SPECIALS))}"
        raise invalid_payload(reason, field="meta.special")
    marker = field.type.marker
    # Types that can change may lose their marker: that makes them another type. Without its marker
    # a hash would be shown as plain text.
    if field.type.can_change or not field.type.marked_types or marker in special:
        return meta
    return MetaSettings({**meta, "special": [*special, marker]})


def _with_fitting_special(alteration: Alteration) -> MetaSettings:
    """Return `meta` without the marker of a former type; raises `Refused` for unfitting markers."""
    field = alteration.field
    meta = alteration.meta
    # Markers that the change leaves out stay, and may not fit the new type.
    special = meta.get("special", list(field.special))
    marker = field.type.marker
    if alteration.changes_type and isinstance(special, list) and marker in special:
        special = [other for other in special if other != marker]
        meta = MetaSettings({**meta, "special": special or None})
    # Inconsistencies that the field has already come back with a whole record, and may stay.
    present = _marker_inconsistencies(field, field.type, list(field.special))
    problems = []
    for inconsistency in _marker_inconsistencies(field, alteration.field_type, special):
        if inconsistency not in present:
            problems.append(_problem(inconsistency))
    if problems:
        raise Refused(problems)
    return meta


def _marker_inconsistencies(
    field: Field, field_type: FieldType, special: object
) -> list[Inconsistency]:
    schema: dict[str, object] = {}
    if field.column:
        schema["max_length"] = field.column.max_length
    return [
        *special_inconsistencies(field_type, special),
        *hash_inconsistencies(field_type, special, schema),
    ]


# Checks of `schema`


def _is_unchanged(alteration: Alteration) -> bool:
    """Tell whether settings are those of the field: a client may send a whole record back."""
    field = alteration.field
    if field.column is None:
        return all(value is None for value in alteration.schema.values())
    current = current_settings(field, field.column)
    return all(value == current.get(key) for key, value in alteration.schema.items())


def _problems_of_fixed(owner: Collection, alteration: Alteration) -> list[Problem]:
    """Return the problems of settings that cannot change.

    PostgreSQL would refuse such changes with a syntax error, or make only a part of them.
    """
    column = alteration.field.column
    if not column or owner.kind is not Kind.TABLE:
        return []
    changed = changed_settings(alteration, column)
    inconsistencies = [
        *_fixed_settings(alteration, column, changed),
        *_fixed_type(alteration, column, changed),
    ]
    return list(map(_problem, inconsistencies))


def _fixed_settings(
    alteration: Alteration, column: Column, changed: MetaSettings
) -> Iterator[Inconsistency]:
    field_type = alteration.field_type
    for key in _FIXED_SETTINGS:
        if key in changed:
            yield Inconsistency(f"schema.{key}", "it is fixed when the field is made")
    yield from hash_inconsistencies(field_type, None, changed)
    # Of the columns of a key none has to be unique by itself.
    is_key = column.is_primary_key and column.is_unique
    is_unique = is_key or changed.get("is_unique", column.is_unique)
    if changed.get("is_indexed") is False and is_unique:
        yield Inconsistency("schema.is_indexed", "what makes a field unique is an index")
    yield from length_inconsistencies(field_type, changed)
    if changed.get("is_nullable") and (column.is_primary_key or column.has_auto_increment):
        yield Inconsistency("schema.is_nullable", "a key is never null")
    if "default_value" in changed and (column.is_generated or column.has_auto_increment):
        yield Inconsistency("schema.default_value", _FILLED_BY_DATABASE)


def _fixed_type(
    alteration: Alteration, column: Column, changed: MetaSettings
) -> Iterator[Inconsistency]:
    if not alteration.changes_type:
        return
    # A sequence only fills whole numbers.
    is_countable = alteration.field_type.is_whole_number
    if column.is_generated or (column.has_auto_increment and not is_countable):
        yield Inconsistency("type", _FILLED_BY_DATABASE)
    elif has_unsettable_default(alteration.field, column) and "default_value" not in changed:
        yield Inconsistency(
            "type", "the default is an expression of the database's; set another one as well"
        )


def _problem(inconsistency: Inconsistency) -> Problem:
    setting = inconsistency.setting
    return invalid_payload(f"{setting}: {inconsistency.reason}", field=setting).problems[0]
