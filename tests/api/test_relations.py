"""/relations: many-to-one, one-to-many, many-to-many, many-to-any."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from cms.structure import indexes
from tests.client import Client
from tests.things import field, filled_template, table
from tests.waiting import eventually


def make_library(admin: Client) -> None:
    admin.post("/collections", {"collection": "authors", "schema": {}})
    fields = [{"field": "author", "type": "integer"}, {"field": "title", "type": "string"}]
    admin.post("/collections", {"collection": "articles", "schema": {}, "fields": fields})
    key = {"field": "id", "type": "uuid", "schema": {"is_primary_key": True}}
    admin.post("/collections", {"collection": "tags", "schema": {}, "fields": [key]})
    ends = [{"field": "item", "type": "string"}, {"field": "kind", "type": "string"}]
    admin.post("/collections", {"collection": "sections", "schema": {}, "fields": ends})


template = filled_template(make_library)


@pytest.fixture
def library(api: Client) -> Client:
    """The administrator's client, with authors, articles (whose `author` is an integer), tags
    (keyed by uuid), and sections (whose `item` is a key of the collection that `kind` names).
    """
    return api


TO_AUTHOR: dict[str, Any] = {
    "collection": "articles",
    "field": "author",
    "related_collection": "authors",
}
TO_TAGS: dict[str, Any] = {
    "collection": "articles",
    "field": "tags",
    "related_collection": "tags",
    "meta": {"junction_collection": "articles_tags"},
}


def relate(api: Client, relation: dict[str, Any] = TO_AUTHOR, **meta: object) -> Any:
    return api.post("/relations", {**relation, "meta": {**relation.get("meta", {}), **meta}}).data


def test_a_many_to_one_relation_is_a_foreign_key_with_an_index(library: Client) -> None:
    record = relate(library)
    assert (record["collection"], record["field"], record["related_collection"]) == (
        "articles",
        "author",
        "authors",
    )
    keys = """constraint_name table column foreign_key_table foreign_key_column
        on_update on_delete"""
    assert record["schema"].keys() == set(keys.split())
    schema = library.get("/fields/articles/author").data["schema"]
    assert (schema["foreign_key_table"], schema["foreign_key_column"]) == ("authors", "id")
    assert schema["is_indexed"]
    assert library.get("/relations/articles/author").data == record
    assert library.post("/items/articles", {"author": 1}).codes == ["INVALID_FOREIGN_KEY"]


def test_every_documented_key_of_meta_is_answered(library: Client) -> None:
    keys = """id many_collection many_field one_collection one_field one_collection_field
        one_allowed_collections junction_field junction_collection sort_field one_deselect_action"""
    assert relate(library)["meta"].keys() == set(keys.split())


def test_the_other_side_lists_the_items_that_point_to_it(library: Client) -> None:
    record = relate(library, one_field="articles")
    field = library.get("/fields/authors/articles").data
    assert (field["type"], field["schema"], field["meta"]["special"]) == ("alias", None, ["o2m"])
    assert library.get("/relations/authors/articles").data == record
    author = library.post("/items/authors", {}).data["id"]
    article = library.post("/items/articles", {"author": author}).data["id"]
    assert library.get("/items/authors").data == [{"id": author, "articles": [article]}]


@pytest.mark.release
@pytest.mark.parametrize("name", ["n", "t", "t0", "c0", "r", "found", "structure"])
def test_fields_of_any_name_are_read_through_a_relation(library: Client, name: str) -> None:
    for collection in ("authors", "articles"):
        library.post(f"/fields/{collection}", {"field": name, "type": "integer"})
    relate(library, one_field="articles")
    library.post("/items/authors", {name: 1})
    library.post("/items/articles", {name: 2, "author": 1})
    assert library.get(f"/items/authors?fields={name},articles.{name},articles.id").data == [
        {name: 1, "articles": [{name: 2, "id": 1}]}
    ]
    assert library.get(f"/items/articles?fields={name},author.{name}").data == [
        {name: 2, "author": {name: 1}}
    ]


@pytest.mark.release
def test_the_list_may_be_made_before_its_relation(library: Client) -> None:
    library.post(
        "/fields/authors",
        {"field": "articles", "type": "alias", "meta": {"special": ["o2m"], "note": "n"}},
    )
    relate(library, one_field="articles")
    assert library.get("/fields/authors/articles").data["meta"]["note"] == "n"
    assert library.get("/items/authors").data == []


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("action", "left"),
    [
        ("SET NULL", [{"id": 1, "author": None}]),
        ("CASCADE", []),
        ("NO ACTION", None),
        ("RESTRICT", None),
    ],
)
def test_the_relation_decides_what_a_deletion_does(library: Client, action: str, left: Any) -> None:
    record = library.post("/relations", {**TO_AUTHOR, "schema": {"on_delete": action}}).data
    assert record["schema"]["on_delete"] == action
    author = library.post("/items/authors", {}).data["id"]
    library.post("/items/articles", {"author": author})
    answer = library.delete(f"/items/authors/{author}")
    if left is None:
        assert answer.codes == ["INVALID_FOREIGN_KEY"]
    else:
        assert library.get("/items/articles?fields=id,author").data == left


def test_a_relation_changes_its_rules_and_its_metadata(library: Client) -> None:
    relate(library)
    record = library.patch("/relations/articles/author", {"schema": {"on_delete": "CASCADE"}}).data
    assert record["schema"]["on_delete"] == "CASCADE"
    record = library.patch("/relations/articles/author", {"meta": {"sort_field": "id"}}).data
    assert (record["meta"]["sort_field"], record["schema"]["on_delete"]) == ("id", "CASCADE")
    record = library.patch("/relations/articles/author", {"meta": {"one_field": "texts"}}).data
    assert (record["meta"]["one_field"], record["meta"]["sort_field"]) == ("texts", "id")
    library.patch("/relations/articles/author", {"meta": {"one_field": "works"}})
    assert [field["field"] for field in library.get("/fields/authors").data] == ["id", "works"]
    library.patch("/relations/articles/author", {"meta": {"one_field": None}})
    assert [field["field"] for field in library.get("/fields/authors").data] == ["id"]


@pytest.mark.release
def test_the_record_that_was_read_may_be_sent_back_whole_and_changes_nothing(
    library: Client, dsn: str
) -> None:
    relate(library, one_field="articles", one_deselect_action="delete")
    relate(library, TO_TAGS)
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE TABLE notes (id serial PRIMARY KEY, article int REFERENCES articles)"
        )
    library.post("/utils/cache/clear")
    records = [
        record
        for record in library.get("/relations").data
        if not record["collection"].startswith("system_")
    ]
    assert len(records) == 4
    for record in records:
        assert (
            library.patch(f"/relations/{record['collection']}/{record['field']}", record).data
            == record
        )
    assert library.get("/relations/notes/article").data["meta"] is None


def test_a_deleted_relation_leaves_its_foreign_key_and_takes_its_list_along(
    library: Client,
) -> None:
    relate(library, one_field="articles")
    assert library.delete("/relations/articles/author").status == 204
    assert library.get("/relations/articles/author").status == 404
    assert library.get("/relations").status == 200
    assert library.get("/fields/authors/articles").status == 404
    assert library.get("/fields/articles/author").data["schema"]["foreign_key_table"] == "authors"
    assert library.post("/items/articles", {"author": 1}).codes == ["INVALID_FOREIGN_KEY"]
    assert relate(library, one_field="texts")["meta"]["one_field"] == "texts"
    assert library.delete("/relations/authors/texts").status == 204


@pytest.mark.release
def test_a_column_that_goes_takes_its_relation_and_its_list_along(library: Client) -> None:
    relate(library, one_field="articles")
    library.delete("/fields/articles/author")
    assert library.get("/relations/articles").data == []
    assert [field["field"] for field in library.get("/fields/authors").data] == ["id"]


def test_a_list_that_goes_leaves_the_relation(library: Client) -> None:
    relate(library, one_field="articles")
    library.delete("/fields/authors/articles")
    assert library.get("/relations/articles/author").data["meta"]["one_field"] is None


def test_a_many_to_many_relation_is_made_whole(library: Client) -> None:
    record = relate(library, TO_TAGS, one_field="articles")
    assert (record["collection"], record["field"], record["related_collection"]) == (
        "articles_tags",
        "articles_id",
        "articles",
    )
    assert (record["meta"]["one_field"], record["meta"]["junction_field"]) == ("tags", "tags_id")
    assert record["meta"]["junction_collection"] == "articles_tags"
    assert library.get("/collections/articles_tags").data["meta"]["hidden"]
    fields = {field["field"]: field for field in library.get("/fields/articles_tags").data}
    assert [fields[name]["type"] for name in ("id", "articles_id", "tags_id")] == [
        "integer",
        "integer",
        "uuid",
    ]
    assert fields["articles_id"]["schema"]["is_indexed"]
    assert fields["tags_id"]["schema"]["is_indexed"]
    other = library.get("/relations/tags/articles").data
    assert (other["field"], other["meta"]["junction_field"]) == ("tags_id", "articles_id")
    assert library.get("/fields/articles/tags").data["meta"]["special"] == ["m2m"]


def test_links_go_with_either_end_and_a_link_that_is_left_out_is_deleted(library: Client) -> None:
    record = relate(library, TO_TAGS)
    assert record["meta"]["one_deselect_action"] == "delete"
    article = library.post("/items/articles", {}).data["id"]
    tag = library.post("/items/tags", {}).data["id"]
    library.post("/items/articles_tags", {"articles_id": article, "tags_id": tag})
    assert library.get("/items/articles?fields=tags.tags_id").data == [{"tags": [{"tags_id": tag}]}]
    library.delete(f"/items/tags/{tag}")
    assert library.get("/items/articles_tags").data == []


@pytest.mark.release
def test_a_collection_may_be_related_to_itself(library: Client) -> None:
    meta = {"junction_collection": "links", "junction_field": "other"}
    record = relate(library, {**TO_TAGS, "related_collection": "articles", "meta": meta})
    assert (record["field"], record["meta"]["junction_field"]) == ("articles_id", "other")
    library.post("/fields/articles", {"field": "parent", "type": "integer"})
    parent = {"collection": "articles", "field": "parent", "related_collection": "articles"}
    assert (
        relate(library, parent, one_field="children")["schema"]["foreign_key_table"] == "articles"
    )


@pytest.mark.release
def test_a_junction_that_is_there_already_is_used(library: Client) -> None:
    fields = [{"field": "articles_id", "type": "integer"}, {"field": "weight", "type": "integer"}]
    library.post("/collections", {"collection": "articles_tags", "schema": {}, "fields": fields})
    relate(library, TO_TAGS, sort_field="weight")
    names = [field["field"] for field in library.get("/fields/articles_tags").data]
    assert names == ["id", "articles_id", "weight", "tags_id"]


def test_a_many_to_many_relation_made_by_hand_works(library: Client) -> None:
    fields = [{"field": "article", "type": "integer"}, {"field": "tag", "type": "uuid"}]
    library.post("/collections", {"collection": "labels", "schema": {}, "fields": fields})
    library.post(
        "/fields/articles", {"field": "tags", "type": "alias", "meta": {"special": ["m2m"]}}
    )
    near = {"collection": "labels", "field": "article", "related_collection": "articles"}
    far = {"collection": "labels", "field": "tag", "related_collection": "tags"}
    relate(library, near, one_field="tags", junction_field="tag")
    assert relate(library, far, junction_field="article")["meta"]["junction_collection"] == "labels"
    assert library.get("/relations/articles/tags").data["meta"]["junction_field"] == "tag"


@pytest.mark.release
def test_a_side_of_a_junction_that_goes_is_named_no_more(library: Client) -> None:
    relate(library, TO_TAGS)
    library.delete("/collections/tags")
    assert library.get("/relations/articles/tags").data["meta"]["junction_field"] is None
    relate(
        library,
        {
            **TO_TAGS,
            "related_collection": "authors",
            "field": "people",
            "meta": {"junction_collection": "p"},
        },
    )
    library.delete("/fields/p/authors_id")
    assert library.get("/relations/articles/people").data["meta"]["junction_field"] is None


TO_ANY: dict[str, Any] = {
    "collection": "sections",
    "field": "item",
    "related_collection": None,
    "meta": {"one_collection_field": "kind", "one_allowed_collections": ["articles", "tags"]},
}


@pytest.fixture(scope="module")
def chapters(admin: Client) -> str:
    """The name of a collection like `sections` that is related already."""
    chapters = table(admin, field("item", "string"), field("kind", "string"))
    relate(admin, {**TO_ANY, "collection": chapters.name})
    return chapters.name


def test_a_many_to_any_relation_has_no_foreign_key(library: Client) -> None:
    record = relate(library, TO_ANY)
    assert (record["related_collection"], record["schema"]) == (None, None)
    assert record["meta"]["one_allowed_collections"] == ["articles", "tags"]
    assert library.get("/fields/sections/item").data["schema"]["is_indexed"]
    meta = library.patch(
        "/relations/sections/item", {"meta": {"one_allowed_collections": ["tags", "authors"]}}
    ).data["meta"]
    assert (meta["one_allowed_collections"], meta["one_collection_field"]) == (
        ["tags", "authors"],
        "kind",
    )
    library.delete("/collections/tags")
    assert library.get("/relations/sections/item").data["meta"]["one_allowed_collections"] == [
        "authors"
    ]
    library.delete("/fields/sections/kind")
    assert library.get("/relations/sections").data == []


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "meta",
    [
        {"one_allowed_collections": None},
        {"one_allowed_collections": []},
        {"one_allowed_collections": ["nowhere"]},
        {"one_allowed_collections": "articles"},
        {"one_allowed_collections": [1]},
        {"one_collection_field": None},
        {"one_collection_field": "nowhere"},
    ],
)
def test_a_many_to_any_relation_knows_its_collections(
    admin: Client, chapters: str, meta: dict[str, object]
) -> None:
    for answer in (
        admin.post("/relations", {**TO_ANY, "meta": {**TO_ANY["meta"], **meta}}),
        admin.patch(f"/relations/{chapters}/item", {"meta": meta}),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    "change",
    [
        {"collection": "nowhere"},
        {"collection": None},
        {"field": "nowhere"},
        {"field": 5},
        {"related_collection": "nowhere"},
        {"related_collection": 7},
        {"related_collection": None},
        {"related_collection": "tags"},
        {"meta": []},
        {"meta": {"one_field": "id"}},
        {"meta": {"one_field": "a b"}},
        {"meta": {"one_field": 'x"; DROP TABLE authors; --'}},
        {"meta": {"sort_field": "no where"}},
        {"meta": {"junction_field": "9"}},
        {"meta": {"one_collection_field": "nowhere"}},
        {"meta": {"one_deselect_action": "forget"}},
        {"meta": {"nonsense": 1}},
        {"schema": {"on_delete": "EXPLODE"}},
        {"schema": {"on_delete": None}},
        {"meta": {"junction_collection": "a b"}, "field": "tags"},
        {"meta": {"junction_collection": "system_x"}, "field": "tags"},
        {"meta": {"junction_collection": 5}, "field": "tags"},
        {"meta": {"junction_collection": "j"}},
        {"meta": {"junction_collection": "j", "junction_field": "articles_id"}, "field": "tags"},
        {"meta": {"junction_collection": "j", "junction_field": "id"}, "field": "tags"},
        {"meta": {"junction_collection": "j", "sort_field": "no where"}, "field": "tags"},
        {"meta": {"junction_collection": "j"}, "field": "tags", "related_collection": None},
    ],
)
def test_a_wrong_relation_is_refused_and_leaves_nothing(
    admin: Client, change: dict[str, object]
) -> None:
    before = admin.get("/fields").data
    answer = admin.post("/relations", {**TO_AUTHOR, **change})
    assert answer.status == 400, answer.text
    assert admin.get("/fields").data == before
    assert admin.get("/relations/articles").data == []


@pytest.mark.release
def test_a_required_column_is_not_emptied_by_a_deletion(library: Client) -> None:
    library.patch("/fields/articles/author", {"schema": {"is_nullable": False}})
    answer = library.post("/relations", {**TO_AUTHOR, "schema": {"on_delete": "SET NULL"}})
    assert (answer.status, answer.errors[0]["field"]) == (400, "schema.on_delete")
    assert relate(library)["schema"]["on_delete"] == "NO ACTION"
    assert (
        library.patch("/relations/articles/author", {"schema": {"on_delete": "SET NULL"}}).status
        == 400
    )


def test_values_that_point_nowhere_refuse_the_relation(library: Client) -> None:
    library.post("/items/articles", {"author": 99})
    answer = library.post("/relations", {**TO_AUTHOR, "meta": {"one_field": "articles"}})
    assert (answer.status, answer.codes) == (400, ["INVALID_FOREIGN_KEY"])
    assert library.get("/fields/authors/articles").status == 404
    assert not library.get("/fields/articles/author").data["schema"]["is_indexed"]


@pytest.mark.release
def test_a_field_has_one_relation_and_a_list_one_source(library: Client) -> None:
    relate(library, one_field="articles")
    assert library.post("/relations", TO_AUTHOR).codes == ["INVALID_PAYLOAD"]
    library.post("/fields/articles", {"field": "editor", "type": "integer"})
    second = {**TO_AUTHOR, "field": "editor", "meta": {"one_field": "articles"}}
    assert library.post("/relations", second).codes == ["INVALID_PAYLOAD"]


@pytest.mark.release
def test_items_may_point_to_system_collections_which_stay_as_they_are(library: Client) -> None:
    library.post("/fields/articles", {"field": "owner", "type": "uuid"})
    owner = {"collection": "articles", "field": "owner", "related_collection": "system_users"}
    refused = library.post("/relations", {**owner, "meta": {"one_field": "articles"}})
    assert (refused.status, refused.codes, "reason" in refused.errors[0]) == (
        403,
        ["FORBIDDEN"],
        True,
    )
    assert relate(library, owner)["schema"]["foreign_key_table"] == "system_users"
    for answer in (
        library.post("/relations", {**TO_AUTHOR, "collection": "system_users", "field": "role"}),
        library.post("/relations", {**TO_TAGS, "collection": "system_users"}),
        library.patch("/relations/system_users/role", {"meta": {"one_field": "members"}}),
        library.delete("/relations/system_users/role"),
        library.delete("/relations/system_roles/users"),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
        assert "is fixed" in answer.errors[0]["reason"], answer


def test_unknown_relations_are_not_found(admin: Client) -> None:
    for answer in (
        admin.get("/relations/nowhere"),
        admin.get("/relations/articles/title"),
        admin.patch("/relations/articles/title", {"meta": {}}),
        admin.delete("/relations/articles/nowhere"),
    ):
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer


@pytest.mark.release
def test_a_large_table_gets_the_index_of_its_relation_after_the_commit(
    library: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)
    relate(library)
    path = "/fields/articles/author"
    eventually(lambda: library.get(path).data["schema"]["is_indexed"])


def test_a_list_is_in_the_order_of_its_relation(library: Client) -> None:
    lists = table(library, field("name", "string"))
    entries = table(library, field("list", "integer"), field("place", "integer"))
    relation = {
        "collection": entries.name,
        "field": "list",
        "related_collection": lists.name,
        "meta": {"one_field": "entries", "sort_field": "place"},
    }
    assert library.post("/relations", relation).status == 200
    (item,) = lists.add({"name": "a", "entries": [{"place": 3}, {"place": 1}, {"place": 2}]})
    path = f"{lists.path}/{item['id']}"
    assert library.get(path, fields="entries.place").data["entries"] == [
        {"place": position} for position in (1, 2, 3)
    ]
    assert library.get(path, fields="entries").data["entries"] == [2, 3, 1]
    assert library.get(f"{path}?fields=entries&deep[entries][_sort]=-place").data["entries"] == [
        1,
        3,
        2,
    ]
