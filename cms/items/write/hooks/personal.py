"""What belongs to people: nobody but an administrator gives it to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import forbidden
from cms.items.write.hooks.hook import SystemTableHooks
from cms.items.write.resolved_rows import ResolvedRow
from cms.mail.notifications import mail_notifications
from cms.store.context import RequestContext

BeforeHook = Callable[[Fetch, RequestContext, Sequence[ResolvedRow], Sequence[str]], None]


def _keeping_owners(statement_name: str, *fields: str) -> BeforeHook:
    """Return the hook that refuses to change owners, which a statement finds by the keys."""

    def before(
        fetch: Fetch, context: RequestContext, rows: Sequence[ResolvedRow], keys: Sequence[str]
    ) -> None:
        if context.actor.policy.is_admin:
            return
        changes = [row for row in rows if not row.is_new and row.values.keys() & set(fields)]
        if not changes:
            return
        stored = fetch(statement(statement_name), ([str(row.key) for row in changes],))
        owners = {key: dict(zip(fields, values, strict=True)) for key, *values in stored}
        for row in changes:
            for field, owner in owners[str(row.key)].items():
                # An application may send back all that it has read.
                if row.values.get(field, owner) != owner:
                    raise forbidden()

    return before


def _mail(fetch: Fetch, context: RequestContext, rows: Sequence[ResolvedRow]) -> None:
    keys = [str(row.key) for row in rows if row.is_new]
    if keys:
        mail_notifications(fetch, keys)


PRESET_HOOKS = SystemTableHooks(before=_keeping_owners("find_preset_owners", "user", "role"))
NOTIFICATION_HOOKS = SystemTableHooks(
    before=_keeping_owners("find_notification_owners", "recipient", "sender"), after=_mail
)
