"""Setting up and taking away the own second factor (decisions, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from secrets import token_bytes

from cms.auth import factors
from cms.auth.login import Account, account_of, confirm, count_failure
from cms.auth.person import note
from cms.auth.sessions import invalid_credentials
from cms.errors import Refused, invalid_payload
from cms.store.database import Transaction
from cms.store.once import Once
from cms.store.statements import statement
from cms.store.store import Identity, Job, Scene, Store

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Offer:
    """A secret that becomes the second factor when a code of it comes back."""

    secret: str = field(repr=False)
    otpauth_url: str = field(repr=False)


def generate(store: Store, identity: Identity, *, password: str) -> Offer:
    """Return a new secret, once the password was said again; raises `Refused` INVALID_PAYLOAD where there is one."""
    account = _confirmed(store, identity, password)
    if account.tfa_secret is not None:
        raise invalid_payload("There is a second factor already")
    email, project = store.database.fetch_primary(statement("find_names"), (account.id,))[0]
    secret = factors.new_secret()
    return Offer(secret, factors.otpauth_url(secret, account=email, issuer=project))


def enable(store: Store, identity: Identity, *, secret: str, code: str, once: Once | None = None) -> None:
    """Make a secret the second factor; raises `Refused` INVALID_OTP or INVALID_PAYLOAD."""

    def work(transaction: Transaction, scene: Scene) -> None:
        user = _user(scene)
        factors.enable(transaction, user, secret=secret, code=code)
        note(transaction, "update", user=user, caller=identity.caller)

    store.writing(identity, lambda scene: Job(lambda transaction: work(transaction, scene)), once=once)


def disable(store: Store, identity: Identity, *, code: str, once: Once | None = None) -> None:
    """Take the second factor away, with a code of it or a recovery code; raises `Refused` INVALID_OTP.

    The code is used up in the transaction that takes the factor away: a call that waits for another one with its
    Idempotency-Key finds that one's answer, and no code that is worth nothing any more. A wrong one is counted after
    it, so that it counts although the transaction leaves nothing.
    """
    user = store.checking(identity, _user)

    def work(transaction: Transaction, scene: Scene) -> None:
        account = account_of(transaction.execute, user)
        if account.tfa_secret is None:
            raise _no_factor()
        if not factors.use(transaction.execute, user, secret=account.tfa_secret, code=code):
            raise factors.invalid_otp()
        factors.disable(transaction, user)
        note(transaction, "update", user=user, caller=identity.caller)

    try:
        store.writing(identity, lambda scene: Job(lambda transaction: work(transaction, scene)), once=once)
    except Refused as refused:
        if refused.problems[0].code == "INVALID_OTP":
            count_failure(store, user, identity.caller)
        raise


def recovery_codes(
    store: Store, identity: Identity, *, password: str, secret: str, once: Once | None = None
) -> list[str]:
    """Return new recovery codes, once the password was said again.

    What is kept for an Idempotency-Key is the seed that they come from, which tells nothing without SECRET.
    """
    user = _confirmed(store, identity, password).id

    def work(transaction: Transaction) -> bytes:
        if account_of(transaction.execute, user).tfa_secret is None:
            raise _no_factor()
        seed = token_bytes(_SEED_BYTES)
        factors.keep_recovery_codes(transaction, user, factors.recovery_codes_of(seed, secret=secret))
        note(transaction, "update", user=user, caller=identity.caller)
        return seed

    seed = store.writing(identity, lambda scene: Job(work), once=once)
    return factors.recovery_codes_of(seed, secret=secret)


def _confirmed(store: Store, identity: Identity, password: str) -> Account:
    account = account_of(store.database.fetch_primary, store.checking(identity, _user))
    confirm(store, account, password, caller=identity.caller)
    return account


def _no_factor() -> Refused:
    return invalid_payload("There is no second factor")


def _user(scene: Scene) -> str:
    if scene.actor.user is None:
        raise invalid_credentials()
    return scene.actor.user
