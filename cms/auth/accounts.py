"""Accounts from the command line: the first admin, further users, lost passwords, static tokens."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from cms.auth import tokens
from cms.auth.sessions import Mode
from cms.database.connections import Transaction, standalone_transaction
from cms.database.statements import statement
from cms.emails import is_email
from cms.errors import Problem, Refused, invalid_payload, not_found
from cms.hashing import passwords
from cms.hashing.hash_parameters import DEFAULT_PARAMETERS, HashParameters
from cms.hashing.passwords import Passwords
from cms.items.history.recording import Recorder, recorder
from cms.schema.system import ROLES, USERS
from cms.store.snapshot import load_snapshot

ADMINISTRATOR = "Administrator"


def first_admin(
    dsn: str, *, email: str, password: str | None, parameters: HashParameters = DEFAULT_PARAMETERS
) -> str | None:
    """Make the first active administrator where there is none.

    Returns the password when one had to be made up.
    """
    with standalone_transaction(dsn) as transaction:
        # Two commands that start at once must not both find no administrator.
        transaction.execute(statement("lock_accounts"))
        if transaction.execute(statement("find_admin"), (None, True)):
            return None
        new_password = password or passwords.random_password()
        # The role may be left from an administrator who was deleted or suspended.
        role, is_new = transaction.execute(statement("ensure_admin_role"), (ADMINISTRATOR,))[0]
        if is_new:
            _recorder(transaction, ROLES).created([role])
        _insert_user(
            transaction, email=email, password=new_password, role=role, parameters=parameters
        )
        return None if password else new_password


def create_user(
    dsn: str,
    *,
    email: str,
    password: str | None,
    role: str | None,
    parameters: HashParameters = DEFAULT_PARAMETERS,
) -> str:
    """Make an active user and return its id; `role` is a role's id or name.

    Without a password the user logs in elsewhere, or sets one by a mail.
    """
    with standalone_transaction(dsn) as transaction:
        role_id = _find_role(transaction, role) if role else None
        return _insert_user(
            transaction, email=email, password=password, role=role_id, parameters=parameters
        )


def _find_role(transaction: Transaction, role: str) -> str:
    rows = transaction.execute(statement("find_role"), (role,))
    if not rows:
        raise not_found(f"role as {role}")
    return str(rows[0][0])


def set_password(
    dsn: str, *, email: str, password: str, parameters: HashParameters = DEFAULT_PARAMETERS
) -> None:
    """Set a user's password and end all sessions of that user."""
    passwords.check_password(password)
    new_hash = Passwords(parameters).hashed(password)
    with standalone_transaction(dsn) as transaction:
        _update_one(transaction, "set_password", email, new_hash)


def make_token(dsn: str, *, email: str) -> str:
    """Give a user a new static token and return it; only its digest is kept."""
    token = tokens.random_token()
    with standalone_transaction(dsn) as transaction:
        _update_one(transaction, "set_token", email, passwords.digest(token))
    return token


def _insert_user(
    transaction: Transaction,
    *,
    email: str,
    password: str | None,
    role: str | None,
    parameters: HashParameters,
) -> str:
    check_email(email)
    new_hash = None
    if password is not None:
        passwords.check_password(password)
        new_hash = Passwords(parameters).hashed(password)
    # The statement returns no row for an address that is taken, whatever its capitals.
    rows = transaction.execute(statement("insert_user"), (email, new_hash, role))
    if not rows:
        sentence = f"There is a user {email} already."
        raise Refused(Problem("RECORD_NOT_UNIQUE", sentence, {"field": "email"}))
    _recorder(transaction, USERS).created([rows[0][0]])
    return str(rows[0][0])


def _recorder(transaction: Transaction, name: str) -> Recorder:
    """Return a recorder of changes made on the machine, by no user whom the service knows."""
    return recorder(transaction, load_snapshot(transaction).catalogue, name)


def check_email(email: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD for what cannot be an email address."""
    if not is_email(email):
        # The value is not in the answer: it may be a password in the wrong place.
        raise invalid_payload('"email" is no email address', field="email")


def _update_one(transaction: Transaction, name: str, email: str, value: str) -> None:
    rows = transaction.execute(statement(name), (email, value))
    if not rows:
        raise not_found(f"user as {email}")
    # Recorded after the change, so that old and new row are equal: a secret leaves no revision.
    users = _recorder(transaction, USERS)
    users.changed(users.before([rows[0][0]]))


def admin_token(dsn: str, *, secret: str, life: timedelta) -> str:
    """Return an access token of an administrator, for commands on the machine with the secret.

    The token has a session like any other, so that whatever ends sessions ends it too. Nobody can
    refresh that session: its refresh token is thrown away.
    """
    with standalone_transaction(dsn) as transaction:
        rows = transaction.execute(statement("find_admin"), (None, True))
        if not rows:
            raise not_found("active administrator; `cms bootstrap` makes one")
        user = rows[0][0]
        session = str(uuid.uuid4())
        expires = datetime.now(UTC) + life
        refresh_digest = passwords.digest(tokens.random_token())
        transaction.execute(
            statement("open_session"),
            (session, user, refresh_digest, Mode.JSON, expires, *[None] * 5),
        )
    claims = {"id": user, "session": session}
    return tokens.access_token(claims, secret=secret, life=life)
