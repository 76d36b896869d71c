"""Sessions in their three modes: cookies, refresh, logout, theft."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from argon2 import PasswordHasher

from tests.client import Answer, Client, with_other_status
from tests.people import OWN_ORIGIN, PASSWORD, USE_TOKENS_EARLIER, login, of_user, outcome, person
from tests.things import Stage

REFUSED = (401, ["INVALID_CREDENTIALS"])
SESSION = "cms_session_token"
REFRESH = "cms_refresh_token"


def cookie_value(answer: Answer, name: str) -> str:
    return answer.cookies[name].value


def with_cookie(
    client: Client,
    method: str,
    path: str,
    cookie: str,
    body: object = None,
    *,
    origin: str | None = OWN_ORIGIN,
) -> Answer:
    headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
    return client.send(method, path, body, **headers)


def test_in_cookie_mode_the_refresh_token_lies_in_a_cookie_that_no_script_reads(
    stage: Stage,
) -> None:
    answer = login(stage.anonymous, person(stage), mode="cookie")
    assert answer.data.keys() == {"access_token", "expires"}
    cookie = answer.cookies[REFRESH]
    assert (cookie.http_only, cookie.secure, cookie.same_site, cookie.path) == (
        True,
        False,
        "Lax",
        "/auth",
    )
    assert cookie.max_age == 7 * 24 * 3600


def test_in_session_mode_one_cookie_is_everything(stage: Stage) -> None:
    answer = login(stage.anonymous, person(stage), mode="session")
    assert answer.data == {"expires": 24 * 3600 * 1000}
    cookie = answer.cookies[SESSION]
    assert (cookie.http_only, cookie.same_site, cookie.path, cookie.max_age) == (
        True,
        "Lax",
        "/",
        24 * 3600,
    )
    me = with_cookie(stage.anonymous, "GET", "/permissions/me", f"{SESSION}={cookie.value}")
    assert me.status == 200


def test_a_session_cookie_is_its_user(stage: Stage, admin_session: str) -> None:
    answer = with_cookie(stage.anonymous, "GET", "/users/me", admin_session, origin=None)
    assert answer.data["email"] == "admin@example.com"


@pytest.fixture
def admin_session(stage: Stage) -> str:
    answer = login(
        stage.anonymous, "admin@example.com", "correct horse battery staple", mode="session"
    )
    return f"{SESSION}={cookie_value(answer, SESSION)}"


def test_a_session_cookie_is_dead_at_once_after_logout(stage: Stage, admin_session: str) -> None:
    assert with_cookie(stage.anonymous, "GET", "/users/me", admin_session).status == 200
    gone = with_cookie(stage.anonymous, "POST", "/auth/logout", admin_session)
    assert gone.status == 204
    assert gone.cookies[SESSION].value == ""
    assert gone.cookies[SESSION].expires
    assert outcome(with_cookie(stage.anonymous, "GET", "/users/me", admin_session)) == (
        401,
        ["INVALID_TOKEN"],
    )


def test_a_page_of_another_site_cannot_write_with_the_cookie(
    stage: Stage, admin_session: str
) -> None:
    for origin in (
        "https://evil.example",
        "null",
        "http://falconframework.org:8080",
        "https://falconframework.org",
    ):
        answer = with_cookie(
            stage.anonymous, "POST", "/utils/cache/clear", admin_session, origin=origin
        )
        assert outcome(answer) == (403, ["FORBIDDEN"]), origin
        assert (
            with_cookie(stage.anonymous, "GET", "/users/me", admin_session, origin=origin).status
            == 200
        )


def test_a_write_with_a_cookie_and_without_an_origin_is_refused(
    stage: Stage, admin_session: str
) -> None:
    client = stage.anonymous
    assert (
        with_cookie(client, "POST", "/utils/cache/clear", admin_session, origin=None).status == 403
    )
    from_page = {"Cookie": admin_session, "Referer": f"{OWN_ORIGIN}/admin/content?x=1"}
    assert client.send("POST", "/utils/cache/clear", **from_page).status == 204
    from_elsewhere = {
        "Cookie": admin_session,
        "Referer": "https://evil.example/?http://falconframework.org/",
    }
    assert client.send("POST", "/utils/cache/clear", **from_elsewhere).status == 403


def test_the_address_of_the_service_is_an_origin_of_its_own(
    stage: Stage, admin_session: str
) -> None:
    answer = with_cookie(
        stage.anonymous, "POST", "/utils/cache/clear", admin_session, origin="http://127.0.0.1:8055"
    )
    assert answer.status == 204


def test_a_token_in_the_header_wins_over_a_cookie_and_needs_no_origin(
    stage: Stage, admin_session: str
) -> None:
    assert (
        stage.admin.send("POST", "/utils/cache/clear", Cookie=f"{SESSION}=nonsense").status == 204
    )
    answer = stage.anonymous.bearing("a.b.c").send("GET", "/users/me", Cookie=admin_session)
    assert outcome(answer) == (401, ["INVALID_TOKEN"])


@pytest.mark.parametrize(
    "cookie", ["nonsense", "a.b.c", "0b9b1dc6-7ae1-4d4b-a6ef-0c1e76a5a5d3.x.y"]
)
def test_a_cookie_that_names_no_session_is_refused(stage: Stage, cookie: str) -> None:
    answer = with_cookie(stage.anonymous, "GET", "/users/me", f"{SESSION}={cookie}")
    assert outcome(answer) == (401, ["INVALID_TOKEN"])


def test_no_kind_of_token_passes_for_another(stage: Stage) -> None:
    """A refresh token is neither an access token nor a session cookie, an
    access token no refresh token or cookie.
    """
    client = stage.anonymous
    email = person(stage)
    tokens = login(client, email).data
    session = cookie_value(login(client, email, mode="session"), SESSION)
    refused = (401, ["INVALID_TOKEN"])
    for token in (tokens["refresh_token"], session):
        assert outcome(client.bearing(token).get("/users/me")) == refused
    for cookie in (tokens["refresh_token"], tokens["access_token"]):
        assert outcome(with_cookie(client, "GET", "/users/me", f"{SESSION}={cookie}")) == refused
    answer = client.post("/auth/refresh", {"refresh_token": tokens["access_token"]})
    assert outcome(answer) == (401, ["INVALID_CREDENTIALS"])


def test_a_refresh_keeps_the_mode(stage: Stage) -> None:
    client = stage.anonymous
    email = person(stage)
    token = cookie_value(login(client, email, mode="cookie"), REFRESH)
    for body in ({"mode": "cookie"}, {}, None):
        answer = with_cookie(client, "POST", "/auth/refresh", f"{REFRESH}={token}", body)
        assert answer.data.keys() == {"access_token", "expires"}, answer
        assert cookie_value(answer, REFRESH) != token
        token = cookie_value(answer, REFRESH)


def test_a_refresh_of_a_session_cookie_prolongs_it(stage: Stage) -> None:
    token = cookie_value(login(stage.anonymous, person(stage), mode="session"), SESSION)
    stage.execute("UPDATE system_sessions SET expires = now() + interval '1 minute'")
    answer = with_cookie(
        stage.anonymous, "POST", "/auth/refresh", f"{SESSION}={token}", {"mode": "session"}
    )
    assert answer.data == {"expires": 24 * 3600 * 1000}
    assert cookie_value(answer, SESSION) == token
    session = token.partition(".")[0]
    assert stage.value(
        f"SELECT expires > now() + interval '23 hours' FROM system_sessions WHERE id = '{session}'"
    )


def test_two_pages_may_refresh_one_session_cookie_at_once(stage: Stage) -> None:
    cookie = (
        f"{SESSION}={cookie_value(login(stage.anonymous, person(stage), mode='session'), SESSION)}"
    )
    with ThreadPoolExecutor(4) as threads:
        answers = list(
            threads.map(
                lambda _: with_cookie(stage.anonymous, "POST", "/auth/refresh", cookie), range(4)
            )
        )
    assert with_other_status(answers, 200) == []
    assert with_cookie(stage.anonymous, "GET", "/permissions/me", cookie).status == 200


def test_a_session_cookie_ends_with_its_life(stage: Stage) -> None:
    """No counter of freshness moves then, so that every request looks."""
    token = cookie_value(login(stage.anonymous, person(stage), mode="session"), SESSION)
    cookie = f"{SESSION}={token}"
    assert with_cookie(stage.anonymous, "GET", "/permissions/me", cookie).status == 200
    ended = (
        "UPDATE system_sessions SET expires = now() - interval '1 second' WHERE mode = "
        "'session' RETURNING 1"
    )
    assert stage.value(ended) == 1
    assert with_cookie(stage.anonymous, "GET", "/permissions/me", cookie).status == 401
    assert with_cookie(stage.anonymous, "POST", "/auth/refresh", cookie).status == 401


def test_another_sites_page_can_neither_refresh_nor_log_out(stage: Stage) -> None:
    client = stage.anonymous
    cookie = f"{REFRESH}={cookie_value(login(client, person(stage), mode='cookie'), REFRESH)}"
    for path in ("/auth/refresh", "/auth/logout"):
        assert (
            with_cookie(client, "POST", path, cookie, origin="https://evil.example").status == 403
        )
    assert with_cookie(client, "POST", "/auth/refresh", cookie).status == 200


def test_a_token_that_is_long_used_up_ends_the_whole_family(stage: Stage) -> None:
    client = stage.anonymous
    tokens = [login(client, person(stage)).data]
    for _ in range(3):
        tokens.append(
            client.post("/auth/refresh", {"refresh_token": tokens[-1]["refresh_token"]}).data
        )
    newest = client.bearing(tokens[-1]["access_token"])
    assert newest.get("/permissions/me").status == 200
    stage.execute(USE_TOKENS_EARLIER)
    assert client.post("/auth/refresh", {"refresh_token": tokens[0]["refresh_token"]}).status == 401
    assert (
        client.post("/auth/refresh", {"refresh_token": tokens[-1]["refresh_token"]}).status == 401
    )
    assert outcome(newest.get("/permissions/me")) == (401, ["INVALID_TOKEN"])


def test_a_forged_token_of_a_session_ends_nothing(stage: Stage) -> None:
    client = stage.anonymous
    token = login(client, person(stage)).data["refresh_token"]
    session, secret, signature = token.split(".")
    for forged in (
        f"{session}.x.{signature}",
        f"{session}.{secret}.x",
        f"{session}.x.",
        f"{session}..",
        session,
    ):
        assert client.post("/auth/refresh", {"refresh_token": forged}).codes == [
            "INVALID_CREDENTIALS"
        ]
    assert client.post("/auth/refresh", {"refresh_token": token}).status == 200


@pytest.mark.parametrize("mode", ["json", "cookie"])
def test_refreshes_at_once_get_the_same_next_token_and_the_session_goes_on(
    stage: Stage, mode: str
) -> None:
    client = stage.anonymous
    first = login(client, person(stage), mode=mode)
    token = first.data["refresh_token"] if mode == "json" else cookie_value(first, REFRESH)
    body = {"refresh_token": token, "mode": mode}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.post("/auth/refresh", body), range(4)))
    for answer in answers:
        assert client.bearing(answer.data["access_token"]).get("/users/me").status == 200
    if mode == "json":
        renewed = {answer.data["refresh_token"] for answer in answers}
    else:
        renewed = {cookie_value(answer, REFRESH) for answer in answers}
    assert len(renewed) == 1
    assert token not in renewed
    assert client.post("/auth/refresh", {"refresh_token": renewed.pop()}).status == 200


def test_each_of_several_used_tokens_answers_its_own_next_one_for_ten_seconds(stage: Stage) -> None:
    client = stage.anonymous
    tokens = [login(client, person(stage)).data["refresh_token"]]
    for _ in range(3):
        answer = client.post("/auth/refresh", {"refresh_token": tokens[-1]})
        tokens.append(answer.data["refresh_token"])
    for used, following in pairwise(tokens):
        answer = client.post("/auth/refresh", {"refresh_token": used})
        assert answer.data["refresh_token"] == following
    stage.execute(USE_TOKENS_EARLIER)
    assert client.post("/auth/refresh", {"refresh_token": tokens[-1]}).status == 200
    assert client.post("/auth/refresh", {"refresh_token": tokens[2]}).status == 401
    assert client.post("/auth/refresh", {"refresh_token": tokens[-1]}).status == 401


def test_ten_seconds_count_from_the_first_use_of_a_token(stage: Stage) -> None:
    client = stage.anonymous
    token = login(client, person(stage)).data["refresh_token"]
    for _ in range(2):
        renewed = client.post("/auth/refresh", {"refresh_token": token}).data
    stage.execute(USE_TOKENS_EARLIER)
    assert client.post("/auth/refresh", {"refresh_token": token}).status == 401
    assert client.bearing(renewed["access_token"]).get("/users/me").status == 401


def test_a_token_that_has_just_been_used_serves_for_a_logout(stage: Stage) -> None:
    client = stage.anonymous
    token = login(client, person(stage)).data["refresh_token"]
    renewed = client.post("/auth/refresh", {"refresh_token": token}).data["refresh_token"]
    assert client.post("/auth/logout", {"refresh_token": token}).status == 204
    for ended in (token, renewed):
        assert outcome(client.post("/auth/refresh", {"refresh_token": ended})) == REFUSED
        assert outcome(client.post("/auth/logout", {"refresh_token": ended})) == REFUSED


@pytest.mark.release
def test_an_access_token_lives_on_after_the_logout_in_every_process_alike(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    seen = make_client()
    unseen = make_client()
    admin = make_client().bearing(admin_token)
    assert (
        admin.post(
            "/users", {"email": "ann@example.com", "password": PASSWORD, "status": "active"}
        ).status
        == 200
    )
    tokens = login(seen, "ann@example.com").data
    assert seen.bearing(tokens["access_token"]).get("/users/me").status == 200
    assert seen.post("/auth/logout", {"refresh_token": tokens["refresh_token"]}).status == 204
    for _ in range(2):
        for client in (seen, unseen):
            assert client.bearing(tokens["access_token"]).get("/users/me").status == 200
            assert (
                outcome(client.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}))
                == REFUSED
            )
            assert (
                outcome(client.post("/auth/logout", {"refresh_token": tokens["refresh_token"]}))
                == REFUSED
            )
        login(unseen, "ann@example.com")  # what it sweeps away is older
        admin.patch("/settings", {"project_name": "so that all processes look again"})
    key = admin.get("/users", **{"filter[email]": "ann@example.com"}).data[0]["id"]
    assert admin.patch(f"/users/{key}", {"password": "another one than before"}).status == 200
    for client in (seen, unseen):
        assert outcome(client.bearing(tokens["access_token"]).get("/users/me")) == (
            401,
            ["INVALID_TOKEN"],
        )


def test_logout_everywhere_ends_all_sessions_of_the_user_and_of_nobody_else(stage: Stage) -> None:
    client = stage.anonymous
    email = person(stage)
    first = login(client, email).data
    second = login(client, email).data
    cookie = f"{SESSION}={cookie_value(login(client, email, mode='session'), SESSION)}"
    other = login(client, person(stage)).data
    bearing = client.bearing(second["access_token"])
    assert bearing.get("/permissions/me").status == 200
    assert (
        client.post("/auth/logout?all=true", {"refresh_token": first["refresh_token"]}).status
        == 204
    )
    assert client.post("/auth/refresh", {"refresh_token": second["refresh_token"]}).status == 401
    assert bearing.get("/permissions/me").status == 401
    assert with_cookie(client, "GET", "/permissions/me", cookie).status == 401
    assert client.post("/auth/refresh", {"refresh_token": other["refresh_token"]}).status == 200


@pytest.mark.quick(1)
@pytest.mark.parametrize("status", ["suspended", "archived", "draft", "invited"])
def test_sessions_do_not_come_back_with_who_was_not_active_meanwhile(
    stage: Stage, status: str
) -> None:
    email = person(stage)
    tokens = login(stage.anonymous, email).data
    cookie = login(stage.anonymous, email, mode="session")
    bearing = stage.anonymous.bearing(tokens["access_token"])
    path = f"/users/{of_user(stage, email, 'id')}"
    headers = {"Cookie": f"cms_session_token={cookie.cookies['cms_session_token'].value}"}
    for kept in ({"status": "active"}, {"password": "**********"}):
        assert stage.admin.patch(path, kept).status == bearing.get("/users/me").status == 200
    assert stage.admin.patch(path, {"status": status}).status == 200
    assert stage.admin.patch(path, {"status": "active"}).status == 200
    assert bearing.get("/users/me").codes == ["INVALID_TOKEN"]
    assert stage.anonymous.send("GET", "/users/me", **headers).codes == ["INVALID_TOKEN"]
    assert (
        stage.anonymous.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status
        == 401
    )
    assert login(stage.anonymous, email).status == 200


def test_a_logout_without_any_token_names_what_is_missing(stage: Stage) -> None:
    answer = stage.anonymous.post("/auth/logout")
    assert (answer.status, answer.errors[0]["field"]) == (400, "refresh_token")
    assert stage.anonymous.post("/auth/logout?all=perhaps", {"refresh_token": "x"}).codes == [
        "INVALID_QUERY"
    ]


def test_an_unknown_mode_is_refused(stage: Stage) -> None:
    email = person(stage)
    assert outcome(login(stage.anonymous, email, mode="telepathy")) == (400, ["INVALID_PAYLOAD"])
    assert outcome(login(stage.anonymous, email, mode=1)) == (400, ["INVALID_PAYLOAD"])
    assert outcome(login(stage.anonymous, email, mode="ldap")) == (403, ["INVALID_PROVIDER"])


def test_behind_tls_cookies_are_for_tls_only_and_for_the_services_own_folder(
    make_client: Callable[..., Client],
) -> None:
    client = make_client(public_url="https://example.com/cms", session_cookie_secure=True)
    answer = login(client, "admin@example.com", "correct horse battery staple", mode="session")
    assert (answer.cookies[SESSION].secure, answer.cookies[SESSION].path) == (True, "/cms")
    cookie = f"{SESSION}={cookie_value(answer, SESSION)}"
    assert (
        with_cookie(
            client, "POST", "/utils/cache/clear", cookie, origin="https://example.com"
        ).status
        == 204
    )


def test_login_and_logout_are_written_down(stage: Stage) -> None:
    email = person(stage)
    headers = {"User-Agent": "tests", "Origin": "https://app.example"}
    answer = stage.anonymous.send(
        "POST", "/auth/login", {"email": email, "password": PASSWORD}, **headers
    )
    stage.anonymous.post("/auth/logout", {"refresh_token": answer.data["refresh_token"]})
    login(stage.anonymous, email, "wrong")
    user = of_user(stage, email, "id")
    activities = stage.admin.get(f'/activity?filter={{"user":{{"_eq":"{user}"}}}}&sort=id').data
    assert [(row["action"], row["collection"], row["item"]) for row in activities] == [
        ("login", "system_users", str(user)),
        ("logout", "system_users", str(user)),
    ]
    assert (activities[0]["ip"], activities[0]["user_agent"], activities[0]["origin"]) == (
        "127.0.0.1",
        *headers.values(),
    )


def test_without_providers_there_are_no_other_ways_to_log_in(stage: Stage) -> None:
    assert stage.anonymous.get("/auth").body == {"data": [], "disableDefault": False}


def test_a_hash_by_older_parameters_is_made_anew_by_a_login(stage: Stage) -> None:
    weak = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(PASSWORD)
    email = person(stage, password=weak)
    token = login(stage.anonymous, email).data["refresh_token"]
    assert of_user(stage, email, "password") != weak
    assert stage.anonymous.post("/auth/refresh", {"refresh_token": token}).status == 200
    hashed = of_user(stage, email, "password")
    assert login(stage.anonymous, email).status == 200
    assert of_user(stage, email, "password") == hashed
