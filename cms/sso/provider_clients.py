"""The providers of a process, by their names, each with its client."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from cms.config import Config, ConfigError
from cms.config.providers import LDAP, SAML, Provider
from cms.distribution import install_command
from cms.errors import invalid_provider
from cms.sso.browser_login import ProviderClient
from cms.sso.external_login import Directory
from cms.sso.provider_errors import ProviderError
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
