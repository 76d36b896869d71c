"""Related items written with an item, in one call."""

from __future__ import annotations

import pytest

from tests.api.nesting import add_post, count, item
from tests.client import Client
from tests.statements import counted_in_transactions
from tests.things import Json, Stage

pytestmark = pytest.mark.usefixtures("nested_collections")

NOTE = "3d6f0a52-3b1e-4d6e-9f6e-0a2b6c1d9e77"


def refused(
    admin: Client, path: str, body: object, *, method: str = "PATCH"
) -> list[tuple[str, object]]:
    """Send what is refused, and return code and path of each fault."""
    answer = admin.send(method, path, body)
    assert 400 <= answer.status < 500, answer.text
    return [(fault["code"], fault.get("path")) for fault in answer.errors]


# To-one


def test_an_object_at_a_to_one_field_is_created(admin: Client) -> None:
    item = admin.post(
        "/items/posts?fields=title,author.name", {"title": "a", "author": {"name": "Ann"}}
    ).data
    assert item == {"title": "a", "author": {"name": "Ann"}}


def test_an_object_with_a_key_that_is_there_is_changed_and_linked(admin: Client) -> None:
    ann = admin.post("/items/people", {"name": "Bea", "pin": "1"}).data["id"]
    author = admin.post(
        "/items/posts?fields=author.*", {"author": {"id": ann, "name": "Beata"}}
    ).data["author"]
    assert (author["id"], author["name"], author["pin"]) == (ann, "Beata", "1")


def test_an_object_with_a_key_that_is_not_there_is_created_with_it(admin: Client) -> None:
    item = admin.post(
        "/items/posts?fields=author.id", {"author": {"id": 7001, "name": "Chosen"}}
    ).data
    assert item == {"author": {"id": 7001}}


def test_a_key_and_null_are_what_they_always_were(admin: Client) -> None:
    key = admin.post("/items/people", {"name": "Cy"}).data["id"]
    post_key = add_post(admin, author=key)
    assert item(admin, f"posts/{post_key}", "author") == {"author": key}
    assert admin.patch(f"/items/posts/{post_key}", {"author": None}).data["author"] is None


def test_the_same_object_for_several_rows_is_one_row(admin: Client) -> None:
    key = admin.post("/items/people", {"name": "Di"}).data["id"]
    sent = [{"author": {"id": key, "name": "D1"}}, {"author": {"id": key, "name": "D2"}}]
    posts = admin.post("/items/posts?fields=author.id,author.name", sent).data
    assert posts == [{"author": {"id": key, "name": "D2"}}] * 2
    sent = [{"author": {"id": key, "boss": {"name": "D0"}}}, {"author": {"id": key, "boss": None}}]
    assert (
        admin.post("/items/posts?fields=author.boss", sent).data == [{"author": {"boss": None}}] * 2
    )


def test_self_relations_go_up_and_down(admin: Client) -> None:
    sent = {
        "name": "mid",
        "boss": {"name": "top", "boss": {"name": "very top"}},
        "staff": [{"name": "low"}],
    }
    person = admin.post("/items/people?fields=name,boss.name,boss.boss.name,staff.name", sent).data
    assert person == {
        "name": "mid",
        "boss": {"name": "top", "boss": {"name": "very top"}},
        "staff": [{"name": "low"}],
    }


# To-many


def test_an_array_is_the_whole_new_state(admin: Client) -> None:
    key = add_post(admin, comments=[{"text": "a"}, {"text": "b"}, {"text": "c"}])
    a, b, c = (comment["id"] for comment in item(admin, f"posts/{key}", "comments.id")["comments"])
    changed = admin.patch(
        f"/items/posts/{key}?fields=comments.id,comments.text",
        {"comments": [c, {"id": a, "text": "A"}, {"text": "d"}]},
    ).data["comments"]
    assert [(comment["id"], comment["text"]) for comment in changed[:2]] == [(a, "A"), (c, "c")]
    assert [comment["text"] for comment in changed[2:]] == ["d"]
    assert admin.get(f"/items/comments/{b}").status == 404  # one_deselect_action is delete
    assert admin.patch(f"/items/posts/{key}", {"comments": []}).data["comments"] == []
    assert admin.get(f"/items/comments/{a}").status == 404


