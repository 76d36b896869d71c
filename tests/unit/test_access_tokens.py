"""Access tokens in the middleware: checked once, and never accepted after their expiry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from falcon import testing

from cms.auth.tokens import access_token, claims_of
from cms.errors import Refused
from cms.http.requests import authenticator
from cms.http.requests.authenticator import Authenticator
from cms.http.requests.origins import Origins
from cms.http.requests.request import Request
from cms.store.identity import Identity

ORIGINS = Origins("http://127.0.0.1:8055", frozenset())
SECRET = "only-for-tests-" * 3


def identity(identification: Authenticator, token: str) -> Identity:
    request = Request(testing.create_environ(headers={"Authorization": f"Bearer {token}"}))
    return identification.identify(request)


def token_of(user: str, *, secret: str = SECRET, session: str | None = None) -> str:
    claims = {"id": user, "session": session or str(uuid4())}
    return access_token(claims, secret=secret, life=timedelta(minutes=1))


def test_a_token_identifies_its_user_again_and_again() -> None:
    identification = Authenticator(SECRET, origins=ORIGINS)
    user = str(uuid4())
    other = str(uuid4())
    tokens = [token_of(user), token_of(other), token_of(user)]
    assert [identity(identification, token).user for token in tokens * 2] == [user, other, user] * 2


def test_a_signature_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    identification = Authenticator(SECRET, origins=ORIGINS)
    checked: list[str] = []

    def counted(token: str, *, secret: str) -> Mapping[str, Any]:
        checked.append(token)
        return claims_of(token, secret=secret)

    monkeypatch.setattr(authenticator, "claims_of", counted)
    token = token_of(str(uuid4()))
    for _ in range(3):
        identity(identification, token)
    assert checked == [token]


def test_a_token_that_was_good_ends_with_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    identification = Authenticator(SECRET, origins=ORIGINS)
    claims = {"id": str(uuid4()), "session": str(uuid4())}
    token = access_token(claims, secret=SECRET, life=timedelta(seconds=-1))
    with monkeypatch.context() as earlier:
        # As it was checked while it was good.
        end = time.time() - 1
        earlier.setattr(authenticator, "claims_of", lambda *_, **__: {**claims, "exp": end})
        assert identity(identification, token).user == claims["id"]
    with pytest.raises(Refused) as refusal:
        identity(identification, token)
    assert refusal.value.problems[0].extensions["reason"] == "expired"


def test_a_forged_token_is_refused_every_time() -> None:
    identification = Authenticator(SECRET, origins=ORIGINS)
    for _ in range(2):
        with pytest.raises(Refused):
            identity(identification, token_of(str(uuid4()), secret="another-secret-" * 3))


def test_a_token_identifies_its_session_too() -> None:
    session = str(uuid4())
    assert (
        identity(
            Authenticator(SECRET, origins=ORIGINS), token_of(str(uuid4()), session=session)
        ).session
        == session
    )


def test_a_session_that_is_none_is_refused() -> None:
    with pytest.raises(Refused):
        identity(Authenticator(SECRET, origins=ORIGINS), token_of(str(uuid4()), session="x"))


def test_no_token_is_looked_at_before_somebody_asks_who_calls() -> None:
    request = Request(testing.create_environ(headers={"Authorization": "Bearer a.b.c"}))
    request.authenticator = Authenticator(SECRET, origins=ORIGINS)
    with pytest.raises(Refused):
        _ = request.identity
