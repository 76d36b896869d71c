"""`cms doctor --providers`: asks each login provider, and reports its problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cms.cli.structure_findings import OK, WRONG, Finding
from cms.config import Config
from cms.config.providers import LDAP, SAML, Provider
from cms.config.secret_file import secret_of
from cms.database.connections import standalone_transaction
from cms.database.statements import statement
from cms.extensions import OWN
from cms.sso.provider_clients import check_provider
from cms.sso.provider_errors import ProviderError
from cms.store.store import Store

_UNUSED_DATABASE = "postgresql://localhost/unused"
"""The checks of providers connect to no database."""


def provider_findings(config: Config) -> Iterator[Finding]:
    """Yield a finding for each provider, with the address to be registered there."""
    if not config.providers:
        yield Finding(OK, "providers: AUTH_PROVIDERS names none")
    ours = replace(config, database_url=config.database_url or _UNUSED_DATABASE)
    store = Store(ours, hooks=OWN.store_hooks())
    try:
        for provider in config.providers:
            try:
                check_provider(provider, config, store, secret_of(config))
            except ProviderError as error:
                yield Finding(WRONG, f"provider {provider.name}: {error}")
            else:
                yield Finding(OK, f"provider {provider.name}: {_advice(provider, config)}")
    finally:
        store.close()


def role_findings(config: Config, dsn: str) -> Iterator[Finding]:
    """Yield a finding for each role of a provider's settings that does not exist."""
    with standalone_transaction(dsn) as transaction:
        for provider in config.providers:
            for option, role in _roles_of(provider):
                if not transaction.execute(statement("role_exists"), (role,))[0][0]:
                    variable = provider.variable_name(option)
                    yield Finding(WRONG, f"{variable}: there is no role {role}")


def _roles_of(provider: Provider) -> Iterator[tuple[str, str]]:
    if provider.default_role_id:
        yield "default_role_id", provider.default_role_id
    for role in provider.role_mapping.values():
        yield "role_mapping", role


def _advice(provider: Provider, config: Config) -> str:
    base = f"{config.public_url}/auth/login/{provider.name}"
    if provider.driver == LDAP:
        return "answers, and shows its users"
    if provider.driver == SAML:
        return f"its metadata can be read; give it those at {base}/metadata"
    return f"answers; register {base}/callback there"
