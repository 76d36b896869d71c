"""The findings of `cms doctor` about indexes and constraints that are built in the background."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cms.cli.finding import OK, WARNING, Finding
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.schema.model import Catalogue
from cms.schema.records import Record, collection_record, field_record, relation_record
from cms.structure.index_states import (
    FAILED,
    with_field_states,
    with_relation_states,
    with_search_states,
)
from cms.structure.search_indexes import useless_search_indexes


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
        if _code(record, "unique_build"):
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
        if _code(record, "foreign_key_check"):
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


def _code(record: Record, key: str) -> object:
    """Return the code of the error that stored items are; None for any other state."""
    return _state_of(record, "schema", key).get("code")


def _state_of(record: Record, part: str, key: str) -> Mapping[str, object]:
    settings = record[part]
    state = settings.get(key) if isinstance(settings, Mapping) else None
    return state if isinstance(state, Mapping) else {}
