"""What the records of collections, fields and relations tell of what is built in the background."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.query.sql.arguments import array
from cms.schema.model import BuildKind, Catalogue, Column
from cms.schema.records import Record
from cms.structure.search_indexes import is_searchable, missing_search_indexes, search_indexes

READY = "ready"
WAITING = "waiting"
BUILDING = "building"
FAILED = "failed"


_LOST: Record = {"state": FAILED, "progress": 0.0}
"""The state of something that was asked for, and that no job builds any more."""

States = Mapping[tuple[str, str, str], Record]
"""States by table, column and kind."""


def _states_of(tables: Iterable[str], fetch: Fetch) -> States:
    rows = fetch(statement("find_builds"), (array(sorted(tables)),))
    states: dict[tuple[str, str, str], Record] = {}
    for table, column, kind, name, progress, code in rows:
        states[table, column, kind] = _state(name, float(progress))
        if name == FAILED and code is not None:
            states[table, column, kind]["code"] = code
    return states


def _state(name: str, progress: float) -> Record:
    return {"state": name, "progress": round(progress, 3)}


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
        builds = _states_of(unfinished, fetch)
        for name in unfinished:
            states[name] = _search_state(catalogue, name, builds)
    return [_with_search_state(record, states) for record in records]


def _search_state(catalogue: Catalogue, name: str, builds: States) -> Record:
    """Return the state of a collection that lacks indexes."""
    collection = catalogue.collections[name]
    needed = len(search_indexes(collection, catalogue.extensions))
    missing = missing_search_indexes(collection, catalogue.extensions)
    states = [builds.get((name, index.column, BuildKind.SEARCH), _LOST) for index in missing]
    done = needed - len(missing) + sum(float(str(state["progress"])) for state in states)
    names = {state["state"] for state in states}
    first = next(name for name in (BUILDING, WAITING, FAILED) if name in names)
    return _state(first, done / needed)


def _with_search_state(record: Record, states: Mapping[str, Record]) -> Record:
    state = states.get(str(record["collection"]))
    meta = record["meta"]
    if state is None or not isinstance(meta, Mapping):
        return record
    return {**record, "meta": {**meta, "search_index": state}}


# Fields and relations


def with_field_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of fields that tell how far the indexes are that were asked for."""
    # Beside `is_indexed` and `is_unique`, and not in `meta`: a field without a record has none.
    keys = {BuildKind.INDEX: "index_build", BuildKind.UNIQUE: "unique_build"}
    return _with_column_states(records, catalogue, fetch, keys)


def with_relation_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of relations that tell how far the checks of their foreign keys are."""
    keys = {BuildKind.FOREIGN_KEY: "foreign_key_check"}
    return _with_column_states(records, catalogue, fetch, keys)


def _with_column_states(
    records: Sequence[Record],
    catalogue: Catalogue,
    fetch: Fetch,
    keys: Mapping[BuildKind, str],
) -> list[Record]:
    """Return records whose `schema` has the states of builds under these keys."""
    tables: set[str] = set()
    for record in records:
        column = _column_of(record, catalogue)
        if column is not None and column.pending_builds & keys.keys():
            tables.add(str(record["collection"]))
    # No statement where nothing is built, as nearly always.
    if not tables:
        return list(records)
    builds = _states_of(tables, fetch)
    return [_with_column_state(record, catalogue, builds, keys) for record in records]


def _with_column_state(
    record: Record, catalogue: Catalogue, builds: States, keys: Mapping[BuildKind, str]
) -> Record:
    column = _column_of(record, catalogue)
    schema = record["schema"]
    if column is None or not isinstance(schema, Mapping):
        return record
    states: Record = {}
    for kind, key in keys.items():
        if kind in column.pending_builds:
            states[key] = builds.get((str(record["collection"]), column.name, kind), _LOST)
    return {**record, "schema": {**schema, **states}}


def _column_of(record: Record, catalogue: Catalogue) -> Column | None:
    collection = catalogue.collections[str(record["collection"])]
    return collection.fields[str(record["field"])].column
