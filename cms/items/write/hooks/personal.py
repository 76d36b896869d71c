"""Hooks of presets, notifications and translations: only administrators change their owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import forbidden
from cms.mail.notifications import mail_notifications
from cms.store.context import RequestContext
from cms.store.table_hooks import HookedRow, TableHooks, check_color, keys_of, text_check

MAX_SUBJECT_LENGTH = 255
MAX_NAME_LENGTH = 255

BeforeHook = Callable[[Fetch, RequestContext, Sequence[HookedRow], Sequence[str]], None]


def _keeping_owners(statement_name: str, *fields: str) -> BeforeHook:
    """Return a hook that refuses to change the owners of rows.

    `fields` hold the owners; the statement finds the stored ones by the keys of the rows.
    """

    def before(
        fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow], keys: Sequence[str]
    ) -> None:
        if context.actor.policy.is_admin:
            return
        changes: list[HookedRow] = []
        for row in rows:
            if not row.is_new and not row.values.keys().isdisjoint(fields):
                changes.append(row)
        if not changes:
            return
        owners_by_key: dict[str, list[str | None]] = {}
        # The statement returns the key and then the owners, in the order of `fields`.
        for key, *owners in fetch(statement(statement_name), (keys_of(changes),)):
            owners_by_key[key] = owners
        for row in changes:
            for field, owner in zip(fields, owners_by_key[str(row.key)], strict=True):
                # An application may send back all that it has read.
                if row.values.get(field, owner) != owner:
                    raise forbidden()

    return before


def _mail(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    keys = [str(row.key) for row in rows if row.is_new]
    if keys:
        # Only posted here: a worker sends the mails once the transaction has been committed.
        mail_notifications(fetch, keys)


PRESET_HOOKS = TableHooks(
    checks={"color": check_color},
    before=_keeping_owners("find_preset_owners", "user", "role"),
)
NOTIFICATION_HOOKS = TableHooks(
    checks={"subject": text_check(MAX_SUBJECT_LENGTH)},
    before=_keeping_owners("find_notification_owners", "recipient", "sender"),
    after=_mail,
)
TRANSLATION_HOOKS = TableHooks(
    checks={"key": text_check(MAX_NAME_LENGTH), "language": text_check(MAX_NAME_LENGTH)}
)
