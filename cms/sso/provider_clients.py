"""The providers of a process, by their names, each with its client.

They confirm the users of their sessions again when a session is renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from cms.auth import tokens
from cms.auth.account_transactions import account_attempts, record_activity
from cms.auth.sessions import PROVIDER_TOKEN, end_sessions, invalid_credentials
from cms.config import Config, ConfigError
from cms.config.providers import LDAP, SAML, Provider
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.distribution import install_command
from cms.errors import Refused, invalid_provider
from cms.hashing import passwords
from cms.sso.browser_login import ProviderClient
from cms.sso.external_login import Directory
from cms.sso.provider_errors import ProviderError
from cms.store.identity import ClientInfo
from cms.store.store import Store


@dataclass(frozen=True, slots=True)
class Providers:
    """The clients of the providers that the settings name."""

    configured: Mapping[str, Provider]
    clients: Mapping[str, ProviderClient]
    directories: Mapping[str, Directory]

    @classmethod
    def from_config(cls, config: Config, store: Store, secret: str) -> Providers:
        """Return the providers of the settings; nothing is asked of them yet.

        Raises `ConfigError` for a driver whose library is not installed, and for metadata that
        cannot be read.
        """
        clients: dict[str, ProviderClient] = {}
        directories: dict[str, Directory] = {}
        for provider in config.providers:
            try:
                if provider.driver == LDAP:
                    directories[provider.name] = _directory(provider)
                else:
                    clients[provider.name] = _client(provider, config, store, secret)
            except ProviderError as error:
                raise ConfigError(f"The login provider {provider.name}: {error}.") from None
        configured = {provider.name: provider for provider in config.providers}
        return cls(configured, clients, directories)

    def provider(self, name: str) -> Provider:
        """Return a provider; raises `Refused` INVALID_PROVIDER."""
        provider = self.configured.get(name)
        if provider is None:
            raise invalid_provider("There is no login provider of that name.")
        return provider

    def close(self) -> None:
        """Close the connections that are kept to directories."""
        for directory in self.directories.values():
            directory.client.close()

    def client(self, name: str) -> ProviderClient:
        """Return the client of a provider whose page logs users in; raises as `provider` does."""
        client = self.clients.get(self.provider(name).name)
        if client is None:
            raise invalid_provider("This provider takes identifier and password by POST.")
        return client

    def directory(self, name: str) -> Directory:
        """Return a provider that takes passwords; raises as `provider` does."""
        directory = self.directories.get(self.provider(name).name)
        if directory is None:
            raise invalid_provider("This provider takes no password.")
        return directory


def check_provider(provider: Provider, config: Config, store: Store, secret: str) -> None:
    """Ask a provider for answers that need no login; raises `ProviderError`."""
    if provider.driver != LDAP:
        _client(provider, config, store, secret).check()
        return
    with closing(_directory(provider).client) as client:
        client.check()


def reach_provider(provider: Provider, config: Config, store: Store, secret: str) -> None:
    """Ask a provider for its public documents, for a check of health; raises `ProviderError`."""
    if provider.driver == LDAP:
        check_provider(provider, config, store, secret)
    else:
        _client(provider, config, store, secret).reach()


def _directory(provider: Provider) -> Directory:
    try:
        from cms.sso.ldap import DirectoryClient
    except ModuleNotFoundError:
        raise ProviderError(f"LDAP needs `{install_command('ldap')}`") from None
    return Directory(provider, DirectoryClient(provider))


def _client(provider: Provider, config: Config, store: Store, secret: str) -> ProviderClient:
    # Imported only here: the libraries take 12 MB of each process, and those of SAML are an extra.
    if provider.driver == SAML:
        try:
            from cms.sso.saml import SamlClient
        except ModuleNotFoundError:
            raise ProviderError(f"SAML needs `{install_command('saml')}`") from None
        return SamlClient(provider, store, public_url=config.public_url, secret=secret)
    from cms.sso.oauth import OAuthClient

    callback = f"{config.public_url}/auth/login/{provider.name}/callback"
    return OAuthClient(provider, callback=callback, secret=secret)


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
