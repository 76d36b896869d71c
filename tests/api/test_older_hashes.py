"""Hashes by other parameters than the settings have: accepted, made anew, and not revealed by
the time that they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cms.app import create_app
from cms.auth import factors
from cms.config import Config
from cms.database.connections import standalone_transaction
from cms.database.statements import statement
from cms.hashing.hash_parameters import HashParameters
from cms.hashing.passwords import Passwords
from tests.client import Client
from tests.people import (
    PASSWORD,
    QUICK,
    Outbox,
    hash_again_together,
    login,
    of_user,
    outcome,
    person,
    record_comparisons,
)
from tests.statements import record_primary_fetches
from tests.things import Stage, admin_token

pytestmark = pytest.mark.release

OLDER = HashParameters(2, 16, 2)
REFUSED = (401, ["INVALID_CREDENTIALS"])
BOTH = sorted([QUICK.prefix, OLDER.prefix])


def with_older(stage: Stage, **columns: object) -> str:
    return person(stage, password=Passwords(OLDER).hashed(PASSWORD), **columns)


@pytest.fixture
def client(stage: Stage, stage_settings: Config) -> Iterator[Client]:
    """A client of a process that has compared nothing yet, where somebody has an older hash."""
    with_older(stage)
    client = Client(create_app(replace(stage_settings, database_url=stage.dsn)))
    yield client
    client.close()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes of the hashes that are compared."""
    return record_comparisons(monkeypatch)


def test_whoever_is_refused_costs_the_same_comparisons_and_statements(
    stage: Stage, client: Client, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the account, also where the password is right and the answer does not reveal it."""
    login(client, "somebody@example.com")  # the first login looks for other parameters
    statements = record_primary_fetches(monkeypatch)
    attempts = [("nobody@example.com", "wrong")]
    attempts += [(make(stage), "wrong") for make in (person, with_older)]
    for columns in (
        {"status": "draft"},
        {"status": "invited"},
        {"status": "archived"},
        {"provider": "google"},
        {"login_after": "2100-01-01"},
    ):
        attempts.append((person(stage, **columns), PASSWORD))
        attempts.append((with_older(stage, **columns), PASSWORD))
    attempts.append((with_older(stage, status="suspended"), "wrong"))
    attempts.append((person(stage, password=None), PASSWORD))
    attempts.append((person(stage, password="$2b$12$abcdefghijklmnopqrstuv"), PASSWORD))
    for email, password in attempts:
        compared.clear()
        statements.clear()
        assert outcome(login(client, email, password)) == REFUSED, email
        assert sorted(compared) == BOTH, email
        assert statements == [statement("find_account"), statement("count_failed_login")]


def test_who_is_let_in_costs_one_comparison(
    stage: Stage, client: Client, compared: list[str]
) -> None:
    for email in (person(stage), with_older(stage)):
        compared.clear()
        assert login(client, email).status == 200
        assert len(compared) == 1


def test_a_second_registration_takes_the_time_of_the_first(
    stage: Stage, client: Client, compared: list[str], mails: Outbox
) -> None:
    """By an address with an account the second would find no password to be the same as."""
    settings = "public_registration = true, public_registration_verify_email = true"
    stage.execute(f"UPDATE system_settings SET {settings}")
    known = person(stage)
    for email in ("new@example.com", "new@example.com", known, known):
        compared.clear()
        body = {"email": email, "password": PASSWORD}
        assert client.post("/users/register", body).status == 204
        assert sorted(compared) == BOTH
    assert len(mails.sent) == 2


def test_stored_hashes_are_looked_through_once_a_process(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = record_primary_fetches(monkeypatch)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: login(client, f"nobody{n}@example.com"), range(8)))
    assert statements.count(statement("find_other_hash_prefixes")) == 1


def test_the_parameters_of_stored_hashes_are_read_from_them(stage: Stage) -> None:
    prefixes = (OLDER.prefix, "$argon2id$v=19$m=1024,t=10,p=12", "$argon2i$m=16,t=1,p=2")
    for prefix in prefixes:
        person(stage, password=f"{prefix}$c29tZXNhbHRzb21lc2FsdA$c29tZWhhc2hzb21laGFzaA")
    person(stage, password="$2b$12$abcdefghijklmnopqrstuv")
    person(stage, password=None)
    person(stage)
    own = (QUICK.prefix + "$",)
    with stage.side_door.connection() as connection:
        rows = connection.execute(
            statement("find_other_hash_prefixes").replace("$1", "%s").encode(), own
        )
        stored_prefixes = {prefix for (prefix,) in rows}
    assert set(prefixes) <= stored_prefixes
    assert not [prefix for prefix in stored_prefixes if prefix.startswith(QUICK.prefix)]


def test_two_applications_in_one_process_hash_by_their_own_settings(
    stage: Stage, stage_settings: Config, make_client: Callable[..., Client]
) -> None:
    clients = [make_client(database_url=stage.dsn, hash_memory_cost=cost) for cost in (16, 24)]
    token = admin_token(stage_settings, stage.dsn)
    for client, memory in zip(clients, (16, 24), strict=True):
        prefix = f"$argon2id$v=19$m={memory},t=1,p=1$"
        email = f"memory{memory}@example.com"
        admin = client.bearing(token)
        assert admin.post("/users", {"email": email, "password": PASSWORD}).status == 200
        assert of_user(stage, email, "password").startswith(prefix)
        assert admin.post("/utils/hash/generate", {"string": "a"}).data.startswith(prefix)
        email = person(stage)
        assert login(client, email).status == 200
        assert of_user(stage, email, "password").startswith(prefix)


@pytest.mark.parametrize("tfa", [None, "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"])
def test_of_two_logins_at_once_both_succeed(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch, tfa: str | None
) -> None:
    """Both have read the older hash, and one of them replaces it before the other."""
    email = with_older(stage, tfa_secret=tfa)
    codes = ["code-one", "code-two"]
    with standalone_transaction(stage.dsn) as transaction:
        factors.store_recovery_codes(transaction, str(of_user(stage, email, "id")), codes)
    hash_again_together(monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda code: login(client, email, otp=code), codes))
    assert [answer.status for answer in answers] == [200, 200], answers
    assert of_user(stage, email, "password").startswith(QUICK.prefix)
