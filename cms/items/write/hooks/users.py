"""Hooks of users: their credentials, fields for administrators only, the last administrator."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cms import jsontext
from cms.access.ip_addresses import admits, networks_of
from cms.database.connections import Fetch, single_value, single_values
from cms.database.statements import statement
from cms.emails import is_email
from cms.errors import forbidden
from cms.hashing.passwords import check_password
from cms.schema.system import USERS, choices_of
from cms.store.actors import own_address
from cms.store.context import RequestContext
from cms.store.table_hooks import HookedRow, TableHooks, one_of, unprocessable

LAST_ADMIN = "There must be an active administrator"

_CREDENTIALS = frozenset({"email", "password", "token"})
# Printable ASCII without the space: a token is one word in the header Authorization.
_TOKEN = re.compile(r"[!-~]{16,1000}")
_ACCESS_TOKEN_DOTS = 2
"""The dots of an access token, by which it differs from a static token."""


def _check_email(value: object, context: RequestContext) -> None:
    if not is_email(value):
        raise ValueError("it is no email address")


def _check_token(value: object, context: RequestContext) -> None:
    # A token with exactly two dots would be taken for an access token.
    if isinstance(value, str) and (
        not _TOKEN.fullmatch(value) or value.count(".") == _ACCESS_TOKEN_DOTS
    ):
        raise ValueError(
            "a token has 16 to 1000 letters, digits and signs, without spaces, "
            "and not exactly two dots"
        )


def _check_tfa_secret(value: object, context: RequestContext) -> None:
    # Null takes the secret away, and is not checked.
    raise ValueError("it is set by POST /users/me/tfa/enable; null takes the second factor away")


def _check_password(value: object, context: RequestContext) -> None:
    """Check a password against the policy of the settings.

    A change of settings moves the counter of rights, and so the policy is kept with the snapshot.
    """

    def find_policy() -> str | None:
        policy: str | None = single_value(context.fetch(statement("find_password_policy"), ()))
        return policy

    policy = context.snapshot.derived.setdefault_with("password policy", find_policy)
    check_password(str(value), policy=policy)


def _before(
    fetch: Fetch,
    context: RequestContext,
    rows: Sequence[HookedRow],
    deleted_keys: Sequence[str],
) -> None:
    """Let only administrators change the credentials of administrators, or delete them.

    A new address ends the user's sessions, except the caller's own.
    """
    if not context.actor.policy.is_admin:
        _refuse_administrators(fetch, rows, deleted_keys)
    keys: list[str] = []
    addresses: list[str | None] = []
    for row in rows:
        if not row.is_new and "email" in row.values:
            keys.append(str(row.key))
            addresses.append(row.values["email"])
    # Before the write, because an application may send back an address that it has read.
    if keys:
        fetch(statement("end_sessions_of_new_addresses"), (keys, addresses, context.actor.session))


def _refuse_administrators(
    fetch: Fetch, rows: Sequence[HookedRow], deleted_keys: Sequence[str]
) -> None:
    changed_keys: list[str] = []
    for row in rows:
        if not row.is_new and _CREDENTIALS & row.sent.keys():
            changed_keys.append(str(row.key))
    # Otherwise a caller who may change users could log in as an administrator. False: also
    # administrators who are not active count, as they may become so again.
    if fetch(statement("find_admin"), ([*changed_keys, *deleted_keys], False)):
        raise forbidden()


def _after(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    """End sessions and registrations that a change of users has made invalid.

    A new password, and a status other than active, end the user's sessions, except the caller's
    own. A user who becomes active starts without the earlier failed logins. Setting the status of
    a user also ends a registration that waits to be verified.
    """
    changed: list[str] = []
    with_status: list[str] = []
    activated: list[str] = []
    for row in rows:
        key = str(row.key)
        if not row.is_new and _ends_sessions(row):
            changed.append(key)
        if "status" in row.sent:
            with_status.append(key)
        if not row.is_new and row.sent.get("status") == "active":
            activated.append(key)
    if changed:
        fetch(statement("end_other_sessions"), (changed, context.actor.session))
    if with_status:
        fetch(statement("confirm_registrations"), (with_status,))
    if activated:
        fetch(statement("reset_failed_logins"), (activated,))
    require_active_admin(fetch, context)


def _ends_sessions(row: HookedRow) -> bool:
    # By its values: a password that was sent back masked is no new one.
    if "password" in row.values:
        return True
    return bool(row.sent.get("status", "active") != "active")


def require_active_admin(fetch: Fetch, context: RequestContext) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT when no active administrator would be left.

    After a write by an administrator one of them must be admitted from the caller's address.
    """
    # Two writes that each remove one of the last two administrators must take turns.
    fetch(statement("lock_accounts"), ())
    lists = single_values(fetch(statement("find_networks_of_admins"), ()))
    if not lists:
        raise unprocessable(LAST_ADMIN)
    # Others may be at an address from which no administrator was admitted before.
    if not context.actor.policy.is_admin:
        return
    address = own_address(context.identity)
    if not any(admits(networks_of(jsontext.loads_stored(each)), address) for each in lists):
        raise unprocessable(f"{LAST_ADMIN} who is admitted from your address, {address}")


USER_HOOKS = TableHooks(
    admin_fields=frozenset(
        {"role", "status", "token", "provider", "external_identifier", "auth_data", "tfa_secret"}
    ),
    explicit_only=_CREDENTIALS,
    checks={
        "email": _check_email,
        "password": _check_password,
        "status": one_of(*choices_of(USERS, "status")),
        "token": _check_token,
        "tfa_secret": _check_tfa_secret,
    },
    before=_before,
    after=_after,
)
