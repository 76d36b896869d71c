"""Login, refresh, logout, static tokens, /users/me (specification, sections 4.3 and 5)."""

from __future__ import annotations

import jwt

from cms.auth import accounts
from cms.config import Config
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client


def test_a_login_gives_both_tokens_and_the_life_of_the_first_in_milliseconds(anonymous: Client) -> None:
    found = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    assert found.keys() == {"access_token", "expires", "refresh_token"}
    assert found["expires"] == 15 * 60 * 1000


def test_the_case_of_an_address_does_not_matter(anonymous: Client) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL.upper(), "password": ADMIN_PASSWORD})
    assert answer.status == 200


def test_a_wrong_password_and_an_unknown_address_are_answered_alike(anonymous: Client) -> None:
    wrong = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": "x"})
    unknown = anonymous.post("/auth/login", {"email": "nobody@example.com", "password": "x"})
    assert wrong.status == unknown.status == 401
    assert wrong.codes == ["INVALID_CREDENTIALS"]
    assert wrong.text == unknown.text


def test_an_access_token_is_worth_nothing_when_it_is_changed(anonymous: Client) -> None:
    token = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data["access_token"]
    answer = anonymous.bearing(token[:-4] + "AAAA").get("/users/me")
    assert (answer.status, answer.codes) == (401, ["INVALID_TOKEN"])


def test_a_token_of_another_key_or_algorithm_or_issuer_is_refused(api: Client, config: Config) -> None:
    claims = {"id": api.get("/users/me").data["id"], "session": "x", "iat": 1, "exp": 2**40, "iss": "cms"}
    secret = config.secret or ""
    forged = [
        jwt.encode(claims, "another-key" * 4, algorithm="HS256"),
        jwt.encode(claims, None, algorithm="none"),
        jwt.encode({**claims, "iss": "others"}, secret, algorithm="HS256"),
        jwt.encode({**claims, "id": "no uuid"}, secret, algorithm="HS256"),
    ]
    assert [api.bearing(token).get("/users/me").codes for token in forged] == [["INVALID_TOKEN"]] * 4


def test_an_expired_token_says_so(api: Client, config: Config) -> None:
    claims = {"id": api.get("/users/me").data["id"], "session": "x", "iat": 1, "exp": 2, "iss": "cms"}
    token = jwt.encode(claims, config.secret or "", algorithm="HS256")
    assert api.bearing(token).get("/users/me").errors[0]["reason"] == "expired"


def test_a_refresh_token_works_once_and_its_second_use_ends_the_session(anonymous: Client) -> None:
    first = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    second = anonymous.post("/auth/refresh", {"refresh_token": first["refresh_token"]}).data
    assert second["refresh_token"] != first["refresh_token"]
    again = anonymous.post("/auth/refresh", {"refresh_token": first["refresh_token"]})
    assert (again.status, again.codes) == (401, ["INVALID_CREDENTIALS"])
    assert anonymous.post("/auth/refresh", {"refresh_token": second["refresh_token"]}).status == 401


def test_after_logout_the_refresh_token_is_worth_nothing(anonymous: Client) -> None:
    token = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data["refresh_token"]
    assert anonymous.post("/auth/logout", {"refresh_token": token}).status == 204
    assert anonymous.post("/auth/refresh", {"refresh_token": token}).status == 401


def test_a_static_token_is_its_user_until_another_takes_its_place(anonymous: Client, dsn: str) -> None:
    token = accounts.make_token(dsn, email=ADMIN_EMAIL)
    assert anonymous.bearing(token).get("/users/me").data["email"] == ADMIN_EMAIL
    accounts.make_token(dsn, email=ADMIN_EMAIL)
    assert anonymous.bearing(token).get("/users/me").codes == ["INVALID_TOKEN"]


def test_a_user_never_reads_a_secret_back(api: Client, dsn: str) -> None:
    accounts.make_token(dsn, email=ADMIN_EMAIL)
    me = api.get("/users/me").data
    assert me["password"] == me["token"] == "**********"
    assert me["tfa_secret"] is None


def test_users_me_needs_credentials(anonymous: Client) -> None:
    answer = anonymous.get("/users/me")
    assert (answer.status, answer.codes) == (401, ["INVALID_CREDENTIALS"])


def test_a_user_without_an_admin_role_gets_nothing_yet(anonymous: Client, dsn: str) -> None:
    accounts.create_user(dsn, email="ann@example.com", password="secret-of-ann", role=None)
    ann = anonymous.login("ann@example.com", "secret-of-ann")
    for path in (
        "/collections",
        "/items/system_users",
        "/items/nowhere",
        "/fields",
        "/relations",
        "/users/me",
    ):
        answer = ann.get(path)
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), path


def test_a_missing_login_field_is_named(anonymous: Client) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL})
    assert (answer.status, answer.errors[0]["field"]) == (400, "password")


def test_nothing_under_auth_is_stored_by_caches(anonymous: Client) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD})
    assert answer.headers["cache-control"] == "no-store"