def test_what_is_left_out_is_unlinked_by_a_relation_that_nullifies(admin: Client) -> None:
    boss = admin.post(
        "/items/people?fields=id,staff", {"name": "Ed", "staff": [{"name": "E1"}, {"name": "E2"}]}
    ).data
    first, second = boss["staff"]
    assert admin.patch(f"/items/people/{boss['id']}", {"staff": [second]}).data["staff"] == [second]
    assert item(admin, f"people/{first}", "boss") == {"boss": None}


def test_changes_create_update_and_delete(admin: Client) -> None:
    key = add_post(admin, comments=[{"text": "a"}, {"text": "b"}, {"text": "c"}])
    a, b, c = item(admin, f"posts/{key}", "comments")["comments"]
    changes = {"create": [{"text": "d"}], "update": [{"id": a, "text": "A"}], "delete": [b]}
    changed = admin.patch(f"/items/posts/{key}?fields=comments.text", {"comments": changes}).data
    assert [comment["text"] for comment in changed["comments"]] == ["A", "c", "d"]
    assert item(admin, f"comments/{c}", "text") == {"text": "c"}


def test_update_may_bring_a_row_over(admin: Client) -> None:
    here = add_post(admin, comments=[{"text": "a"}])
    there = add_post(admin)
    (comment,) = item(admin, f"posts/{here}", "comments")["comments"]
    moved = admin.patch(f"/items/posts/{there}", {"comments": {"update": [{"id": comment}]}}).data
    assert moved["comments"] == [comment]
    assert item(admin, f"posts/{here}", "comments") == {"comments": []}
    assert admin.patch(f"/items/posts/{here}", {"comments": [comment]}).data["comments"] == [
        comment
    ]


@pytest.mark.parametrize("word", ["delete", "update"])
def test_what_is_not_there_refuses_the_whole_write(admin: Client, word: str) -> None:
    key = add_post(admin)
    before = count(admin, "comments")
    changes: Json = {
        "create": [{"text": "x"}],
        word: [99999] if word == "delete" else [{"id": 99999}],
    }
    assert refused(admin, f"/items/posts/{key}", {"comments": changes}) == [
        ("INVALID_FOREIGN_KEY", ["comments", word, 0])
    ]
    assert count(admin, "comments") == before


def test_delete_names_rows_of_this_list_only(admin: Client) -> None:
    here = add_post(admin, comments=[{"text": "a"}])
    there = add_post(admin)
    comments = item(admin, f"posts/{here}", "comments")["comments"]
    body = {"title": "changed", "comments": {"delete": comments}}
    assert refused(admin, f"/items/posts/{there}", body) == [
        ("INVALID_FOREIGN_KEY", ["comments", "delete", 0])
    ]
    assert item(admin, f"posts/{there}", "title") == {"title": "p"}
    assert item(admin, f"posts/{here}", "comments") == {"comments": comments}


def test_an_unknown_key_in_an_array_is_refused(admin: Client) -> None:
    assert refused(admin, "/items/posts", {"comments": [99999]}, method="POST") == [
        ("INVALID_FOREIGN_KEY", ["comments", 0])
    ]


def test_unlinking_from_a_column_that_takes_no_null_is_refused(admin: Client) -> None:
    key = add_post(admin, steps=[{"text": "a"}, {"text": "b"}])
    problems = refused(admin, f"/items/posts/{key}", {"steps": []})
    assert problems == [("INVALID_PAYLOAD", ["steps"])]
    assert len(item(admin, f"posts/{key}", "steps")["steps"]) == 2


