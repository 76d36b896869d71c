"""Reads may come from a replica that lags behind; writes go by the
primary alone (docs/deployment.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.app import create_app
from cms.config import Config
from cms.database import connections
from cms.files.storage import Storages
from cms.health.checks import other_parts
from tests.client import Client
from tests.databases import SideDoor, drop_database
from tests.members import may, member, member_of, new_role
from tests.people import PASSWORD
from tests.things import Stage, admin_token, field, staged

pytestmark = pytest.mark.release

Json = dict[str, Any]
THINGS = "/items/things"
TITLE = {"title": {"_eq": "$CURRENT_USER.first_name"}}
MINE = {"owner": {"_eq": "$CURRENT_USER.title"}}


def fill(admin: Client) -> None:
    assert admin.patch("/users/me", {"title": "top"}).status == 200
    fields = [field("owner", "string"), field("kind", "string"), field("above", "integer")]
    fields[1]["meta"] = {"validation": {"kind": {"_neq": "$CURRENT_USER.title"}}}
    assert (
        admin.post("/collections", {"collection": "things", "schema": {}, "fields": fields}).status
        == 200
    )
    relation = {"collection": "things", "field": "above", "related_collection": "things"}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "below"}}).status == 200


@pytest.fixture
def stage(settings: Config, make_database: Callable[..., str], template: str) -> Iterator[Stage]:
    """An application whose replica stands still, with one connection for
    writes: a second one would never come.
    """
    with staged(settings, make_database, template) as before:
        fill(before.admin)
        before.admin.close()
        before.side_door.close()
        replica = make_database(str(conninfo_to_dict(before.dsn)["dbname"]))
        config = replace(
            settings, database_url=before.dsn, database_read_url=replica, database_pool_size=1
        )
        anonymous = Client(create_app(config))
        admin = anonymous.bearing(admin_token(settings, before.dsn))
        yield Stage(admin, anonymous, before.dsn, before.side_door)
        anonymous.close()
        drop_database(replica)


def writer(stage: Stage, **permissions: object) -> Client:
    """Make somebody, of whom the replica knows nothing, with a title and
    these parts of every permission.
    """
    role = new_role(
        stage,
        *(may("things", action=action, **permissions) for action in ("create", "update")),
        may("things"),
    )
    return member_of(stage, role, title="new")


def test_presets_that_follow_a_path_from_the_caller(stage: Stage) -> None:
    caller = writer(stage, presets={"owner": "$CURRENT_USER.title"})
    first = caller.post(THINGS, {}).data
    assert first["owner"] == "new"
    path = f"{THINGS}/{first['id']}"
    assert caller.send("POST", THINGS, {}, **{"Idempotency-Key": "k"}).data["owner"] == "new"
    assert caller.post(THINGS, {"below": [{}]}).data["owner"] == "new"
    assert stage.admin.patch(path, {"owner": None}).status == 200
    assert caller.patch(path, {"kind": "a"}).data["owner"] == "new"
    assert stage.admin.patch(path, {"owner": None}).status == 200
    assert caller.patch(THINGS, {"query": {}, "data": {"kind": "b"}}).data[0]["owner"] == "new"
    operation = {"method": "create", "collection": "things", "data": {}}
    assert caller.post("/batch", {"operations": [operation]}).data[0]["owner"] == "new"
    assert (
        caller.send(
            "POST", "/utils/import/things", [{}], **{"Content-Type": "application/json"}
        ).status
        == 200
    )
    assert stage.value("SELECT count(*) FROM things WHERE owner IS DISTINCT FROM 'new'") == 0


def test_rules_that_follow_a_path_from_the_caller(stage: Stage) -> None:
    caller = writer(stage, validation=MINE)
    assert caller.post(THINGS, {"owner": "new", "kind": "a"}).status == 200
    assert caller.post(THINGS, {"owner": "old"}).codes == ["FAILED_VALIDATION"]
    assert caller.post(THINGS, {"owner": "new", "kind": "new"}).codes == ["FAILED_VALIDATION"]
    assert caller.post(THINGS, {"owner": "new", "below": [{"owner": "new"}]}).status == 200
    (key,) = [row["id"] for row in caller.patch(THINGS, [{"id": 1, "owner": "new"}]).data]
    assert caller.patch(f"{THINGS}/{key}", {"owner": "old"}).codes == ["FAILED_VALIDATION"]


def test_callers_of_whom_the_replica_does_not_know(stage: Stage) -> None:
    kinds = ("system_files", "system_folders")
    role = new_role(
        stage, *(may(name, action=action) for name in kinds for action in ("create", "read"))
    )
    caller = member_of(stage, role)
    assert caller.post("/folders", {"name": "a"}).status == 200
    assert caller.post("/files", {"filename_download": "a.txt", "data": "eA=="}).status == 200
    key = stage.admin.post("/users", {"email": "new@example.com", "password": PASSWORD}).data["id"]
    assert stage.admin.patch(f"/users/{key}", {"status": "active"}).status == 200
    somebody = stage.anonymous.login("new@example.com", PASSWORD)
    offer = somebody.post("/users/me/tfa/generate", {"password": PASSWORD})
    assert offer.data["otpauth_url"]


def test_an_administrator_of_whom_the_replica_does_not_know_changes_the_structure(
    stage: Stage,
) -> None:
    deputy = member_of(stage, new_role(stage, admin_access=True))
    assert deputy.post("/collections", {"collection": "more", "schema": {}}).status == 200


def test_a_revision_of_which_the_replica_does_not_know_is_gone_back_to(stage: Stage) -> None:
    key = stage.admin.post(THINGS, {"kind": "a"}).data["id"]
    assert stage.admin.patch(f"{THINGS}/{key}", {"kind": "b"}).status == 200
    revision = stage.value(
        f"SELECT min(id) FROM system_revisions WHERE collection = 'things' AND item = '{key}'"
    )
    assert stage.admin.post(f"/utils/revert/{revision}").data["kind"] == "a"


def test_what_a_rule_asks_of_the_caller_is_asked_of_the_primary(
    make_client: Callable[..., Client],
    make_database: Callable[..., str],
    template: str,
    admin_token: str,
    dsn: str,
) -> None:
    """The replica has nothing of what the primary has learned since."""
    replica = make_database(template)
    anonymous = make_client(database_read_url=replica)
    side_door = SideDoor(dsn)
    stage = Stage(make_client().bearing(admin_token), anonymous, dsn, side_door)
    things = {"collection": "things", "schema": {}, "fields": [field("title", "string")]}
    assert stage.admin.post("/collections", things).status == 200
    ann = member(stage, may("things", action="create", validation=TITLE))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE system_users SET first_name = 'Ann' WHERE first_name IS NULL AND role IS NOT "
            "NULL"
        )
    assert ann.post("/items/things", {"title": "Ann"}).status == 204
    assert ann.post("/items/things", {"title": "Bob"}).codes == ["FAILED_VALIDATION"]
    anonymous.close()
    side_door.close()
    drop_database(replica)


NOWHERE = "host=127.0.0.1 port=9 dbname=nowhere"


@pytest.mark.parametrize("lost", ["database_url", "database_read_url"])
def test_without_the_primary_or_the_replica_nothing_is_well(
    make_client: Callable[..., Client],
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    monkeypatch.setattr(connections, "_BORROW_SECONDS", 0.2)
    settings = {"database_url": dsn, "database_read_url": dsn, lost: NOWHERE}
    # With a secret of its own: who has just written in another test reads from the primary.
    client = make_client(**settings, secret=f"for the loss of {lost} " * 3)
    for path in ("/server/health", "/server/info", "/items/things"):
        answer = client.get(path)
        assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True), path


def test_reads_go_on_without_the_replica_where_its_address_names_the_primary_as_well(
    make_client: Callable[..., Client], dsn: str
) -> None:
    primary = conninfo_to_dict(dsn)
    hosts = {"host": f"127.0.0.1,{primary['host']}", "port": f"9,{primary['port']}"}
    both = make_conninfo(dsn, **hosts, target_session_attrs="prefer-standby")
    secret = "for the loss of the replica alone " * 2
    client = make_client(database_url=dsn, database_read_url=both, secret=secret)
    for path in ("/server/health", "/server/info"):
        assert client.get(path).status == 200, path


def test_redis_is_a_part_where_it_knows_who_has_written(settings: Config) -> None:
    config = replace(
        settings,
        database_url=NOWHERE,
        database_read_url=NOWHERE,
        redis="redis://127.0.0.1:9",
        rate_limiter_enabled=False,
    )
    app = create_app(config)
    try:
        parts = other_parts(config, app.store, Storages(config.locations))
        assert "redis" in [part.name for part in parts]
    finally:
        app.close()
