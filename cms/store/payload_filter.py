"""The interface by which flows change or refuse payloads before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cms.database.connections import Transaction
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo


class FilterEvent(NamedTuple):
    """A write that is about to happen in a transaction, and the flows that wait for it.

    `verb` is create, update or delete.
    """

    transaction: Transaction
    context: RequestContext
    client: ClientInfo
    flows: tuple[str, ...]
    collection: str
    verb: str


class PayloadFilter(Protocol):
    """Passes payloads to flows before they are written."""

    def __call__(self, event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
        """Return the payload as it is to be written; raises `Refused` to write nothing.

        The payload of a deletion is its keys; the returned value is ignored.
        """


def no_filter(event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
    """Leave every payload as it is."""
    return payload
