"""Users who log in: made with hashes that cost nothing, and the mails that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Barrier
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from argon2 import PasswordHasher

from cms.auth import mail_links
from cms.auth.mail_links import AccountMail
from cms.database.connections import Transaction
from cms.hashing import passwords
from cms.hashing.hash_parameters import HashParameters
from cms.hashing.passwords import Passwords
from tests.client import Answer, Client
from tests.things import Stage

PASSWORD = "correct horse"

QUICK = HashParameters(time_cost=1, memory_cost=8, parallelism=1)
"""What the settings of tests have."""

# What the client of Falcon's tests sends its requests to.
OWN_ORIGIN = "http://falconframework.org"


@contextmanager
def quick_hashes() -> Iterator[None]:
    """Hash by parameters that cost nothing instead of the default, as long as it lasts."""
    hasher = passwords._hasher

    def quick_hasher(parameters: HashParameters) -> PasswordHasher:
        return hasher(QUICK if parameters == HashParameters() else parameters)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passwords, "_hasher", quick_hasher)
        yield


def record_comparisons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that the prefixes of all hashes join that are compared from now on."""
    prefixes: list[str] = []
    verify = passwords._verify

    def verify_and_record(stored: str, password: str) -> bool:
        prefixes.append(stored.rsplit("$", 2)[0])
        return verify(stored, password)

    monkeypatch.setattr(passwords, "_verify", verify_and_record)
    return prefixes


def hash_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two logins that replace an older hash both have read it before one of them does."""
    both_have_read = Barrier(2)
    rehashed = Passwords.rehashed

    def slowly(own: Passwords, stored: str, password: str) -> str | None:
        new_hash = rehashed(own, stored, password)
        if new_hash:
            both_have_read.wait(timeout=30)
        return new_hash

    monkeypatch.setattr(Passwords, "rehashed", slowly)


def hashed(password: str = PASSWORD) -> str:
    """Return the hash of a password, as applications of tests make it."""
    return Passwords(QUICK).hashed(password)


def person(stage: Stage, **columns: object) -> str:
    """Make an active user without a role, whose password is PASSWORD, and return the address."""
    email = f"{uuid4()}@example.com"
    values = {"email": email, "password": hashed(), **columns}
    stage.insert("system_users", values)
    return str(values["email"])


def login(client: Client, email: str, password: str = PASSWORD, **body: object) -> Answer:
    return client.post("/auth/login", {"email": email, "password": password, **body})


USE_TOKENS_EARLIER = """
    UPDATE system_sessions
    SET used_tokens = (
        SELECT jsonb_object_agg(digest, used::timestamptz - interval '11 seconds')
        FROM jsonb_each_text(used_tokens) AS former (digest, used)
    )
    WHERE used_tokens <> '{}'
"""
"""Lets all refresh tokens have been used eleven seconds earlier: one longer than they are good."""


def tried_again(call: Callable[[], Answer]) -> Answer:
    """Repeat a call of many at once until it finds room among those that hash a password."""
    while (answer := call()).status == 503:
        pass
    return answer


def outcome(answer: Answer) -> tuple[int, list[str]]:
    """The status of an answer, and the codes of its errors."""
    return answer.status, answer.codes if answer.status >= 400 else []


def of_user(stage: Stage, email: str, column: str) -> Any:
    """One column of a user's row."""
    with stage.side_door.connection() as connection:
        row = connection.execute(
            f"SELECT {column} FROM system_users WHERE email = %s".encode(), [email]
        ).fetchone()
        return row and row[0]


class Outbox:
    """The mails that were written, also those to nobody."""

    def __init__(self) -> None:
        self.mails: list[AccountMail] = []

    def take(self, transaction: Transaction, mail: AccountMail) -> None:
        self.mails.append(mail)

    @property
    def sent(self) -> list[AccountMail]:
        """Those that somebody gets."""
        return [mail for mail in self.mails if mail.to is not None]

    @property
    def link(self) -> str:
        """The link of the last mail."""
        return self.sent[-1].data["url"]

    @property
    def token(self) -> str:
        """The token in the link of the last mail."""
        return parse_qs(urlsplit(self.link).query)["token"][0]


@contextmanager
def outbox() -> Iterator[Outbox]:
    """Keep mails instead of sending them."""
    box = Outbox()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mail_links, "send_account_mail", box.take)
        yield box
