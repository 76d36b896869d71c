"""What stands against guessing passwords."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cms.database.statements import statement
from cms.hashing import passwords
from cms.hashing.passwords import Passwords
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer
from tests.members import new_role
from tests.people import PASSWORD, login, of_user, outcome, person, tried_again
from tests.statements import fail_next_transaction, record_primary_fetches
from tests.things import Stage

REFUSED = (401, ["INVALID_CREDENTIALS"])
SUSPENDED = (401, ["USER_SUSPENDED"])


@pytest.fixture(autouse=True)
def three_attempts(stage: Stage) -> None:
    set_attempts(stage, 3)


def set_attempts(stage: Stage, attempts: int | None) -> None:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_settings SET auth_login_attempts = %s", [attempts])


def change(stage: Stage, email: str, assignment: str) -> None:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(
            f"UPDATE system_users SET {assignment} WHERE email = %s".encode(), [email]
        )


def test_that_many_failures_suspend_and_only_the_right_password_reveals_it(stage: Stage) -> None:
    email = person(stage)
    assert [outcome(login(stage.anonymous, email, "wrong")) for _ in range(3)] == [REFUSED] * 3
    assert of_user(stage, email, "status") == "suspended"
    assert outcome(login(stage.anonymous, email, "wrong")) == REFUSED
    assert outcome(login(stage.anonymous, email)) == SUSPENDED


def test_an_administrator_sets_the_user_active_again(stage: Stage) -> None:
    email = person(stage)
    for _ in range(3):
        login(stage.anonymous, email, "wrong")
    change(stage, email, "status = 'active'")
    assert login(stage.anonymous, email).status == 200
    assert of_user(stage, email, "failed_logins") == 0


def test_a_suspension_that_was_given_up_in_a_deadlock_is_done_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    email = person(stage)
    for _ in range(2):
        login(stage.anonymous, email, "wrong")
    faults = fail_next_transaction(monkeypatch)
    assert outcome(login(stage.anonymous, email, "wrong")) == REFUSED
    assert faults == []
    assert of_user(stage, email, "status") == "suspended"


@pytest.mark.parametrize("by_array", [True, False], ids=["array", "key"])
def test_who_is_made_active_again_starts_with_no_failures(stage: Stage, *, by_array: bool) -> None:
    """One more wrong password would suspend the user at once, if those from before still
    counted.
    """
    email = person(stage)
    for _ in range(3):
        login(stage.anonymous, email, "wrong")
    key = of_user(stage, email, "id")
    if by_array:
        assert stage.admin.patch("/users", [{"id": str(key), "status": "active"}]).status == 200
    else:
        assert stage.admin.patch(f"/users/{key}", {"status": "active"}).status == 200
    assert of_user(stage, email, "failed_logins") == 0
    assert [outcome(login(stage.anonymous, email, "wrong")) for _ in range(2)] == [REFUSED] * 2
    assert of_user(stage, email, "status") == "active"
    assert login(stage.anonymous, email).status == 200


def test_other_changes_of_a_user_leave_the_count_as_it_is(stage: Stage) -> None:
    email = person(stage)
    login(stage.anonymous, email, "wrong")
    assert stage.admin.patch(f"/users/{of_user(stage, email, 'id')}", {"title": "Dr"}).status == 200
    assert of_user(stage, email, "failed_logins") == 1


def test_a_login_forgets_the_failures_before_it(stage: Stage) -> None:
    email = person(stage)
    for _ in range(3):
        for _ in range(2):
            login(stage.anonymous, email, "wrong")
        assert login(stage.anonymous, email).status == 200


def test_null_is_never(stage: Stage) -> None:
    set_attempts(stage, None)
    email = person(stage)
    for _ in range(30):
        login(stage.anonymous, email, "wrong")
    assert login(stage.anonymous, email).status == 200


def test_fifty_wrong_logins_at_once_all_count(stage: Stage) -> None:
    set_attempts(stage, 50)
    email = person(stage)

    def wrong_login(_: int) -> object:
        return outcome(tried_again(lambda: login(stage.anonymous, email, "wrong")))

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(wrong_login, range(50)))
    assert answers == [REFUSED] * 50
    assert (of_user(stage, email, "failed_logins"), of_user(stage, email, "status")) == (
        50,
        "suspended",
    )


def test_who_was_suspended_meanwhile_is_not_let_in(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    email = person(stage)
    matches = Passwords.matches

    def slowly(own: Passwords, stored: str | None, password: str, *, reveals_match: bool) -> bool:
        change(stage, email, "status = 'suspended'")
        return matches(own, stored, password, reveals_match=reveals_match)

    monkeypatch.setattr(Passwords, "matches", slowly)
    assert outcome(login(stage.anonymous, email)) == REFUSED


def test_a_lockout_ends_what_is_open(stage: Stage) -> None:
    email = person(stage)
    tokens = login(stage.anonymous, email).data
    bearing = stage.anonymous.bearing(tokens["access_token"])
    assert bearing.get("/permissions/me").status == 200
    for _ in range(3):
        login(stage.anonymous, email, "wrong")
    for _ in range(2):  # suspended, and active again
        assert bearing.get("/permissions/me").codes == ["INVALID_TOKEN"]
        assert (
            stage.anonymous.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status
            == 401
        )
        assert (
            stage.admin.patch(f"/users/{of_user(stage, email, 'id')}", {"status": "active"}).status
            == 200
        )


def test_the_last_administrator_is_slowed_down_instead(stage: Stage) -> None:
    for _ in range(3):
        login(stage.anonymous, ADMIN_EMAIL, "wrong")
    assert of_user(stage, ADMIN_EMAIL, "status") == "active"
    waiting = of_user(stage, ADMIN_EMAIL, "login_after - now() BETWEEN '0.1 s' AND '1.1 s'")
    assert waiting
    assert outcome(login(stage.anonymous, ADMIN_EMAIL, ADMIN_PASSWORD)) == REFUSED
    assert of_user(stage, ADMIN_EMAIL, "failed_logins") == 3
    change(stage, ADMIN_EMAIL, "login_after = now()")
    login(stage.anonymous, ADMIN_EMAIL, "wrong")
    assert of_user(stage, ADMIN_EMAIL, "login_after - now() BETWEEN '1.1 s' AND '2.1 s'")
    change(stage, ADMIN_EMAIL, "login_after = now(), failed_logins = 1000")
    login(stage.anonymous, ADMIN_EMAIL, "wrong")
    assert of_user(stage, ADMIN_EMAIL, "login_after - now() BETWEEN '29 s' AND '30 s'")
    change(stage, ADMIN_EMAIL, "login_after = now()")
    assert login(stage.anonymous, ADMIN_EMAIL, ADMIN_PASSWORD).status == 200
    assert of_user(stage, ADMIN_EMAIL, "login_after") is None


def test_the_first_of_two_administrators_is_suspended_and_the_second_stays(stage: Stage) -> None:
    """By a parent of the role as well, and with everything at once."""
    role = new_role(stage, parent=new_role(stage, admin_access=True))
    emails = [person(stage, role=role), person(stage, role=role)]

    def wrong_login(turn: int) -> Answer:
        return tried_again(lambda: login(stage.anonymous, emails[turn % 2], "wrong"))

    change(stage, ADMIN_EMAIL, "status = 'archived'")
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(wrong_login, range(40)))
        assert sorted(of_user(stage, email, "status") for email in emails) == [
            "active",
            "suspended",
        ]
    finally:
        change(stage, ADMIN_EMAIL, "status = 'active'")
        for email in emails:
            change(stage, email, "status = 'suspended'")


def test_a_suspension_waits_its_turn_among_those_who_count_administrators(stage: Stage) -> None:
    email = person(stage)
    for _ in range(2):
        login(stage.anonymous, email, "wrong")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as threads, psycopg.connect(stage.dsn) as other:
        other.execute(statement("lock_accounts").encode())
        third = threads.submit(login, stage.anonymous, email, "wrong")
        while not stage.value(waiting):
            assert not third.done()
        assert of_user(stage, email, "status") == "active"
        other.rollback()
        third.result()
    assert of_user(stage, email, "status") == "suspended"


def test_a_hash_is_compared_once_for_everybody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known or unknown, without a password, suspended, slowed down: the work
    is the same and so is the answer.
    """
    seen: list[str] = []
    statements = record_primary_fetches(monkeypatch)
    verify = passwords._verify

    def counted(stored: str, password: str) -> bool:
        seen.append(password)
        return verify(stored, password)

    monkeypatch.setattr(passwords, "_verify", counted)
    emails = [
        person(stage),
        "nobody@example.com",
        "no address at all",
        person(stage, password=None),
        person(stage, status="suspended"),
        person(stage, status="invited", password=None),
        person(stage, provider="google"),
        person(stage, login_after="2100-01-01"),
    ]
    answers = [login(stage.anonymous, email, "wrong") for email in emails]
    assert {answer.text for answer in answers} == {answers[0].text}
    assert [outcome(answer) for answer in answers] == [REFUSED] * len(emails)
    assert seen == ["wrong"] * len(emails)
    assert statements == [statement("find_account"), statement("count_failed_login")] * len(emails)


@pytest.mark.parametrize("status", ["draft", "invited", "archived"])
def test_only_a_suspended_user_gets_the_reason(stage: Stage, status: str) -> None:
    assert outcome(login(stage.anonymous, person(stage, status=status))) == REFUSED


def test_a_guess_at_the_password_for_a_second_factor_counts_as_well(stage: Stage) -> None:
    email = person(stage)
    user = stage.anonymous.bearing(login(stage.anonymous, email).data["access_token"])
    for _ in range(3):
        user.post("/users/me/tfa/generate", {"password": "guess"})
    assert of_user(stage, email, "status") == "suspended"
    assert user.post("/users/me/tfa/generate", {"password": PASSWORD}).codes == ["INVALID_TOKEN"]
