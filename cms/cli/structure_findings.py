"""The findings of `cms doctor` about collections, fields and relations, and about their indexes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Transaction, standalone_transaction
from cms.database.statements import statement
from cms.errors import Refused
from cms.query.plan.links import is_comparable
from cms.schema.meta_settings import NAMING_SETTINGS
from cms.schema.model import Catalogue, Collection, Relation
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.schema.system import COLLECTIONS
from cms.store.snapshot import load_snapshot
from cms.structure.index_states import (
    FAILED,
    with_field_states,
    with_relation_states,
    with_search_states,
)
from cms.structure.indexes import LARGE_BYTES, large_tables
from cms.structure.search_indexes import slow_searches, useless_search_indexes
from cms.structure.value_indexes import index_target, value_indexes

OK = "ok"
WARNING = "warning"
WRONG = "wrong"

MAX_NAMES = 5
"""How many tables a finding names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report; `level` is OK, WARNING or WRONG."""

    level: str
    text: str


def structure_findings(dsn: str) -> Iterator[Finding]:
    """Yield the findings about collections, fields and relations."""
    with standalone_transaction(dsn) as transaction:
        catalogue = load_snapshot(transaction).catalogue
        sentences = list(dangling_settings(catalogue))
        findings = [
            *json_findings(transaction, catalogue),
            *index_findings(transaction, catalogue),
        ]
        slow = slow_searches(transaction, catalogue)
        behind = transaction.execute(statement("find_tables_behind"))
        lacking = transaction.execute(statement("find_missing_rights"))
    if not sentences:
        yield Finding(OK, "structure: what collections and relations name is there")
    yield from (Finding(WARNING, sentence) for sentence in sentences)
    yield from findings
    yield _searches(slow)
    for relation, privileges in lacking:
        yield Finding(
            WARNING,
            f"rights: the service's account lacks {privileges} on {relation}; "
            "docs/deployment.md has the grants",
        )
    if behind:
        yield _tables_behind([str(table) for (table,) in behind])


def _searches(slow: Sequence[str]) -> Finding:
    if not slow:
        return Finding(OK, "searches: indexes serve all large collections")
    return Finding(
        WARNING,
        f"searches: they read the whole table of {', '.join(slow)}; set meta.searchable of the "
        "collection for indexes, or searchable: false of its text fields if nobody searches there",
    )


def _tables_behind(tables: Sequence[str]) -> Finding:
    names = ", ".join(tables[:MAX_NAMES])
    if len(tables) > MAX_NAMES:
        names += f" and {len(tables) - MAX_NAMES} more"
    return Finding(
        WARNING,
        f"schema: {names} have the names of collections; PostgreSQL would take them for those "
        "whose own table another program drops: rename them, or take their schema off the "
        "search path",
    )


def index_findings(transaction: Transaction, catalogue: Catalogue) -> Iterator[Finding]:
    """Yield a finding for each build that failed, and for what builds have left behind."""
    sentences = [
        *_failed_fields(transaction, catalogue),
        *_failed_foreign_keys(transaction, catalogue),
        *_failed_searches(transaction, catalogue),
        *_useless(catalogue),
        *_remains(transaction),
    ]
    if not sentences:
        yield Finding(OK, "indexes: all that were asked for are there, or are being built")
    yield from (Finding(WARNING, f"indexes: {sentence}") for sentence in sentences)


def _failed_fields(transaction: Transaction, catalogue: Catalogue) -> Iterator[str]:
    records: list[Record] = []
    for collection in catalogue.collections.values():
        for field in collection.columns:
            if field.column and (field.column.is_index_pending or field.column.is_unique_pending):
                records.append(field_record(field))
    for record in with_field_states(records, catalogue, transaction.execute):
        name = f"{record['collection']}.{record['field']}"
        if _has_failed(record, "schema", "index_build"):
            yield (
                f"the index of {name} could not be built, and the log says why; set is_indexed of "
                "the field again, or to false"
            )
        if _code_of(record, "unique_build"):
            yield (
                f"{name} cannot be unique, because items have equal values; change them and set "
                "is_unique of the field again, or set it to false"
            )
        elif _has_failed(record, "schema", "unique_build"):
            yield (
                f"the unique index of {name} could not be built, and the log says why; set "
                "is_unique of the field again, or to false"
            )


def _failed_foreign_keys(transaction: Transaction, catalogue: Catalogue) -> Iterator[str]:
    records: list[Record] = []
    for relation in catalogue.relations:
        column = catalogue.collections[relation.many_collection].fields[relation.many_field].column
        if relation.constraint and column and column.is_foreign_key_pending:
            records.append(relation_record(relation))
    for record in with_relation_states(records, catalogue, transaction.execute):
        name = f"{record['collection']}.{record['field']}"
        if _code_of(record, "foreign_key_check"):
            yield (
                f"items point to none by {name}; change them and set on_delete of the relation "
                "again, to the same"
            )
        elif _has_failed(record, "schema", "foreign_key_check"):
            yield (
                f"the foreign key of {name} could not be checked, and the log says why; set "
                "on_delete of the relation again, to the same"
            )


def _failed_searches(transaction: Transaction, catalogue: Catalogue) -> Iterator[str]:
    records = list(map(collection_record, catalogue.collections.values()))
    for record in with_search_states(records, catalogue, transaction.execute):
        if _has_failed(record, "meta", "search_index"):
            yield (
                f"the indexes for searches in {record['collection']} are not there, and the log "
                "says why if a build has failed; set meta.searchable of the collection again"
            )


def _useless(catalogue: Catalogue) -> Iterator[str]:
    for collection in catalogue.collections.values():
        for name in sorted(useless_search_indexes(collection)):
            yield (
                f"{name} of {collection.name} serves no search any more and costs every write; set "
                "meta.searchable of the collection again, and it is dropped"
            )


def _remains(transaction: Transaction) -> Iterator[str]:
    for table, name, is_unique in transaction.execute(statement("find_invalid_indexes")):
        effect = " and refuses values" if is_unique else ""
        yield (
            f"{name} of {table} is what a build has left that was broken off: it costs every "
            f"write{effect}; ask for the index again, or drop it"
        )


def _has_failed(record: Record, part: str, key: str) -> bool:
    return _state_of(record, part, key).get("state") == FAILED


def _code_of(record: Record, key: str) -> object:
    """Return the code of the error that stored items are; None for any other state."""
    return _state_of(record, "schema", key).get("code")


def _state_of(record: Record, part: str, key: str) -> Mapping[str, object]:
    settings = record[part]
    state = settings.get(key) if isinstance(settings, Mapping) else None
    return state if isinstance(state, Mapping) else {}


def json_findings(transaction: Transaction, catalogue: Catalogue) -> Iterator[Finding]:
    """Yield a finding for each path into JSON that reads of a large table search or sort by.

    Those with an index are left out, and those that can have none any more.
    """
    present = {index.target for index in value_indexes(transaction) if index.is_valid}
    is_complete = True
    rows = transaction.read(statement("recorded_json_paths"))
    collections = {str(collection) for collection, _, _ in rows}
    large = large_tables(transaction, collections, min_bytes=LARGE_BYTES)
    for collection, path, last_used in rows:
        if collection not in large:
            continue
        try:
            target = index_target(catalogue, collection, path)
        except Refused:
            continue  # the field is gone, or has another type
        if target not in present:
            is_complete = False
            command = shlex.join(["cms", "index", collection, str(target)])
            yield Finding(
                WARNING,
                f"JSON: {collection} is filtered or sorted by {target}, which has no index "
                f"(last on {last_used}); run `{command}`",
            )
    if is_complete:
        yield Finding(OK, "JSON: paths that large tables are searched by have indexes")


def dangling_settings(catalogue: Catalogue) -> Iterator[str]:
    """Yield a sentence for each such table and setting."""
    for table in catalogue.reserved_tables:
        yield (
            f"table {table}: no collection, because its name is kept for the service's own tables;"
            " rename it"
        )
    for relation in catalogue.relations:
        yield from _relation_sentences(relation, catalogue.collections[relation.many_collection])
        if not is_comparable(relation, catalogue):
            yield (
                f"relation {relation.many_collection}.{relation.many_field}: it leads nowhere, "
                f"because the key of {relation.one_collection} has another type than the column"
            )
    for collection in catalogue.collections.values():
        yield from _collection_sentences(collection)


def _relation_sentences(relation: Relation, owner: Collection) -> Iterator[str]:
    subject = f"relation {relation.many_collection}.{relation.many_field}"
    for setting, name in (
        ("junction_field", relation.junction_field),
        ("sort_field", relation.sort_field),
    ):
        # It may be a mistake or a column that is still to be made, so that nothing is refused: `cms
        # doctor` tells.
        if name and not _has_column(owner, name):
            yield _dangling(subject, setting, name)


def _collection_sentences(collection: Collection) -> Iterator[str]:
    meta = collection.meta or {}
    for setting in NAMING_SETTINGS[COLLECTIONS]:
        name = meta.get(setting)
        if isinstance(name, str) and not _has_column(collection, name):
            yield _dangling(f"collection {collection.name}", setting, name)


def _dangling(subject: str, setting: str, name: str) -> str:
    return f"{subject}: its {setting} {name} is not there; make it, or take the setting back"


def _has_column(collection: Collection, name: str) -> bool:
    return name in collection.fields and collection.fields[name].column is not None
