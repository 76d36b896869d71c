"""Reads may come from a replica that lags behind; writes go by the primary alone (docs/deployment.md)."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tests.client import Client
from tests.databases import drop_database
from tests.members import may, member
from tests.things import Stage, field

TITLE = {"title": {"_eq": "$CURRENT_USER.first_name"}}


def test_what_a_rule_asks_of_the_caller_is_asked_of_the_primary(
    make_client: Callable[..., Client], make_database: Callable[..., str], template: str, admin_token: str, dsn: str
) -> None:
    """The replica has nothing of what the primary has learned since."""
    replica = make_database(template)
    anonymous = make_client(database_read_url=replica)
    stage = Stage(make_client().bearing(admin_token), anonymous, dsn)
    things = {"collection": "things", "schema": {}, "fields": [field("title", "string")]}
    assert stage.admin.post("/collections", things).status == 200
    ann = member(stage, may("things", action="create", validation=TITLE))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_users SET first_name = 'Ann' WHERE first_name IS NULL AND role IS NOT NULL")
    assert ann.post("/items/things", {"title": "Ann"}).status == 204
    assert ann.post("/items/things", {"title": "Bob"}).codes == ["FAILED_VALIDATION"]
    anonymous.close()
    drop_database(replica)
