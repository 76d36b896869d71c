"""The second factor: set up, asked for, used once, lost, enforced."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pyotp
import pytest

from tests.client import Answer, Client
from tests.members import may, new_role
from tests.people import PASSWORD, login, of_user, outcome, person, tried_again
from tests.things import Stage

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
TFA = "/users/me/tfa"


def code(secret: str = SECRET, *, steps: int = 0) -> str:
    """The code of now, or of some steps of half a minute away."""
    return pyotp.TOTP(secret).at(int(time.time()) + 30 * steps)


def logged_in(stage: Stage, email: str, otp: str | None = None) -> Client:
    return stage.anonymous.bearing(login(stage.anonymous, email, otp=otp).data["access_token"])


def test_a_second_factor_is_set_up_in_two_steps_and_then_asked_for(stage: Stage) -> None:
    email = person(stage)
    user = logged_in(stage, email)
    offer = user.post(f"{TFA}/generate", {"password": PASSWORD}).data
    assert of_user(stage, email, "tfa_secret") is None
    url = urlsplit(offer["otpauth_url"])
    assert (url.scheme, url.netloc, parse_qs(url.query)["secret"]) == (
        "otpauth",
        "totp",
        [offer["secret"]],
    )
    wrong = user.post(f"{TFA}/enable", {"secret": offer["secret"], "otp": "000000"})
    assert outcome(wrong) == (401, ["INVALID_OTP"])
    done = user.post(f"{TFA}/enable", {"secret": offer["secret"], "otp": code(offer["secret"])})
    assert (done.status, done.text) == (204, "")
    assert outcome(login(stage.anonymous, email)) == (401, ["INVALID_OTP"])
    assert login(stage.anonymous, email, otp=code(offer["secret"], steps=1)).status == 200


def test_the_password_is_asked_for_again_before_there_is_a_secret(stage: Stage) -> None:
    user = logged_in(stage, person(stage))
    assert outcome(user.post(f"{TFA}/generate", {"password": "guess"})) == (
        401,
        ["INVALID_CREDENTIALS"],
    )
    assert outcome(user.post(f"{TFA}/generate", {})) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("generate", {"password": PASSWORD}),
        ("enable", {"secret": SECRET, "otp": "000000"}),
        ("disable", {"otp": "000000"}),
        ("recovery-codes", {"password": PASSWORD}),
    ],
)
def test_without_credentials_there_is_nothing_to_protect(
    stage: Stage, call: str, body: dict[str, str]
) -> None:
    assert outcome(stage.anonymous.post(f"{TFA}/{call}", body)) == (401, ["INVALID_CREDENTIALS"])


@pytest.mark.parametrize(
    "secret", ["short", "1" * 32, "A" * 15, "A" * 129, SECRET.lower(), "A" * 17]
)
def test_a_secret_that_is_none_is_refused(stage: Stage, secret: str) -> None:
    user = logged_in(stage, person(stage))
    assert user.post(f"{TFA}/enable", {"secret": secret, "otp": "000000"}).codes == [
        "INVALID_PAYLOAD"
    ]


def test_a_second_one_cannot_take_the_first_ones_place(stage: Stage) -> None:
    user = logged_in(stage, person(stage, tfa_secret=SECRET), otp=code())
    assert user.post(f"{TFA}/generate", {"password": PASSWORD}).codes == ["INVALID_PAYLOAD"]
    other = pyotp.random_base32()
    assert user.post(f"{TFA}/enable", {"secret": other, "otp": code(other)}).codes == [
        "INVALID_PAYLOAD"
    ]


def test_a_code_is_good_once_and_none_before_it_afterwards(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    now = code()
    assert login(stage.anonymous, email, otp=now).status == 200
    assert outcome(login(stage.anonymous, email, otp=now)) == (401, ["INVALID_OTP"])
    assert outcome(login(stage.anonymous, email, otp=code(steps=-1))) == (401, ["INVALID_OTP"])
    assert login(stage.anonymous, email, otp=code(steps=1)).status == 200


def test_the_code_that_enabled_the_factor_does_not_log_in(stage: Stage) -> None:
    email = person(stage)
    now = code()
    assert (
        logged_in(stage, email).post(f"{TFA}/enable", {"secret": SECRET, "otp": now}).status == 204
    )
    assert outcome(login(stage.anonymous, email, otp=now)) == (401, ["INVALID_OTP"])


def test_of_many_logins_with_one_code_one_succeeds(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    now = code()

    def one_login() -> Answer:
        return login(stage.anonymous, email, otp=now)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: tried_again(one_login).status, range(8)))
    assert sorted(answers) == [200] + [401] * 7


@pytest.mark.parametrize("otp", ["12345", "1234567", "abcdef", "٠" * 6, "-00001", "0" * 100_000])
def test_what_is_no_code_is_a_wrong_one(stage: Stage, otp: str) -> None:
    assert outcome(login(stage.anonymous, person(stage, tfa_secret=SECRET), otp=otp)) == (
        401,
        ["INVALID_OTP"],
    )


def test_the_factor_is_not_revealed_before_the_password_is_right(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    assert outcome(login(stage.anonymous, email, "wrong", otp=code())) == (
        401,
        ["INVALID_CREDENTIALS"],
    )


def test_wrong_codes_count_for_the_lockout_and_a_missing_one_does_not(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    for _ in range(3):
        login(stage.anonymous, email)
    assert of_user(stage, email, "failed_logins") == 0
    for _ in range(2):
        login(stage.anonymous, email, otp="000000")
    assert of_user(stage, email, "failed_logins") == 2
    assert login(stage.anonymous, email, otp=code()).status == 200
    assert of_user(stage, email, "failed_logins") == 0


def test_recovery_codes_stand_in_for_the_factor_once_each(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    user = logged_in(stage, email, otp=code())
    codes = user.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).data
    assert len(set(codes)) == 10
    assert login(stage.anonymous, email, otp=codes[0]).status == 200
    assert outcome(login(stage.anonymous, email, otp=codes[0])) == (401, ["INVALID_OTP"])
    assert login(stage.anonymous, email, otp=codes[1].replace("-", "").lower()).status == 200


def test_new_recovery_codes_replace_the_old_ones_and_none_is_stored_as_it_is(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    user = logged_in(stage, email, otp=code())
    old = user.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).data
    new = user.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).data
    assert outcome(login(stage.anonymous, email, otp=old[0])) == (401, ["INVALID_OTP"])
    assert login(stage.anonymous, email, otp=new[0]).status == 200
    stored = stage.value("SELECT string_agg(digest, ' ') FROM system_recovery_codes")
    assert not any(code in stored or code.replace("-", "") in stored for code in new)


def test_recovery_codes_asked_for_twice_with_one_key_are_the_same_and_stored_nowhere(
    stage: Stage,
) -> None:
    email = person(stage, tfa_secret=SECRET)
    user = logged_in(stage, email, otp=code())

    def disable(key: str) -> Answer:
        return user.send(
            "POST", f"{TFA}/recovery-codes", {"password": PASSWORD}, **{"Idempotency-Key": key}
        )

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: tried_again(lambda: disable("once")), range(4)))
    codes = answers[0].data
    assert [answer.data for answer in answers] == [codes] * 4
    assert len(set(codes)) == 10
    assert login(stage.anonymous, email, otp=codes[0]).status == 200
    assert disable("once").data == codes
    assert outcome(login(stage.anonymous, email, otp=codes[0])) == (401, ["INVALID_OTP"])
    stored = stage.value("SELECT string_agg(encode(answer, 'escape'), ' ') FROM system_idempotency")
    assert not any(code in stored or code.replace("-", "") in stored for code in codes)
    assert not set(disable("another").data) & set(codes)


def test_a_repeat_answers_the_first_recovery_codes_also_when_the_factor_is_gone(
    stage: Stage,
) -> None:
    email = person(stage, tfa_secret=SECRET)
    user = logged_in(stage, email, otp=code())
    key = {"Idempotency-Key": "once"}
    codes = user.send("POST", f"{TFA}/recovery-codes", {"password": PASSWORD}, **key).data
    assert user.post(f"{TFA}/disable", {"otp": codes[0]}).status == 204
    assert user.send("POST", f"{TFA}/recovery-codes", {"password": PASSWORD}, **key).data == codes
    assert (
        outcome(user.send("POST", f"{TFA}/recovery-codes", {"password": "guess"}, **key))[0] == 401
    )


def test_recovery_codes_of_one_key_differ_from_user_to_user(stage: Stage) -> None:
    users = [logged_in(stage, person(stage, tfa_secret=SECRET), otp=code()) for _ in range(2)]
    key = {"Idempotency-Key": "once"}
    body = {"password": PASSWORD}
    first, second = (user.send("POST", f"{TFA}/recovery-codes", body, **key).data for user in users)
    assert not set(first) & set(second)


def test_a_code_of_somebody_else_is_none(stage: Stage) -> None:
    other = logged_in(stage, person(stage, tfa_secret=SECRET), otp=code())
    codes = other.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).data
    assert outcome(login(stage.anonymous, person(stage, tfa_secret=SECRET), otp=codes[0])) == (
        401,
        ["INVALID_OTP"],
    )


def test_recovery_codes_need_a_factor_and_the_password(stage: Stage) -> None:
    user = logged_in(stage, person(stage))
    assert user.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).codes == ["INVALID_PAYLOAD"]
    assert user.post(f"{TFA}/recovery-codes", {"password": "guess"}).codes == [
        "INVALID_CREDENTIALS"
    ]


def test_the_factor_goes_with_a_code_of_it_and_takes_its_recovery_codes_along(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    user = logged_in(stage, email, otp=code())
    codes = user.post(f"{TFA}/recovery-codes", {"password": PASSWORD}).data
    assert outcome(user.post(f"{TFA}/disable", {"otp": "000000"})) == (401, ["INVALID_OTP"])
    assert user.post(f"{TFA}/disable", {"otp": codes[0]}).status == 204
    assert login(stage.anonymous, email).status == 200
    assert (
        stage.value(
            f'SELECT count(*) FROM system_recovery_codes WHERE "user" = '
            f"'{of_user(stage, email, 'id')}'"
        )
        == 0
    )
    assert user.post(f"{TFA}/disable", {"otp": code()}).codes == ["INVALID_PAYLOAD"]


def test_disabled_many_times_at_once_with_one_key_it_is_done_once(stage: Stage) -> None:
    for _ in range(3):
        email = person(stage, tfa_secret=SECRET)
        user = logged_in(stage, email, otp=code(steps=-1))
        now = code()
        with ThreadPoolExecutor(8) as threads:
            calls = [
                threads.submit(
                    user.send, "POST", f"{TFA}/disable", {"otp": now}, **{"Idempotency-Key": email}
                )
                for _ in range(8)
            ]
        assert [outcome(call.result()) for call in calls] == [(204, [])] * 8
        assert of_user(stage, email, "failed_logins") == 0


def test_the_secret_is_shown_to_nobody(stage: Stage) -> None:
    email = person(stage, tfa_secret=SECRET)
    users = stage.admin.get(f'/users?filter={{"email":{{"_eq":"{email}"}}}}').data
    assert users[0]["tfa_secret"] == "**********"
    assert {"tfa_step", "failed_logins", "login_after", "unverified"} & users[0].keys() == set()


def test_a_role_that_asks_for_a_second_factor_lets_its_users_do_nothing_but_set_it_up(
    stage: Stage,
) -> None:
    role = new_role(stage, may("system_users"), enforce_tfa=True)
    email = person(stage, role=role)
    user = logged_in(stage, email)
    assert user.get("/users/me").data["email"] == email
    for path in ("/users", "/collections", "/permissions/me"):
        assert outcome(user.get(path)) == (403, ["FORBIDDEN"]), path
    secret = user.post(f"{TFA}/generate", {"password": PASSWORD}).data["secret"]
    assert user.post(f"{TFA}/enable", {"secret": secret, "otp": code(secret)}).status == 204
    assert user.get("/users").status == 200


def test_a_parent_role_may_ask_for_it_too(stage: Stage) -> None:
    parent = new_role(stage, enforce_tfa=True)
    user = logged_in(stage, person(stage, role=new_role(stage, may("system_users"), parent=parent)))
    assert outcome(user.get("/users")) == (403, ["FORBIDDEN"])


def test_an_administrator_without_it_cannot_change_the_structure(stage: Stage) -> None:
    user = logged_in(
        stage, person(stage, role=new_role(stage, admin_access=True, enforce_tfa=True))
    )
    answer = user.post("/collections", {"collection": "forbidden_things", "schema": {}})
    assert outcome(answer) == (403, ["FORBIDDEN"])