def test_a_place_in_the_array_is_a_place_in_the_order(admin: Client) -> None:
    key = add_post(admin, steps=[{"text": "a"}, {"text": "b"}, {"text": "c", "place": 9}])
    steps = item(admin, f"posts/{key}", "steps.id,steps.place")["steps"]
    assert [step["place"] for step in steps] == [1, 2, 9]
    a, b, c = (step["id"] for step in steps)
    changed = admin.patch(
        f"/items/posts/{key}?fields=steps.id,steps.place&deep[steps][_sort]=place",
        {"steps": [c, b, a]},
    ).data["steps"]
    assert [(step["id"], step["place"]) for step in changed] == [(c, 1), (b, 2), (a, 3)]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (None, ["comments"]),
        (5, ["comments"]),
        ({"make": []}, ["comments"]),
        ({"create": {}}, ["comments", "create"]),
        ({"create": [5]}, ["comments", "create", 0]),
        ({"update": [None]}, ["comments", "update", 0]),
        ({"update": [{"text": "x"}]}, ["comments", "update", 0]),
        ({"delete": [{}]}, ["comments", "delete", 0]),
        ({"delete": ["x"]}, ["comments", "delete", 0]),
        ([None], ["comments", 0]),
        ([[1]], ["comments", 0]),
        ([{"text": {}}], ["comments", 0, "text"]),
        ([{"colour": "red"}], ["comments", 0, "colour"]),
    ],
)
def test_a_wrong_value_of_a_to_many_field_is_reported_with_its_path(
    admin: Client, value: object, path: object
) -> None:
    key = add_post(admin)
    assert ("INVALID_PAYLOAD", path) in refused(admin, f"/items/posts/{key}", {"comments": value})
    assert item(admin, f"posts/{key}", "comments") == {"comments": []}


@pytest.mark.parametrize("owner", ["+", 4711, None, {"title": "no"}, {}, [1], "unknown"])
def test_the_list_sets_the_owner_of_a_row_whatever_the_row_says(
    admin: Client, owner: object
) -> None:
    posts = count(admin, "posts")
    sent = {"create": [{"post": owner, "text": "a"}]}
    key = admin.post("/items/posts", {"comments": sent}).data["id"]
    (comment,) = item(admin, f"posts/{key}", "comments")["comments"]
    changed = [{"id": comment, "post": owner, "text": "b"}, {"post": owner, "text": "c"}]
    rows = admin.patch(f"/items/posts/{key}?fields=comments.*", {"comments": changed})
    assert [(row["post"], row["text"]) for row in rows.data["comments"]] == [(key, "b"), (key, "c")]
    update = {"update": [{"id": comment, "post": owner, "text": "d"}]}
    assert admin.patch(f"/items/posts/{key}", {"comments": update}).status == 200
    assert item(admin, f"comments/{comment}", "post,text") == {"post": key, "text": "d"}
    assert count(admin, "posts") == posts + 1


def test_the_same_row_twice_is_refused(admin: Client) -> None:
    key = add_post(admin, comments=[{"text": "a"}])
    (comment,) = item(admin, f"posts/{key}", "comments")["comments"]
    for value, path in (
        ([comment, comment], ["comments", 1]),
        ([comment, {"id": comment}], ["comments", 1]),
        ({"update": [comment], "delete": [comment]}, ["comments", "delete", 0]),
    ):
        assert ("INVALID_PAYLOAD", path) in refused(
            admin, f"/items/posts/{key}", {"comments": value}
        )
    two = [{"comments": [comment]}, {"comments": [comment]}]
    assert refused(admin, "/items/posts", two, method="POST") == [
        ("INVALID_PAYLOAD", ["comments", 0])
    ]


# Many-to-many and many-to-any


