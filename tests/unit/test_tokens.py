"""Signed tokens: each good for one purpose, none for another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cms.auth.tokens import (
    access_token,
    claims_of,
    is_signed_here,
    link_token,
    read_link_token,
    read_signed,
    session_of,
    session_token,
    sign,
)
from cms.errors import Refused

SECRET = "only-for-tests-" * 3
OTHER = "another-secret-" * 3
MINUTE = timedelta(minutes=1)
USER = "6f0c3d0e-8f5d-4d0a-9a39-3f6f0f6f0a01"
SESSION = "6f0c3d0e-8f5d-4d0a-9a39-3f6f0f6f0a02"


def mail(purpose: str = "password-reset", *, secret: str = SECRET) -> str:
    return link_token(purpose, user=USER, fingerprint="f1", secret=secret, life=MINUTE)


def test_the_token_of_a_mail_has_its_user_and_the_fingerprint() -> None:
    assert read_link_token("password-reset", mail(), secret=SECRET) == (USER, "f1")


@pytest.mark.parametrize("claim", ["fingerprint", "mark"])
def test_the_fingerprint_of_a_link_is_read_under_its_name_and_its_former_one(claim: str) -> None:
    token = sign("password-reset", {"id": USER, claim: "f1"}, secret=SECRET, life=MINUTE)
    assert read_link_token("password-reset", token, secret=SECRET) == (USER, "f1")


def test_a_new_link_can_be_opened_at_a_machine_that_is_not_upgraded_yet() -> None:
    names = ("id", "fingerprint", "mark")
    claims = read_signed("password-reset", mail(), secret=SECRET, required=names)
    assert [claims[name] for name in names] == [USER, "f1", "f1"]


@pytest.mark.parametrize("claims", [{"id": USER}, {"fingerprint": "f1"}, {"id": 1, "mark": "f1"}])
def test_a_link_without_user_or_fingerprint_is_refused(claims: dict[str, object]) -> None:
    token = sign("password-reset", claims, secret=SECRET, life=MINUTE)
    with pytest.raises(Refused) as refusal:
        read_link_token("password-reset", token, secret=SECRET)
    assert refusal.value.problems[0].code == "INVALID_TOKEN"


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_link_token("invite", mail(), secret=SECRET),
        lambda: read_link_token("password-reset", mail("register"), secret=SECRET),
        lambda: read_link_token("password-reset", mail(secret=OTHER), secret=SECRET),
        lambda: claims_of(mail(), secret=SECRET),
        lambda: read_link_token(
            "password-reset",
            access_token({"id": USER, "fingerprint": "x"}, secret=SECRET, life=MINUTE),
            secret=SECRET,
        ),
        lambda: claims_of(
            access_token({"share": SESSION}, secret=SECRET, life=MINUTE), secret=SECRET
        ),
        lambda: claims_of(
            access_token({"id": USER, "share": SESSION}, secret=SECRET, life=MINUTE), secret=SECRET
        ),
    ],
)
def test_a_token_for_another_purpose_or_of_another_key_is_refused(
    read: Callable[[], object],
) -> None:
    with pytest.raises(Refused) as refusal:
        read()
    assert refusal.value.problems[0].code == "INVALID_TOKEN"


def test_a_sessions_token_is_known_as_ours_and_another_is_not() -> None:
    token = session_token(SESSION, secret=SECRET)
    assert session_of(token) == SESSION
    assert is_signed_here(token, secret=SECRET)
    assert not is_signed_here(token, secret=OTHER)
    assert not is_signed_here(session_token(SESSION, secret=OTHER), secret=SECRET)
    assert not is_signed_here(token.replace(SESSION, USER), secret=SECRET)
    assert not is_signed_here(f"{SESSION}.x.ü", secret=SECRET)


@pytest.mark.parametrize(
    "token", ["", "x", "..", "x.y.z", SESSION, f"{SESSION}.x", f"{SESSION}.x.y.z"]
)
def test_what_is_no_sessions_token_names_no_session(token: str) -> None:
    assert session_of(token) is None
