"""What the database does to other rows when rows are deleted is in the history."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage

_numbers = itertools.count(1)


def tables(stage: Stage, sql: str) -> list[str]:
    """Make tables of fresh names in place of {0}, {1} and so on, and return the names."""
    number = next(_numbers)
    names = [f"t{number}_{mail}" for mail in "abcd"]
    stage.execute(sql.format(*names))
    return names


def revisions(admin: Client, collection: str, **filters: str) -> list[Json]:
    """Return the revisions of a collection with their activities, in the order of the items."""
    params = {
        "filter[collection]": collection,
        "sort": "item,id",
        "limit": -1,
        "fields": "*,activity.*",
        **filters,
    }
    entries: list[Json] = admin.get("/revisions", **params).data
    return entries


def deletions(admin: Client, collection: str) -> dict[str, Json]:
    return {
        revision["item"]: revision
        for revision in revisions(admin, collection)
        if revision["activity"]["action"] == "delete"
    }


TWO = "CREATE TABLE {0} (id integer PRIMARY KEY, name text);"
POINTING = (
    "CREATE TABLE {1} (id integer PRIMARY KEY, "
    "up integer DEFAULT 9 REFERENCES {0} ON DELETE %s, title text);"
)


def test_rows_that_lose_what_they_point_to_have_a_change_in_the_history(
    stage: Stage, admin: Client
) -> None:
    above, below, *_ = tables(stage, TWO + POINTING % "SET NULL")
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 2}])
    admin.post(f"/items/{below}", [{"id": n, "up": n, "title": "t"} for n in (1, 2)])
    me = admin.get("/users/me").data["id"]
    assert admin.delete(f"/items/{above}/1").status == 204
    assert admin.get(f"/items/{below}?fields=up").data == [{"up": None}, {"up": 2}]
    creation, changed, other = revisions(admin, below)
    assert (creation["activity"]["action"], other["item"]) == ("create", "2")
    assert changed["data"] == {"id": 1, "up": None, "title": "t"}
    assert changed["delta"] == {"up": None}
    assert changed["parent"] == deletions(admin, above)["1"]["id"]
    activity = changed["activity"]
    assert (activity["action"], activity["user"], activity["item"], activity["ip"]) == (
        "update",
        me,
        "1",
        "127.0.0.1",
    )


def test_rows_that_get_their_default_have_a_change_in_the_history(
    stage: Stage, admin: Client
) -> None:
    above, below, *_ = tables(stage, TWO + POINTING % "SET DEFAULT")
    admin.post(f"/items/{above}", [{"id": 1}, {"id": 9}])
    admin.post(f"/items/{below}", {"id": 1, "up": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    assert revisions(admin, below)[-1]["delta"] == {"up": 9}
    assert admin.delete(f"/items/{above}/9").codes == ["INVALID_FOREIGN_KEY"]
    assert len(revisions(admin, below)) == 2


def test_rows_that_go_have_a_last_revision_each_under_the_one_above(
    stage: Stage, admin: Client
) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + "CREATE TABLE {2} (id uuid PRIMARY KEY, up integer REFERENCES {1} ON DELETE CASCADE);"
    )
    above, below, last, _ = tables(stage, sql)
    uuids = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(1, 4)]
    admin.post(f"/items/{above}", [{"id": n} for n in (1, 2, 3)])
    admin.post(f"/items/{below}", [{"id": n, "up": n, "title": str(n)} for n in (1, 2, 3)])
    admin.post(f"/items/{last}", [{"id": key, "up": n} for n, key in enumerate(uuids, 1)])
    assert admin.delete(f"/items/{above}", [1, 2]).status == 204
    gone, children, grandchildren = (deletions(admin, name) for name in (above, below, last))
    assert [sorted(deleted) for deleted in (gone, children, grandchildren)] == [
        ["1", "2"],
        ["1", "2"],
        uuids[:2],
    ]
    assert children["2"]["data"] == {"id": 2, "up": 2, "title": "2"}
    assert children["2"]["delta"] is None
    assert [children[key]["parent"] for key in "12"] == [gone[key]["id"] for key in "12"]
    assert [grandchildren[uuids[n]]["parent"] for n in (0, 1)] == [
        children[key]["id"] for key in "12"
    ]
    assert stage.value(f"SELECT count(*) FROM {last}") == 1


def test_a_tree_goes_with_all_that_hangs_on_it(stage: Stage, admin: Client) -> None:
    sql = (
        "CREATE TABLE {0} (id integer PRIMARY KEY, parent integer REFERENCES {0} ON DELETE CASCADE,"
        " twin integer REFERENCES {0} ON DELETE SET NULL);"
    )
    (tree, *_) = tables(stage, sql)
    for key, parent, twin in ((1, None, None), (2, 1, 1), (3, 2, 1), (4, None, 3), (5, 4, None)):
        admin.post(f"/items/{tree}", {"id": key, "parent": parent, "twin": twin})
    assert admin.delete(f"/items/{tree}", [2, 1]).status == 204
    gone = deletions(admin, tree)
    parents = [gone[key]["parent"] for key in "123"]
    assert parents == [None, None, gone["2"]["id"]]
    changes = [
        revision
        for revision in revisions(admin, tree)
        if revision["activity"]["action"] == "update"
    ]
    assert [(revision["item"], revision["delta"], revision["parent"]) for revision in changes] == [
        ("4", {"twin": None}, gone["3"]["id"])
    ]
    assert admin.get(f"/items/{tree}?fields=id").data == [{"id": 4}, {"id": 5}]


def test_what_hangs_on_a_branch_of_a_tree_goes_once(stage: Stage, admin: Client) -> None:
    sql = (
        "CREATE TABLE {0} (id integer PRIMARY KEY, "
        "parent integer REFERENCES {0} ON DELETE CASCADE);"
        "CREATE TABLE {1} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE);"
    )
    tree, leaves, *_ = tables(stage, sql)
    for key, parent in ((1, None), (2, 1), (3, 2)):
        admin.post(f"/items/{tree}", {"id": key, "parent": parent})
    admin.post(f"/items/{leaves}", [{"id": n, "up": n} for n in (1, 2, 3)])
    assert admin.delete(f"/items/{tree}/1").status == 204
    gone = deletions(admin, tree)
    activities = admin.get(
        "/activity", **{"filter[collection]": leaves, "filter[action]": "delete", "sort": "item"}
    ).data
    assert [activity["item"] for activity in activities] == ["1", "2", "3"]
    assert [deletions(admin, leaves)[key]["parent"] for key in "123"] == [
        gone[key]["id"] for key in "123"
    ]


def test_rows_in_a_cycle_go_once(stage: Stage, admin: Client) -> None:
    sql = (
        "CREATE TABLE {0} (id integer PRIMARY KEY, best integer);"
        "CREATE TABLE {1} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE,"
        " other integer REFERENCES {0} ON DELETE SET NULL);"
        "ALTER TABLE {0} ADD FOREIGN KEY (best) REFERENCES {1} ON DELETE CASCADE"
    )
    above, below, *_ = tables(stage, sql)
    for n in (1, 2):
        admin.post(f"/items/{above}", {"id": n})
        admin.post(f"/items/{below}", {"id": n, "up": n, "other": n})
    admin.patch(f"/items/{above}/1", {"best": 1})
    admin.patch(f"/items/{above}/2", {"best": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    assert (
        stage.value(f"SELECT count(*) FROM {above}")
        == stage.value(f"SELECT count(*) FROM {below}")
        == 0
    )
    gone = deletions(admin, above)
    below_gone = deletions(admin, below)
    assert (sorted(gone), sorted(below_gone)) == (["1", "2"], ["1", "2"])
    assert below_gone["1"]["parent"] == gone["1"]["id"]
    assert gone["2"]["parent"] == below_gone["1"]["id"]
    activities = admin.get(
        "/activity", **{"filter[collection]": below, "filter[action]": "update"}
    ).data
    assert activities == []


@pytest.mark.parametrize("action", ["RESTRICT", "NO ACTION"])
def test_a_row_that_is_held_elsewhere_stays_with_all_others(
    stage: Stage, admin: Client, action: str
) -> None:
    sql = (
        TWO + POINTING % "SET NULL" + f"CREATE TABLE {{2}} (id integer PRIMARY KEY, "
        f"up integer REFERENCES {{0}} ON DELETE {action});"
    )
    above, below, holding, _ = tables(stage, sql)
    for name in (above, below, holding):
        admin.post(f"/items/{name}", {"id": 1, **({} if name == above else {"up": 1})})
    count = "SELECT count(*) FROM system_activity"
    before = stage.value(count)
    answer = admin.delete(f"/items/{above}/1")
    assert (answer.status, answer.codes) == (400, ["INVALID_FOREIGN_KEY"])
    assert stage.value(count) == before
    assert stage.value(f"SELECT up FROM {below}") == 1


def test_what_goes_by_another_way_hinders_nothing(stage: Stage, admin: Client) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + (
            "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE,"
            " near integer REFERENCES {1});"
        )
    )
    above, below, last, _ = tables(stage, sql)
    admin.post(f"/items/{above}", {"id": 1})
    admin.post(f"/items/{below}", {"id": 1, "up": 1})
    admin.post(f"/items/{last}", {"id": 1, "up": 1, "near": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    assert [len(deletions(admin, name)) for name in (above, below, last)] == [1, 1, 1]


def test_keys_that_are_no_primary_keys_are_followed(stage: Stage, admin: Client) -> None:
    sql = (
        "CREATE TABLE {0} (id serial PRIMARY KEY, code varchar(9) UNIQUE);"
        "CREATE TABLE {1} (id serial PRIMARY KEY, "
        "code text REFERENCES {0} (code) ON DELETE SET NULL);"
        "CREATE TABLE {2} (id serial PRIMARY KEY, "
        "code text REFERENCES {0} (code) ON DELETE CASCADE)"
    )
    above, below, last, _ = tables(stage, sql)
    for name in (above, below, last):
        admin.post(f"/items/{name}", [{"code": 'a"b'}, {"code": None}])
    assert admin.delete(f"/items/{above}/1").status == 204
    revision = deletions(admin, above)["1"]["id"]
    assert [(entry["delta"], entry["parent"]) for entry in revisions(admin, below)[1:2]] == [
        ({"code": None}, revision)
    ]
    assert [entry["parent"] for entry in deletions(admin, last).values()] == [revision]


@pytest.mark.parametrize(("accountability", "expected"), [("activity", (2, 0)), (None, (0, 0))])
def test_the_accountability_of_a_collection_decides_what_is_recorded(
    stage: Stage, admin: Client, accountability: str | None, expected: Any
) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + (
            "CREATE TABLE {2} (id integer PRIMARY KEY, "
            "up integer REFERENCES {1} ON DELETE CASCADE);"
            "CREATE TABLE {3} (id integer PRIMARY KEY, "
            "up integer REFERENCES {1} ON DELETE SET NULL);"
        )
    )
    above, below, last, other = tables(stage, sql)
    admin.patch(f"/collections/{below}", {"meta": {"accountability": accountability}})
    for name in (above, below, last, other):
        admin.post(f"/items/{name}", {"id": 1, **({} if name == above else {"up": 1})})
    assert admin.delete(f"/items/{above}/1").status == 204
    activities = admin.get("/activity", **{"filter[collection]": below}).data
    assert (len(activities), len(revisions(admin, below))) == expected
    root = deletions(admin, above)["1"]["id"]
    assert [revision["parent"] for revision in deletions(admin, last).values()] == [root]
    assert revisions(admin, other)[-1]["parent"] == root


def test_rows_without_a_history_of_any_kind_are_left_to_the_database(
    stage: Stage, admin: Client
) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + "CREATE TABLE {2} (a integer, b integer, up integer REFERENCES {0} ON DELETE CASCADE, "
        "UNIQUE (a, b));"
    )
    above, below, keyless, _ = tables(stage, sql)
    stage.execute(f"INSERT INTO {above} VALUES (1); INSERT INTO {keyless} VALUES (1, 1, 1)")
    admin.patch(f"/collections/{below}", {"meta": {"accountability": None}})
    admin.post(f"/items/{below}", {"id": 1, "up": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    for name in (above, below, keyless):
        assert stage.value(f"SELECT count(*) FROM {name}") == 0
    assert revisions(admin, below) == revisions(admin, keyless) == []


def test_a_batch_and_a_query_record_it_as_well(stage: Stage, admin: Client) -> None:
    above, below, *_ = tables(stage, TWO + POINTING % "SET NULL")
    admin.post(f"/items/{above}", [{"id": n, "name": "x"} for n in (1, 2, 3)])
    admin.post(f"/items/{below}", [{"id": n, "up": n} for n in (1, 2, 3)])
    operation = {"method": "delete", "collection": above, "key": 1}
    assert admin.post("/batch", {"operations": [operation]}).status == 200
    assert admin.delete(f"/items/{above}", {"query": {"filter": {"name": "x"}}}).status == 204
    gone = deletions(admin, above)
    changes = [
        revision
        for revision in revisions(admin, below)
        if revision["activity"]["action"] == "update"
    ]
    assert [revision["parent"] for revision in changes] == [gone[key]["id"] for key in "123"]


def test_it_takes_no_right_and_reveals_nothing(stage: Stage, admin: Client) -> None:
    above, below, last, _ = tables(
        stage,
        TWO
        + POINTING % "SET NULL"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE);",
    )
    for name in (above, below, last):
        admin.post(f"/items/{name}", {"id": 1, **({} if name == above else {"up": 1})})
    caller = member(
        stage,
        may(above),
        may(above, action="delete", permissions={"id": 1}),
        may("system_revisions"),
        may("system_activity"),
    )
    answer = caller.delete(f"/items/{above}/1")
    assert (answer.status, answer.content) == (204, b"")
    assert {entry["collection"] for entry in caller.get("/revisions?limit=-1").data} == {above}
    assert {entry["collection"] for entry in caller.get("/activity?limit=-1").data} == {above}
    assert revisions(admin, below)[-1]["delta"] == {"up": None}
    assert len(deletions(admin, last)) == 1


def test_automatic_fields_stay_as_the_database_leaves_them(stage: Stage, admin: Client) -> None:
    above, below, *_ = tables(
        stage,
        TWO
        + "CREATE TABLE {1} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE SET NULL,"
        " changed timestamptz, double integer GENERATED ALWAYS AS (coalesce(up, 0) * 2) STORED);",
    )
    admin.patch(f"/fields/{below}/changed", {"meta": {"special": ["date-updated"]}})
    admin.post(f"/items/{above}", {"id": 1})
    admin.post(f"/items/{below}", {"id": 1, "up": 1})
    assert admin.delete(f"/items/{above}/1").status == 204
    last = revisions(admin, below)[-1]
    assert last["delta"] == {"up": None, "double": 0}
    assert last["data"] == {"id": 1, "up": None, "changed": None, "double": 0}


@pytest.mark.release
def test_many_rows_are_a_few_statements(stage: Stage, admin: Client) -> None:
    above, below, last, _ = tables(
        stage,
        TWO
        + POINTING % "SET NULL"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {0} ON DELETE CASCADE);",
    )
    stage.execute(
        f"INSERT INTO {above} VALUES (1);"
        f"INSERT INTO {below} SELECT n, 1 FROM generate_series(1, 5000) AS n;"
        f"INSERT INTO {last} SELECT n, 1 FROM generate_series(1, 5000) AS n"
    )
    assert admin.delete(f"/items/{above}/1").status == 204
    for name, action in ((below, "update"), (last, "delete")):
        count = (
            f"SELECT count(DISTINCT item) FROM system_activity WHERE collection = '{name}' AND "
            f"action = '{action}'"
        )
        assert stage.value(count) == 5000
        parents = f"SELECT count(parent) FROM system_revisions WHERE collection = '{name}'"
        assert stage.value(parents) == 5000


def test_what_goes_with_users_and_roles_is_reported(stage: Stage, admin: Client) -> None:
    role = admin.post("/roles", {"name": "Editors"}).data["id"]
    user = admin.post(
        "/users", {"email": "ed@example.com", "password": "secret-of-ed", "role": role}
    ).data["id"]
    permission = {"role": role, "collection": "system_files", "action": "read", "fields": ["*"]}
    number = admin.post("/permissions", permission).data["id"]
    stage.execute(f"INSERT INTO system_presets (role, collection) VALUES ('{role}', 'x')")
    assert admin.delete(f"/roles/{role}").status == 204
    gone = deletions(admin, "system_roles")[role]["id"]
    changed = revisions(admin, "system_users", **{"filter[item]": user})[-1]
    assert (changed["delta"], changed["parent"]) == ({"role": None}, gone)
    assert deletions(admin, "system_permissions")[str(number)]["parent"] == gone
    assert [revision["parent"] for revision in deletions(admin, "system_presets").values()] == [
        gone
    ]
    stage.execute(
        f"INSERT INTO system_files (storage, filename_download, uploaded_by, modified_by)"
        f" VALUES ('local', 'a', '{user}', '{user}')"
    )
    assert admin.delete(f"/users/{user}").status == 204
    gone = deletions(admin, "system_users")[user]["id"]
    files = revisions(admin, "system_files")
    assert [revision["parent"] for revision in files] == [gone] * len(files)
    assert {name for revision in files for name in revision["delta"]} == {
        "uploaded_by",
        "modified_by",
    }
    text = stage.value("SELECT string_agg(concat(data, delta), ' ') FROM system_revisions")
    assert "argon2" not in text