def test_many_to_many_rows_hold_to_one_objects(admin: Client) -> None:
    tag = admin.post("/items/tags", {"name": "old"}).data["id"]
    sent = {
        "tags": [
            {"posts_id": "+", "tags_id": tag},
            {"tags_id": {"name": "new"}},
            {"tags_id": {"id": tag + 50_000, "name": "keyed"}},
        ]
    }
    post_item = admin.post("/items/posts?fields=id,tags.id,tags.tags_id.name", sent).data
    assert [link["tags_id"]["name"] for link in post_item["tags"]] == ["old", "new", "keyed"]
    first, second, _ = (link["id"] for link in post_item["tags"])
    path = f"/items/posts/{post_item['id']}?fields=tags.id,tags.tags_id.name"
    changed = admin.patch(
        path, {"tags": [second, {"id": first, "tags_id": {"id": tag, "name": "renamed"}}]}
    ).data
    assert changed == {
        "tags": [
            {"id": first, "tags_id": {"name": "renamed"}},
            {"id": second, "tags_id": {"name": "new"}},
        ]
    }
    assert item(admin, f"tags/{tag + 50_000}", "name") == {
        "name": "keyed"
    }  # the tag stays, only its link goes


def test_many_to_any_rows_name_the_collection_they_lead_to(admin: Client) -> None:
    sections = [
        {"kind": "headings", "item": {"title": "H"}},
        {"kind": "notes", "item": {"code": NOTE, "text": "N"}},
        {"kind": "notes", "item": NOTE},
    ]
    fields = (
        "id,sections.id,sections.kind,sections.sort,sections.item:headings.title,"
        "sections.item:notes.text"
    )
    page = admin.post(f"/items/posts?fields={fields}", {"sections": sections}).data
    assert [row["item"] for row in page["sections"]] == [
        {"title": "H"},
        {"text": "N"},
        {"text": "N"},
    ]
    assert [row["sort"] for row in page["sections"]] == [1, 2, 3]
    changes = {
        "update": [{"id": page["sections"][1]["id"], "item": {"code": NOTE, "text": "changed"}}]
    }
    changed = admin.patch(f"/items/posts/{page['id']}?fields={fields}", {"sections": changes}).data
    assert [row["item"].get("text") for row in changed["sections"]] == [
        None,
        "changed",
        "changed",
    ]
    section = page["sections"][0]["id"]
    assert admin.patch(
        f"/items/sections/{section}?fields=item:headings.title", {"item": {"title": "own"}}
    ).data == {"item": {"title": "own"}}


def test_many_to_any_without_a_collection_is_refused(admin: Client) -> None:
    problems = refused(
        admin, "/items/posts", {"sections": [{"item": {"title": "H"}}]}, method="POST"
    )
    assert problems == [("INVALID_PAYLOAD", ["sections", 0, "item"])]


# All of it together


def test_every_fault_at_every_depth_is_reported_at_once(admin: Client) -> None:
    sent = [
        {"title": "x" * 256, "tags": [{"tags_id": {"size": "big"}}, {"tags_id": {"name": None}}]},
        {"author": {"boss": {"name": []}}},
    ]
    answer = admin.post("/items/posts", sent)
    assert [(fault["code"], fault["index"], fault["path"]) for fault in answer.errors] == [
        ("VALUE_TOO_LONG", 0, ["title"]),
        ("INVALID_PAYLOAD", 0, ["tags", 0, "tags_id", "size"]),
        ("FAILED_VALIDATION", 0, ["tags", 0, "tags_id", "name"]),
        ("FAILED_VALIDATION", 0, ["tags", 1, "tags_id", "name"]),
        ("INVALID_PAYLOAD", 1, ["author", "boss", "name"]),
    ]
    assert answer.status == 400


def test_a_fault_in_the_depth_leaves_no_trace(admin: Client) -> None:
    before = [
        count(admin, name)
        for name in ("posts", "people", "tags", "system_activity", "system_revisions")
    ]
    sent = {
        "author": {"name": "Fay"},
        "comments": [{"text": "a"}],
        "tags": [{"tags_id": {"id": 9001}}],
    }
    assert refused(admin, "/items/posts", sent, method="POST") == [
        ("FAILED_VALIDATION", ["tags", 0, "tags_id", "name"])
    ]
    after = [
        count(admin, name)
        for name in ("posts", "people", "tags", "system_activity", "system_revisions")
    ]
    assert after == before


