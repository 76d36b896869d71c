"""Indexes of large tables are built after the commit, one at a time, and a
build that fails leaves nothing behind.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cms.structure import indexes
from tests.client import Client

pytestmark = pytest.mark.release

BUILDS_FAIL = """
    CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE 'CREATE INDEX CONCURRENTLY%%' THEN
            RAISE 'refused' USING ERRCODE = '{code}';
        END IF;
    END $$;
    CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION refuse()
"""
INVALID = "SELECT array_agg(indexrelid::regclass::text) FROM pg_index WHERE NOT indisvalid"
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE "
    "'%pg_try_advisory%'"
)


@pytest.fixture
def large(api: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The administrator's client, with a collection "things" of two fields that counts as large."""
    fields = [{"field": name, "type": "string"} for name in "ab"]
    assert (
        api.post("/collections", {"collection": "things", "schema": {}, "fields": fields}).status
        == 200
    )
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)
    return api


@pytest.mark.parametrize("code", ["deadlock_detected", "undefined_table", "program_limit_exceeded"])
def test_a_build_that_fails_in_any_way_says_so_and_leaves_only_the_change(
    large: Client, dsn: str, code: str
) -> None:
    path = "/fields/things/a"
    body = {"schema": {"is_indexed": True, "comment": "done"}}
    with psycopg.connect(dsn) as connection:
        connection.execute(BUILDS_FAIL.format(code=code).replace("%%", "%").encode())
        connection.execute("CREATE INDEX others ON things (b)")
        connection.execute(
            "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'others'::regclass"
        )
        before = connection.execute("SELECT structure FROM system_version").fetchone()
    answer = large.patch(path, body)
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.errors[0]["reason"].startswith(
        "The change is made, but the index of things.a could not be built"
    )
    assert large.get(path).data["schema"]["comment"] == "done"
    with psycopg.connect(dsn) as connection:
        assert connection.execute(INVALID).fetchone() == (["others"],)
        after = connection.execute("SELECT structure FROM system_version").fetchone()
    assert before
    assert after
    assert (
        after[0] - before[0] <= 3
    )  # the change was made once: its own move, and those of its record


def test_the_history_has_the_index_as_the_answer_has(large: Client) -> None:
    changed = large.patch("/fields/things/a", {"schema": {"is_indexed": True}}).data
    record = large.post(
        "/fields/things", {"field": "c", "type": "string", "schema": {"is_indexed": True}}
    ).data
    large.post("/fields/things", {"field": "up", "type": "integer"})
    body = {"collection": "things", "field": "up", "related_collection": "things"}
    assert large.post("/relations", body).status == 200
    params = {
        "filter[collection]": "system_fields",
        "sort": "-id",
        "fields": "item,data,delta",
        "limit": 4,
    }
    pointing, _, new, update = large.get("/revisions", **params).data
    assert (update["item"], update["data"], update["delta"]) == (
        "things.a",
        changed,
        {"schema": {"is_indexed": True}},
    )
    assert (new["item"], new["data"]) == ("things.c", record)
    assert (pointing["item"], pointing["delta"]["schema"]["is_indexed"]) == ("things.up", True)
    assert large.patch("/fields/things/a", {"schema": {"comment": "x"}}).status == 200
    assert large.get("/revisions", **params).data[0]["delta"] == {"schema": {"comment": "x"}}


def test_builds_on_one_table_take_turns_and_all_succeed(large: Client, dsn: str) -> None:
    with (
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(dsn) as writer,
        psycopg.connect(dsn, autocommit=True) as watcher,
    ):
        writer.execute(
            "INSERT INTO things (a) VALUES ('x')"
        )  # a build waits for writes that began before it
        answers = []
        for number, name in enumerate("ab", start=1):
            answers.append(
                pool.submit(large.patch, f"/fields/things/{name}", {"schema": {"is_indexed": True}})
            )
            until = time.monotonic() + 5
            while watcher.execute(WAITING).fetchone() != (number + 1,) and time.monotonic() < until:
                time.sleep(0.01)
        writer.commit()
        assert [answer.result().status for answer in answers] == [200, 200]
    assert [large.get(f"/fields/things/{name}").data["schema"]["is_indexed"] for name in "ab"] == [
        True,
        True,
    ]
