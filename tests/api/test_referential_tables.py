"""What ON DELETE does is in the history whatever kind of table and foreign key it is done by."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.config import Config
from tests.api.test_referential_history import POINTING, TWO, deletions, revisions, tables
from tests.client import Client
from tests.things import Json, Stage, admin_token

pytestmark = pytest.mark.release

PARTED = (
    "CREATE TABLE {0} (id integer PRIMARY KEY, name text) PARTITION BY RANGE (id);"
    "CREATE TABLE {0}_low PARTITION OF {0} FOR VALUES FROM (0) TO (10);"
    "CREATE TABLE {0}_high PARTITION OF {0} FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id);"
    "CREATE TABLE {0}_higher PARTITION OF {0}_high FOR VALUES FROM (10) TO (100);"
)
PARTED_BELOW = (
    "CREATE TABLE {1} (id integer PRIMARY KEY, "
    "up integer REFERENCES {0} ON DELETE %s) PARTITION BY HASH (id);"
    "CREATE TABLE {1}_even PARTITION OF {1} FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
    "CREATE TABLE {1}_odd PARTITION OF {1} FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
)
LOSING = "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {1} ON DELETE SET NULL);"


def changes(admin: Client, collection: str) -> list[tuple[str, Json, int]]:
    """Return the items of a collection that were changed, with what changed
    and the revision that it was part of.
    """
    updates = [
        revision
        for revision in revisions(admin, collection)
        if revision["activity"]["action"] == "update"
    ]
    return [(revision["item"], revision["delta"], revision["parent"]) for revision in updates]


def test_rows_of_partitions_go_and_change_like_any_others(stage: Stage, admin: Client) -> None:
    above, below, last, _ = tables(stage, PARTED + PARTED_BELOW % "CASCADE" + LOSING)
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}, {"id": 11}])
    admin.post(
        f"/items/{below}", [{"id": n, "up": up} for n, up in ((1, 1), (2, 11), (3, 11), (4, 2))]
    )
    admin.post(f"/items/{last}", [{"id": n, "up": n} for n in (1, 2, 3, 4)])
    assert admin.delete(f"/items/{above}", [1, 11]).status == 204
    gone = deletions(admin, above)
    children = deletions(admin, below)
    assert [children[key]["parent"] for key in "123"] == [
        gone[key]["id"] for key in ("1", "11", "11")
    ]
    assert children["2"]["data"] == {"id": 2, "up": 11}
    assert changes(admin, last) == [(key, {"up": None}, children[key]["id"]) for key in "123"]
    assert [len(revisions(admin, name)) for name in (above, below, last)] == [5, 7, 7]


def test_rows_of_partitions_lose_what_they_point_to(stage: Stage, admin: Client) -> None:
    above, below, *_ = tables(stage, PARTED + PARTED_BELOW % "SET NULL")
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}])
    admin.post(f"/items/{below}", [{"id": n, "up": 1} for n in (1, 2, 3)] + [{"id": 4, "up": 2}])
    assert admin.delete(f"/items/{above}/1").status == 204
    gone = deletions(admin, above)["1"]["id"]
    assert changes(admin, below) == [(key, {"up": None}, gone) for key in "123"]


def test_a_tree_in_partitions_goes_once(stage: Stage, admin: Client) -> None:
    sql = PARTED + "ALTER TABLE {0} ADD COLUMN part_of integer REFERENCES {0} ON DELETE CASCADE;"
    tree, *_ = tables(stage, sql)
    admin.post(
        f"/items/{tree}", [{"id": 1}, {"id": 11, "part_of": 1}, {"id": 2, "part_of": 11}, {"id": 3}]
    )
    admin.patch(f"/items/{tree}/1", {"part_of": 2})
    assert admin.delete(f"/items/{tree}/1").status == 204
    gone = deletions(admin, tree)
    assert {key: gone[key]["parent"] for key in gone} == {
        "1": None,
        "11": gone["1"]["id"],
        "2": gone["11"]["id"],
    }
    activities = admin.get(
        "/activity", **{"filter[collection]": tree, "filter[action]": "delete"}
    ).data
    assert len(activities) == 3


def test_keys_of_one_partition_alone_act_on_its_rows(stage: Stage, admin: Client) -> None:
    sql = (
        PARTED + "CREATE TABLE {1} (id integer PRIMARY KEY, "
        "up integer REFERENCES {0}_low ON DELETE SET NULL);"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, name text);"
        + "ALTER TABLE {0} ADD COLUMN held integer;"
        + "ALTER TABLE {0}_low ADD FOREIGN KEY (held) REFERENCES {2} ON DELETE CASCADE;"
    )
    parted, pointing, holder, _ = tables(stage, sql)
    admin.post(f"/items/{holder}", {"id": 5})
    admin.post(f"/items/{parted}", [{"id": n, "held": 5} for n in (1, 11)])
    admin.post(f"/items/{pointing}", {"id": 1, "up": 1})
    assert admin.delete(f"/items/{holder}/5").status == 204
    gone = deletions(admin, parted)
    assert list(gone) == ["1"]
    assert gone["1"]["parent"] == deletions(admin, holder)["5"]["id"]
    assert changes(admin, pointing) == [("1", {"up": None}, gone["1"]["id"])]
    admin.post(f"/items/{parted}", {"id": 2})
    admin.patch(f"/items/{pointing}/1", {"up": 2})
    assert admin.delete(f"/items/{parted}", [2, 11]).status == 204
    assert changes(admin, pointing)[-1] == ("1", {"up": None}, deletions(admin, parted)["2"]["id"])


HEIRS = (
    "CREATE TABLE {0} (id integer PRIMARY KEY, name text);"
    "CREATE TABLE {1} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE);"
    "CREATE TABLE {2} (PRIMARY KEY (id), "
    "FOREIGN KEY (up) REFERENCES {0} ON DELETE %s) INHERITS ({1});"
    "CREATE TABLE {3} (id integer PRIMARY KEY, one integer REFERENCES {1} ON DELETE SET NULL,"
    " two integer REFERENCES {2} ON DELETE SET NULL);"
)


def test_rows_of_tables_that_inherit_are_reported_under_their_own(
    stage: Stage, admin: Client
) -> None:
    above, parent, heir, pointing = tables(stage, HEIRS % "CASCADE")
    admin.post(f"/items/{above}", {"id": 1})
    admin.post(f"/items/{parent}", [{"id": n, "up": 1} for n in (1, 2)])
    admin.post(f"/items/{heir}", [{"id": n, "up": 1} for n in (2, 3)])
    admin.post(
        f"/items/{pointing}",
        [{"id": n, "one": one, "two": two} for n, one, two in ((1, 2, 3), (2, 1, 2))],
    )
    assert admin.delete(f"/items/{above}/1").status == 204
    gone, own, inherited = (deletions(admin, name) for name in (above, parent, heir))
    assert (list(own), list(inherited)) == (["1", "2"], ["2", "3"])
    assert {revision["parent"] for revision in (*own.values(), *inherited.values())} == {
        gone["1"]["id"]
    }
    assert sorted(changes(admin, pointing), key=str) == sorted(
        [
            ("1", {"one": None}, own["2"]["id"]),
            ("1", {"two": None}, inherited["3"]["id"]),
            ("2", {"one": None}, own["1"]["id"]),
            ("2", {"two": None}, inherited["2"]["id"]),
        ],
        key=str,
    )


def test_rows_of_tables_that_inherit_lose_what_they_point_to(stage: Stage, admin: Client) -> None:
    above, parent, heir, _ = tables(stage, HEIRS % "SET NULL")
    admin.post(f"/items/{above}", {"id": 1})
    admin.post(f"/items/{parent}", {"id": 1, "up": 1})
    admin.post(f"/items/{heir}", {"id": 2, "up": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    gone = deletions(admin, above)["1"]["id"]
    assert deletions(admin, parent)["1"]["parent"] == gone
    assert changes(admin, heir) == [("2", {"up": None}, gone)]


def test_an_item_that_lies_in_a_table_that_inherits_takes_along_what_points_there(
    stage: Stage, admin: Client
) -> None:
    _, parent, heir, pointing = tables(stage, HEIRS % "CASCADE")
    admin.post(f"/items/{parent}", [{"id": 1}, {"id": 2}])
    admin.post(f"/items/{heir}", [{"id": 3}, {"id": 4}])
    admin.post(f"/items/{pointing}", [{"id": 1, "one": 1, "two": 3}, {"id": 2, "one": 2, "two": 4}])
    assert admin.delete(f"/items/{parent}", [1, 3]).status == 204
    gone = deletions(admin, parent)
    assert list(gone) == ["1", "3"]
    assert changes(admin, pointing) == [
        ("1", {"one": None}, gone["1"]["id"]),
        ("1", {"two": None}, gone["3"]["id"]),
    ]
    assert admin.delete(f"/items/{heir}/4").status == 204
    assert changes(admin, pointing)[-1] == ("2", {"two": None}, deletions(admin, heir)["4"]["id"])
    assert admin.delete(f"/items/{parent}", [2, 3]).status == 404
    assert [item["id"] for item in admin.get(f"/items/{parent}").data] == [2]


def test_rows_without_a_key_of_their_own_are_items_of_the_table_above(
    stage: Stage, admin: Client
) -> None:
    sql = (
        "CREATE TABLE {0} (id integer PRIMARY KEY);"
        "CREATE TABLE {1} (id integer PRIMARY KEY, name text);"
        "CREATE TABLE {2} (up integer REFERENCES {0} ON DELETE CASCADE,"
        " near integer REFERENCES {0} ON DELETE SET NULL) INHERITS ({1});"
    )
    above, parent, heir, _ = tables(stage, sql)
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}])
    stage.execute(f"INSERT INTO {heir} VALUES (1, 'a', 1, 2), (2, 'b', 2, 1), (3, 'c', 2, 2)")
    assert admin.delete(f"/items/{above}/1").status == 204
    gone = deletions(admin, above)["1"]["id"]
    assert [(key, row["data"], row["parent"]) for key, row in deletions(admin, parent).items()] == [
        ("1", {"id": 1, "name": "a"}, gone)
    ]
    activities = admin.get(
        "/activity", **{"filter[collection]": parent, "filter[action]": "update"}
    ).data
    assert [activity["item"] for activity in activities] == ["2"]
    assert revisions(admin, heir) == []


SHARED = (
    "CREATE TABLE {0} (id integer PRIMARY KEY, tenant integer NOT NULL, UNIQUE (tenant, id));"
    "CREATE TABLE {1} (id integer PRIMARY KEY, tenant integer, up integer, title text,"
    " FOREIGN KEY (tenant, up) REFERENCES {0} (tenant, id) ON DELETE %s);"
)


@pytest.mark.parametrize(
    ("action", "delta"),
    [("SET NULL", {"tenant": None, "up": None}), ("SET NULL (up)", {"up": None})],
)
def test_keys_of_several_columns_change_the_columns_that_the_action_names(
    stage: Stage, admin: Client, action: str, delta: Json
) -> None:
    if action.endswith(")") and stage.value(
        "SELECT current_setting('server_version_num')::integer < 150000"
    ):
        pytest.skip("PostgreSQL 14 changes all columns of a key")
    above, below, *_ = tables(stage, SHARED % action)
    admin.post(f"/items/{above}", [{"id": n, "tenant": n // 10} for n in (10, 20)])
    admin.post(f"/items/{below}", [{"id": n, "tenant": n // 10, "up": n} for n in (10, 20)])
    admin.post(f"/items/{below}", {"id": 30, "tenant": None, "up": 10})
    assert admin.delete(f"/items/{above}/10").status == 204
    assert changes(admin, below) == [("10", delta, deletions(admin, above)["10"]["id"])]


def test_rows_go_by_keys_of_several_columns(stage: Stage, admin: Client) -> None:
    sql = (
        SHARED % "CASCADE"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {1} ON DELETE SET NULL)"
    )
    above, below, last, _ = tables(stage, sql)
    admin.post(f"/items/{above}", [{"id": n, "tenant": n // 10} for n in (10, 20)])
    admin.post(f"/items/{below}", [{"id": n, "tenant": n // 10, "up": n} for n in (10, 20)])
    admin.post(f"/items/{last}", [{"id": 1, "up": 10}, {"id": 2, "up": 20}])
    assert admin.delete(f"/items/{above}/10").status == 204
    gone = deletions(admin, below)
    assert {key: row["parent"] for key, row in gone.items()} == {
        "10": deletions(admin, above)["10"]["id"]
    }
    assert changes(admin, last) == [("1", {"up": None}, gone["10"]["id"])]


BETWEEN = {
    "no key": "CREATE TABLE {1} (a integer, b integer, "
    "up integer REFERENCES {0} ON DELETE CASCADE,"
    " code integer UNIQUE, UNIQUE (a, b));",
    "partitions and no key": "CREATE TABLE {1} (a integer, b integer,"
    " up integer REFERENCES {0} ON DELETE CASCADE, code integer, UNIQUE (code))"
    " PARTITION BY HASH (code);"
    "CREATE TABLE {1}_even PARTITION OF {1} FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
    "CREATE TABLE {1}_odd PARTITION OF {1} FOR VALUES WITH (MODULUS 2, REMAINDER 1);",
    "another schema": "CREATE SCHEMA {3}; CREATE TABLE {3}.{1} (a integer, b integer,"
    " up integer REFERENCES {0} ON DELETE CASCADE, code integer UNIQUE);",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("between", BETWEEN)
def test_what_goes_with_rows_that_are_no_items_is_reported(
    stage: Stage, admin: Client, between: str
) -> None:
    owner = "{3}.{1}" if between == "another schema" else "{1}"
    sql = (
        "CREATE TABLE {0} (id integer PRIMARY KEY);"
        + BETWEEN[between]
        + f"ALTER TABLE {owner} ADD COLUMN part_of integer REFERENCES {owner} (code) ON DELETE "
        f"CASCADE;"
        + "CREATE TABLE {2} (id integer PRIMARY KEY,"
        + f" goes integer REFERENCES {owner} (code) ON DELETE CASCADE,"
        + f" loses integer REFERENCES {owner} (code) ON DELETE SET NULL);"
    )
    above, middle, last, schema = tables(stage, sql)
    table = owner.format(above, middle, last, schema)
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}])
    stage.execute(
        f"INSERT INTO {table} (a, b, up, code, part_of) VALUES (1, 1, 1, 1, NULL), (2, 2, NULL, 2, "
        f"1)"
    )
    stage.execute(f"INSERT INTO {table} (a, b, up, code, part_of) VALUES (3, 3, 2, 3, NULL)")
    stage.execute(f"UPDATE {table} SET part_of = 2 WHERE code = 1")
    admin.post(f"/items/{last}", [{"id": n, "goes": n} for n in (1, 2, 3)])
    admin.post(f"/items/{last}", [{"id": n + 3, "loses": n} for n in (1, 2, 3)])
    assert admin.delete(f"/items/{above}/1").status == 204
    gone = deletions(admin, above)["1"]["id"]
    assert {key: row["parent"] for key, row in deletions(admin, last).items()} == {
        "1": gone,
        "2": gone,
    }
    assert changes(admin, last) == [(key, {"loses": None}, gone) for key in "45"]
    assert stage.value(f"SELECT count(*) FROM {table}") == 1


@pytest.mark.release
def test_tables_that_the_service_may_not_read_hinder_no_deletion(
    dsn: str, config: Config, make_client: Callable[..., Client]
) -> None:
    hidden = "(id integer PRIMARY KEY, up integer REFERENCES things ON DELETE CASCADE)"
    below = "(id integer PRIMARY KEY, up integer REFERENCES {} ON DELETE CASCADE)"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS writes_only")
        connection.execute("CREATE ROLE writes_only LOGIN")
        connection.execute("CREATE TABLE things (id integer PRIMARY KEY); CREATE SCHEMA private")
        for number, name in enumerate(("open", "closed", "read_only", "private.held")):
            connection.execute(f"CREATE TABLE {name} {hidden}".encode())
            connection.execute(f"CREATE TABLE below_{number} {below.format(name)}".encode())
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
            connection.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA public TO writes_only".encode())
        connection.execute(
            "REVOKE ALL ON closed FROM writes_only; REVOKE UPDATE ON read_only FROM writes_only"
        )
        connection.execute("GRANT ALL ON private.held TO writes_only")
    try:
        api = make_client(database_url=make_conninfo(dsn, user="writes_only")).bearing(
            admin_token(config, dsn)
        )
        assert api.post("/items/things", {"id": 1}).status == 200
        with psycopg.connect(dsn, autocommit=True) as connection:
            for number, name in enumerate(("open", "closed", "read_only", "private.held")):
                connection.execute(
                    f"INSERT INTO {name} VALUES (1, 1); INSERT INTO below_{number} VALUES (1, 1)"
                )
        assert api.delete("/items/things/1").status == 204
        assert sorted(deletions(api, "open")) == ["1"]
        assert api.get("/items/below_1").data == api.get("/items/below_3").data == []
        api.close()
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP OWNED BY writes_only")
            connection.execute("DROP ROLE writes_only")


@pytest.mark.release  # which runs on the embedded server
@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_keys_that_are_not_enforced_do_nothing(stage: Stage, admin: Client, action: str) -> None:
    if stage.value("SELECT current_setting('server_version_num')::integer < 180000"):
        pytest.skip("PostgreSQL enforces all keys before 18")
    above, below, *_ = tables(stage, TWO + POINTING % f"{action} NOT ENFORCED")
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}])
    admin.post(f"/items/{below}", [{"id": 1, "up": 1}, {"id": 2, "up": 2}])
    assert admin.delete(f"/items/{above}/1").status == 204
    # The item stays as it is and points nowhere, so that it leads to nothing.
    assert admin.get(f"/items/{below}?fields=id,up").data[0] == {"id": 1, "up": 1}
    items = admin.get(f"/items/{below}?fields=id,up.id&sort=up.name,-id").data
    assert items == [{"id": 2, "up": {"id": 2}}, {"id": 1, "up": None}]
    assert admin.get(f"/items/{below}?filter[up][id][_nnull]=true&fields=id").data == [{"id": 2}]
    actions = [revision["activity"]["action"] for revision in revisions(admin, below)]
    assert actions == ["create", "create"]
