"""A service with two providers of SAML, which are one identity provider in truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cms.config import Config, load
from tests.sso.saml.identity_provider import (
    IdentityProvider,
    KeyPair,
    identity_provider,
    installed_packages,
    new_key_pair,
)
from tests.sso.saml.logins import (
    APP,
    EDITORS,
    Login,
)
from tests.things import Stage


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with identity_provider(installed_packages(tmp_path_factory.mktemp("saml"))) as running:
        yield running


@pytest.fixture(scope="module")
def own_keys() -> KeyPair:
    return new_key_pair()


@pytest.fixture(scope="module")
def stage_settings(
    settings: Config, provider: IdentityProvider, own_keys: KeyPair, tmp_path_factory: Any
) -> Config:
    variables = {
        "SECRET": "only-for-tests-" * 3,
        "LOG_LEVEL": "fatal",
        "AUTH_PROVIDERS": "campus,plain",
    }
    for name in ("CAMPUS", "PLAIN"):
        variables |= {
            "RATE_LIMITER_ENABLED": "false",
            f"AUTH_{name}_DRIVER": "saml",
            f"AUTH_{name}_IDP_metadata": provider.metadata,
            f"AUTH_{name}_ALLOW_PUBLIC_REGISTRATION": "true",
        }
    variables |= {
        "AUTH_CAMPUS_REDIRECT_ALLOW_LIST": APP,
        "AUTH_CAMPUS_GROUP_CLAIM_NAME": "groups",
        "AUTH_CAMPUS_ROLE_MAPPING": f'json:{{"editors": "{EDITORS}"}}',
        "AUTH_CAMPUS_SP_PRIVATE_KEY": own_keys.key,
        "AUTH_CAMPUS_SP_CERTIFICATE": own_keys.certificate,
    }
    return load(variables, folder=Path(tmp_path_factory.mktemp("saml-settings")))


@pytest.fixture(scope="module", autouse=True)
def editors(stage: Stage) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(b"INSERT INTO system_roles (id, name) VALUES (%s, 'Editors')", [EDITORS])


@pytest.fixture
def login(stage: Stage, provider: IdentityProvider) -> Login:
    return Login(stage, provider)
