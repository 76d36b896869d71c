"""Logins by a directory, against slapd (docs/sso.md)."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pyotp
import pytest

from cms.config import Config, providers
from cms.sso.ldap import DirectoryClient
from cms.sso.ldap_connection import Deadline
from cms.sso.provider_errors import ProviderError
from tests.client import with_other_status
from tests.people import of_user, outcome
from tests.sso.ldap.conftest import EDITORS, HOME, WRITERS
from tests.sso.ldap.directory import PASSWORD, Directory, dn_of, group_dn
from tests.sso.ldap.logins import (
    REFUSED,
    authenticate,
    log_in,
    provider_of,
    role_of,
)
from tests.things import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.slow]


def test_a_user_of_the_directory_is_made_and_logged_in(stage: Stage) -> None:
    issued = log_in(stage, "ada").data
    assert issued.keys() == {"expires", "access_token", "refresh_token"}
    stage.anonymous.bearing(issued["access_token"]).get("/users/me").data  # noqa: B018
    columns = "first_name, last_name, provider, external_identifier, status"
    stored = of_user(stage, "ada@example.org", f"row({columns})::text")
    assert stored == f'(Ada,Lovelace,ldap,"{dn_of("ada")}",active)'


def test_the_mode_ldap_is_the_directory_of_that_name(stage: Stage) -> None:
    for name in ("identifier", "email"):
        body = {name: "ada", "password": PASSWORD, "mode": "ldap"}
        assert "refresh_token" in stage.anonymous.post("/auth/login", body).data
    body = {"identifier": "ada", "password": "wrong", "mode": "ldap"}
    assert outcome(stage.anonymous.post("/auth/login", body)) == REFUSED


def test_other_modes_put_the_tokens_into_cookies(stage: Stage) -> None:
    answer = log_in(stage, "ada", mode="session")
    assert answer.data.keys() == {"expires"}
    assert answer.cookies["cms_session_token"].http_only


def test_a_role_is_that_of_a_mapped_group_or_of_a_groups_name(stage: Stage) -> None:
    log_in(stage, "grace")
    assert role_of(stage, "grace") == EDITORS
    # Through writers and staff, whose circle ends.
    log_in(stage, "edith")
    assert role_of(stage, "edith") == WRITERS
    log_in(stage, "mary")
    assert role_of(stage, "mary") is None


def test_who_leaves_a_group_loses_its_role_at_the_next_login(
    stage: Stage, directory: Directory
) -> None:
    dn = dn_of("hedy")
    directory.change(f"dn: {group_dn('Editors')}\nchangetype: modify\nadd: member\nmember: {dn}\n")
    log_in(stage, "hedy")
    assert role_of(stage, "hedy") == EDITORS
    directory.change(
        f"dn: {group_dn('Editors')}\nchangetype: modify\ndelete: member\nmember: {dn}\n"
    )
    log_in(stage, "hedy")
    assert role_of(stage, "hedy") is None


def test_names_and_address_follow_the_directory(stage: Stage, directory: Directory) -> None:
    log_in(stage, "joan")
    change = f"dn: {dn_of('joan')}\nchangetype: modify\nreplace: sn\nsn: Clarke\n"
    directory.change(change + "-\nreplace: mail\nmail: jc@example.org\n")
    log_in(stage, "joan")
    assert of_user(stage, "jc@example.org", "last_name") == "Clarke"


def test_who_has_no_address_is_a_user_too(stage: Stage) -> None:
    assert log_in(stage, "nomail").status == 200


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ada", "wrong"),
        ("nobody", PASSWORD),
        ("disabled", PASSWORD),
        ("double", PASSWORD),
        ("*", PASSWORD),
        ("a*", PASSWORD),
        ("grac*", PASSWORD),
        ("ada)(uid=*", PASSWORD),
        ("*)(objectClass=*", PASSWORD),
        ("ada\\2a", PASSWORD),
        ("\\", PASSWORD),
        ("ädä", PASSWORD),
        (dn_of("ada"), PASSWORD),
        ("x" * 10_000, PASSWORD),
    ],
)
def test_what_is_not_one_enabled_user_with_the_password_is_refused(
    stage: Stage, name: str, password: str
) -> None:
    assert outcome(log_in(stage, name, password)) == REFUSED


@pytest.mark.parametrize("password", ["\u00ad", "\ufeff", "\u200b", "\u00ad\u200d"])
def test_a_password_of_invisible_characters_is_not_an_empty_one(
    stage: Stage, password: str
) -> None:
    """The directory takes binds without a password, as some do."""
    assert outcome(log_in(stage, "ada", password)) == REFUSED


def test_an_enabled_account_logs_in(stage: Stage) -> None:
    assert log_in(stage, "enabled").status == 200


def test_an_empty_password_asks_the_directory_nothing(stage: Stage, directory: Directory) -> None:
    before = directory.log
    assert log_in(stage, "ada", "").status in (400, 401)
    assert directory.log == before


def test_unknown_and_known_users_cost_the_same_requests(stage: Stage, directory: Directory) -> None:
    log_in(stage, "ada")  # the connection of the service
    known = _requests(stage, directory, "ada")
    unknown = _requests(stage, directory, "nobody")
    assert known == unknown
    assert known


def _requests(stage: Stage, directory: Directory, name: str) -> list[str]:
    before = len(directory.log)
    assert outcome(log_in(stage, name, "wrong")) == REFUSED
    # Results and ends of connections are written a little later than they are sent.
    eventually(lambda: _is_complete(directory.log[before:]))
    words = ("BIND dn", "SRCH base", "UNBIND", "RESULT")
    kinds = []
    for line in directory.log[before:].splitlines():
        kinds += [word for word in words if word in line]
    return sorted(kinds)


def _is_complete(log: str) -> bool:
    requests = re.findall(r"conn=\d+ op=\d+ (?:BIND dn=.* method|SRCH base)", log)
    is_answered = len(requests) == log.count("RESULT tag=")
    return is_answered and log.count(" ACCEPT ") == log.count(" closed")


def test_wrong_passwords_suspend_the_user(stage: Stage) -> None:
    log_in(stage, "radia")
    with stage.side_door.connection() as connection:
        connection.execute(b"UPDATE system_settings SET auth_login_attempts = 3")
    for _ in range(3):
        assert outcome(log_in(stage, "radia", "wrong")) == REFUSED
    assert outcome(log_in(stage, "radia")) == (401, ["USER_SUSPENDED"])
    assert outcome(log_in(stage, "radia", "wrong")) == REFUSED


def test_a_second_factor_is_asked_for_once_the_password_was_right(stage: Stage) -> None:
    issued = log_in(stage, "kay").data
    kay = stage.anonymous.bearing(issued["access_token"])
    secret = kay.post("/users/me/tfa/generate", {}).data["secret"]
    code = pyotp.TOTP(secret)
    assert kay.post("/users/me/tfa/enable", {"secret": secret, "otp": code.now()}).status == 204
    assert outcome(log_in(stage, "kay")) == (401, ["INVALID_OTP"])
    assert outcome(log_in(stage, "kay", "wrong", otp=code.now())) == REFUSED
    assert outcome(log_in(stage, "kay", otp="000000")) == (401, ["INVALID_OTP"])
    with stage.side_door.connection() as connection:
        # The code of this half minute has been used.
        connection.execute(b"UPDATE system_users SET tfa_step = NULL")
    assert log_in(stage, "kay", otp=code.now()).status == 200


def test_the_addresses_of_a_role_count(stage: Stage, directory: Directory) -> None:
    directory.change(
        f"dn: {group_dn('Home')}\nchangetype: add\nobjectClass: groupOfNames\ncn: Home\n"
        f"member: {dn_of('ann')}\n"
    )
    assert outcome(log_in(stage, "ann")) == (401, ["INVALID_IP"])
    assert role_of(stage, "ann") == HOME


def test_an_account_of_another_kind_is_never_taken_over(stage: Stage) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(b"INSERT INTO system_users (email) VALUES ('EVE@example.org')")
    assert outcome(log_in(stage, "eve")) == (403, ["INVALID_PROVIDER"])


def test_where_nobody_may_register_only_known_users_log_in(stage: Stage) -> None:
    assert outcome(log_in(stage, "ada", provider="closed")) == REFUSED


def test_many_first_logins_at_once_make_one_user(stage: Stage) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: log_in(stage, "twin", provider="tls"), range(6)))
    assert with_other_status(answers, 200) == []


def test_a_certificate_is_checked(stage: Stage) -> None:
    assert log_in(stage, "ada", provider="strange").codes == ["SERVICE_UNAVAILABLE"]


def test_a_server_that_is_down_stops_its_own_logins_only(stage: Stage) -> None:
    answer = log_in(stage, "ada", provider="down")
    assert outcome(answer) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.headers["retry-after"]
    assert log_in(stage, "ada").status == 200


def test_a_restart_of_the_directory_costs_no_login(stage: Stage, directory: Directory) -> None:
    log_in(stage, "ada")
    directory.stop()
    assert outcome(log_in(stage, "ada")) == (503, ["SERVICE_UNAVAILABLE"])
    directory.start()
    assert log_in(stage, "ada").status == 200
    directory.stop()
    directory.start()
    assert log_in(stage, "ada").status == 200


def test_a_page_of_the_provider_there_is_none(stage: Stage) -> None:
    answer = stage.anonymous.get("/auth/login/ldap")
    assert outcome(answer) == (403, ["INVALID_PROVIDER"])
    assert outcome(stage.anonymous.get("/auth/login/unknown")) == (403, ["INVALID_PROVIDER"])


def test_the_activity_names_the_provider(stage: Stage) -> None:
    log_in(stage, "ada")
    identifier = of_user(stage, "ada@example.org", "id::text")
    filters = {"filter[item][_eq]": identifier, "filter[action][_eq]": "login"}
    rows = stage.admin.get("/activity", **filters).data
    assert {row["comment"] for row in rows} == {"ldap"}


# The client alone


def test_outside_of_this_machine_passwords_go_over_tls(
    stage_settings: Config, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_is_this_machine", lambda host: False)
    encrypted = provider_of(stage_settings, client_ca=directory.authority)
    assert authenticate(encrypted).profile
    assert "STARTTLS" in directory.log
    # Without the authority the certificate is not believed, and nothing goes without it.
    before = directory.log.count("BIND dn")
    with pytest.raises(ProviderError):
        authenticate(provider_of(stage_settings))
    assert directory.log.count("BIND dn") == before
    assert authenticate(provider_of(stage_settings, allow_insecure=True)).profile


@pytest.fixture
def silent_server() -> Iterator[int]:
    """A server that takes connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield int(listener.getsockname()[1])
        for connection in taken:
            connection.close()


