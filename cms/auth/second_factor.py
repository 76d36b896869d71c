"""Users set up and remove their own second factor (docs/authentication.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from secrets import token_bytes

from cms.auth import factors
from cms.auth.account_transactions import record_activity
from cms.auth.login import Account, account_of, confirm_password, count_failure
from cms.auth.sessions import invalid_credentials
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Refused, invalid_payload
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret that becomes the second factor once the client sends one of its codes."""

    secret: str = field(repr=False)
    otpauth_url: str = field(repr=False)


def generate(store: Store, identity: Identity, *, password: str | None) -> NewSecret:
    """Return a new secret to a user who sends the password again.

    Users of a login provider have none, and must have logged in a moment ago. Raises `Refused`
    INVALID_CREDENTIALS, and INVALID_PAYLOAD where there is a second factor already.
    """
    account = _confirmed_account(store, identity, password)
    if account.tfa_secret is not None:
        raise factors.has_factor_already()
    email, project = store.database.fetch_primary(statement("find_names"), (account.id,))[0]
    # Nothing is stored yet: the client sends the secret back, with a code that proves it.
    secret = factors.new_secret()
    return NewSecret(secret, factors.otpauth_url(secret, account=email, issuer=project))


def enable(
    store: Store,
    identity: Identity,
    *,
    secret: str,
    code: str,
    idempotency: Idempotency | None = None,
) -> None:
    """Make a secret the second factor; raises `Refused` INVALID_OTP or INVALID_PAYLOAD."""
    for attempt in store.write(identity, idempotency=idempotency):
        with attempt as context:
            user = _user_of(context)
            transaction = attempt.begin_transaction()
            factors.enable(transaction, user, secret=secret, code=code)
            record_activity(transaction, "update", user=user, client=identity.client)


def disable(
    store: Store, identity: Identity, *, code: str, idempotency: Idempotency | None = None
) -> None:
    """Remove the second factor, with one of its codes or a recovery code.

    The code is used up in the transaction that removes the factor. So a call that waited for
    another one with the same Idempotency-Key gets that one's answer, not the refusal of a used
    code. Raises `Refused` INVALID_OTP.
    """
    user = _current_user(store, identity)
    try:
        for attempt in store.write(identity, idempotency=idempotency):
            with attempt:
                transaction = attempt.begin_transaction()
                secret = _require_secret(transaction, user)
                if not factors.use_code(transaction.execute, user, secret=secret, code=code):
                    raise factors.invalid_otp()
                # Its recovery codes go with it.
                transaction.execute(statement("disable_factor"), (user,))
                record_activity(transaction, "update", user=user, client=identity.client)
    except Refused as refused:
        # Counted outside the transaction, which is rolled back.
        if refused.problems[0].code == "INVALID_OTP":
            count_failure(store, user, identity.client)
        raise


def recovery_codes(
    store: Store,
    identity: Identity,
    *,
    password: str | None,
    secret: str,
    idempotency: Idempotency | None = None,
) -> list[str]:
    """Return new recovery codes to a user who proves to be there as for `generate`.

    For an Idempotency-Key the seed of the codes is stored, which is worth nothing without SECRET.
    """
    user = _confirmed_account(store, identity, password).id
    write: Write[bytes] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt:
            transaction = attempt.begin_transaction()
            # Codes without a second factor would open nothing.
            _require_secret(transaction, user)
            # The seed is stored as the answer; the codes are derived from it each time.
            write.answer = token_bytes(_SEED_BYTES)
            codes = factors.recovery_codes_of(write.answer, secret=secret)
            factors.store_recovery_codes(transaction, user, codes)
            record_activity(transaction, "update", user=user, client=identity.client)
    return factors.recovery_codes_of(write.answer, secret=secret)


def _confirmed_account(store: Store, identity: Identity, password: str | None) -> Account:
    # The primary: on a replica a password that has just been changed would still be right.
    account = account_of(store.database.fetch_primary, _current_user(store, identity))
    if password is None:
        _require_recent_login(store, identity, account.id)
    else:
        confirm_password(store, account, password, client=identity.client)
    return account


def _current_user(store: Store, identity: Identity) -> str:
    for attempt in store.primary_reads(identity):
        with attempt as context:
            user = _user_of(context)
    return user


def _require_recent_login(store: Store, identity: Identity, user: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD unless the user has just logged in at a provider."""
    values = (user, identity.session, identity.cookie)
    if not store.database.fetch_primary(statement("find_recent_external_login"), values):
        reason = '"password" is missing; users of a login provider log in again just before'
        raise invalid_payload(reason, field="password")


def _require_secret(transaction: Transaction, user: str) -> str:
    """Return the secret of a user's second factor; raises `Refused` INVALID_PAYLOAD for none."""
    secret = account_of(transaction.execute, user).tfa_secret
    if secret is None:
        raise invalid_payload("There is no second factor")
    return secret


def _user_of(context: RequestContext) -> str:
    if context.actor.user is None:
        raise invalid_credentials()
    return context.actor.user
