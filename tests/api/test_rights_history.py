"""Activity and revisions show of items what the rights on those items show."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.client import Client
from tests.members import Json, may, member, member_of, new_role
from tests.things import Stage, Table, field, table

COUNTS = "total_count,filter_count"
HISTORY = (may("system_revisions"), may("system_activity"))
PUBLISHED = {"status": {"_eq": "published"}}


THINGS = (
    field("title", "string"),
    field("note", "string"),
    field("status", "string"),
)


def revisions(caller: Client, things: Table, **params: object) -> list[Json]:
    of_things = {"filter[collection]": things.name, "sort": "id"}
    entries: list[Json] = caller.get("/revisions", **of_things, **params).data
    return entries


def item(of: Table, key: int) -> str:
    return f"{of.path}/{key}"


def test_contents_hold_the_fields_that_the_caller_may_read(stage: Stage, things: Table) -> None:
    things.add({"title": "one", "note": "swordfish"})
    things.api.patch(item(things, 1), {"title": "two", "note": "stingray"})
    caller = member(stage, may(things.name, "id", "title"), *HISTORY)
    creation, changed = revisions(caller, things)
    assert creation["data"] == creation["delta"] == {"id": 1, "title": "one"}
    assert changed["data"] == {"id": 1, "title": "two"}
    assert changed["delta"] == {"title": "two"}
    update = revisions(things.api, things)[1]
    assert update["delta"] == {"title": "two", "note": "stingray"}


@pytest.mark.parametrize("path", ["/revisions", "/items/{name}/1/revisions", "/activity"])
def test_no_way_to_the_history_shows_what_is_hidden(stage: Stage, things: Table, path: str) -> None:
    things.add(
        {"title": "seen", "note": "swordfish"}, {"title": "unseen-title", "note": "swordfish"}
    )
    caller = member(stage, may(things.name, "id", "title", permissions={"id": 1}), *HISTORY)
    for query_string in (
        "fields=*.*",
        "export=csv",
        "export=xml",
        "meta=*",
        "fields=*&limit=-1",
        "search=swordfish",
    ):
        answer = caller.get(f"{path.format(name=things.name)}?{query_string}")
        assert answer.status == 200, answer.text
        assert "swordfish" not in answer.text
        assert "unseen" not in answer.text


def test_counts_are_of_what_is_there(stage: Stage, things: Table) -> None:
    things.add({"title": "a"}, {"title": "b"}, {"title": "c"})
    caller = member(
        stage, may(things.name, "id", "title", permissions={"title": {"_neq": "b"}}), *HISTORY
    )
    for path in ("/revisions", "/activity"):
        params = {"filter[collection]": things.name, "meta": COUNTS, "limit": 1}
        answer = caller.get(path, **params).body
        assert answer["meta"] == {"total_count": 2, "filter_count": 2}, path
        grouped = caller.get(
            path, **{"filter[collection]": things.name, "aggregate[count]": "*", "groupBy": "item"}
        )
        assert [(group["item"], group["count"]) for group in grouped.data] == [("1", 1), ("3", 1)]


def test_counts_of_comments_and_of_an_item_are_of_these_alone(stage: Stage, things: Table) -> None:
    things.add({"title": "a"}, {"title": "b"}, {"title": "c"})
    for key in (1, 2, 3):
        things.api.patch(item(things, key), {"note": "x"})
        things.api.post(
            "/comments", {"collection": things.name, "item": key, "comment": "Well done."}
        )
    caller = member(
        stage, may(things.name, "id", "title", permissions={"title": {"_neq": "b"}}), *HISTORY
    )
    for query_string in (f"meta={COUNTS}&limit=1", f"meta={COUNTS}&limit=0"):
        counts = caller.get(f"/comments?{query_string}").body["meta"]
        assert counts == {"total_count": 2, "filter_count": 2}, query_string
        assert caller.get(f"/comments?{query_string}&filter[item]=1").body["meta"] == {
            "total_count": 2,
            "filter_count": 1,
        }
        assert caller.get(f"{item(things, 1)}/revisions?{query_string}").body["meta"] == {
            "total_count": 2,
            "filter_count": 2,
        }
        narrowed = caller.get(
            f"{item(things, 1)}/revisions?{query_string}&filter[activity][action]=create"
        )
        assert narrowed.body["meta"] == {"total_count": 2, "filter_count": 1}
        assert caller.get(f"{item(things, 2)}/revisions?{query_string}").status == 404
    counts = caller.search("/comments", {"meta": COUNTS, "limit": 1}).body["meta"]
    assert counts == {"total_count": 2, "filter_count": 2}


def test_an_act_lists_the_revisions_that_the_caller_sees(stage: Stage, things: Table) -> None:
    things.add({"title": "a", "status": "draft"})
    things.api.patch(item(things, 1), {"status": "published"})
    seeing = member(stage, may(things.name, permissions=PUBLISHED), *HISTORY)
    params = {"filter[collection]": things.name, "sort": "id", "fields": "action,revisions"}
    (draft, published) = (revision["id"] for revision in revisions(things.api, things))
    rows = [{"action": "create", "revisions": []}, {"action": "update", "revisions": [published]}]
    assert seeing.get("/activity", **params).data == rows
    assert things.api.get("/activity", **params).data[0]["revisions"] == [draft]
    without = member(stage, may(things.name), may("system_activity"))
    assert "revisions" not in without.get("/activity").data[0]
    assert without.get("/activity", **params).status == 403


def test_a_collection_without_a_right_has_no_history(stage: Stage, things: Table) -> None:
    things.add({"title": "a"})
    caller = member(stage, *HISTORY)
    assert caller.get("/revisions").data == caller.get("/activity").data == []
    assert caller.get("/activity", **{"aggregate[count]": "*"}).data == [{"count": 0}]


def test_an_act_needs_the_right_on_its_own_collection_too(stage: Stage, things: Table) -> None:
    things.add({"title": "a"})
    caller = member(stage, may(things.name))
    assert caller.get("/revisions").codes == caller.get("/activity").codes == ["FORBIDDEN"]


def test_a_rule_looks_at_the_item_as_the_revision_holds_it(stage: Stage, things: Table) -> None:
    things.add({"title": "rough", "status": "draft"})
    things.api.patch(item(things, 1), {"title": "fine", "status": "published"})
    caller = member(stage, may(things.name, permissions=PUBLISHED), *HISTORY)
    (revision,) = revisions(caller, things)
    assert revision["data"]["title"] == "fine"
    assert "rough" not in caller.get("/revisions", export="jsonl").text


def test_and_at_the_item_as_it_is_now(stage: Stage, things: Table) -> None:
    things.add({"title": "fine", "status": "published"})
    caller = member(stage, may(things.name, permissions=PUBLISHED), *HISTORY)
    assert len(revisions(caller, things)) == 1
    things.api.patch(item(things, 1), {"status": "withdrawn"})
    assert revisions(caller, things) == []
    assert caller.get("/activity", **{"filter[collection]": things.name}).data == []


def test_of_a_deleted_item_only_who_sees_every_item_has_the_history(
    stage: Stage, things: Table
) -> None:
    things.add({"title": "gone", "note": "swordfish", "status": "published"})
    things.api.delete(item(things, 1))
    limited = member(stage, may(things.name, permissions=PUBLISHED), *HISTORY)
    caller = member(stage, may(things.name, "id", "title"), *HISTORY)
    assert revisions(limited, things) == []
    assert limited.get(f"{item(things, 1)}/revisions").status == 404
    assert [entry["data"] for entry in revisions(caller, things)] == [
        {"id": 1, "title": "gone"}
    ] * 2
    assert len(caller.get(f"{item(things, 1)}/revisions").data) == 2
    assert [entry["action"] for entry in caller.get("/activity", sort="id").data] == [
        "create",
        "delete",
    ]


def test_fields_of_several_permissions_are_those_of_the_item_now_and_then(
    stage: Stage, things: Table
) -> None:
    things.add({"title": "a", "note": "early", "status": "draft"})
    things.api.patch(item(things, 1), {"note": "late", "status": "published"})
    caller = member(
        stage,
        may(things.name, "id", "title"),
        may(things.name, "note", "status", permissions=PUBLISHED),
        *HISTORY,
    )
    early, late = revisions(caller, things)
    assert early["data"] == {"id": 1, "title": "a"}
    assert late["data"] == {"id": 1, "title": "a", "note": "late", "status": "published"}
    things.api.patch(item(things, 1), {"status": "draft"})
    assert [revision["data"] for revision in revisions(caller, things)] == [
        {"id": 1, "title": "a"}
    ] * 3


def test_a_rule_may_go_through_relations_and_to_the_caller(stage: Stage, admin: Client) -> None:
    teams = table(admin, field("name", "string"))
    posts = table(admin, field("title", "string"), field("team", "integer"), field("owner", "uuid"))
    admin.post(
        "/relations", {"collection": posts.name, "field": "team", "related_collection": teams.name}
    )
    teams.add({"name": "red"}, {"name": "blue"})
    role = new_role(
        stage,
        may(
            posts.name, permissions={"_or": [{"team": {"name": "red"}}, {"owner": "$CURRENT_USER"}]}
        ),
        *HISTORY,
        may("system_users", "id", permissions={"id": "$CURRENT_USER"}),
    )
    caller = member_of(stage, role)
    me = caller.get("/users/me").data["id"]
    posts.add(
        {"title": "r", "team": 1},
        {"title": "b", "team": 2},
        {"title": "mine", "team": 2, "owner": me},
    )
    assert [revision["data"]["title"] for revision in revisions(caller, posts)] == ["r", "mine"]
    admin.patch(item(posts, 1), {"team": 2})
    assert [revision["data"]["title"] for revision in revisions(caller, posts)] == ["mine"]


def test_where_the_key_is_hidden_so_is_the_history(stage: Stage, things: Table) -> None:
    things.add({"title": "a", "status": "draft"}, {"title": "b", "status": "published"})
    keyless = member(stage, may(things.name, "title"), *HISTORY)
    assert revisions(keyless, things) == []
    partly = member(
        stage,
        may(things.name, "title"),
        may(things.name, "id", "title", permissions=PUBLISHED),
        *HISTORY,
    )
    assert [revision["item"] for revision in revisions(partly, things)] == ["2"]


@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        ("csv", ["a"], {"_contains": "a"}),
        ("hash", "swordfish", {"_nnull": True}),
        ("binary", "AAEC", {"_nnull": True}),
    ],
)
def test_what_a_revision_does_not_hold_as_it_is_fulfils_no_rule(
    stage: Stage, admin: Client, kind: str, value: object, rule: object
) -> None:
    things = table(admin, field("it", kind), field("title", "string"))
    things.add({"it": value, "title": "a"})
    caller = member(stage, may(things.name, "id", "title", permissions={"it": rule}), *HISTORY)
    assert len(caller.get(things.path).data) == 1
    assert revisions(caller, things) == []
    assert len(caller.get("/activity", **{"filter[collection]": things.name}).data) == 1


def test_revisions_are_grouped_by_how_much_of_them_is_there(stage: Stage, things: Table) -> None:
    things.add({"note": "swordfish"})
    caller = member(stage, may(things.name, "id"), *HISTORY)
    for name in ("data", "delta"):
        assert (
            caller.get(f"/revisions?groupBy=count({name})&aggregate[count]=*").data[0]["count"] == 1
        )


def test_a_column_of_another_type_hides_older_revisions_and_one_of_another_name_does_not(
    stage: Stage, things: Table
) -> None:
    things.add({"title": "a", "status": "published"})
    things.api.patch(item(things, 1), {"status": "1"})
    rank = {"status": {"_gte": 1}}
    things.api.patch(f"/fields/{things.name}/status", {"type": "integer"})
    caller = member(stage, may(things.name, permissions=rank), *HISTORY)
    assert [revision["data"]["status"] for revision in revisions(caller, things)] == ["1"]
    things.api.patch(f"/fields/{things.name}/status", {"field": "rank"})
    caller = member(stage, may(things.name, permissions={"rank": {"_gte": 1}}), *HISTORY)
    assert [revision["data"]["rank"] for revision in revisions(caller, things)] == ["1"]


def test_contents_are_masked_to_whatever_is_asked_of_them(stage: Stage, things: Table) -> None:
    things.add({"note": "swordfish"})
    caller = member(stage, may(things.name, "id"), *HISTORY)
    (revision,) = revisions(caller, things, **{"filter[data][_nnull]": "true"})
    assert revision["data"] == {"id": 1}
    assert revisions(caller, things, **{"filter[delta][_null]": "true"}) == []
    assert caller.get("/revisions", **{"filter[data][_contains]": "swordfish"}).status in (400, 403)


def test_a_member_reverts_what_it_sees_and_may_change(stage: Stage, things: Table) -> None:
    things.add({"title": "one", "note": "old"})
    things.api.patch(item(things, 1), {"title": "two", "note": "new"})
    first = revisions(things.api, things)[0]["id"]
    reader = member(stage, may(things.name, "id", "title"), *HISTORY)
    assert reader.post(f"/utils/revert/{first}").status == 403
    editor = member(
        stage,
        may(things.name, "id", "title"),
        may(things.name, "id", "title", action="update"),
        *HISTORY,
    )
    assert editor.post(f"/utils/revert/{first}").data == {"id": 1, "title": "one"}
    assert things.api.get(item(things, 1)).data["note"] == "new"
    other_reader = member(
        stage, may(things.name, permissions={"id": 2}), may(things.name, action="update"), *HISTORY
    )
    assert other_reader.post(f"/utils/revert/{first}").status == 404


def test_the_history_of_users_follows_the_rights_on_users(stage: Stage, admin: Client) -> None:
    role = new_role(
        stage,
        may("system_users", "id", "first_name", permissions={"id": "$CURRENT_USER"}),
        *HISTORY,
    )
    caller = member_of(stage, role)
    other = "zebedee"
    me = caller.get("/users/me").data["id"]
    admin.post(
        "/users",
        {"email": f"{other}@example.com", "password": "long-enough-1", "first_name": other},
    )
    admin.patch(f"/users/{me}", {"first_name": "Ann", "title": "swordfish"})
    answer = caller.get("/revisions", limit=-1)
    assert [revision["delta"] for revision in answer.data] == [{"first_name": "Ann"}]
    assert other not in answer.text + caller.get("/activity", limit=-1, fields="*.*").text
    assert "swordfish" not in answer.text


def test_comments_are_there_where_their_item_is(stage: Stage, things: Table) -> None:
    things.add({"title": "a"}, {"title": "b"})
    for key in (1, 2):
        things.api.post(
            "/comments", {"collection": things.name, "item": key, "comment": f"about {key}"}
        )
    caller = member(stage, may(things.name, permissions={"id": 1}), *HISTORY)
    assert [comment["comment"] for comment in caller.get("/comments").data] == ["about 1"]
    hidden = things.api.get(
        "/comments", **{"filter[item]": 2, "filter[collection]": things.name}
    ).data[0]["id"]
    assert (
        caller.get(f"/comments/{hidden}").status
        == caller.delete(f"/comments/{hidden}").status
        == 404
    )


def test_changes_of_what_is_hidden_change_no_answer(stage: Stage, things: Table) -> None:
    """Two states that differ in hidden fields of hidden rows give equal answers, byte for byte."""
    things.add({"title": "a", "note": "x"}, {"title": "b", "note": "y"})
    caller = member(stage, may(things.name, "id", "title", permissions={"id": 1}), *HISTORY)
    of = f"filter[collection]={things.name}"
    paths = (
        f"/revisions?{of}&fields=*.*&meta=*",
        f"/activity?{of}&fields=*&meta=*",
        f"/revisions?{of}&export=csv",
    )
    before = [caller.get(path).text for path in paths]
    things.api.patch(item(things, 2), {"title": "c", "note": "swordfish"})
    things.add({"title": "d"})
    assert [caller.get(path).text for path in paths] == before


def test_the_answers_hold_whole_numbers_and_json_as_they_were(stage: Stage, admin: Client) -> None:
    things = table(
        admin, field("much", "decimal"), field("many", "bigInteger"), field("free", "json")
    )
    free = '{"b": [1, {"a": null}], "a": 2}'
    body = f'{{"much": 12345678901234567890.125, "many": 9223372036854775807, "free": {free}}}'
    things.api.post(things.path, json.loads(body, parse_float=str))
    caller = member(stage, may(things.name), *HISTORY)
    of = {"filter[collection]": things.name, "fields": "data"}
    assert caller.get("/revisions", **of).text == admin.get("/revisions", **of).text


def test_explain_shows_the_rules_on_the_items(stage: Stage, admin: Client, things: Table) -> None:
    caller = member(stage, may(things.name, "id", permissions=PUBLISHED), *HISTORY)
    user = caller.get("/users/me").data["id"]
    rules = admin.get("/utils/explain", path="/revisions", user=user).data["rules"]
    assert [(entry["collection"], entry["rule"]) for entry in rules] == [
        ("system_revisions", None),
        (things.name, PUBLISHED),
    ]


@pytest.mark.parametrize("stored", ["[1, 2]", "null", '"a"', '{"title": "a", "title": "a"}'])
def test_what_is_no_item_has_no_members_and_fulfils_no_rule(
    stage: Stage, things: Table, stored: str
) -> None:
    """Such revisions are written behind the service's back only; they spoil no list."""
    things.add({"title": "a"}, {"title": "b"})
    stage.execute(
        f"UPDATE system_revisions SET data = '{stored}', "
        f"delta = '[]' WHERE collection = '{things.name}' AND item = '1'"
    )
    caller = member(stage, may(things.name, "id"), *HISTORY)
    limited = member(
        stage,
        may(things.name, permissions={"title": {"_nnull": True}, "note": {"_null": True}}),
        *HISTORY,
    )
    assert [revision["delta"] for revision in revisions(caller, things)] == [None, {"id": 2}]
    assert [
        revision["item"]
        for revision in revisions(limited, things, **{"filter[data][_nempty]": "true"})
    ] == ["2"]


