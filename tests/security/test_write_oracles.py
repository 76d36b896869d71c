"""Who writes learns nothing of hidden rows and fields, but for what
docs/permissions.md says cannot be helped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table

FORBIDDEN = (
    '{"errors":[{"message":"You don\'t have permission to access '
    'this.","extensions":{"code":"FORBIDDEN"}}]}'
)
SEEN = {"state": {"_eq": "seen"}}


@dataclass(frozen=True)
class NotesAndVaults:
    """Notes of which those that are `seen` may be read; `secret` and
    everything of `vaults` may not.
    """

    stage: Stage
    notes: Table
    vaults: Table
    seen: int
    hidden: int

    def new_member(self, *permissions: dict[str, Any]) -> Client:
        return member(self.stage, *permissions)

    def reading(self, *more: dict[str, Any]) -> Client:
        return self.new_member(
            may(self.notes.name, "id", "title", "state", permissions=SEEN), *more
        )


@pytest.fixture(scope="module")
def tables(stage: Stage) -> NotesAndVaults:
    notes = table(
        stage.admin,
        field("title", "string", is_unique=True),
        field("state", "string", default_value="seen"),
        field("secret", "string", is_unique=True),
        field("vault", "integer"),
        field("place", "integer"),
        sort_field="place",
    )
    vaults = table(stage.admin, field("name", "string"))
    relation = {
        "collection": notes.name,
        "field": "vault",
        "related_collection": vaults.name,
        "meta": {"one_field": "notes"},
        "schema": {"on_delete": "NO ACTION"},
    }
    assert stage.admin.post("/relations", relation).status == 200
    vaults.add({"name": "deep"})
    seen, hidden = notes.add(
        {"title": "One", "secret": "alpha", "vault": 1},
        {"title": "Two", "state": "hidden", "secret": "beta"},
    )
    return NotesAndVaults(stage, notes, vaults, seen["id"], hidden["id"])


def batch(caller: Client, operation: dict[str, Any]) -> Answer:
    return caller.post("/batch", {"operations": [operation]})


def require_same(*answers: Answer) -> None:
    """Fail with the requests whose answers differ."""
    assert len({(answer.status, answer.text) for answer in answers}) == 1, answers


def test_no_write_distinguishes_a_hidden_item_from_one_that_never_was(
    tables: NotesAndVaults,
) -> None:
    name = tables.notes.name
    path = tables.notes.path
    caller = tables.reading(
        *(may(name, action=action, permissions=SEEN) for action in ("create", "update", "delete"))
    )
    requests: tuple[Callable[[int], Answer], ...] = (
        lambda key: caller.patch(f"{path}/{key}", {"title": "x"}),
        lambda key: caller.patch(f"{path}/{key}", {"nowhere": "x"}),
        lambda key: caller.patch(f"{path}/{key}", {}),
        lambda key: caller.patch(path, {"keys": [key], "data": {"title": "x"}}),
        lambda key: caller.patch(path, {"keys": [tables.seen, key], "data": {"state": "x"}}),
        lambda key: caller.patch(path, [{"id": key, "title": "x"}]),
        lambda key: caller.patch(path, {"query": {"filter": {"id": key}}, "data": {"title": "x"}}),
        lambda key: caller.delete(f"{path}/{key}"),
        lambda key: caller.delete(path, [key]),
        lambda key: caller.delete(path, {"query": {"filter": {"id": key}}}),
        lambda key: caller.send("PATCH", f"{path}/{key}", {"title": "x"}, **{"If-Match": '"0-0"'}),
        lambda key: caller.send("DELETE", f"{path}/{key}", **{"If-Match": '"0-0"'}),
        lambda key: caller.post("/comments", {"collection": name, "item": key, "comment": "x"}),
        lambda key: caller.post(f"/utils/sort/{name}", {"item": key, "to": tables.seen}),
        lambda key: caller.post(f"/utils/sort/{name}", {"item": tables.seen, "to": key}),
        lambda key: batch(caller, {"method": "update", "collection": name, "key": key, "data": {}}),
        lambda key: batch(caller, {"method": "delete", "collection": name, "key": key}),
    )
    for request in requests:
        require_same(request(tables.hidden), request(987654))
    assert tables.notes.column("title", f"filter[id]={tables.hidden}") == ["Two"]


def test_no_query_of_a_write_looks_at_what_is_hidden(tables: NotesAndVaults) -> None:
    name = tables.notes.name
    path = tables.notes.path
    caller = tables.reading(may(name, "title", action="update"), may(name, action="delete"))
    for query in (
        {"filter": {"secret": {"_starts_with": "a"}}},
        {"filter": {"vault": {"name": {"_eq": "deep"}}}},
        {"filter": {"_or": [{"secret": {"_null": True}}, {"id": tables.seen}]}},
        {"sort": ["secret"], "limit": 1},
        {"filter": {"nowhere": 1}},
        {"sort": ["nowhere"]},
    ):
        for answer in (
            caller.patch(path, {"query": query, "data": {"title": "x"}}),
            caller.delete(path, {"query": query}),
            batch(caller, {"method": "delete", "collection": name, "query": query}),
        ):
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), query
    assert caller.delete(path, {"query": {"search": "alpha"}}).status == 204
    assert tables.notes.column("id") == [tables.seen, tables.hidden]


def test_what_the_database_minds_is_reported_without_hidden_names(tables: NotesAndVaults) -> None:
    name = tables.notes.name
    path = tables.notes.path
    hidden_presets = {"presets": {"secret": "beta", "vault": 1}}
    taken = tables.reading(may(name, "title", action="create", **hidden_presets)).post(
        path, {"title": "fresh"}
    )
    assert taken.errors == [
        {
            "message": "A value that must be unique is already there.",
            "collection": name,
            "code": "RECORD_NOT_UNIQUE",
        }
    ]
    own = tables.reading(may(name, "title", action="create")).post(path, {"title": "Two"})
    assert own.errors[0]["field"] == "title"
    in_use = tables.new_member(
        may(tables.vaults.name), may(tables.vaults.name, action="delete")
    ).delete(f"{tables.vaults.path}/1")
    assert (in_use.codes, name in in_use.text, "vault_f" in in_use.text) == (
        ["INVALID_FOREIGN_KEY"],
        False,
        False,
    )
    everything = tables.stage.admin.delete(f"{tables.vaults.path}/1").errors[0]
    assert (everything["collection"], everything["constraint"]) == (name, f"{name}_vault_fkey")


@pytest.mark.parametrize("rule", [{"secret": {"_eq": "x"}}, {"vault": {"_nnull": True}}])
def test_validation_of_a_hidden_field_is_a_plain_refusal(
    tables: NotesAndVaults, rule: dict[str, object]
) -> None:
    for answer in (
        tables.reading(may(tables.notes.name, "title", action="create", validation=rule)).post(
            tables.notes.path, {"title": "y"}
        ),
        tables.reading(
            may(
                tables.notes.name,
                "title",
                action="update",
                validation={**rule, "secret": {"_submitted": True}},
            )
        ).patch(f"{tables.notes.path}/{tables.seen}", {"title": "y"}),
    ):
        assert (answer.status, answer.text) == (403, FORBIDDEN), answer


def test_a_required_field_that_is_hidden_is_not_named(stage: Stage) -> None:
    things = table(
        stage.admin, field("title", "string"), field("inner", "string", is_nullable=False)
    )
    caller = member(
        stage, may(things.name, "title", action="create"), may(things.name, "id", "title")
    )
    assert caller.post(things.path, {"title": "x"}).text == FORBIDDEN
    assert batch(caller, {"method": "create", "collection": things.name, "data": {}}).codes == [
        "FORBIDDEN"
    ]
    reader = member(stage, may(things.name, "title", action="create"), may(things.name))
    assert reader.post(things.path, {"title": "x"}).errors[0]["field"] == "inner"


@pytest.mark.parametrize("path", ["email", "role.name", "last_name", "token"])
def test_a_failed_validation_does_not_reveal_what_a_path_from_the_caller_leads_to(
    tables: NotesAndVaults, path: str
) -> None:
    rule = {"title": {"_eq": f"$CURRENT_USER.{path}"}}
    caller = tables.reading(may(tables.notes.name, "title", action="create", validation=rule))
    answer = caller.post(tables.notes.path, {"title": "guess"})
    assert answer.errors == [
        {
            "message": 'Validation failed for "title": the rule "eq" does not hold.',
            "collection": tables.notes.name,
            "field": "title",
            "path": ["title"],
            "type": "eq",
            "code": "FAILED_VALIDATION",
        }
    ]


def test_nested_keys_reveal_nothing_of_hidden_items(tables: NotesAndVaults) -> None:
    caller = tables.new_member(
        may(tables.vaults.name),
        may(tables.vaults.name, action="update"),
        may(tables.notes.name, "id", "title", "vault", permissions=SEEN),
        may(tables.notes.name, action="update"),
        may(tables.notes.name, action="delete"),
    )
    path = f"{tables.vaults.path}/1"
    requests: tuple[Callable[[int], Answer], ...] = (
        lambda key: caller.patch(path, {"notes": [key]}),
        lambda key: caller.patch(path, {"notes": {"update": [{"id": key, "title": "x"}]}}),
        lambda key: caller.patch(path, {"notes": {"delete": [key]}}),
        lambda key: caller.patch(path, {"notes": {"update": [key], "delete": [tables.seen]}}),
    )
    for request in requests:
        require_same(request(tables.hidden), request(987654))
        assert request(tables.hidden).status == 400
    assert tables.notes.column("vault") == [1, None]


def test_a_collection_that_a_key_of_any_may_lead_to_is_not_reported(tables: NotesAndVaults) -> None:
    things = table(tables.stage.admin, field("item", "string"), field("kind", "string"))
    meta = {"one_collection_field": "kind", "one_allowed_collections": [tables.vaults.name]}
    relation = {
        "collection": things.name,
        "field": "item",
        "related_collection": None,
        "meta": meta,
    }
    assert tables.stage.admin.post("/relations", relation).status == 200
    caller = tables.new_member(
        *(may(things.name, action=action) for action in ("read", "create", "update"))
    )
    (row,) = things.add({"item": "1", "kind": tables.vaults.name})
    for sub_item in ({"name": "x"}, {"id": 1}, {}):
        for send in (caller.post, lambda path, body: caller.patch(f"{path}/{row['id']}", body)):
            answers = [
                send(things.path, {"item": sub_item, "kind": kind})
                for kind in (tables.vaults.name, "nowhere", "system_users")
            ]
            require_same(*answers)
            assert answers[0].codes == ["FORBIDDEN"], answers[0]


def test_revisions_of_hidden_items_are_no_way_back_to_them(tables: NotesAndVaults) -> None:
    admin = tables.stage.admin
    name = tables.notes.name
    revisions = f"filter[collection]={name}&fields=id&filter[item]={tables.hidden}"
    (revision,) = [row["id"] for row in admin.get(f"/revisions?{revisions}").data]
    writing = may(name, action="update", permissions=SEEN)
    writer = tables.reading(writing)
    require_same(writer.post(f"/utils/revert/{revision}"), writer.post("/utils/revert/987654"))
    sees_its_own = tables.reading(
        writing, may("system_revisions", permissions={"item": {"_eq": str(tables.seen)}})
    )
    require_same(
        sees_its_own.post(f"/utils/revert/{revision}"), sees_its_own.post("/utils/revert/987654")
    )
    sees_all = tables.reading(writing, may("system_revisions"))
    require_same(sees_all.post(f"/utils/revert/{revision}"), sees_all.post("/utils/revert/987654"))
    for query in ("", "?fields=data", "?export=csv"):
        require_same(
            *(
                sees_all.get(f"{tables.notes.path}/{key}/revisions{query}")
                for key in (tables.hidden, 987654)
            )
        )


def test_nobody_gets_the_kept_answer_of_another_caller(tables: NotesAndVaults) -> None:
    things = table(tables.stage.admin, field("title", "string"))
    permissions = [may(things.name, action="create"), may(things.name)]
    one = tables.new_member(*permissions)
    other = tables.new_member(*permissions)
    key = {"Idempotency-Key": "shared"}
    body = {"title": "x"}
    first = one.send("POST", things.path, body, **key)
    assert one.send("POST", things.path, body, **key).text == first.text
    assert other.send("POST", things.path, body, **key).data["id"] != first.data["id"]
    assert tables.stage.anonymous.send("POST", things.path, body, **key).status == 403
    assert tables.stage.admin.send("POST", things.path, body, **key).data["id"] != first.data["id"]


def test_a_change_is_held_to_the_permissions_that_speak_of_its_fields(
    tables: NotesAndVaults,
) -> None:
    """Another permission, for another field, lends neither its rows nor the lack of a
    validation.
    """
    things = table(
        tables.stage.admin,
        field("title", "string"),
        field("state", "string"),
        field("note", "string"),
    )
    (row,) = things.add({"title": "a", "state": "draft"})
    path = f"{things.path}/{row['id']}"
    name = things.name
    validated = may(name, "title", action="update", validation={"title": {"_neq": "bad"}})
    caller = tables.new_member(validated, may(name, "note", action="update"), may(name))
    assert caller.patch(path, {"title": "bad"}).codes == ["FAILED_VALIDATION"]
    assert caller.patch(path, {"title": "bad", "note": "x"}).codes == ["FAILED_VALIDATION"]
    assert caller.patch(path, {"title": "good", "note": "x"}).status == 200
    drafts = may(name, "state", "title", action="update", permissions={"state": {"_eq": "draft"}})
    caller = tables.new_member(
        drafts,
        may(name, "note", action="update", permissions={"state": {"_eq": "live"}}),
        may(name),
    )
    assert caller.patch(path, {"state": "live"}).status == 403
    assert caller.patch(things.path, {"keys": [row["id"]], "data": {"state": "live"}}).status == 403
    assert caller.patch(path, {"title": "b"}).status == 200
    late = tables.new_member(drafts, may(name, "note", action="update"), may(name))
    assert things.api.patch(path, {"state": "live"}).status == 200
    free = tables.new_member(drafts, may(name, "state", action="update"), may(name))
    for caller in (late, free):  # what the item becomes lends nothing to what it is
        assert caller.patch(path, {"title": "c", "state": "draft"}).status == 403
        assert (
            caller.patch(things.path, [{"id": row["id"], "title": "c", "state": "draft"}]).status
            == 403
        )
    assert things.column("title") == ["b"]
    assert things.api.patch(path, {"state": "draft"}).status == 200
    both = tables.new_member(
        drafts,
        may(name, "state", action="update", permissions={"state": {"_eq": "live"}}),
        may(name),
    )
    assert both.patch(path, {"state": "live"}).data["state"] == "live"


def test_what_leaves_a_list_has_changed_and_must_fulfil_the_rule_as_well(
    tables: NotesAndVaults,
) -> None:
    admin = tables.stage.admin
    lists = table(admin, field("name", "string"))
    rows = table(admin, field("list", "integer"))
    meta = {"one_field": "rows"}
    relation = {
        "collection": rows.name,
        "field": "list",
        "related_collection": lists.name,
        "meta": meta,
    }
    assert admin.post("/relations", relation).status == 200
    (list_row,) = lists.add({"name": "a", "rows": [{}, {}]})
    kept = {"list": {"_nnull": True}}
    caller = tables.new_member(
        may(lists.name),
        may(lists.name, action="update"),
        may(rows.name),
        may(rows.name, action="update", permissions=kept),
    )
    assert caller.patch(f"{rows.path}/1", {"list": None}).status == 403
    for body in ([], [1], {"delete": [1]}):
        assert caller.patch(f"{lists.path}/{list_row['id']}", {"rows": body}).status == 403
    assert rows.column("list") == [list_row["id"]] * 2
