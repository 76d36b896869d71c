"""Small calls of users who are signed in: hashes, random texts, and the last page of an app."""

from __future__ import annotations

import secrets
import string

from cms.database.statements import statement
from cms.errors import invalid_payload, invalid_query
from cms.hashing import passwords
from cms.items.read.reads import require_own_user, require_user
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store

DEFAULT_RANDOM_LENGTH = 32
MAX_RANDOM_LENGTH = 500
# Characters that need no encoding in a URL.
_RANDOM_ALPHABET = string.ascii_letters + string.digits + "-_"


def generate_hash(store: Store, identity: Identity, text: str) -> str:
    """Return the argon2id hash of a text; raises `Refused` INVALID_PAYLOAD for one too long."""
    _require_signed_in(store, identity)
    _check_length(text)
    return store.passwords.hashed(text)


def verify_hash(store: Store, identity: Identity, text: str, stored: str) -> bool:
    """Tell whether a hash is that of a text.

    Raises `Refused` INVALID_PAYLOAD for a text that is no argon2 hash, and for a hash that takes
    more work than those of the service.
    """
    _require_signed_in(store, identity)
    _check_length(text)
    # The parameters of argon2 are in the hash: one that asks for a gigabyte would bring the process
    # down.
    if not store.passwords.is_verifiable(stored):
        reason = '"hash" must be an argon2 hash that takes no more work than those of the service'
        raise invalid_payload(reason, field="hash")
    return store.passwords.verifies(stored, text)


def random_text(store: Store, identity: Identity, length: int) -> str:
    """Return random letters, digits, "-" and "_"; raises `Refused` INVALID_QUERY."""
    _require_signed_in(store, identity)
    if not 1 <= length <= MAX_RANDOM_LENGTH:
        reason = f"length is a whole number from 1 to {MAX_RANDOM_LENGTH}"
        raise invalid_query(reason, parameter="length")
    return "".join(secrets.choice(_RANDOM_ALPHABET) for _ in range(length))


def set_last_page(
    store: Store, identity: Identity, page: str, *, idempotency: Idempotency | None = None
) -> None:
    """Set `last_page` of the current user, which leaves no trace in the history."""
    require_user(identity)
    for attempt in store.write(identity, idempotency=idempotency):
        with attempt as context:
            require_own_user(context)
            transaction = attempt.begin_transaction()
            transaction.execute(statement("set_last_page"), (context.actor.user, page))


def _require_signed_in(store: Store, identity: Identity) -> None:
    require_user(identity)
    # A user who was suspended since is stopped here, and so is the token of a share.
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            require_own_user(context)


def _check_length(text: str) -> None:
    if len(text) > passwords.MAX_PASSWORD_LENGTH:
        reason = f'"string" has at most {passwords.MAX_PASSWORD_LENGTH} characters'
        raise invalid_payload(reason, field="string")
