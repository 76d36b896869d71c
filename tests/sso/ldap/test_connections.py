"""Which servers a login by a directory asks, how often, and what it never sends them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from cms.config import Config
from cms.sso.ldap import DirectoryAnswer, DirectoryClient
from cms.sso.provider_errors import ProviderError
from tests.people import outcome
from tests.sso.ldap.directory import PASSWORD, PEOPLE, SERVICE, Directory
from tests.sso.ldap.logins import REFUSED, authenticate, log_in, provider_of
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


# Referrals


@pytest.fixture
def other_server() -> Iterator[socket.socket]:
    """A server to which referrals lead: whoever connects to it waits there until it ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def has_visitor(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def refer(directory: Directory, name: str, server: socket.socket) -> str:
    """Put a referral to the users of another server into the directory, and return its DN."""
    port = server.getsockname()[1]
    dn = f"ou={name},{PEOPLE}"
    directory.change(
        f"dn: {dn}\nchangetype: add\nobjectClass: referral\nobjectClass: extensibleObject\n"
        f"ou: {name}\nref: ldap://127.0.0.1:{port}/{PEOPLE}\n"
    )
    return dn


def test_a_user_of_another_server_is_not_looked_for_there(
    stage: Stage, stage_settings: Config, directory: Directory, other_server: socket.socket
) -> None:
    refer(directory, "elsewhere", other_server)
    deep = provider_of(stage_settings, user_scope="sub")
    for name in ("away", "elsewhere"):
        assert outcome(log_in(stage, name)) == REFUSED
        assert authenticate(deep, name) == DirectoryAnswer(None, None)
    # Who is here logs in, with the referral beside.
    assert log_in(stage, "ada").status == 200
    assert not has_visitor(other_server)


def test_users_who_are_all_on_another_server_are_a_fault_of_the_settings(
    stage_settings: Config, directory: Directory, other_server: socket.socket
) -> None:
    moved = provider_of(stage_settings, user_dn=refer(directory, "moved", other_server))
    with pytest.raises(ProviderError, match="referral"):
        authenticate(moved, "away")
    assert not has_visitor(other_server)


# Connections


def test_logins_share_the_connection_of_the_service(
    stage_settings: Config, directory: Directory
) -> None:
    before = directory.binds_of(SERVICE)
    with closing(DirectoryClient(provider_of(stage_settings))) as client:
        for name in ("ada", "grace", "nobody", "ada"):
            client.authenticate(name, PASSWORD)
    assert directory.binds_of(SERVICE) == before + 1


@pytest.mark.parametrize("port", ["tls_port", "port"])
def test_a_certificate_of_another_host_is_not_believed(
    stage_settings: Config,
    directory: Directory,
    port: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By TLS from the first byte, and by StartTLS."""
    monkeypatch.setattr("cms.config.providers._is_this_machine", lambda host: False)
    scheme = "ldaps" if port == "tls_port" else "ldap"
    before = directory.binds_of(SERVICE)
    urls = [f"{scheme}://{host}:{getattr(directory, port)}" for host in ("localhost", "127.0.0.1")]
    right, wrong = (
        provider_of(stage_settings, client_url=url, client_ca=directory.authority) for url in urls
    )
    assert authenticate(right).profile
    with pytest.raises(ProviderError, match="certificate"):
        authenticate(wrong)
    assert directory.binds_of(SERVICE) == before + 1


@pytest.mark.parametrize("password", ["", "\0", f"{PASSWORD}\0"])
def test_a_password_that_a_server_may_take_for_none_is_never_sent(
    stage_settings: Config, directory: Directory, password: str
) -> None:
    before = directory.log
    answer = authenticate(provider_of(stage_settings), "ada", password)
    assert answer == DirectoryAnswer(None, None)
    assert directory.log == before


def test_characters_of_filters_are_characters_of_names(stage: Stage) -> None:
    assert log_in(stage, "Ada (R&D)* \\o/").status == 200
    assert outcome(log_in(stage, "Ada (R&D)*")) == REFUSED
