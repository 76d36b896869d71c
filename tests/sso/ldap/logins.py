"""Logins by the directory: through the service, and by its client alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from cms.config import Config
from cms.config.providers import Provider
from cms.sso.ldap import DirectoryAnswer, DirectoryClient
from tests.client import Answer
from tests.people import of_user
from tests.sso.ldap.directory import PASSWORD
from tests.things import Stage

REFUSED = (401, ["INVALID_CREDENTIALS"])


def log_in(
    stage: Stage, name: str, password: str = PASSWORD, *, provider: str = "ldap", **body: object
) -> Answer:
    content = {"identifier": name, "password": password, **body}
    return stage.anonymous.post(f"/auth/login/{provider}", content)


def role_of(stage: Stage, name: str) -> str | None:
    role: str | None = of_user(stage, f"{name}@example.org", "role::text")
    return role


def provider_of(config: Config, name: str = "ldap", **options: Any) -> Provider:
    """Return a provider of the settings, with other options."""
    provider = next(provider for provider in config.providers if provider.name == name)
    return replace(provider, **options)


def authenticate(
    provider: Provider, name: str = "ada", password: str = PASSWORD
) -> DirectoryAnswer:
    with closing(DirectoryClient(provider)) as client:
        return client.authenticate(name, password)
