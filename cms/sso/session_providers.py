"""The providers of sessions: they confirm a user again when a session is renewed."""

from __future__ import annotations

from dataclasses import dataclass, field

from cms.auth import tokens
from cms.auth.account_transactions import account_attempts, record_activity
from cms.auth.sessions import PROVIDER_TOKEN, end_sessions, invalid_credentials
from cms.config.providers import Provider
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Refused
from cms.hashing import passwords
from cms.sso.provider_clients import Providers
from cms.store.identity import ClientInfo
from cms.store.store import Store


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a session needs from its user's provider before its token renews it.

    `identifier` is what the provider knows the user by.
    """

    providers: Providers
    provider: Provider
    user: str
    identifier: str
    token: str = field(repr=False)

    def require(self, store: Store, secret: str, client: ClientInfo) -> None:
        """Ask the provider whether the user is still there.

        Where it says no, the session ends; of a directory's user all sessions do. Raises `Refused`
        INVALID_CREDENTIALS then, and `ProviderError`, with which everything stays as it is.
        """
        directory = self.providers.directories.get(self.provider.name)
        if directory is not None and directory.client.has_user(self.identifier):
            return
        for attempt in account_attempts(store):
            with attempt as transaction:
                is_renewed = False
                if directory is None:
                    is_renewed = self._is_token_renewed(transaction, secret, client)
                else:
                    end_sessions(transaction, self.user)
                    self._record_end(transaction, client)
        # Raised outside the transaction, whose rollback would undo the end of the session.
        if not is_renewed:
            raise invalid_credentials()

    def _is_token_renewed(self, transaction: Transaction, secret: str, client: ClientInfo) -> bool:
        """Let the provider renew its refresh token; end the session where it refuses that."""
        rows = transaction.execute(statement("lock_provider_token"), _key_of(self.token))
        if not rows:
            # It has ended, or another tab has renewed it and asked the provider.
            return True
        ((session, sealed),) = rows
        # The provider may take longer than the server lets a transaction wait.
        transaction.rest()
        renewed = self._renewed(sealed, secret)
        if renewed is not None:
            transaction.execute(statement("keep_provider_token"), (session, renewed))
            return True
        transaction.execute(statement("end_session"), (session,))
        self._record_end(transaction, client)
        return False

    def _record_end(self, transaction: Transaction, client: ClientInfo) -> None:
        name = self.provider.name
        record_activity(transaction, "logout", user=self.user, client=client, comment=name)

    def _renewed(self, sealed: str, secret: str) -> str | None:
        """Return the next refresh token of the provider as it is stored; None where it says no."""
        try:
            token = tokens.unseal(PROVIDER_TOKEN, sealed, secret=secret)
        except Refused:
            # Sealed with another SECRET.
            return None
        renewed = self.providers.client(self.provider.name).renewed_token(token)
        if renewed is None:
            return None
        return tokens.seal(PROVIDER_TOKEN, renewed, secret=secret)


def confirmation_of(store: Store, providers: Providers, token: str) -> Confirmation | None:
    """Return what the session of a token needs before it is renewed.

    None for users of the service, for sessions whose provider cannot be asked, and for a token
    that renews nothing. Raises `Refused` INVALID_PROVIDER for a provider that the settings lack.
    """
    rows = store.database.fetch_primary(statement("find_provider_of_session"), _key_of(token))
    if not rows:
        return None
    name, user, identifier, has_token = rows[0]
    provider = providers.provider(name)
    if not has_token and name not in providers.directories:
        return None
    return Confirmation(providers, provider, user, identifier, token)


def _key_of(token: str) -> tuple[str | None, str]:
    return tokens.session_of(token), passwords.digest(token)
