"""One call that writes items: where it is made, for whom, and what it may do.

cms/items/write/plans.py plans what a call comes to, alone or as one operation of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cms.access.guard import writable_collection
from cms.access.visible_structure import has_permission_on
from cms.database.connections import Transaction
from cms.errors import not_found
from cms.items.read.reads import Item
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.executor import Executor
from cms.items.write.inquiry import AskedSet, refuse
from cms.items.write.item_parsers import item_parser_of
from cms.items.write.nested import CompletePayload
from cms.items.write.parsed import Expects, ParsedSet
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.resolved_rows import ALL_NEW, StoredRows
from cms.query.language.ast import ParsedQuery
from cms.schema.model import Collection
from cms.schema.payload import ItemParser
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.store.store import Store

_ACTIONS = {
    Expects.ABSENT: ("create",),
    Expects.PRESENT: ("update",),
    Expects.EITHER: ("create", "update"),
}

WrittenItems = list[Item] | None
"""Items as their caller may read them; None when it may not."""


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """The actions of a call, whether a singleton takes them, and what the history calls it."""

    actions: tuple[str, ...]
    allows_singletons: bool = False
    history_action: str | None = None


CREATE = WriteIntent(("create",))
CHANGE = WriteIntent(("update",))
DELETE = WriteIntent(("delete",))
PUT = WriteIntent(("create", "update"), allows_singletons=True)
RESTORE = WriteIntent(("update",), allows_singletons=True, history_action="revert")


class WriteCall(NamedTuple):
    """One call, under the structure and rights that it was planned under.

    `parsed` is the query that shapes its answer.
    """

    store: Store
    context: RequestContext
    client: ClientInfo
    collection: Collection
    parsed: ParsedQuery
    authorizer: WriteAuthorizer
    history_action: str | None = None

    def executor(self, transaction: Transaction) -> Executor:
        # From here on every lookup of this call sees what the transaction sees.
        self.authorizer.use_transaction(transaction.execute)
        return Executor(self.store, self.context, transaction, self.client, self.history_action)

    def payload_parser(self) -> PayloadParser:
        return PayloadParser(
            self.context.snapshot.catalogue,
            max_depth=self.store.depth,
            item_parsers=self._item_parser,
        )

    def complete(
        self, parser: PayloadParser, parsed: ParsedSet, stored: StoredRows = ALL_NEW
    ) -> CompletePayload:
        """Return the payload of parsed items, filled and checked.

        Raises `Refused` at once when nothing else is to be checked.
        """
        root = self.authorizer.complete(parsed, parser.problems, stored=stored)
        if not parsed.is_flat:
            # The problems of related items are still to be found: all are answered together.
            return CompletePayload(parser, self.authorizer, root, parsed)
        refuse(
            parser.problems,
            self.context.snapshot.catalogue,
            [AskedSet(root.collection, root.rows)],
            is_permitted=self.context.actor.policy.is_admin,
        )
        return CompletePayload(parser, self.authorizer, root, None)

    def _item_parser(self, collection: Collection, expects: Expects) -> ItemParser:
        """Return the parser of this caller's items, which callers with the same rights share."""
        permissions = self.authorizer.permissions
        # The policy is part of the key: callers may name different fields.
        item_parser: ItemParser = self.context.snapshot.derived.setdefault_with(
            ("item parser", collection.name, expects, permissions.policy),
            lambda: item_parser_of(
                self.context.snapshot.catalogue,
                collection,
                permissions.writable_fields(collection, _ACTIONS[expects]),
                knows=partial(has_permission_on, permissions.policy),
            ),
        )
        return item_parser


def new_call(
    store: Store,
    context: RequestContext,
    client: ClientInfo,
    *,
    name: str,
    parsed: ParsedQuery,
    intent: WriteIntent,
) -> WriteCall:
    """Return a call on the collection of a name.

    Raises `Refused` for what the caller may not even try: a singleton has no items to create or to
    name by key.
    """
    collection = writable_collection(
        name,
        catalogue=context.snapshot.catalogue,
        policy=context.actor.policy,
        actions=intent.actions,
    )
    if collection.is_singleton and not intent.allows_singletons:
        raise not_found()
    authorizer = WriteAuthorizer(store, context)
    return WriteCall(store, context, client, collection, parsed, authorizer, intent.history_action)
