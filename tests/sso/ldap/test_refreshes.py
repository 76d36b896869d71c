"""Refreshes of sessions of a directory's users: it is asked again each time (docs/sso.md)."""

from __future__ import annotations

import pytest

from tests.client import Answer
from tests.people import OWN_ORIGIN, outcome
from tests.sso.ldap.directory import Directory, dn_of
from tests.sso.ldap.logins import REFUSED, log_in
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


def refresh(stage: Stage, token: str) -> Answer:
    return stage.anonymous.post("/auth/refresh", {"refresh_token": token})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ada", "changetype: modify\nadd: userAccountControl\nuserAccountControl: 514\n"),
        ("grace", "changetype: modify\nadd: accountExpires\naccountExpires: 129000000000000000\n"),
        ("edith", "changetype: modrdn\nnewrdn: uid=edit\ndeleteoldrdn: 1\n"),
        ("mary", "changetype: delete\n"),
    ],
    ids=["disabled", "expired", "renamed", "deleted"],
)
def test_who_is_disabled_or_gone_in_the_directory_is_out_at_the_next_refresh(
    stage: Stage, directory: Directory, name: str, change: str
) -> None:
    token = refresh(stage, log_in(stage, name).data["refresh_token"]).data["refresh_token"]
    other = stage.anonymous.bearing(log_in(stage, name).data["access_token"])
    assert other.get("/users/me").status == 200
    directory.change(f"dn: {dn_of(name)}\n{change}")
    assert outcome(refresh(stage, token)) == REFUSED
    assert other.get("/users/me").codes == ["INVALID_TOKEN"]


def test_a_session_cookie_is_refused_as_well(stage: Stage, directory: Directory) -> None:
    answer = log_in(stage, "hedy", mode="session")
    cookie = f"cms_session_token={answer.cookies['cms_session_token'].value}"
    headers = {"Cookie": cookie, "Origin": OWN_ORIGIN}
    assert stage.anonymous.send("POST", "/auth/refresh", **headers).status == 200
    directory.change(f"dn: {dn_of('hedy')}\nchangetype: delete\n")
    assert outcome(stage.anonymous.send("POST", "/auth/refresh", **headers)) == REFUSED
    assert stage.anonymous.send("GET", "/users/me", Cookie=cookie).status == 401


def test_a_directory_that_is_down_ends_no_session(stage: Stage, directory: Directory) -> None:
    token = log_in(stage, "joan").data["refresh_token"]
    directory.stop()
    answer = refresh(stage, token)
    assert outcome(answer) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.headers["retry-after"]
    directory.start()
    assert refresh(stage, token).status == 200


@pytest.mark.parametrize("identifier", [None, ""])
def test_a_user_without_a_name_in_the_directory_is_not_there(
    stage: Stage, identifier: str | None
) -> None:
    token = log_in(stage, "radia").data["refresh_token"]
    with stage.side_door.connection() as connection:
        query = b"UPDATE system_users SET external_identifier = %s WHERE email = %s"
        connection.execute(query, [identifier, "radia@example.org"])
    assert outcome(refresh(stage, token)) == REFUSED
    with stage.side_door.connection() as connection:
        connection.execute(query, [dn_of("radia"), "radia@example.org"])
