"""/users/me: what callers get of their own account, and what app access lets one change of
it.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.client import Client
from tests.members import may, member, member_of, new_role
from tests.people import hashed, login, outcome
from tests.things import Stage

Json = dict[str, Any]

PROFILE: Json = {
    "first_name": "Ann",
    "last_name": "Lee",
    "language": "de-DE",
    "appearance": "dark",
    "theme_light_overrides": {"primary": "#6644FF"},
    "theme_dark_overrides": {"navigation": {"background": "#000000"}},
    "tags": ["a"],
    "location": "Graz",
    "title": "Dr",
    "description": "writes",
    "email_notifications": False,
}


def app_user(stage: Stage, *permissions: Json, **columns: object) -> tuple[Client, str]:
    """Make somebody whose role has app access, and return the client and the id."""
    key = str(uuid4())
    role = new_role(stage, *permissions, app_access=True)
    return member_of(stage, role, id=key, email=f"{key}@example.com", **columns), key


@pytest.mark.parametrize(
    "query", ["", "?fields=id", "?fields=email,role.name", "?fields=nowhere", "?deep[a][_limit]=1"]
)
def test_who_may_not_read_users_gets_only_the_own_id(stage: Stage, query: str) -> None:
    for permissions in ([], [may("system_roles")]):
        profile = member(stage, *permissions).get(f"/users/me{query}").data
        assert list(profile) == ["id"], permissions
        assert profile["id"], permissions


def test_who_does_not_see_the_own_user_gets_the_id(stage: Stage) -> None:
    others = may("system_users", "id", "email", permissions={"title": {"_eq": "other"}})
    caller = member(stage, others)
    for query in ("", "?fields=id", "?fields=email"):
        assert list(caller.get(f"/users/me{query}").data) == ["id"]
    assert caller.get("/users/me?fields=title").status == 403
    seeing = member(stage, may("system_users", "id"))
    assert (
        seeing.get("/users/me?filter[id][_neq]=" + seeing.get("/users/me").data["id"]).status == 404
    )


def test_nobody_has_no_account(stage: Stage) -> None:
    assert outcome(stage.anonymous.get("/users/me?fields=id")) == (401, ["INVALID_CREDENTIALS"])
    assert outcome(stage.anonymous.patch("/users/me", {"title": "x"})) == (
        401,
        ["INVALID_CREDENTIALS"],
    )


def test_app_access_lets_one_change_the_own_profile(stage: Stage) -> None:
    caller, key = app_user(stage)
    changed = caller.patch("/users/me", PROFILE).data
    assert {name: changed[name] for name in PROFILE} == PROFILE
    assert stage.admin.get(f"/users/{key}", fields="first_name,title").data == {
        "first_name": "Ann",
        "title": "Dr",
    }
    assert set(caller.get("/permissions/me").data["system_users"]["update"]["fields"]) == {
        *PROFILE,
        "avatar",
        "password",
    }
    without = member(stage)
    assert without.patch("/users/me", {"title": "x"}).codes == ["FORBIDDEN"]


def test_everybody_notes_the_page_that_was_open_last(stage: Stage) -> None:
    caller = member(stage)
    key = caller.get("/users/me").data["id"]
    revisions = f"/revisions?filter[item][_eq]={key}"
    for page in ("/content/articles", "/users"):
        answer = caller.patch("/users/me/track/page", {"last_page": page})
        assert (answer.status, answer.text) == (204, "")
        assert stage.admin.get(f"/users/{key}").data["last_page"] == page
    assert stage.admin.get(revisions).data == []
    assert caller.patch("/users/me/track/page", {"last_page": 1}).status == 400
    anonymous = stage.anonymous.patch("/users/me/track/page", {"last_page": "/"})
    assert outcome(anonymous) == (401, ["INVALID_CREDENTIALS"])


def test_it_lets_nobody_change_more(stage: Stage) -> None:
    caller, key = app_user(stage)
    other = app_user(stage)[1]
    me = stage.admin.get(f"/users/{key}").data
    for body in (
        {"role": me["role"]},
        {"role": None},
        {"status": "active"},
        {"email": "other@example.com"},
        {"token": "a-token-of-ones-own"},
        {"tfa_secret": None},
        {"provider": "x"},
        {"external_identifier": "x"},
        {"last_page": "/x"},
        {"title": "x", "email": "other@example.com"},
        {"nowhere": 1},
    ):
        assert (caller.patch("/users/me", body).codes, body) == (["FORBIDDEN"], body)
    assert stage.admin.get(f"/users/{key}").data == me
    for key_of_other in (other, str(uuid4())):
        assert outcome(caller.patch(f"/users/{key_of_other}", {"title": "x"})) == (
            404,
            ["NOT_FOUND"],
        )
    assert caller.post("/users", {"email": "new@example.com"}).status == 403
    assert caller.delete(f"/users/{key}").status == 403


def test_what_permissions_allow_beside_it_goes_on(stage: Stage) -> None:
    caller, _ = app_user(stage, may("system_users", "email", action="update"))
    email = f"{uuid4()}@example.com"
    assert caller.patch("/users/me", {"email": email, "title": "x"}).data["email"] == email


def test_a_password_that_is_changed_this_way_follows_the_rules_of_passwords(stage: Stage) -> None:
    _, key = app_user(stage, password=hashed())
    email = f"{key}@example.com"
    first, second = (login(stage.anonymous, email).data for _ in range(2))
    caller, other = (stage.anonymous.bearing(tokens["access_token"]) for tokens in (first, second))
    assert other.get("/users/me").status == 200
    assert stage.admin.patch("/settings", {"auth_password_policy": "^.{12,}$"}).status == 200
    try:
        assert caller.patch("/users/me", {"password": "too short"}).codes == ["FAILED_VALIDATION"]
    finally:
        assert stage.admin.patch("/settings", {"auth_password_policy": None}).status == 200
    changed = caller.patch("/users/me", {"password": "a longer one than before"})
    assert changed.data["password"] == "**********"
    assert caller.get("/users/me").status == 200
    assert outcome(other.get("/users/me")) == (401, ["INVALID_TOKEN"])
    assert (
        stage.anonymous.post("/auth/refresh", {"refresh_token": second["refresh_token"]}).status
        == 401
    )
    assert login(stage.anonymous, email).status == 401
    assert login(stage.anonymous, email, "a longer one than before").status == 200
