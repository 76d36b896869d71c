"""Rows of system_collections, system_fields and system_relations, and the references in them."""

from __future__ import annotations

from collections.abc import Mapping

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.fragment import Fragment, commas, concat, fill, join, name, param, text
from cms.query.rules.field_conditions import require_valid_rules
from cms.schema.auto_fields import invalid_archive_settings
from cms.schema.meta_settings import (
    COLLECTION_META,
    FIELD_META,
    RELATION_META,
    MetaSetting,
)
from cms.schema.model import Catalogue, Collection
from cms.schema.references import FieldChange
from cms.schema.system import COLLECTIONS, FIELDS, RELATIONS
from cms.schema.types import TYPES
from cms.structure.stored_references import apply_change

Keys = Mapping[str, str]
"""The columns that name a row, with their values."""

_RELATION_COLUMNS: Mapping[str, MetaSetting] = {
    **RELATION_META,
    # No setting of `meta`: a body names the other collection beside it (`related_collection`).
    "one_collection": MetaSetting(TYPES["text"].parse, "text"),
}
"""The columns of a relation's record, and how their values are stored."""


def save_collection_record(
    transaction: Transaction, collection: str, changes: Mapping[str, object]
) -> None:
    """Insert the record of a collection with the changes, or update it."""
    keys = {"collection": collection}
    _save_record(transaction, COLLECTIONS, keys, changes=changes, settings=COLLECTION_META)


def save_field_record(
    transaction: Transaction, collection: str, field: str, changes: Mapping[str, object]
) -> None:
    """Insert the record of a field with the changes, or update it.

    Raises `Refused` INVALID_PAYLOAD for rules that cannot be read.
    """
    # Such rules would refuse every later write of the collection.
    require_valid_rules(changes)
    keys = {"collection": collection, "field": field}
    _save_record(transaction, FIELDS, keys, changes=changes, settings=FIELD_META)


def save_relation_record(
    transaction: Transaction, collection: str, field: str, changes: Mapping[str, object]
) -> None:
    """Insert the record of the relation of a many side with the changes, or update it."""
    keys = {"many_collection": collection, "many_field": field}
    _save_record(transaction, RELATIONS, keys, changes=changes, settings=_RELATION_COLUMNS)


def delete_relation_record(transaction: Transaction, collection: str, field: str) -> None:
    """Delete the record of the relation of a many side."""
    _delete_record(transaction, RELATIONS, {"many_collection": collection, "many_field": field})


def _save_record(
    transaction: Transaction,
    table: str,
    keys: Keys,
    *,
    changes: Mapping[str, object],
    settings: Mapping[str, MetaSetting],
) -> None:
    values = {key: param(value, settings[key].cast) for key, value in changes.items()}
    columns = {**_key_params(keys), **values}
    insert = fill(
        # A table or column that another program made has no record yet.
        "INSERT INTO {0} ({1}) VALUES ({2}) ON CONFLICT ({3}) DO {4}",
        name(table),
        commas(map(name, columns)),
        commas(columns.values()),
        commas(map(name, keys)),
        _update(values),
    )
    transaction.run(insert)


def _key_params(keys: Keys) -> dict[str, Fragment]:
    return {key: param(value, "text") for key, value in keys.items()}


def _update(values: Mapping[str, Fragment]) -> Fragment:
    if not values:
        return text("NOTHING")
    assignments: list[Fragment] = []
    for key in values:
        assignments.append(fill("{0} = EXCLUDED.{0}", name(key)))
    return concat("UPDATE SET ", commas(assignments))


def _delete_record(transaction: Transaction, table: str, keys: Keys) -> None:
    terms: list[Fragment] = []
    for key, value in _key_params(keys).items():
        terms.append(fill("{0} = {1}", name(key), value))
    condition = join(" AND ", terms)
    transaction.run(fill("DELETE FROM {0} WHERE {1}", name(table), condition))


def check_archive(after: Collection, *, before: Collection | None = None) -> None:
    """Refuse settings of archiving whose values do not fit their field.

    Settings that were wrong `before` the change may stay: a client sends whole records back.
    """
    former = invalid_archive_settings(before) if before else {}
    problems = []
    # Compared by reason: a setting may be wrong in another way than before.
    for setting, reason in invalid_archive_settings(after).items():
        if former.get(setting) == reason:
            continue
        message = f'Invalid payload. meta.{setting} of "{after.name}": {reason}.'
        extensions = {"reason": reason, "field": f"meta.{setting}", "collection": after.name}
        problems.append(Problem("INVALID_PAYLOAD", message, extensions))
    if problems:
        raise Refused(problems)


