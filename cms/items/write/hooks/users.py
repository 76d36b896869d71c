"""Users: addresses, passwords, what only administrators set, and the last of those (decisions, section 9)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.emails import is_email
from cms.errors import forbidden
from cms.items.write.changes import RowChange
from cms.items.write.hooks.hook import SystemTableHooks, one_of, unprocessable
from cms.passwords import check_password
from cms.store.context import RequestContext

STATUSES = ("active", "invited", "draft", "suspended", "archived")
LAST_ADMIN = "There must be an active administrator"

_CREDENTIALS = frozenset({"email", "password", "token"})
_TOKEN = re.compile(r"[!-~]{16,1000}")
_ACCESS_TOKEN_DOTS = 2
"""By its two dots an access token is told from a static one."""


def _check_email(value: object, context: RequestContext) -> None:
    if not is_email(value):
        raise ValueError("it is no email address")


def _check_token(value: object, context: RequestContext) -> None:
    if isinstance(value, str) and (
        not _TOKEN.fullmatch(value) or value.count(".") == _ACCESS_TOKEN_DOTS
    ):
        raise ValueError(
            "a token has 16 to 1000 letters, digits and signs, without spaces, and not exactly two dots"
        )


def _check_tfa_secret(value: object, context: RequestContext) -> None:
    raise ValueError("it is set by POST /users/me/tfa/enable; null takes the second factor away")


def _check_password(value: object, context: RequestContext) -> None:
    """The policy is of the settings, and so holds as long as the rights do that the snapshot was taken under."""

    def find() -> str | None:
        policy: str | None = context.fetch(statement("find_password_policy"), ())[0][0]
        return policy

    check_password(
        str(value), policy=context.snapshot.derived.setdefault_with("password policy", find)
    )


def _before(
    fetch: Fetch, context: RequestContext, changes: Sequence[RowChange], gone: Sequence[str]
) -> None:
    """Nobody but administrators touches what one of them logs in with."""
    if context.actor.policy.is_admin:
        return
    touched = [
        str(change.key)
        for change in changes
        if not change.is_new and _CREDENTIALS & change.sent.keys()
    ]
    if fetch(statement("find_admin"), ([*touched, *gone], False)):
        raise forbidden()


def _after(fetch: Fetch, context: RequestContext, changes: Sequence[RowChange]) -> None:
    """A new password or address, and the end of being active, end the sessions that were opened before, except the
    caller's own: who is active again later begins with a login, and without the failed ones from before. A status that
    was set is no registration's any more.
    """
    changed = [
        str(change.key) for change in changes if not change.is_new and _ends_sessions(change)
    ]
    if changed:
        fetch(statement("end_other_sessions"), (changed, context.actor.session))
    settled = [str(change.key) for change in changes if "status" in change.sent]
    if settled:
        fetch(statement("settle_registrations"), (settled,))
    opened = [
        str(change.key)
        for change in changes
        if change.sent.get("status") == "active" and not change.is_new
    ]
    if opened:
        fetch(statement("forget_failures"), (opened,))
    require_active_admin(fetch)


def _ends_sessions(change: RowChange) -> bool:
    return (
        bool({"password", "email"} & change.values.keys())
        or change.sent.get("status", "active") != "active"
    )


def require_active_admin(fetch: Fetch) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT when no active administrator would be left."""
    fetch(statement("lock_accounts"), ())
    if not fetch(statement("find_admin"), (None, True)):
        raise unprocessable(LAST_ADMIN)


USER_HOOKS = SystemTableHooks(
    admin_fields=frozenset(
        {"role", "status", "token", "provider", "external_identifier", "auth_data", "tfa_secret"}
    ),
    explicit_only=_CREDENTIALS,
    checks={
        "email": _check_email,
        "password": _check_password,
        "status": one_of(*STATUSES),
        "token": _check_token,
        "tfa_secret": _check_tfa_secret,
    },
    before=_before,
    after=_after,
)
