"""What the records of collections, fields and relations tell of what is built in the background."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.query.sql.arguments import array
from cms.schema.model import Catalogue, Column, ConstraintRequest
from cms.schema.records import Record
from cms.structure.index_builds import FOREIGN_KEY, UNIQUE, VIOLATIONS
from cms.structure.search_indexes import is_searchable, missing_search_indexes, search_indexes

READY = "ready"
WAITING = "waiting"
BUILDING = "building"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _TableBuilds:
    """The builds of a table: the status of its last job, and the index that is built right now.

    `column` is None while no index is built; `done` is the part of it that is done, and `is_unique`
    is for one that makes the column unique.
    """

    job_status: str | None
    column: str | None
    is_unique: bool
    done: float


def _builds_of(tables: Iterable[str], fetch: Fetch) -> dict[str, _TableBuilds]:
    builds: dict[str, _TableBuilds] = {}
    rows = fetch(statement("find_index_builds"), (array(sorted(tables)),))
    for name, status, column, is_unique, done in rows:
        builds[str(name)] = _TableBuilds(
            status, column, is_unique is True, done=float(str(done or 0))
        )
    return builds


# Collections


def with_search_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of collections that tell how far the indexes for searches are built."""
    states: dict[str, Record] = {}
    unfinished: list[str] = []
    for record in records:
        name = str(record["collection"])
        collection = catalogue.collections.get(name)
        if collection is not None and is_searchable(collection):
            states[name] = _state(READY, 1.0)
            if missing_search_indexes(collection, catalogue.extensions):
                unfinished.append(name)
    if unfinished:
        for name, builds in _builds_of(unfinished, fetch).items():
            states[name] = _search_state(catalogue, name, builds)
    return [_with_search_state(record, states) for record in records]


def _search_state(catalogue: Catalogue, name: str, builds: _TableBuilds) -> Record:
    """Return the state of a collection that lacks indexes."""
    collection = catalogue.collections[name]
    needed = len(search_indexes(collection, catalogue.extensions))
    missing = missing_search_indexes(collection, catalogue.extensions)
    done = float(needed - len(missing))
    is_building = builds.column in {index.column for index in missing}
    if is_building:
        done += builds.done
    progress = done / needed
    if is_building or builds.job_status == "doing":
        return _state(BUILDING, progress)
    return _state_without_build(builds, progress)


def _with_search_state(record: Record, states: Mapping[str, Record]) -> Record:
    state = states.get(str(record["collection"]))
    meta = record["meta"]
    if state is None or not isinstance(meta, Mapping):
        return record
    return {**record, "meta": {**meta, "search_index": state}}


# Fields


def with_field_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of fields that tell how far the indexes are that were asked for."""
    tables: set[str] = set()
    for record in records:
        column = _column_of(record, catalogue)
        if column is not None and (column.is_index_pending or column.is_unique_pending):
            tables.add(str(record["collection"]))
    # No statement where nothing is built, as nearly always.
    if not tables:
        return list(records)
    builds = _builds_of(tables, fetch)
    return [_with_field_state(record, catalogue, builds) for record in records]


def _column_of(record: Record, catalogue: Catalogue) -> Column | None:
    collection = catalogue.collections[str(record["collection"])]
    return collection.fields[str(record["field"])].column


def _with_field_state(
    record: Record, catalogue: Catalogue, builds: Mapping[str, _TableBuilds]
) -> Record:
    column = _column_of(record, catalogue)
    schema = record["schema"]
    if column is None or not isinstance(schema, Mapping):
        return record
    # Beside `is_indexed` and `is_unique`, and not in `meta`: a field without a record has none.
    states: Record = {}
    if column.is_index_pending:
        states["index_build"] = _field_state(
            column, builds[str(record["collection"])], unique=False
        )
    if column.is_unique_pending:
        states["unique_build"] = _unique_state(column, builds[str(record["collection"])])
    return {**record, "schema": {**schema, **states}}


def _unique_state(column: Column, builds: _TableBuilds) -> Record:
    if column.unique_request is ConstraintRequest.VIOLATED:
        return _violated(VIOLATIONS[UNIQUE])
    return _field_state(column, builds, unique=True)


def _field_state(column: Column, builds: _TableBuilds, *, unique: bool) -> Record:
    if builds.column == column.name and builds.is_unique == unique:
        return _state(BUILDING, builds.done)
    return _state_without_build(builds, 0.0)


# Relations


def with_relation_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of relations that tell how far the checks of their foreign keys are."""
    tables: set[str] = set()
    for record in records:
        column = _column_of(record, catalogue)
        if column is not None and column.is_foreign_key_pending:
            tables.add(str(record["collection"]))
    if not tables:
        return list(records)
    builds = _builds_of(tables, fetch)
    rows = fetch(statement("find_validations"), (array(sorted(tables)),))
    checked = {str(name) for (name,) in rows}
    return [_with_relation_state(record, catalogue, builds, checked) for record in records]


def _with_relation_state(
    record: Record,
    catalogue: Catalogue,
    builds: Mapping[str, _TableBuilds],
    checked: Set[str],
) -> Record:
    column = _column_of(record, catalogue)
    schema = record["schema"]
    if column is None or not column.is_foreign_key_pending or not isinstance(schema, Mapping):
        return record
    table = str(record["collection"])
    if column.foreign_key_request is ConstraintRequest.VIOLATED:
        state = _violated(VIOLATIONS[FOREIGN_KEY])
    elif table in checked:
        # PostgreSQL does not tell how far a check is.
        state = _state(BUILDING, 0.0)
    else:
        state = _state_without_build(builds[table], 0.0)
    return {**record, "schema": {**schema, "foreign_key_check": state}}


# All of them


def _violated(code: str) -> Record:
    """Return the state of a constraint that stored rows violate, with the code of that error."""
    return {**_state(FAILED, 0.0), "code": code}


def _state_without_build(builds: _TableBuilds, progress: float) -> Record:
    """Return the state of what is not built right now."""
    if builds.job_status in ("todo", "doing"):
        return _state(WAITING, progress)
    return _state(FAILED, progress)


def _state(name: str, progress: float) -> Record:
    return {"state": name, "progress": round(progress, 3)}
