"""The keys of the items that a call names, by `keys` or by `query`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cms.errors import (
    Problem,
    abbreviated,
    combined,
    invalid_payload,
    invalid_query,
    refuse_unknown_members,
)
from cms.items.read.prepare import RowTest, narrowed
from cms.items.read.reads import parse_key
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import as_stored, lock_rows
from cms.query.language.ast import ParsedQuery, RowOutput
from cms.query.language.paging import PageSizes
from cms.query.language.parse import PARAMETERS, parse
from cms.schema.keys import may_be_key
from cms.schema.model import Collection

_WITHOUT_LIMIT = PageSizes(default=None)
"""A change by query changes all items that it selects, not only those of a first page."""


def named_keys(
    executor: Executor,
    collection: Collection,
    payload: Mapping[str, object],
    *,
    only: Sequence[RowTest] = (),
) -> list[str]:
    """Return the keys of the items that a payload names by either `keys` or `query`.

    `only` are tests that items must pass besides those of the query.
    """
    if len({"keys", "query"} & payload.keys()) != 1:
        raise invalid_payload("It takes either keys or query", field="keys")
    if "keys" in payload:
        keys = _parse_keys(collection, payload["keys"])
        return list(dict.fromkeys(as_stored(executor, collection, keys).values()))
    return _keys_of_query(executor, collection, payload["query"], only)


def require_selection(payload: Mapping[str, object], *others: str) -> Mapping[str, object]:
    """Return a payload with `keys` or `query`, and at most these other members.

    Raises `Refused` INVALID_PAYLOAD.
    """
    refuse_unknown_members(payload, ("keys", "query", *others))
    return payload


def selection_of(payload: object) -> Mapping[str, object]:
    """Return what the body of a deletion names; an array of keys is the short form of `keys`."""
    if isinstance(payload, Mapping):
        return require_selection(payload)
    return {"keys": payload}


def require_query(value: object) -> Mapping[str, object]:
    """Return the parameters of a query in a payload; raises `Refused` INVALID_PAYLOAD."""
    if not isinstance(value, Mapping):
        raise invalid_payload("query must be an object", field="query", value=abbreviated(value))
    return value


def _parse_keys(collection: Collection, value: object) -> list[str]:
    """Return the keys of an array, without repetitions."""
    if not isinstance(value, list) or not all(may_be_key(collection, key) for key in value):
        raise invalid_payload(
            "keys must be an array of primary keys", field="keys", value=abbreviated(value)
        )
    keys = [parse_key(collection, key) for key in value]
    # In their order, which is that of the answer.
    return list(dict.fromkeys(keys))


def _keys_of_query(
    executor: Executor, collection: Collection, value: object, only: Sequence[RowTest]
) -> list[str]:
    """Return the keys of the items that a query selects, and lock the items.

    The query runs again once the items are locked. Items that it does not select any more, because
    somebody else has changed or deleted them meanwhile, are left out. So several clients can each
    take different items by the same query.
    """
    params = require_query(value)
    _refuse_unknown_parameters(params)
    parsed = narrowed(parse(params, _WITHOUT_LIMIT), only)
    if parsed.query.aggregates or parsed.query.groups:
        raise invalid_query(
            "A change takes items, and no aggregates of them", parameter="aggregate"
        )
    parsed = replace(parsed, query=replace(parsed.query, counts=()))
    keys = _select_keys(executor, collection, parsed)
    # Locked in the order of their keys, as everywhere, whatever the order of the query is.
    lock_rows(executor, collection, keys)
    locked = set(_select_keys(executor, collection, parsed))
    # A table and those that inherit from it may each have a row of the same key.
    return [key for key in dict.fromkeys(keys) if key in locked]


def _refuse_unknown_parameters(params: Mapping[str, object]) -> None:
    """Refuse unknown parameters: without its misspelt filter a query would select every item."""
    problems: list[Problem] = []
    for name in params:
        if name not in PARAMETERS:
            known = ", ".join(sorted(PARAMETERS))
            reason = f'query does not take "{name}"; there are {known}'
            problems += invalid_payload(reason, field="query").problems
    if problems:
        raise combined(problems)


def _select_keys(executor: Executor, collection: Collection, parsed: ParsedQuery) -> list[str]:
    return executor.read_row_texts(RowOutput.KEY, collection.name, parsed.query, parsed.literals)