def test_it_goes_ten_relations_deep_and_no_deeper(admin: Client) -> None:
    def nest(depth: int, label: str) -> Json:
        return {"name": f"{label} {depth}", **({"boss": nest(depth - 1, label)} if depth else {})}

    assert admin.post("/items/people", nest(10, "deep")).status == 200
    before = count(admin, "people")
    answer = admin.post("/items/people", nest(11, "deeper"))
    assert (answer.status, answer.codes, count(admin, "people")) == (
        400,
        ["INVALID_PAYLOAD"],
        before,
    )


def test_several_items_get_related_items_of_their_own_by_keys(admin: Client) -> None:
    keys = [add_post(admin), add_post(admin)]
    changed = admin.patch(
        "/items/posts?fields=comments.text",
        {"keys": keys, "data": {"comments": [{"text": "each"}]}},
    ).data
    assert changed == [{"comments": [{"text": "each"}]}] * 2


def test_an_array_of_items_with_keys_takes_related_items(admin: Client) -> None:
    one = add_post(admin, comments=[{"text": "a"}])
    two = add_post(admin, comments=[{"text": "b"}])
    sent = [{"id": two, "comments": [{"text": "B"}]}, {"id": one, "author": {"name": "Gil"}}]
    changed = admin.patch("/items/posts?fields=author.name,comments.text", sent).data
    assert changed == [
        {"author": None, "comments": [{"text": "B"}]},
        {"author": {"name": "Gil"}, "comments": [{"text": "a"}]},
    ]


def test_a_write_of_lists_only_does_not_stamp_the_item(admin: Client) -> None:
    key = add_post(admin)
    assert admin.patch(f"/items/posts/{key}", {"comments": [{"text": "a"}]}).data["changed"] is None
    assert admin.patch(f"/items/posts/{key}", {}).data["changed"] is None
    assert admin.patch(f"/items/posts/{key}", {"author": {"name": "Hal"}}).data["changed"] > "2020"


