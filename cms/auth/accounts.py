"""Accounts from the command line: the first admin, further users, lost passwords, static tokens."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from cms import passwords
from cms.auth import tokens
from cms.database.connections import Transaction, standalone_transaction
from cms.database.statements import statement
from cms.emails import is_email
from cms.errors import Problem, Refused, invalid_payload, not_found
from cms.items.history.recording import Recorder, recorder
from cms.store.snapshot import load_snapshot

ADMINISTRATOR = "Administrator"


def first_admin(dsn: str, *, email: str, password: str | None) -> str | None:
    """Make the first active admin where there is none; return the password when one had to be made up."""
    with standalone_transaction(dsn) as transaction:
        transaction.execute(statement("lock_accounts"))
        if transaction.execute(statement("find_admin"), (None, True)):
            return None
        chosen = password or passwords.random_password()
        role, made = transaction.execute(statement("ensure_admin_role"), (ADMINISTRATOR,))[0]
        if made:
            _recorder(transaction, "system_roles").created([role])
        _insert_user(transaction, email=email, password=chosen, role=role)
        return None if password else chosen


def create_user(dsn: str, *, email: str, password: str, role: str | None) -> str:
    """Make an active user and return its id; `role` is a role's id or name."""
    with standalone_transaction(dsn) as transaction:
        found = transaction.execute(statement("find_role"), (role,)) if role else []
        if role and not found:
            raise not_found(f"role as {role}")
        return _insert_user(
            transaction, email=email, password=password, role=found[0][0] if found else None
        )


def set_password(dsn: str, *, email: str, password: str) -> None:
    """Set a user's password and end all sessions of that user."""
    passwords.check_password(password)
    with standalone_transaction(dsn) as transaction:
        _update_one(transaction, "set_password", email, passwords.hashed(password))


def make_token(dsn: str, *, email: str) -> str:
    """Give a user a new static token and return it; only its digest is kept."""
    token = tokens.random_token()
    with standalone_transaction(dsn) as transaction:
        _update_one(transaction, "set_token", email, passwords.digest(token))
    return token


def _insert_user(transaction: Transaction, *, email: str, password: str, role: str | None) -> str:
    check_email(email)
    passwords.check_password(password)
    rows = transaction.execute(statement("insert_user"), (email, passwords.hashed(password), role))
    if not rows:
        raise Refused(
            Problem("RECORD_NOT_UNIQUE", f"There is a user {email} already.", {"field": "email"})
        )
    _recorder(transaction, "system_users").created([rows[0][0]])
    return str(rows[0][0])


def _recorder(transaction: Transaction, name: str) -> Recorder:
    """Return what writes down changes that are nobody's whom the service knows."""
    return recorder(transaction, load_snapshot(transaction).catalogue, name)


def check_email(email: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD for what cannot be an email address."""
    if not is_email(email):
        raise invalid_payload(
            '"email" is no email address', field="email"
        )  # it may be a password in the wrong place


def _update_one(transaction: Transaction, name: str, email: str, value: str) -> None:
    rows = transaction.execute(statement(name), (email, value))
    if not rows:
        raise not_found(f"user as {email}")
    users = _recorder(transaction, "system_users")
    users.changed(users.before([rows[0][0]]))  # a secret leaves no revision


def admin_token(dsn: str, *, secret: str, life: timedelta) -> str:
    """Return an access token of an administrator, for commands on the machine that holds the secret.

    It has a session as every other, which nobody can refresh, so that what ends those ends it as well.
    """
    with standalone_transaction(dsn) as transaction:
        found = transaction.execute(statement("find_admin"), (None, True))
        if not found:
            raise not_found("active administrator; `cms bootstrap` makes one")
        user, session, expires = found[0][0], str(uuid.uuid4()), datetime.now(UTC) + life
        unknown = passwords.digest(tokens.random_token())
        transaction.execute(
            statement("open_session"), (session, user, unknown, "json", expires, None, None, None)
        )
    claims = {"id": user, "session": session}
    return tokens.access_token(claims, secret=secret, life=life)
