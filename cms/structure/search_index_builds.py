"""Indexes for searches in a large table: built in the background, by a job of the queue.

Where no worker runs, as in an application that embeds the service, a thread of the process does it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread

from cms.database.connections import Database, Fetch, Transaction, single_value
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused
from cms.jobs.housekeeping import queue_state
from cms.jobs.task import Job, JobError, defer
from cms.query.sql.arrays import array
from cms.schema.model import Catalogue
from cms.schema.records import Record
from cms.store.snapshot import load_snapshot
from cms.structure.indexes import DeferredIndex, index_build_lock
from cms.structure.search_indexes import is_searchable, missing_search_indexes, search_indexes

log = logging.getLogger("cms.store")

SEARCH_INDEX_TASK = "search_index"
"""The task of the queue that builds the indexes of one collection."""

INDEX_BUILDS = 1
"""How many of these jobs a worker runs at a time, beside others: one may take hours."""

BUILD_POLL_SECONDS = 1.0
"""Seconds between two looks at a build that a killed process has left behind."""

READY = "ready"
WAITING = "waiting"
BUILDING = "building"
FAILED = "failed"


def build_later(transaction: Transaction, table: str) -> None:
    """Have the missing indexes of a table built once the transaction is committed."""
    step = _BuildWithoutWorker(table)
    # Several changes of one transaction may each need indexes.
    if step in transaction.after_commit:
        return
    defer(transaction.execute, SEARCH_INDEX_TASK, {"collection": table})
    transaction.after_commit.append(step)


def run_search_index_job(database: Database, job: Job) -> None:
    """Do a job of the queue; raises `JobError` for a build that failed."""
    try:
        build_search_indexes(database, str(job.payload["collection"]))
    except (Refused, Stale) as error:
        raise JobError(str(error)) from error


def build_search_indexes(database: Database, table: str) -> None:
    """Build what searches in a table need and do not have, without blocking writers.

    May be called again after a process that did so was killed, and by several at once.
    """
    with index_build_lock(database, table):
        # A server goes on with the build of a client that is gone.
        while _is_building(database, table):
            time.sleep(BUILD_POLL_SECONDS)
        for index in _missing(database, table):
            # What a build has left behind that was broken off serves no search.
            index.drop_invalid(database)
            index.build(database)


def _is_building(database: Database, table: str) -> bool:
    return bool(single_value(database.fetch_primary(statement("is_index_building"), (table,))))


def _missing(database: Database, table: str) -> list[DeferredIndex]:
    with database.transaction() as transaction:
        catalogue = load_snapshot(transaction).catalogue
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    return missing_search_indexes(collection, catalogue.extensions)


@dataclass(frozen=True, slots=True)
class _BuildWithoutWorker:
    """Builds the indexes of a table in a thread, after a commit, if no worker does it."""

    table: str

    def __call__(self, database: Database) -> None:
        try:
            with database.transaction() as transaction:
                if queue_state(transaction).workers:
                    return
        except (Refused, Stale) as error:
            # The change is made, and the job is in the queue.
            log.warning(
                "the indexes for searches in %s are left to a worker: %s", self.table, error
            )
            return
        # A daemon: the process may end meanwhile, and the job stays in the queue.
        Thread(
            target=partial(_build_in_place_of_worker, database, self.table),
            name=f"search-index-{self.table}",
            daemon=True,
        ).start()


def _build_in_place_of_worker(database: Database, table: str) -> None:
    outcome = "succeeded"
    try:
        build_search_indexes(database, table)
    except (Refused, Stale) as error:
        log.warning("the indexes for searches in %s failed: %s", table, error)
        outcome = "failed"
    except Exception:
        log.exception("the indexes for searches in %s failed", table)
        outcome = "failed"
    try:
        with database.transaction() as transaction:
            transaction.execute(statement("finish_search_index_jobs"), (table, outcome))
    except (Refused, Stale) as error:
        log.warning("the job for searches in %s stays in the queue: %s", table, error)


# What the record of a collection tells


def with_search_states(
    records: Sequence[Record], catalogue: Catalogue, fetch: Fetch
) -> list[Record]:
    """Return records of collections that tell how far the indexes for searches are built."""
    states: dict[str, Record] = {}
    unfinished: list[str] = []
    for name in _names(records):
        collection = catalogue.collections.get(name)
        if collection is not None and is_searchable(collection):
            states[name] = {"state": READY, "progress": 1.0}
            if _progress_of(catalogue, name) < 1:
                unfinished.append(name)
    if unfinished:
        names = array(sorted(unfinished))
        for name, status, done in fetch(statement("find_search_builds"), (names,)):
            states[str(name)] = _state(catalogue, str(name), status, done)
    return [_with_state(record, states) for record in records]


def _names(records: Sequence[Record]) -> list[str]:
    return [str(record["collection"]) for record in records]


def _progress_of(catalogue: Catalogue, name: str) -> float:
    """Return which part of the indexes of a collection is there."""
    collection = catalogue.collections[name]
    needed = len(search_indexes(collection, catalogue.extensions))
    if not needed:
        return 1.0
    missing = len(missing_search_indexes(collection, catalogue.extensions))
    return (needed - missing) / needed


def _state(catalogue: Catalogue, name: str, status: object, done: object) -> Record:
    """Return the state of a collection that lacks indexes.

    `done` is the part of the present build that is done, None without one.
    """
    needed = len(search_indexes(catalogue.collections[name], catalogue.extensions))
    progress = _progress_of(catalogue, name) + float(str(done or 0)) / needed
    if done is not None or status == "doing":
        state = BUILDING
    elif status == "todo":
        state = WAITING
    else:
        state = FAILED
    return {"state": state, "progress": round(progress, 3)}


def _with_state(record: Record, states: Mapping[str, Record]) -> Record:
    state = states.get(str(record["collection"]))
    meta = record["meta"]
    if state is None or not isinstance(meta, Mapping):
        return record
    return {**record, "meta": {**meta, "search_index": state}}
