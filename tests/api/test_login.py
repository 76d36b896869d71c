"""Login, refresh, logout, static tokens, /users/me."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import jwt
import psycopg
import pytest

from cms.auth import accounts
from cms.auth.tokens import access_token
from cms.cli.setup import prepare
from cms.config import Config
from cms.hashing import passwords
from cms.hashing.passwords import Passwords
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.databases import run_sql
from tests.people import USE_TOKENS_EARLIER
from tests.statements import fail_next_transaction


@pytest.fixture
def dsn(module_dsn: str) -> str:
    return module_dsn


def test_a_login_gives_both_tokens_and_the_life_of_the_first_in_milliseconds(
    anonymous: Client,
) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    assert answer.keys() == {"access_token", "expires", "refresh_token"}
    assert answer["expires"] == 15 * 60 * 1000


def test_the_case_of_an_address_does_not_matter(anonymous: Client) -> None:
    answer = anonymous.post(
        "/auth/login", {"email": ADMIN_EMAIL.upper(), "password": ADMIN_PASSWORD}
    )
    assert answer.status == 200


def test_a_wrong_password_and_an_unknown_address_are_answered_alike(anonymous: Client) -> None:
    wrong = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": "x"})
    unknown = anonymous.post("/auth/login", {"email": "nobody@example.com", "password": "x"})
    assert wrong.status == unknown.status == 401
    assert wrong.codes == ["INVALID_CREDENTIALS"]
    assert wrong.text == unknown.text


def test_an_access_token_is_worth_nothing_when_it_is_changed(anonymous: Client) -> None:
    token = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data[
        "access_token"
    ]
    answer = anonymous.bearing(token[:-4] + "AAAA").get("/users/me")
    assert (answer.status, answer.codes) == (401, ["INVALID_TOKEN"])


def test_a_token_of_another_key_or_algorithm_or_issuer_is_refused(
    api: Client, admin_token: str, config: Config
) -> None:
    secret = config.secret or ""
    claims = jwt.decode(admin_token, options={"verify_signature": False})
    assert api.bearing(jwt.encode(claims, secret, algorithm="HS256")).get("/users/me").status == 200
    forged = [
        jwt.encode(claims, "another-key" * 4, algorithm="HS256"),
        jwt.encode(claims, "", algorithm="none"),
        jwt.encode({**claims, "iss": "others"}, secret, algorithm="HS256"),
        jwt.encode({**claims, "id": "no uuid"}, secret, algorithm="HS256"),
    ]
    for token in forged:
        assert api.bearing(token).get("/users/me").codes == ["INVALID_TOKEN"], token


def test_an_expired_token_has_an_error_of_its_own(api: Client, config: Config) -> None:
    claims = {
        "id": api.get("/users/me").data["id"],
        "session": "x",
        "iat": 1,
        "exp": 2,
        "iss": "cms",
    }
    token = jwt.encode(claims, config.secret or "", algorithm="HS256")
    assert api.bearing(token).get("/users/me").errors[0]["reason"] == "expired"


def test_after_logout_the_refresh_token_is_worth_nothing(anonymous: Client) -> None:
    token = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data[
        "refresh_token"
    ]
    assert anonymous.post("/auth/logout", {"refresh_token": token}).status == 204
    assert anonymous.post("/auth/refresh", {"refresh_token": token}).status == 401


def test_a_static_token_is_its_user_until_another_takes_its_place(
    anonymous: Client, dsn: str
) -> None:
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
        "/users",
        "/items/nowhere",
        "/fields",
        "/relations",
    ):
        answer = ann.get(path)
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), path
    for path in ("/users/me", "/users/me?fields=email"):
        assert list(ann.get(path).data) == ["id"]


def test_a_missing_login_field_is_named(anonymous: Client) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL})
    assert (answer.status, answer.errors[0]["field"]) == (400, "password")


def test_nothing_under_auth_is_stored_by_caches(anonymous: Client) -> None:
    answer = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("token", ["a.b.c", "not-a-token-at-all"])
def test_a_client_that_always_sends_its_old_token_can_log_in_again(
    anonymous: Client, token: str
) -> None:
    stale = anonymous.bearing(token)
    assert stale.get("/server/ping").status == 200
    answer = stale.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    renewed = stale.post("/auth/refresh", {"refresh_token": answer["refresh_token"]}).data
    assert stale.post("/auth/logout", {"refresh_token": renewed["refresh_token"]}).status == 204
    assert stale.get("/users/me").codes == ["INVALID_TOKEN"]


def test_a_changed_password_ends_refresh_and_access_tokens_alike(
    anonymous: Client, dsn: str
) -> None:
    email = "carl@example.com"
    accounts.create_user(dsn, email=email, password="secret-of-carl", role="Administrator")
    answer = anonymous.post("/auth/login", {"email": email, "password": "secret-of-carl"}).data
    clients = [
        anonymous.bearing(answer["access_token"]),
        anonymous.login(email, "secret-of-carl"),
    ]
    assert [client.get("/users/me").status for client in clients] == [200, 200]
    accounts.set_password(dsn, email=email, password="another password")
    assert [client.get("/users/me").codes for client in clients] == [["INVALID_TOKEN"]] * 2
    assert anonymous.post("/auth/refresh", {"refresh_token": answer["refresh_token"]}).status == 401
    assert anonymous.login(email, "another password").get("/users/me").status == 200


def test_a_token_of_a_session_that_is_not_there_is_refused_beside_one_that_is(
    api: Client, config: Config
) -> None:
    me = api.get("/users/me").data["id"]
    claims = {"id": me, "session": str(uuid4())}
    other = access_token(claims, secret=config.secret or "", life=timedelta(minutes=1))
    assert api.bearing(other).get("/users/me").codes == ["INVALID_TOKEN"]
    assert api.get("/users/me").status == 200


def test_a_session_is_good_for_its_own_user_only(
    api: Client, anonymous: Client, dsn: str, config: Config
) -> None:
    accounts.create_user(
        dsn, email="bob@example.com", password="secret-of-bob", role="Administrator"
    )
    answer = anonymous.post(
        "/auth/login", {"email": "bob@example.com", "password": "secret-of-bob"}
    ).data
    claims = {
        "id": api.get("/users/me").data["id"],
        "session": answer["refresh_token"].partition(".")[0],
    }
    mixed = access_token(claims, secret=config.secret or "", life=timedelta(minutes=1))
    assert api.bearing(mixed).get("/users/me").codes == ["INVALID_TOKEN"]


def test_who_knows_only_the_id_of_a_session_cannot_end_it(anonymous: Client) -> None:
    tokens = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    session = tokens["refresh_token"].partition(".")[0]
    for secret in ("", "guessed", "None"):
        for path in ("/auth/refresh", "/auth/logout", "/auth/logout?all=true"):
            answer = anonymous.post(path, {"refresh_token": f"{session}.{secret}.x"})
            assert answer.codes == ["INVALID_CREDENTIALS"], answer
    assert anonymous.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status == 200


def test_a_refresh_token_that_comes_twice_ends_the_access_tokens_of_its_session(
    anonymous: Client, dsn: str
) -> None:
    first = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    second = anonymous.post("/auth/refresh", {"refresh_token": first["refresh_token"]}).data
    assert anonymous.bearing(second["access_token"]).get("/users/me").status == 200
    run_sql(dsn, USE_TOKENS_EARLIER)
    anonymous.post("/auth/refresh", {"refresh_token": first["refresh_token"]})
    assert anonymous.bearing(second["access_token"]).get("/users/me").codes == ["INVALID_TOKEN"]


def test_a_login_clears_the_expired_sessions_of_its_user_and_the_next_start_all(
    anonymous: Client, dsn: str, config: Config
) -> None:
    dora = "dora@example.com"
    finn = "finn@example.com"
    for email in (dora, finn):
        accounts.create_user(dsn, email=email, password="their secret", role=None)
    with psycopg.connect(dsn, autocommit=True) as connection:

        def expired() -> list[tuple[str, int]]:
            return connection.execute(HOW_MANY_EXPIRED, [[dora, finn]]).fetchall()

        connection.execute(EXPIRED_SESSIONS, [[dora, finn]])
        assert expired() == [(dora, 1), (finn, 1)]
        anonymous.login(dora, "their secret")
        assert expired() == [(finn, 1)]
        prepare(dsn, config=config)
        assert expired() == []


EXPIRED_SESSIONS = """
    INSERT INTO system_sessions ("user", token, expires)
    SELECT id, 'digest', now() - interval '1 hour' FROM system_users WHERE email = ANY (%s)