def test_a_field_that_is_a_secret_by_now_is_not_shown_of_the_past(
    stage: Stage, things: Table
) -> None:
    things.add({"title": "a", "note": "swordfish"})
    things.api.patch(f"/fields/{things.name}/note", {"meta": {"special": ["conceal"]}})
    caller = member(stage, may(things.name), *HISTORY)
    assert [revision["data"] for revision in revisions(caller, things)] == [
        {"id": 1, "title": "a", "status": None}
    ]


def test_json_in_a_column_of_text_fulfils_no_rule(stage: Stage, admin: Client) -> None:
    things = table(admin, field("it", "text", special="cast-json"), field("title", "string"))
    things.add({"it": "a", "title": "a"}, {"it": [1], "title": "b"})
    caller = member(stage, may(things.name, permissions={"count(it)": 1}), *HISTORY)
    assert [item["title"] for item in caller.get(things.path).data] == ["b"]
    assert revisions(caller, things) == []


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "key", [0, -5, 10**18 - 1, 10**18, 2**63 - 2, 2**63 - 1, 1 - 2**63], ids=lambda key: f"{key:d}"
)
def test_items_of_any_whole_number_have_a_history(stage: Stage, admin: Client, key: int) -> None:
    name = f"numbered_{key}".replace("-", "_")
    whole = {"field": "id", "type": "bigInteger", "schema": {"is_primary_key": True}}
    admin.post(
        "/collections",
        {"collection": name, "schema": {}, "fields": [whole, field("title", "string")]},
    )
    admin.post(f"/items/{name}", {"id": key, "title": "a"})
    caller = member(stage, may(name, permissions={"title": "a"}), *HISTORY)
    assert [revision["item"] for revision in caller.get(f"/items/{name}/{key}/revisions").data] == [
        str(key)
    ]