def delete_collection_records(
    transaction: Transaction, collection: str, *, catalogue: Catalogue
) -> None:
    """Remove every row about a collection."""
    # Before the relations are deleted, by which the lists are found.
    _delete_list_fields(transaction, collection, None, catalogue)
    for statement_name in (
        # Found by the relations, which are deleted next.
        "remove_collection_from_junctions",
        "delete_collection_relations",
        "delete_collection_fields",
        "delete_collection_permissions",
        "delete_collection_presets",
        "delete_collection_shares",
        # A later collection of the same name must not show the history of this one.
        "close_collection_history",
        "delete_collection_record",
    ):
        transaction.execute(statement(statement_name), (collection,))
    transaction.execute(statement("withdraw_builds"), (collection, None, None))


def delete_field_records(
    transaction: Transaction, collection: str, field: str, *, catalogue: Catalogue
) -> None:
    """Remove a field's record, and its name from all records that name it.

    A rule that names it stays as it is: see `cms.schema.references.apply_to_filter`.
    """
    delete_stale_field_records(transaction, collection, field, catalogue=catalogue)
    transaction.execute(statement("remove_field_from_relations"), (collection, field))


def delete_stale_field_records(
    transaction: Transaction, collection: str, field: str, *, catalogue: Catalogue
) -> None:
    """Remove the records of a field that another program dropped, before a new one has its name.

    Relations keep it as their junction or sort field: they mean the new field.
    """
    _delete_list_fields(transaction, collection, field, catalogue)
    apply_change(transaction, FieldChange(catalogue, collection, field, None))
    for statement_name in (
        "delete_field_relations",
        "remove_field_from_lists",
        "delete_field_record",
        "remove_field_from_collection",
        "remove_field_from_groups",
        "remove_field_from_permissions",
    ):
        transaction.execute(statement(statement_name), (collection, field))
    transaction.execute(statement("withdraw_builds"), (collection, field, None))
    delete_from_revisions(transaction, collection, field)


def delete_from_revisions(transaction: Transaction, collection: str, field: str) -> None:
    """Remove the values of a field that is gone, or has become a secret, from revisions."""
    _change_in_revisions(transaction, collection, field, None)


def _change_in_revisions(
    transaction: Transaction, collection: str, field: str, name: str | None
) -> None:
    # A history may be so long that this takes longer than the statement timeout.
    transaction.execute(statement("lift_time_limit"))
    transaction.execute(statement("change_field_in_revisions"), (collection, field, name))


def _delete_list_fields(
    transaction: Transaction, collection: str, field: str | None, catalogue: Catalogue
) -> None:
    """Remove the to-many fields that list a collection, by a given field or by any."""
    for owner, list_field in transaction.execute(statement("find_lists"), (collection, field)):
        delete_field_records(transaction, str(owner), str(list_field), catalogue=catalogue)


def rename_field_records(
    transaction: Transaction, collection: str, before: str, after: str, *, catalogue: Catalogue
) -> None:
    """Rename a field in its record and in every reference to it."""
    # Another program may have dropped a column of the new name, whose record is still there.
    _delete_record(transaction, FIELDS, {"collection": collection, "field": after})
    transaction.execute(statement("withdraw_builds"), (collection, after, None))
    # By the catalogue of before: stored rules and templates still have the former name.
    apply_change(transaction, FieldChange(catalogue, collection, before, after))
    for statement_name in (
        "rename_field_record",
        "rename_field_in_builds",
        "rename_field_in_group",
        "rename_field_in_relations",
        "rename_field_in_collection",
        "rename_field_in_permissions",
    ):
        transaction.execute(statement(statement_name), (collection, before, after))
    # Those that were written since `rename_in_revisions`.
    _change_in_revisions(transaction, collection, before, after)


def rename_in_revisions(transaction: Transaction, collection: str, before: str, after: str) -> None:
    """Rename a field in revisions, before its table is locked: a long history takes long."""
    # Values of a former column of the new name are none of the renamed field.
    delete_from_revisions(transaction, collection, after)
    _change_in_revisions(transaction, collection, before, after)
