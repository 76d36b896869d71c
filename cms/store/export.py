"""Lists as files: streamed from a cursor, so that a million rows fit where one does (decisions, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cms.errors import invalid_query
from cms.memory import LARGE, note_use
from cms.query.brackets import nested
from cms.query.parse import Page
from cms.query.statement import Statement
from cms.store.counters import check_version
from cms.store.database import Row
from cms.store.formats import FORMATS, Item
from cms.store.nesting import Asked, parameters, planner_of
from cms.store.reads import Ask, prepared
from cms.store.store import Identity, Scene, Store

BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Export:
    """A file on its way: its media type, its name, its bytes."""

    media_type: str
    filename: str
    chunks: Iterator[bytes]


def export(store: Store, identity: Identity, ask: Ask, *, form: str) -> Export:
    """Start an export; what can be refused is refused before the first byte.

    `form` is one of `FORMATS`, else `Refused` INVALID_QUERY.
    """
    if form not in FORMATS:
        raise invalid_query(f"export is one of {', '.join(FORMATS)}", parameter="export")
    found = FORMATS[form]

    def work(scene: Scene) -> tuple[Iterator[list[Item]], list[str]]:
        statement, literals = prepared(store, scene, ask, below=_below(store.page, ask))
        values = parameters(store, scene, Asked(statement, literals, batch=BATCH), planner_of(store))
        batches = store.database.stream(statement.text, values, rows=BATCH)
        keys = list(dict.fromkeys(path[0] for path in statement.paths))
        return _begun(_items(batches, statement, scene)), keys

    batches, keys = store.reading(identity, work)
    return Export(found.media_type, f"{ask.collection}.{form}", found.write(batches, keys))


def _below(page: Page, ask: Ask) -> Page:
    """All rows are all of what belongs to them as well: a list that ended early would be taken for the whole one."""
    params = ask.params if ask.params is not None else nested(ask.query_string)
    return replace(page, default=None) if str(params.get("limit")) == "-1" else page


def _items(batches: Iterator[list[Row]], statement: Statement, scene: Scene) -> Iterator[list[Item]]:
    for number, rows in enumerate(batches):
        if number == 0:
            check_version(scene.snapshot, statement.version(rows))
        elif number == 1:
            note_use(LARGE)
        yield statement.items(rows)


def _begun(batches: Iterator[list[Item]]) -> Iterator[list[Item]]:
    """Read the first batch now: a stale plan must be noticed while there is still a way back."""
    first = next(batches, [])

    def whole() -> Iterator[list[Item]]:
        yield first
        yield from batches

    return whole()