"""
HOW_MANY_EXPIRED = """
    SELECT email, count(*) FROM system_sessions JOIN system_users ON system_users.id = "user"
    WHERE expires < now() AND email = ANY (%s) GROUP BY email ORDER BY email
"""


def test_a_start_makes_the_partitions_of_the_coming_months(dsn: str, config: Config) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        last = connection.execute(
            "SELECT max(tablename) FROM pg_tables WHERE tablename ~ '^system_activity_2'"
        ).fetchone()
        assert last
        connection.execute(f'DROP TABLE "{last[0]}"'.encode())
        prepare(dsn, config=config)
        assert connection.execute("SELECT to_regclass(%s) IS NOT NULL", last).fetchone() == (True,)


def test_a_password_that_changes_during_a_login_lets_nobody_in(
    anonymous: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    email = "emil@example.com"
    accounts.create_user(dsn, email=email, password="secret-of-emil", role=None)
    matches = Passwords.matches

    def slowly(own: Passwords, stored: str | None, password: str, *, reveals_match: bool) -> bool:
        matched = matches(own, stored, password, reveals_match=reveals_match)
        accounts.set_password(dsn, email=email, password="another password")
        return matched

    monkeypatch.setattr(Passwords, "matches", slowly)
    answer = anonymous.post("/auth/login", {"email": email, "password": "secret-of-emil"})
    assert answer.codes == ["INVALID_CREDENTIALS"]


def test_a_refresh_that_was_given_up_in_a_deadlock_is_done_again(
    anonymous: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = anonymous.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    faults = fail_next_transaction(monkeypatch)
    assert anonymous.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status == 200
    assert faults == []


def test_every_address_costs_one_comparison_of_hashes(
    anonymous: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of an answer does not reveal who has an account here, or at a provider."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            b"INSERT INTO system_users (email, provider, external_identifier)"
            b" VALUES ('external@example.com', 'keycloak', 'external')"
        )
    compared: list[str] = []
    verify = passwords._verify

    def counting(stored: str, password: str) -> bool:
        compared.append(stored)
        return verify(stored, password)

    monkeypatch.setattr(passwords, "_verify", counting)
    for email in (ADMIN_EMAIL, "nobody@example.com", "external@example.com"):
        answer = anonymous.post("/auth/login", {"email": email, "password": "x"})
        assert answer.codes == ["INVALID_CREDENTIALS"]
    assert [stored.split("$")[1:4] for stored in compared] == [compared[0].split("$")[1:4]] * 3