def test_a_silent_server_is_not_waited_for(
    stage_settings: Config, silent_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.sso.ldap.Deadline", partial(Deadline, 1.0))
    silent = provider_of(stage_settings, client_url=f"ldap://127.0.0.1:{silent_server}")
    with pytest.raises(ProviderError, match="in time"):
        authenticate(silent)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0" * 64,
        b"\xff" * 64,
        b"\x30\x80" * 2_000,
        bytes.fromhex("3003020101"),
        # An operation, and a result, that there is not.
        bytes.fromhex("300c0201017f070a010004000400"),
        bytes.fromhex("300d02010161080a0203e704000400"),
        # The tag of another type.
        bytes.fromhex("e20c02010161070a010022000400"),
    ],
)
def test_a_server_that_speaks_something_else(
    stage_settings: Config, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.sso.ldap.Deadline", partial(Deadline, 1.0))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send_answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(answer)

        thread = threading.Thread(target=send_answer)
        thread.start()
        url = f"ldap://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ProviderError):
            authenticate(provider_of(stage_settings, client_url=url))
        thread.join()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("bind_password", "wrong", "BIND_DN"),
        ("user_dn", "ou=nowhere,dc=example,dc=org", "no entry"),
        ("client_url", "ldap://127.0.0.1:1", "connection fails"),
    ],
)
def test_a_check_names_what_is_wrong(
    stage_settings: Config, option: str, value: str, message: str
) -> None:
    with closing(DirectoryClient(provider_of(stage_settings))) as client:
        client.check()
    wrong = provider_of(stage_settings, **{option: value})
    with pytest.raises(ProviderError, match=message), closing(DirectoryClient(wrong)) as client:
        client.check()


def test_groups_of_the_kind_posix_hold_names(stage_settings: Config, directory: Directory) -> None:
    directory.change(
        f"dn: {group_dn('unix')}\nchangetype: add\nobjectClass: posixGroup\ncn: unix\n"
        "gidNumber: 100\nmemberUid: mary\n"
    )
    unix = provider_of(stage_settings, group_attribute="memberUid")
    profile = authenticate(unix, "mary").profile
    assert profile
    assert profile.groups == ("unix",)
