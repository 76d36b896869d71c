"""Cursors: where the next page of a list begins, sealed for the caller who gets it.

A cursor holds the values by which the last item of a page is sorted, its key among them. The caller
may not be allowed to read these, so they are encrypted. They mean nothing in another query, so a
cursor can be opened only for the same collection, filter, search and caller.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from cms import jsontext
from cms.errors import invalid_query
from cms.query.language.ast import CursorStart, ParsedQuery, Slot
from cms.query.language.filters import decode_json
from cms.query.language.paging import wrong_token
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext

_BLOCK = 128
"""The content of a token is filled up to a multiple of so many bytes."""


class CursorContent(NamedTuple):
    """The digest of the terms of an order, and the values of the last row in them."""

    order: str
    values: list[str | None]


class CursorSeal(NamedTuple):
    """What seals and opens the cursors of one query of one caller.

    `key` has 64 bytes and is the caller's; `query` is a digest of what all pages of the query
    share.
    """

    key: bytes
    query: bytes

    def seal(self, order: str, values: Sequence[str | None]) -> str:
        """Return the token of an item; `order` is a digest of the terms of the order."""
        content = jsontext.dumps([order, values])
        # Otherwise the length would reveal the length of a key that the caller may not read.
        content += b" " * (-len(content) % _BLOCK)
        # Nothing in it is random, so that the same page has the same ETag.
        sealed = AESSIV(self.key).encrypt(content, [self.query])
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, token: str) -> CursorContent:
        """Return the content of a token; raises `Refused` INVALID_QUERY."""
        try:
            padded = token + "=" * (-len(token) % 4)
            sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
            content = AESSIV(self.key).decrypt(sealed, [self.query])
        except (ValueError, InvalidTag):
            raise wrong_token() from None
        # The content is as `seal` wrote it: nobody else has the key.
        order, values = cast(tuple[str, list[str | None]], jsontext.loads_stored(content))
        return CursorContent(order, values)


def seal_of(
    secret: bytes,
    context: RequestContext,
    collection: str,
    params: Mapping[str, object],
    tests: Sequence[tuple[str, ...]] = (),
) -> CursorSeal:
    """Return the seal of the query of some parameters; `tests` are further ones of its rows."""
    actor = context.actor
    share = None
    # A share has neither user nor role; its session identifies it.
    if actor.policy.shared:
        share = actor.session
    caller = jsontext.dumps(["cursor", actor.user, actor.role, share])
    search = params.get("search")
    # A word of digits comes as a number in the body of a SEARCH.
    if search is not None:
        search = str(search)
    shared_by_pages = [
        collection,
        list(map(list, tests)),
        decode_json(params.get("filter"), "filter") or None,
        search,
    ]
    try:
        query = sha256(jsontext.dumps(shared_by_pages)).digest()
    except jsontext.TooDeep:
        raise invalid_query("It is nested too deeply", parameter="filter") from None
    return CursorSeal(hmac.digest(secret, caller, "sha512"), query)


def open_cursor(parsed: ParsedQuery, seal: CursorSeal) -> ParsedQuery:
    """Return a query whose page begins where its token says."""
    cursor = parsed.query.cursor
    if cursor is None or cursor.token is None:
        return parsed
    # The values come behind the literals of the query, whose slots stay the same.
    literals = list(parsed.literals)
    content = seal.open(str(literals[cursor.token.index]))
    slots: list[Slot | None] = []
    for value in content.values:
        if value is None:
            slots.append(None)
        else:
            slots.append(Slot(len(literals)))
            literals.append(value)
    opened_cursor = replace(cursor, token=None, start=CursorStart(tuple(slots), content.order))
    return ParsedQuery(replace(parsed.query, cursor=opened_cursor), tuple(literals))


class CutPage(NamedTuple):
    """The rows of a page, and the values of the last one where there is another page."""

    rows: list[tuple[Any, ...]]
    last_values: list[str | None] | None


def cut_page(
    statement: Statement, literals: Sequence[object], rows: list[tuple[Any, ...]]
) -> CutPage:
    """Return the page without the row behind it."""
    assert statement.cursor is not None
    # The statement reads one row more than the page has: if it gets it, there is another page.
    size_slot = statement.cursor.size
    size = None
    if size_slot is not None:
        size = literals[size_slot.index]
    if not isinstance(size, int) or len(rows) <= size:
        return CutPage(rows, None)
    if size == 0:
        return CutPage([], None)
    return CutPage(rows[:size], statement.cursor_values(rows[size - 1]))
