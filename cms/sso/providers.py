"""The providers of a process, by their names, each with its client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cms.config import Config
from cms.errors import invalid_provider
from cms.providers import Provider

if TYPE_CHECKING:
    from cms.sso.oauth import OAuthClient


@dataclass(frozen=True, slots=True)
class Providers:
    """The clients of the providers that the settings name."""

    configured: Mapping[str, Provider]
    clients: Mapping[str, OAuthClient]

    @classmethod
    def from_config(cls, config: Config, secret: str) -> Providers:
        """Return the providers of the settings; nothing is asked of them yet."""
        if not config.providers:
            return cls({}, {})
        # Only here: the libraries of OAuth take 12 MB of each process.
        from cms.sso.oauth import OAuthClient

        clients = {}
        for provider in config.providers:
            callback = f"{config.public_url}/auth/login/{provider.name}/callback"
            clients[provider.name] = OAuthClient(provider, callback=callback, secret=secret)
        return cls({provider.name: provider for provider in config.providers}, clients)

    def provider(self, name: str) -> Provider:
        """Return a provider; raises `Refused` INVALID_PROVIDER."""
        provider = self.configured.get(name)
        if provider is None:
            raise invalid_provider("There is no login provider of that name.")
        return provider