def test_one_permission_takes_nothing_from_what_another_shows(stage: Stage, admin: Client) -> None:
    """Neither a rule over what revisions do not hold as it is, nor one over a
    field that is younger than they are.
    """
    things = table(admin, field("title", "string"), field("tags", "csv"), field("status", "string"))
    things.add({"title": "a", "tags": ["x"], "status": "published"})
    admin.post(f"/fields/{things.name}", field("added", "string"))
    admin.patch(item(things, 1), {"added": "yes"})
    published = may(things.name, "id", "title", permissions=PUBLISHED)
    others = (
        may(things.name, permissions={"tags": {"_contains": "x"}}),
        may(things.name, permissions={"added": "yes"}),
    )
    alone = member(stage, published, *HISTORY)
    more = member(stage, published, *others, *HISTORY)
    item_now = {"id": 1, "title": "a", "tags": ["x"], "status": "published", "added": "yes"}
    assert [revision["data"] for revision in revisions(alone, things)] == [
        {"id": 1, "title": "a"}
    ] * 2
    assert [revision["data"] for revision in revisions(more, things)] == [
        {"id": 1, "title": "a"},
        item_now,
    ]


@pytest.mark.release
@pytest.mark.parametrize("others", [(), (may("system_users"),)], ids=["one", "several"])
def test_a_page_looks_up_only_the_items_of_its_rows(
    stage: Stage, things: Table, others: tuple[Json, ...]
) -> None:
    """A plan that reads a whole collection for a page of its history would
    be slow where there are many items.
    """
    some = f"SELECT 'update', '{things.name}', n % 1000 FROM generate_series(1, 20000) AS n"
    stage.execute(
        f"INSERT INTO {things.name} (title, status) SELECT n, 'published' FROM generate_series(1, "
        f"1000) AS n"
    )
    stage.execute(f"INSERT INTO system_activity (action, collection, item) {some}")
    stage.execute(
        "INSERT INTO system_revisions (activity, collection, item, data)"
        " SELECT id, collection, item, '{}' FROM system_activity"
    )
    stage.execute("ANALYZE")
    user = str(uuid4())
    member_of(
        stage, new_role(stage, may(things.name, permissions=PUBLISHED), *others, *HISTORY), id=user
    )
    for path in ("/revisions?limit=5&sort=-id", "/activity?limit=5&sort=-timestamp"):
        plan = json.dumps(things.api.get("/utils/explain", path=path, user=user).data["plan"])
        assert f'"Relation Name": "{things.name}"' in plan, path
        assert "hashed" not in plan, path
        before, index_name, _ = plan.partition(f'"Index Name": "{things.name}_pkey"')
        assert index_name, path
        assert "system_revision_row" not in before, (
            "what a revision holds is looked at last, for it takes longest"
        )
