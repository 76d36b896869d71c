"""Collections of one item."""

from __future__ import annotations

import pytest

from tests.api.test_batch import batch, op
from tests.client import Client
from tests.things import Json, Table, field, table


@pytest.fixture
def singleton(admin: Client) -> Table:
    return table(
        admin,
        field("title", "string", default_value="it's new"),
        field("size", "integer", default_value=3),
        field("price", "decimal", default_value=1.5),
        field("open", "boolean", default_value=True),
        field("made", "timestamp", default_value="now()"),
        field("tags", "csv"),
        singleton=True,
    )


def test_it_reads_as_its_defaults_while_there_is_no_item(singleton: Table) -> None:
    answer = singleton.get()
    assert answer.data == {
        "id": None,
        "title": "it's new",
        "size": 3,
        "price": 1.5,
        "open": True,
        "made": None,
        "tags": None,
    }


def test_the_defaults_are_shaped_like_the_item(singleton: Table) -> None:
    assert singleton.get(fields="size,title").data == {"size": 3, "title": "it's new"}
    assert singleton.read("fields=nothing").status == 400


def test_a_patch_makes_the_item_and_then_changes_it(singleton: Table) -> None:
    item = singleton.api.patch(singleton.path, {"title": "a"}).data
    assert (item["title"], item["size"]) == ("a", 3)
    changed = singleton.api.patch(f"{singleton.path}?fields=id,title,size", {"size": 4}).data
    assert changed == {"id": item["id"], "title": "a", "size": 4}
    assert singleton.get(fields="title,size").data == {"title": "a", "size": 4}
    assert singleton.get(limit=0, page=7, fields="title").data == {"title": "a"}
    assert singleton.api.search(singleton.path, {"fields": ["title"], "offset": 3}).data == {
        "title": "a"
    }


def test_a_wrong_patch_is_refused_with_its_field(singleton: Table) -> None:
    for _ in range(2):  # while there is no item, and after
        answer = singleton.api.patch(singleton.path, {"size": "x"})
        assert (answer.status, answer.errors[0]["field"]) == (400, "size"), answer
        assert singleton.api.patch(singleton.path, [1]).status == 400
        assert singleton.api.patch(singleton.path, {}).status == 200


def test_it_has_no_items_to_create_delete_or_name(singleton: Table) -> None:
    singleton.api.patch(singleton.path, {"title": "a"})
    answers = [
        singleton.api.post(singleton.path, {"title": "b"}),
        singleton.api.delete(singleton.path, [1]),
        singleton.api.get(f"{singleton.path}/1"),
        singleton.api.patch(f"{singleton.path}/1", {"title": "b"}),
        singleton.api.delete(f"{singleton.path}/1"),
    ]
    for answer in answers:
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer
    assert singleton.get().data["title"] == "a"


def test_of_a_table_that_holds_more_it_shows_the_first(admin: Client) -> None:
    several = table(admin, field("n", "integer"))
    several.add({"n": 1}, {"n": 2})
    assert admin.patch(f"/collections/{several.name}", {"meta": {"singleton": True}}).status == 200
    assert several.get().data == {"id": 1, "n": 1}
    assert admin.patch(several.path, {"n": 9}).data == {"id": 1, "n": 9}


def test_one_that_has_changed_since_refuses_a_whole_batch(admin: Client) -> None:
    about = table(admin, field("title", "string"), singleton=True)

    def change(title: str, tag: object) -> Json:
        return op("update", about.name, data={"title": title}, if_match=tag)

    unmade = admin.get(about.path).headers["etag"]
    assert batch(admin, change("one", unmade)).data[0]["title"] == "one"
    etag = admin.get(about.path).headers["etag"]
    answer = batch(admin, op("read", about.name), change("two", unmade))
    assert (answer.status, answer.codes, answer.errors[0]["operation"]) == (
        412,
        ["PRECONDITION_FAILED"],
        1,
    )
    assert batch(admin, change("two", etag), change("three", etag)).status == 412
    assert batch(admin, change("two", etag), change("three", "*")).data[1]["title"] == "three"
    assert [fault["field"] for fault in batch(admin, change("four", 5)).errors] == ["if_match"]
    people = op("update", "people", data=[{"id": 1}], if_match="*")
    assert [fault["field"] for fault in batch(admin, people).errors] == ["if_match"]
    assert admin.get(about.path).data["title"] == "three"
