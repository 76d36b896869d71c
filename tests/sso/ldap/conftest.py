"""A service with one directory, under several names with other settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cms.config import Config, load
from tests.sso.ldap.directory import (
    GROUPS,
    PEOPLE,
    SERVICE,
    SERVICE_PASSWORD,
    Directory,
    running_directory,
)
from tests.things import Stage

EDITORS = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
WRITERS = "6f9619ff-8b86-4d01-b42d-00cf4fc964fe"
HOME = "6f9619ff-8b86-4d01-b42d-00cf4fc964fd"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with running_directory(tmp_path_factory.mktemp("slapd")) as directory:
        yield directory


@pytest.fixture(scope="module")
def stage_settings(
    settings: Config, directory: Directory, tmp_path_factory: pytest.TempPathFactory
) -> Config:
    variables = {
        "SECRET": "only-for-tests-" * 3,
        "LOG_LEVEL": "fatal",
        # Half of them may wait for a directory at a time.
        "WEB_THREADS": "16",
        "AUTH_PROVIDERS": "ldap,tls,strange,closed,down",
    }
    for name in ("LDAP", "TLS", "STRANGE", "CLOSED", "DOWN"):
        variables |= {
            "RATE_LIMITER_ENABLED": "false",
            f"AUTH_{name}_DRIVER": "ldap",
            f"AUTH_{name}_CLIENT_URL": directory.url,
            f"AUTH_{name}_BIND_DN": SERVICE,
            f"AUTH_{name}_BIND_PASSWORD": SERVICE_PASSWORD,
            f"AUTH_{name}_USER_DN": PEOPLE,
            f"AUTH_{name}_GROUP_DN": GROUPS,
        }
    variables |= {
        "AUTH_LDAP_ROLE_MAPPING": f'{{"staff": "{WRITERS}"}}',
        "AUTH_LDAP_SYNC_USER_INFO": "true",
        "AUTH_TLS_CLIENT_URL": directory.tls_url,
        "AUTH_TLS_CLIENT_CA": directory.authority,
        "AUTH_STRANGE_CLIENT_URL": directory.tls_url,
        "AUTH_CLOSED_ALLOW_PUBLIC_REGISTRATION": "false",
        "AUTH_DOWN_CLIENT_URL": "ldap://127.0.0.1:1",
    }
    return load(variables, folder=tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="module", autouse=True)
def roles(stage: Stage) -> None:
    addresses = '["192.0.2.1"]'
    rows = [
        (EDITORS, "Editors", None),
        (WRITERS, "Authors", None),
        (HOME, "Home", addresses),
    ]
    with stage.side_door.connection() as connection:
        for row in rows:
            query = b"INSERT INTO system_roles (id, name, ip_access) VALUES (%s, %s, %s::json)"
            connection.execute(query, row)
