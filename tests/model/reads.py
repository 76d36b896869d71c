"""What a read answers, the slow way: filter all rows, sort them, cut the page out, show each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.model.filters import holds, is_search_result
from tests.model.groups import aggregated
from tests.model.shape import KEY, Collection, Link, Row, Tables
from tests.model.values import key_of, output, rank, value_of

Params = Mapping[str, Any]
Path = Sequence[str]

USUAL_LIMIT = 100


def answer(tables: Tables, collection: Collection, query: Params) -> dict[str, Any]:
    """Return the body of the answer to a list read; the query has the form of a SEARCH body's."""
    rows = tables.rows[collection.name]
    paths = [path.split(".") for path in query.get("fields", ["*"])]
    data = level(tables, collection, rows, params=query, paths=paths, deep=query.get("deep", {}))
    counts = {
        "total_count": len(rows),
        "filter_count": len(chosen(tables, collection, rows, query)),
    }
    names = counts if "*" in query.get("meta", []) else query.get("meta", [])
    return {"data": data, **({"meta": {name: counts[name] for name in names}} if names else {})}


def level(
    tables: Tables,
    collection: Collection,
    rows: list[Row],
    *,
    params: Params,
    paths: list[Path],
    deep: Params,
) -> list[Any]:
    """Return the items of one level; without paths their keys."""
    chosen_rows = chosen(tables, collection, rows, params)
    if "aggregate" in params or "groupBy" in params:
        return paged(aggregated(tables, collection, chosen_rows, params), params)
    items = paged(ordered(tables, collection, chosen_rows, params.get("sort", [])), params)
    if not paths:
        return [row[KEY] for row in items]
    return [
        item(tables, collection, row, paths=paths, aliases=params.get("alias", {}), deep=deep)
        for row in items
    ]


def chosen(tables: Tables, collection: Collection, rows: list[Row], params: Params) -> list[Row]:
    """Return the rows that the filter and the search find."""
    word = params.get("search")
    return [
        row
        for row in rows
        if holds(tables, collection, row, params.get("filter", {}))
        and (not word or is_search_result(tables, collection, row, word))
    ]


def paged(items: list[Any], params: Params) -> list[Any]:
    limit = params.get("limit", USUAL_LIMIT)
    size = len(items) if limit == -1 else limit
    start = params.get("offset", (params.get("page", 1) - 1) * size)
    return items[start : start + size]


def ordered(
    tables: Tables, collection: Collection, rows: list[Row], sort: Sequence[str]
) -> list[Row]:
    """Sort by each term, the last one first: a stable sort leaves ties as
    they were, in the order of their keys.
    """
    usual = [collection.sort_field] if collection.sort_field else []
    for term in reversed(sort or usual):
        path = term.removeprefix("-").split(".")
        rows = sorted(
            rows,
            key=lambda row: _sorted_by(
                tables, collection, row, path, descending=term.startswith("-")
            ),
            reverse=term.startswith("-"),
        )
    return rows


def _sorted_by(
    tables: Tables, collection: Collection, row: Row, path: Path, *, descending: bool
) -> Any:
    """Return the rank of the value at the end of a path: the smallest of several, or the largest,
    that is not null. It is null where a link leads nowhere.
    """
    step, *rest = path
    if not rest:
        return rank(tables, *value_of(tables, collection, row, step))
    link = collection.links[step]
    target = tables.shape[link.target]
    null = rank(tables, "", None)
    ranks = [
        _sorted_by(tables, target, item, rest, descending=descending)
        for item in tables.related(row, link)
    ]
    ranks = [each for each in ranks if each != null]
    if not ranks:
        return null
    return max(ranks) if descending else min(ranks)


# What is shown


def item(
    tables: Tables,
    collection: Collection,
    row: Row,
    *,
    paths: list[Path],
    aliases: Params,
    deep: Params,
) -> dict[str, Any]:
    """Return one item with what its paths ask for."""
    shows: dict[str, Any] = {}
    requested = requested_fields(collection, paths)
    for name, rests in requested.items():
        meant = aliases.get(name, name)
        key = name if name in aliases else key_of(name)
        link = collection.links.get(meant)
        if link and link.collection_column:
            # An item of a collection that is not opened is its key.
            opened = (
                collection.links[arm].target
                for arm in collection.arms(link.near)
                if arm in requested
            )
            if row[link.collection_column] not in (None, *opened):
                shows[link.near] = row[link.near]
            shows[link.near] = shows.get(link.near) or _related_items(
                tables, row, link, paths=rests, deep={}
            )
        elif link is None or not (link.many or rests):  # a to-one that is not opened shows its key
            shows[key] = output(*value_of(tables, collection, row, meant))
        else:
            shows[key] = _related_items(tables, row, link, paths=rests, deep=deep.get(name, {}))
    return shows


def requested_fields(collection: Collection, paths: list[Path]) -> dict[str, list[Path]]:
    """Return what is asked of each field; `*` is every column and every list,
    `*.*` all that either may lead to.
    """
    paths_below: dict[str, list[Path]] = {}
    for head, *rest in paths:
        lists = (
            name for name, link in collection.links.items() if link.many and (rest or link.listed)
        )
        every = [*collection.columns, *lists]
        for name in every if head == "*" else [head]:
            for meant in (collection.arms(name) if rest else []) or [name]:
                paths_below.setdefault(meant, []).extend([rest] if rest else [])
    with_targets = {name.partition(":")[0] for name in paths_below if ":" in name}
    return {name: rests for name, rests in paths_below.items() if name not in with_targets}


def _related_items(tables: Tables, row: Row, link: Link, *, paths: list[Path], deep: Params) -> Any:
    """Return related items, or their keys where no path leads on; a to-one that is hidden is
    null.
    """
    params = {key[1:]: value for key, value in deep.items() if key.startswith("_")}
    deeper = {key: value for key, value in deep.items() if not key.startswith("_")}
    related = tables.related(row, link)
    items = level(
        tables, tables.shape[link.target], related, params=params, paths=paths, deep=deeper
    )
    if link.many:
        return items
    return items[0] if items else None
