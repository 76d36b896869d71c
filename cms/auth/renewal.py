"""A password by letter: asked for, set by its link, or by that of an invitation (specification, section 5)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from cms import passwords
from cms.auth import letters
from cms.auth.letters import RESET, Letter, mark_of
from cms.auth.links import Link
from cms.auth.sessions import end_sessions, in_transaction, once_for
from cms.auth.tokens import invalid_token, used_link
from cms.store.database import Transaction
from cms.store.once import Once
from cms.store.recording import recorder
from cms.store.statements import statement
from cms.store.store import Caller, Store


def request_reset(store: Store, link: Link, *, email: str, url: str | None) -> None:
    """Send an active user a link to set a new password; for anybody else do the same and send nothing."""
    address = link.address(url)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("find_active_account"), (email,))
        user, to, password = found[0] if found else (str(uuid.uuid4()), None, None)
        target = link.to(address, user=user, mark=mark_of(to, password))
        letters.send(transaction, Letter(to, RESET, {"url": target, "email": to or email}))

    in_transaction(store, work)


@dataclass(frozen=True, slots=True)
class Choice:
    """A new password with the token of its link; `status` is what the user has to be: active, or invited."""

    token: str = field(repr=False)
    password: str = field(repr=False)
    status: str


def set_password(store: Store, link: Link, choice: Choice, *, caller: Caller, once: Once | None = None) -> None:
    """Set the password of the user whom a link was sent to, and end all sessions; who was invited becomes active.

    Raises `Refused` INVALID_TOKEN for a link that was used, and what `check_password` does.
    """
    user, mark = link.reader(choice.token)
    passwords.check_password(choice.password, policy=password_policy(store))
    new = passwords.hashed(choice.password)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("lock_account"), (user,))
        _, email, current, old, _ = found[0] if found else (None,) * 5
        if found and mark != mark_of(email, old):
            raise used_link()
        if current != choice.status:
            raise invalid_token()
        catalogue = store.snapshots.current().catalogue
        users = recorder(transaction, catalogue, "system_users", user=user, caller=caller)
        before = users.before([user])
        transaction.execute(statement("change_password"), (user, new))
        end_sessions(transaction, user)
        users.changed(before)

    in_transaction(store, once_for(caller, once, work))


def password_policy(store: Store) -> str | None:
    """Return the regular expression that new passwords have to match."""
    rows = store.database.fetch_primary(statement("find_password_policy"))
    found: str | None = rows[0][0] if rows else None
    return found
