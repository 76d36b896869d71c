"""Hooks of shares: a share gives no more than the rights of its creator (docs/shares.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cms import jsontext
from cms.access.abilities import effective_grants
from cms.access.guard import view_of
from cms.access.views import any_rule
from cms.database.connections import Fetch, single_values
from cms.database.statements import statement
from cms.errors import Refused, forbidden
from cms.hashing.passwords import check_password
from cms.query.sql.locks import check_rows
from cms.schema.keys import key_parser
from cms.schema.model import Collection, Kind
from cms.schema.system import is_system
from cms.store.context import RequestContext
from cms.store.fetching import fetch_fragment
from cms.store.table_hooks import HookedRow, TableHooks, check_limit, keys_of, unprocessable

_SESSION_FIELDS = frozenset({"password", "role", "date_start", "date_end"})
"""Fields whose change ends the sessions of a share."""


class _StoredShare(NamedTuple):
    """The row of the statement `find_shares`, without the key."""

    collection: str
    item: str
    times_used: int
    user_created: str | None
    role: str | None


def _before(
    fetch: Fetch,
    context: RequestContext,
    rows: Sequence[HookedRow],
    deleted_keys: Sequence[str],
) -> None:
    """Refuse shares of items that the caller may not share, and changes of constant fields."""
    changed_rows: list[HookedRow] = []
    for row in rows:
        if row.is_new:
            _require_shareable(fetch, context, row)
        else:
            changed_rows.append(row)
    if changed_rows:
        _require_same_item(fetch, changed_rows)
    _require_own_role(fetch, context, rows)
    _end_sessions(fetch, changed_rows)


def _require_shareable(fetch: Fetch, context: RequestContext, row: HookedRow) -> None:
    """Raise `Refused` FORBIDDEN for an item that the caller may not read or not share."""
    # A share without a creator would have nobody whose rights limit it.
    if context.actor.user is None or row.values.get("user_created") != context.actor.user:
        raise forbidden()
    if row.values.get("times_used"):
        raise unprocessable('"times_used" is counted by the service')
    name = str(row.values.get("collection"))
    policy = context.actor.policy
    catalogue = context.snapshot.catalogue
    view = view_of(name, catalogue=catalogue, policy=policy)
    if view is None or is_system(name) or not _has_items(view.collection):
        raise forbidden()
    grants = effective_grants(policy, view.collection, "share", catalogue)
    # Both on the one row: the caller must be able to read the item, and to share it.
    rules = [view.rule.predicate, any_rule(grants).predicate]
    question = check_rows(view.collection, [_key(row, view.collection)], rules)
    rows = fetch_fragment(fetch, question, context.bindings())
    # No row is an item that does not exist.
    if not rows:
        raise forbidden()
    _, *answers = rows[0]
    if not all(answers):
        raise forbidden()


def _has_items(collection: Collection) -> bool:
    return collection.kind is not Kind.FOLDER and collection.primary_key is not None


def _key(row: HookedRow, collection: Collection) -> str:
    try:
        return key_parser(collection.key)(row.values.get("item"))
    except ValueError:
        # Like a hidden item: the form of keys is not revealed to callers who cannot read any.
        raise forbidden() from None


def _require_same_item(fetch: Fetch, rows: Sequence[HookedRow]) -> None:
    """Refuse to change the item, the creator or the count of uses of a share."""
    stored = _stored_shares(fetch, rows)
    for row in rows:
        share = stored[str(row.key)]
        # An application may send back all that it has read.
        for name in ("collection", "item", "times_used", "user_created"):
            value = getattr(share, name)
            if str(row.values.get(name, value)) != str(value):
                raise unprocessable(f'"{name}" of a share never changes')


def _stored_shares(fetch: Fetch, rows: Sequence[HookedRow]) -> Mapping[str, _StoredShare]:
    keys = keys_of(rows)
    stored = fetch(statement("find_shares"), (keys,))
    return {key: _StoredShare(*values) for key, *values in stored}


def _require_own_role(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    """Raise `Refused` FORBIDDEN for a role that is neither the caller's own nor a parent of it."""
    if context.actor.policy.is_admin:
        return
    roles = {row.values.get("role") for row in rows} - {None}
    if not roles:
        return
    # A role inherits from its parents, so these give no right that the caller lacks.
    own_roles = single_values(fetch(statement("find_role_line"), (context.actor.role,)))
    if not roles.issubset(own_roles):
        raise forbidden()


def _end_sessions(fetch: Fetch, rows: Sequence[HookedRow]) -> None:
    """End the sessions of shares that are about to get another password, role or date."""
    changes: list[dict[str, object]] = []
    for row in rows:
        # By its values: a password that was sent back masked is no new one.
        names = _SESSION_FIELDS & row.values.keys()
        if names:
            changes.append({"id": row.key, **{name: row.values[name] for name in names}})
    if changes:
        fetch(statement("end_share_sessions"), (jsontext.dumps(changes).decode(),))


def _check_password(value: object, context: RequestContext) -> None:
    try:
        check_password(str(value))
    except Refused as refused:
        raise ValueError(refused.problems[0].message) from None


SHARE_HOOKS = TableHooks(
    # A preset could set a password that nobody knows, or name another user as the creator.
    explicit_only=frozenset({"password", "user_created"}),
    checks={"max_uses": check_limit, "password": _check_password},
    before=_before,
)
