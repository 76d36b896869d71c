"""Server-Timing: for administrators who ask for it, with the time of the statements."""

from __future__ import annotations

import re
import threading
import time

import pytest

from cms.database.connections import Database
from tests.client import Answer, Client

FORM = re.compile(r"db;dur=([0-9.]+), total;dur=([0-9.]+)")
ASKED = {"X-Server-Timing": "1"}


def timing(answer: Answer) -> tuple[float, float]:
    match = FORM.fullmatch(answer.headers["server-timing"])
    assert match
    return float(match[1]), float(match[2])


@pytest.fixture
def sleepy(api: Client) -> Client:
    """A client with a collection whose inserts take 200 ms of PostgreSQL."""
    api.post("/collections", {"collection": "naps", "schema": {}})
    with api.app.store.database.autocommit_connection() as connection:
        connection.execute(
            "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END'"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON naps DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION nap()"
        )
    return api


def test_an_administrator_sees_the_time_of_the_statements_and_of_all(sleepy: Client) -> None:
    began = time.perf_counter()
    answer = sleepy.send("POST", "/items/naps", {}, **ASKED)
    milliseconds = (time.perf_counter() - began) * 1000
    database, total = timing(answer)
    assert answer.status == 200
    assert 200 <= database < total < milliseconds
    meter = sleepy.app.store.database.meter
    before = meter.seconds
    database, total = timing(sleepy.send("GET", "/items/naps", **ASKED))
    assert 0 < database <= (meter.seconds - before) * 1000 + 0.01  # rounded
    assert database < total


def test_the_time_of_a_commit_is_that_of_the_statements(sleepy: Client) -> None:
    database: Database = sleepy.app.store.database
    before = database.meter.seconds
    with database.transaction() as transaction:
        transaction.execute("INSERT INTO naps DEFAULT VALUES")
        inserted = database.meter.seconds
    assert before < inserted
    assert database.meter.seconds - inserted >= 0.2


def test_each_request_has_its_own_time(sleepy: Client) -> None:
    before = sleepy.app.store.database.meter.seconds
    slow = threading.Thread(target=lambda: sleepy.post("/items/naps", [{}, {}]))
    slow.start()
    slow.join()
    assert sleepy.app.store.database.meter.seconds == before


def test_errors_have_it_as_well(api: Client) -> None:
    answer = api.send("GET", "/items/nothing", **ASKED)
    assert answer.status == 404
    assert timing(answer)[1] > 0


def test_nobody_else_and_nobody_unasked_gets_it(api: Client, anonymous: Client) -> None:
    role = api.post("/roles", {"name": "Editors"}).data["id"]
    api.post("/users", {"email": "e@example.com", "password": "a password", "role": role})
    user = anonymous.login("e@example.com", "a password")
    for client in (user, anonymous, anonymous.bearing("nonsense")):
        assert "server-timing" not in client.send("GET", "/server/info", **ASKED).headers
    assert "server-timing" not in api.get("/server/info").headers
    zero = {"X-Server-Timing": "0"}
    assert "server-timing" not in api.send("GET", "/server/info", **zero).headers
