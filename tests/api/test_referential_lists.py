"""What goes with rows of a list that deletes what it leaves out is part of the write around it."""

from __future__ import annotations

import pytest

from tests.api.test_referential_history import POINTING, TWO, deletions, revisions, tables
from tests.client import Client
from tests.things import Stage

pytestmark = pytest.mark.release


def test_a_list_that_deletes_what_it_leaves_out_records_what_went_with_it(
    stage: Stage, admin: Client
) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {1} ON DELETE SET NULL);"
    )
    above, below, last, _ = tables(stage, sql)
    meta = {"one_field": "list", "one_deselect_action": "delete"}
    body = {"collection": below, "field": "up", "related_collection": above, "meta": meta}
    assert admin.post("/relations", body).status == 200
    admin.post(f"/items/{above}", {"id": 1, "list": [{"id": 1}, {"id": 2}]})
    admin.post(f"/items/{last}", {"id": 1, "up": 1})
    assert admin.patch(f"/items/{above}/1", {"name": "x", "list": [2]}).status == 200
    update = revisions(admin, above)[-1]
    removed = deletions(admin, below)["1"]
    changed = revisions(admin, last)[-1]
    assert (removed["parent"], changed["parent"], changed["delta"]) == (
        update["id"],
        removed["id"],
        {"up": None},
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("accountability", ["activity", None])
def test_what_goes_with_rows_of_a_list_that_leave_no_revision_names_the_write_around_them(
    stage: Stage, admin: Client, accountability: str | None
) -> None:
    sql = (
        TWO
        + POINTING % "CASCADE"
        + "CREATE TABLE {2} (id integer PRIMARY KEY, up integer REFERENCES {1} ON DELETE SET NULL);"
        + "CREATE TABLE {3} (id integer PRIMARY KEY, up integer REFERENCES {1} ON DELETE CASCADE);"
    )
    above, below, pointing, last = tables(stage, sql)
    meta = {"one_field": "list", "one_deselect_action": "delete"}
    body = {"collection": below, "field": "up", "related_collection": above, "meta": meta}
    assert admin.post("/relations", body).status == 200
    admin.patch(f"/collections/{below}", {"meta": {"accountability": accountability}})
    admin.post(f"/items/{above}", {"id": 1, "list": [{"id": 1}, {"id": 2}]})
    admin.post(f"/items/{pointing}", {"id": 1, "up": 1})
    admin.post(f"/items/{last}", {"id": 1, "up": 1})
    assert admin.patch(f"/items/{above}/1", {"name": "x", "list": [2]}).status == 200
    update = revisions(admin, above)[-1]
    assert (update["delta"], update["parent"]) == ({"name": "x"}, None)
    assert revisions(admin, pointing)[-1]["parent"] == update["id"]
    assert deletions(admin, last)["1"]["parent"] == update["id"]
    assert revisions(admin, below) == []


LISTED = (
    "CREATE TABLE {0} (id integer PRIMARY KEY, name text, best integer);"
    "CREATE TABLE {1} (id integer PRIMARY KEY, up integer REFERENCES {0});"
    "ALTER TABLE {0} ADD FOREIGN KEY (best) REFERENCES {1};"
    "CREATE TABLE {2} (id integer PRIMARY KEY, goes integer REFERENCES {1} ON DELETE CASCADE,"
    " loses integer REFERENCES {1} ON DELETE SET NULL);"
    "CREATE TABLE {3} (id integer PRIMARY KEY, name text, one integer REFERENCES {0});"
)


def listed(stage: Stage, admin: Client, accountability: str | None) -> list[str]:
    """Make owners with lists that delete what they leave out, of which no revisions are kept."""
    owner, below, last, around = tables(stage, LISTED)
    meta = {"one_field": "list", "one_deselect_action": "delete"}
    body = {"collection": below, "field": "up", "related_collection": owner, "meta": meta}
    assert admin.post("/relations", body).status == 200
    admin.patch(f"/collections/{below}", {"meta": {"accountability": accountability}})
    for n in (1, 2):
        admin.post(f"/items/{owner}", {"id": n, "list": [{"id": n}, {"id": n + 2}]})
        admin.post(f"/items/{last}", [{"id": n, "goes": n}, {"id": n + 2, "loses": n}])
        admin.post(f"/items/{around}", {"id": n, "one": n})
    return [owner, below, last, around]


@pytest.mark.quick(1)
@pytest.mark.parametrize("accountability", ["activity", None])
def test_what_goes_by_the_list_of_a_to_one_object_names_the_nearest_write_with_a_revision(
    stage: Stage, admin: Client, accountability: str | None
) -> None:
    owner, _, last, around = listed(stage, admin, accountability)
    sent = [{"id": n, "name": "x", "one": {"id": n, "list": [n + 2]}} for n in (1, 2)]
    assert admin.patch(f"/items/{around}", sent).status == 200
    updates = {
        revision["item"]: revision["id"]
        for revision in revisions(admin, around)
        if revision["activity"]["action"] == "update"
    }
    assert {key: gone["parent"] for key, gone in deletions(admin, last).items()} == updates
    changes = {
        revision["item"]: revision
        for revision in revisions(admin, last)
        if revision["activity"]["action"] == "update"
    }
    assert {key: revision["parent"] for key, revision in changes.items()} == {
        "3": updates["1"],
        "4": updates["2"],
    }
    assert revisions(admin, owner)[-1]["activity"]["action"] == "create"


def test_what_goes_by_the_list_of_a_to_one_object_that_changes_names_that_one(
    stage: Stage, admin: Client
) -> None:
    owner, _, last, around = listed(stage, admin, None)
    body = {"name": "x", "one": {"id": 1, "name": "y", "list": [3]}}
    assert admin.patch(f"/items/{around}/1", body).status == 200
    update = revisions(admin, owner, **{"filter[item]": "1"})[-1]
    assert (update["delta"], deletions(admin, last)["1"]["parent"]) == ({"name": "y"}, update["id"])


def test_what_goes_in_a_write_that_changes_nothing_else_has_no_parent(
    stage: Stage, admin: Client
) -> None:
    _, _, last, around = listed(stage, admin, None)
    assert admin.patch(f"/items/{around}/1", {"one": {"id": 1, "list": [3]}}).status == 200
    assert deletions(admin, last)["1"]["parent"] is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("accountability", ["activity", None])
def test_what_goes_by_a_list_whose_owner_waits_for_a_new_row_names_the_owner(
    stage: Stage, admin: Client, accountability: str | None
) -> None:
    owner, _, last, _ = listed(stage, admin, accountability)
    assert admin.patch(f"/items/{owner}/1", {"best": 7, "list": [3, {"id": 7}]}).status == 200
    update = revisions(admin, owner, **{"filter[item]": "1"})[-1]
    assert (update["delta"], update["parent"]) == ({"best": 7}, None)
    assert deletions(admin, last)["1"]["parent"] == update["id"]
    assert revisions(admin, last, **{"filter[item]": "3"})[-1]["parent"] == update["id"]
