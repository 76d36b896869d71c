"""The keys of items that a user can read, and so may comment on and be notified of."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.guard import readable_collection
from cms.errors import Refused, not_found
from cms.items.read.reads import parse_key
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import stored_keys
from cms.schema.model import Collection


def readable_keys(executor: Executor, collection: str, keys: Sequence[str]) -> dict[str, str]:
    """Return keys as PostgreSQL writes them, by the keys as sent; unreadable ones are left out.

    Raises `Refused` for a collection that the caller cannot read, or whose items have no key.
    """
    context = executor.context
    owner = readable_collection(
        collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy
    )
    if owner.primary_key is None:
        raise not_found()
    parsed = _parsed_keys(owner, keys)
    if not parsed:
        return {}
    different = list(dict.fromkeys(parsed.values()))
    # Read with the caller's rights: no answer reveals whether a hidden item exists.
    readable = executor.readable_keys(collection, different)
    stored: dict[str, str] = {}
    others: list[str] = []
    for key in different:
        if key in readable:
            stored[key] = key
        else:
            others.append(key)
    # PostgreSQL may write a key otherwise than its type does here.
    if others:
        stored |= stored_keys(executor, owner, others)
    readable_by_sent: dict[str, str] = {}
    for sent_key, key in parsed.items():
        stored_key = stored.get(key)
        if stored_key in readable:
            readable_by_sent[sent_key] = stored_key
    return readable_by_sent


def require_readable(executor: Executor, collection: str, keys: Sequence[str]) -> dict[str, str]:
    """Return what `readable_keys` does; raises `Refused` NOT_FOUND if one of them is unreadable."""
    readable = readable_keys(executor, collection, keys)
    if not readable.keys() >= {*keys}:
        raise not_found()
    return readable


def _parsed_keys(collection: Collection, keys: Sequence[str]) -> dict[str, str]:
    """Return keys as their type writes them, by the keys as sent, without values that are none."""
    parsed: dict[str, str] = {}
    for key in keys:
        try:
            parsed[key] = parse_key(collection, key)
        except Refused:
            continue
    return parsed
