"""Logins, refreshes and requests among 100,000 users and as many sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cms.hashing import hashing_queue
from tests.client import Answer
from tests.people import hashed, login, of_user, outcome, person, quick_hashes
from tests.statistics import statistics_of
from tests.things import Stage

ACCOUNTS = 100_000
SESSION = "cms_session_token"

_USERS = """
    INSERT INTO system_users (email, password, token, first_name)
    SELECT 'user' || n || '@example.com', %s, 'digest ' || n, 'User ' || n
    FROM generate_series(1, %s) AS n
"""
_SESSIONS = """
    INSERT INTO system_sessions ("user", token, mode, expires)
    SELECT id, 'digest of ' || id, 'json', now() + interval '7 days'
    FROM system_users
"""


@contextmanager
def hashing() -> Iterator[None]:
    """Hash a password that takes as long as the block."""
    begun = threading.Event()
    end = threading.Event()

    def hash_one() -> None:
        begun.set()
        end.wait(20)

    thread = threading.Thread(target=lambda: hashing_queue.queue.run(hash_one))
    thread.start()
    try:
        assert begun.wait(20)
        yield
    finally:
        end.set()
        thread.join(20)


def test_a_login_that_waits_too_long_is_to_come_again_and_counts_no_failure(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing_queue, "MAX_SECONDS", 0.02)
    with quick_hashes():
        email = person(stage)
        with hashing():
            answers = [login(stage.anonymous, email, "wrong"), login(stage.anonymous, "nobody")]
        assert [outcome(answer) for answer in answers] == [(503, ["SERVICE_UNAVAILABLE"])] * 2
        assert answers[0].text == answers[1].text
        assert int(answers[0].headers["retry-after"]) > 0
        assert of_user(stage, email, "failed_logins") == 0
        assert login(stage.anonymous, email).status == 200


def test_other_requests_are_answered_while_a_password_is_hashed(stage: Stage) -> None:
    with hashing():
        assert stage.admin.get("/users/me").status == 200


@pytest.fixture(scope="module")
def crowded(stage: Stage) -> Iterator[Stage]:
    with quick_hashes():
        with stage.side_door.connection() as connection:
            connection.execute(_USERS, [hashed(), ACCOUNTS])
            connection.execute(_SESSIONS)
            connection.execute("ANALYZE system_users, system_sessions")
        yield stage


def scans_of(stage: Stage) -> list[int]:
    """Return how often users and sessions have been read as a whole."""
    return [statistics_of(stage, name).scans for name in ("system_users", "system_sessions")]


@pytest.mark.release
def test_logins_sessions_and_pages_of_users_read_no_table_as_a_whole(crowded: Stage) -> None:
    anonymous = crowded.anonymous

    def log_in(number: int, mode: str = "json") -> Answer:
        answer = login(anonymous, f"USER{number}@example.com", mode=mode)
        assert answer.status == 200, answer
        return answer

    log_in(1)
    before = scans_of(crowded)
    for number in range(1, 6):
        token = log_in(number).data["refresh_token"]
        assert anonymous.post("/auth/refresh", {"refresh_token": token}).status == 200
        cookie = log_in(number, mode="session").cookies[SESSION].value
        assert anonymous.send("GET", "/users/me", Cookie=f"{SESSION}={cookie}").status == 200
    assert login(anonymous, "nobody@example.com").status == 401
    page = crowded.admin.get("/users", fields="id,email", limit=25, page=2).data
    assert len(page) == 25
    assert crowded.admin.get(f"/users/{page[0]['id']}").status == 200
    assert scans_of(crowded) == before