@pytest.mark.release
def test_a_thousand_tags_are_a_handful_of_statements(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(number: int) -> Json:
        return {
            "tags": [{"tags_id": {"name": f"t{n}"}} for n in range(number)],
            "author": {"name": f"many {number}"},
        }

    with counted_in_transactions(monkeypatch) as few:
        admin.post("/items/posts?fields=id", sent(2))
    with counted_in_transactions(monkeypatch) as many:
        post_key = admin.post("/items/posts?fields=id", sent(1000)).data["id"]
    assert len(many) == len(few) <= 7
    rows = item(admin, f"posts/{post_key}", "tags.id&deep[tags][_limit]=-1")["tags"]
    assert len(rows) == 1000
    renamed = [{"id": row["id"], "tags_id": {"name": "again"}} for row in rows[:900]]
    with counted_in_transactions(monkeypatch) as changes:
        admin.patch(f"/items/posts/{post_key}?fields=id", {"tags": renamed})
    assert len(changes) <= 11
    assert len(item(admin, f"posts/{post_key}", "tags.id&deep[tags][_limit]=-1")["tags"]) == 900


# Tables of the users' own


def test_cycles_are_written_where_the_columns_allow_it(admin: Client) -> None:
    key = admin.post("/items/people", {"name": "snake"}).data["id"]
    sent = {"boss": {"name": "tail", "boss": key}}
    changed = admin.patch(f"/items/people/{key}?fields=boss.name,boss.boss.name", sent).data
    assert changed == {"boss": {"name": "tail", "boss": {"name": "snake"}}}
    itself = admin.post(
        "/items/people?fields=boss.id", {"id": 5001, "name": "own boss", "boss": {"id": 5001}}
    )
    assert itself.status == 400  # the object is written before the item, which is not there yet


def test_a_relation_may_point_to_another_unique_column(stage: Stage, admin: Client) -> None:
    stage.execute(
        "CREATE TABLE lands (id serial PRIMARY KEY, code text UNIQUE NOT NULL);"
        "CREATE TABLE towns (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text,"
        " land text REFERENCES lands (code))"
    )
    meta = {"one_field": "towns"}
    assert admin.patch("/relations/towns/land", {"meta": meta}).status == 200
    city = admin.post(
        "/items/towns?fields=name,land.code", {"name": "Bern", "land": {"code": "CH"}}
    ).data
    assert city == {"name": "Bern", "land": {"code": "CH"}}
    land = admin.post(
        "/items/lands?fields=id,towns.name", {"code": "AT", "towns": [{"name": "Wien"}]}
    ).data
    assert land["towns"] == [{"name": "Wien"}]
    path = f"/items/lands/{land['id']}?fields=towns.name"
    assert admin.patch(path, {"towns": {"create": [{"name": "Graz"}]}}).status == 200
    assert admin.patch(path, {"towns": [{"name": "Linz"}]}).data == {"towns": [{"name": "Linz"}]}
    assert stage.value("SELECT count(*) FROM towns WHERE land IS NULL") == 2


def test_a_junction_whose_pairs_are_unique_can_be_filled_anew(stage: Stage, admin: Client) -> None:
    stage.execute("CREATE UNIQUE INDEX pairs ON posts_tags (posts_id, tags_id)")
    tag = admin.post("/items/tags", {"name": "pair"}).data["id"]
    key = add_post(admin, tags=[{"tags_id": tag}])
    changed = admin.patch(
        f"/items/posts/{key}?fields=tags.tags_id", {"tags": [{"tags_id": tag}]}
    ).data
    assert changed == {"tags": [{"tags_id": tag}]}
    twice = admin.patch(f"/items/posts/{key}", {"tags": [{"tags_id": tag}, {"tags_id": tag}]})
    assert (twice.status, twice.codes) == (400, ["RECORD_NOT_UNIQUE"])
    stage.execute("DROP INDEX pairs")


def test_rows_with_text_keys_are_found_by_them(stage: Stage, admin: Client) -> None:
    stage.execute(
        "CREATE TABLE shelves (name text PRIMARY KEY);"
        "CREATE TABLE jars (label varchar(20) PRIMARY KEY, shelf text REFERENCES shelves)"
    )
    assert admin.patch("/relations/jars/shelf", {"meta": {"one_field": "jars"}}).status == 200
    odd = 'a "b", {c} \\d %s NULL'
    item_written = admin.post(
        "/items/shelves?fields=*", {"name": odd, "jars": [{"label": 'x",\\'}, {"label": "NULL"}]}
    ).data
    assert item_written == {"name": odd, "jars": ["NULL", 'x",\\']}
    assert admin.patch("/items/shelves", [{"name": odd, "jars": ["NULL"]}]).data[0]["jars"] == [
        "NULL"
    ]
    assert admin.get("/items/jars").data == [
        {"label": "NULL", "shelf": odd},
        {"label": 'x",\\', "shelf": None},
    ]


def test_a_singleton_takes_related_items(admin: Client) -> None:
    fields = [{"field": "welcome", "type": "integer", "schema": {}}]
    body = {"collection": "site", "schema": {}, "meta": {"singleton": True}, "fields": fields}
    assert admin.post("/collections", body).status == 200
    relation = {"collection": "site", "field": "welcome", "related_collection": "posts"}
    assert admin.post("/relations", relation).status == 200
    for title in ("hello", "again"):
        site = admin.patch("/items/site?fields=welcome.title", {"welcome": {"title": title}}).data
        assert site == {"welcome": {"title": title}}
    assert admin.patch("/items/site", {"welcome": {"title": ["x"]}}).errors[0]["path"] == [
        "welcome",
        "title",
    ]
