"""The documented applications, each made once for a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.databases import drop_database
from tests.embedding.hosts import Host, django_host, flask_host

HOSTS = {"flask": flask_host, "django": django_host}

PROVIDER = {
    "AUTH_PROVIDERS": "club",
    "AUTH_CLUB_DRIVER": "oauth2",
    "AUTH_CLUB_CLIENT_ID": "cms",
    "AUTH_CLUB_CLIENT_SECRET": "not used",
    "AUTH_CLUB_AUTHORIZE_URL": "https://club.example/authorize",
    "AUTH_CLUB_ACCESS_URL": "https://club.example/token",
    "AUTH_CLUB_PROFILE_URL": "https://club.example/me",
}


@pytest.fixture(scope="module", params=["flask", pytest.param("django", marks=pytest.mark.release)])
def host(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[Host]:
    dsn = make_database(template)
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        yield stack.enter_context(HOSTS[request.param](folder, dsn, **PROVIDER))
    drop_database(dsn)
