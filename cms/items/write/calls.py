"""One call that writes items: its collection, its caller, and its intent.

cms/items/write/item_writes.py does what it asks. A batch makes one call for each of its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cms.access.guard import writable_collection
from cms.access.visible_structure import has_permission_on
from cms.errors import not_found
from cms.items.read.reads import Item
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.nested import CompletePayload
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.run.refusal_diagnosis import InquirySet, refuse
from cms.items.write.stages.parsed import Expects, ParsedSet
from cms.items.write.stages.resolved_rows import ALL_NEW, StoredRows
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import lock_view
from cms.query.language.ast import EMPTY_QUERY, ParsedQuery
from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import ItemParser
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.store.store import Store
from cms.store.write_attempts import TransactionSource

_ACTIONS = {
    Expects.ABSENT: ("create",),
    Expects.PRESENT: ("update",),
    # Whether it creates or updates is known in the transaction, which checks permissions again.
    Expects.ANY: ("create", "update"),
}

WrittenItems = list[Item] | None
"""Written items as their caller may read them; None if it may read none of them."""


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """What a call is about to do.

    The caller needs a permission for one of the `actions`, or cannot even try. `history_action` is
    what the history calls the write, None for create, update or delete.
    """

    actions: tuple[str, ...]
    allows_singletons: bool = False
    history_action: str | None = None


CREATE = WriteIntent(("create",))
CHANGE = WriteIntent(("update",))
DELETE = WriteIntent(("delete",))
# Creating is for singletons: one without a row gets it by its first change.
PUT = WriteIntent(("create", "update"), allows_singletons=True)
RESTORE = WriteIntent(("update",), allows_singletons=True, history_action="revert")


def _unchecked(item: Mapping[str, object]) -> Mapping[str, object]:
    """Check nothing: the parser of payloads makes all the checks that these items need."""
    return item


class WriteCall(NamedTuple):
    """One call, with the structure and rights of its planning.

    `attempt` begins its transaction, where it needs one.
    `parsed` is the query that shapes its answer: which fields of the written items, how deep.
    `is_filtered` is set once its items have passed the filter flows of its collection;
    `check_filtered` returns what flows have made of an item, or raises `Refused`.
    """

    store: Store
    context: RequestContext
    client: ClientInfo
    collection: Collection
    parsed: ParsedQuery
    authorizer: WriteAuthorizer
    attempt: TransactionSource
    history_action: str | None = None
    is_filtered: bool = False
    check_filtered: Callable[[Mapping[str, object]], Mapping[str, object]] = _unchecked

    def begun(self) -> RunningCall:
        """Return this call in its transaction, where it also looks everything up.

        The transaction holds a connection of the pool: waiting for a second one might never end.
        """
        transaction = self.attempt.begin_transaction()
        context = self.context._replace(fetch=transaction.execute)
        call = self._replace(context=context, authorizer=self.authorizer.in_transaction(context))
        executor = Executor(self.store, context, transaction, self.client, self.history_action)
        lock_view(executor, self.collection)
        return RunningCall(call, executor)

    def payload_parser(self) -> PayloadParser:
        return PayloadParser(self.context.snapshot.catalogue, self.store.depth, self._item_parser)

    def complete(
        self, parser: PayloadParser, parsed: ParsedSet, stored: StoredRows = ALL_NEW
    ) -> CompletePayload:
        """Return the payload of parsed items, with all values filled and checked.

        Raises `Refused` with the problems of items that name no related items.
        """
        root = self.authorizer.completer.complete(parsed, parser.problems, stored=stored)
        if not parsed.is_flat:
            # Problems of related items are found in the transaction: all are answered together.
            return CompletePayload(parser, root, parsed)
        if parser.problems.entries:
            refuse(
                parser.problems,
                self.context.snapshot.catalogue,
                [InquirySet(root.collection, root.rows)],
                # For other callers the stored rows decide; they are read in the transaction.
                is_permitted=self.context.actor.policy.is_admin,
            )
        return CompletePayload(parser, root, None)

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


class RunningCall(NamedTuple):
    """A call in its transaction, and what runs its statements there."""

    call: WriteCall
    executor: Executor


def target_of(context: RequestContext, name: str, intent: WriteIntent) -> Collection:
    """Return the collection of a call; raises `Refused` as `new_call` does."""
    collection = writable_collection(
        name,
        catalogue=context.snapshot.catalogue,
        policy=context.actor.policy,
        actions=intent.actions,
    )
    if collection.is_singleton and not intent.allows_singletons:
        raise not_found()
    return collection


def new_call(
    store: Store,
    context: RequestContext,
    client: ClientInfo,
    attempt: TransactionSource,
    *,
    name: str,
    intent: WriteIntent,
) -> WriteCall:
    """Return a call on the collection of a name.

    Raises `Refused` for a call that the caller may not even try, or that a singleton does not take:
    it has no items to create or to name by key.
    """
    collection = target_of(context, name, intent)
    authorizer = WriteAuthorizer(store, context)
    return WriteCall(
        store, context, client, collection, EMPTY_QUERY, authorizer, attempt, intent.history_action
    )


def item_parser_of(
    catalogue: Catalogue,
    collection: Collection,
    names: frozenset[str] | None,
    *,
    knows: Callable[[str], bool],
) -> ItemParser:
    """Return the parser of items for a caller who may name the fields `names`, None for all.

    `knows` tells whether the caller has a permission on a collection. Any other collection is
    refused like one that does not exist.
    """

    def relates(name: str) -> bool:
        # A many-to-any field has no link without a target, but it has targets.
        return bool(
            link_of(catalogue, collection, name) or target_collections(catalogue, collection, name)
        )

    choices = _allowed_collections(catalogue, collection, knows)
    return ItemParser(collection, relates, names=names, choices=choices)


def _allowed_collections(
    catalogue: Catalogue, collection: Collection, knows: Callable[[str], bool]
) -> dict[str, list[str]]:
    """Return the fields that name the collection of a many-to-any field, with the allowed names."""
    allowed: dict[str, list[str]] = {}
    for relation in catalogue.relations:
        name = relation.one_collection_field
        if relation.many_collection != collection.name or not name:
            continue
        if relation.one_allowed_collections:
            allowed.setdefault(name, []).extend(filter(knows, relation.one_allowed_collections))
    return allowed
