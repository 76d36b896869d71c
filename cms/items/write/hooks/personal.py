"""What belongs to people: nobody but an administrator gives it to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import forbidden
from cms.items.write.hooks.hook import SystemTableHooks, ValueCheck
from cms.items.write.resolved_rows import ResolvedRow
from cms.mail.notifications import mail_notifications
from cms.store.context import RequestContext

MAX_SUBJECT_LENGTH = 255
MAX_NAME_LENGTH = 255

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
        # The statement returns the key and then the owners, in the order of `fields`.
        owners = {key: dict(zip(fields, values, strict=True)) for key, *values in stored}
        for row in changes:
            for field, owner in owners[str(row.key)].items():
                # An application may send back all that it has read.
                if row.values.get(field, owner) != owner:
                    raise forbidden()

    return before


def _text_check(max_length: int) -> ValueCheck:
    def check(value: object, context: RequestContext) -> None:
        if isinstance(value, str) and not 0 < len(value.strip()) <= max_length:
            raise ValueError(f"it has 1 to {max_length} characters")

    return check


def _mail(fetch: Fetch, context: RequestContext, rows: Sequence[ResolvedRow]) -> None:
    keys = [str(row.key) for row in rows if row.is_new]
    if keys:
        # Only posted here: a worker sends the mails once the transaction has been committed.
        mail_notifications(fetch, keys)


PRESET_HOOKS = SystemTableHooks(before=_keeping_owners("find_preset_owners", "user", "role"))
NOTIFICATION_HOOKS = SystemTableHooks(
    checks={"subject": _text_check(MAX_SUBJECT_LENGTH)},
    before=_keeping_owners("find_notification_owners", "recipient", "sender"),
    after=_mail,
)
TRANSLATION_HOOKS = SystemTableHooks(
    checks={"key": _text_check(MAX_NAME_LENGTH), "language": _text_check(MAX_NAME_LENGTH)}
)
