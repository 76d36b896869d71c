"""Items are found, written and remembered by their keys, whatever type and form these have."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.client import Answer, Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Json, Stage, Table, table

pytestmark = pytest.mark.quick(4)


class Key(NamedTuple):
    """The type of a key, a key as it is shown, and other forms in which it may be sent."""

    kind: str
    shown: object
    others: tuple[object, ...] = ()


KEYS = {
    "decimal": Key("numeric(6,2)", 1.5, ("1.50", "1.5")),
    "timestamp": Key("timestamptz", "2024-01-02T03:04:05.828033Z"),
    "text": Key("text", "a/b?c=%,"),
    "uuid": Key(
        "uuid",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
    ),
    "small decimal": Key("numeric", 1e-7, ("1.0e-7",)),
    "large decimal": Key("numeric", 10**20, ("100000000000000000000.0", 1e20)),
    "float": Key("double precision", 0.3333333333333333, ("0.33333333333333330",)),
    "negative zero": Key("double precision", -0.0, (0, "0")),
    "real": Key("real", 0.1, ("0.10",)),
    "datetime": Key("timestamp", "2024-01-02T03:04:05.000001"),
    "time": Key("time", "03:04:05.828033"),
    "date": Key("date", "+012024-02-29"),
    "padded text": Key("char(5)", "ab"),
    "inet": Key("inet", "10.0.0.1/32", ("10.0.0.1",)),
    "citext": Key("citext", "Ann", ("aNN",)),
    "enum": Key("size_of_hat", "large"),
    "money": Key("money", "$1,000.50", (1000.5,)),
    "no number": Key("numeric", "NaN"),
    "endless": Key("timestamptz", "-infinity"),
    "far date": Key("timestamp", "-000043-03-15T12:00:00.500"),
    "bigInteger": Key("bigint", -(2**63), (str(-(2**63)),)),
    "endless timestamp": Key("timestamptz", "infinity"),
    "early datetime": Key("timestamp", "-000043-03-15T00:00:00.500"),
    "not a number": Key("numeric", "NaN"),
}


class Family(NamedTuple):
    """An item `a` with a key of some type, beside the tables that may point to it."""

    parents: Table
    children: Table
    owners: Table
    sections: Table
    forms: tuple[object, ...]

    @property
    def key(self) -> object:
        return self.forms[0]

    @property
    def api(self) -> Client:
        return self.parents.api

    def path(self, form: object) -> str:
        return f"{self.parents.path}/{as_path(form)}"

    def name(self) -> object:
        return self.api.get(self.path(self.key), fields="name").data["name"]


def as_text(form: object) -> str:
    return form if isinstance(form, str) else json.dumps(form)


def as_path(form: object) -> str:
    return quote(as_text(form), safe="")


@pytest.fixture(scope="module")
def families(stage: Stage) -> dict[str, Family]:
    stage.execute(
        "CREATE EXTENSION IF NOT EXISTS citext; CREATE TYPE size_of_hat AS ENUM ('small', 'large')"
    )
    return {}


@pytest.fixture(params=KEYS)
def family(stage: Stage, families: dict[str, Family], request: pytest.FixtureRequest) -> Family:
    name = str(request.param)
    if name not in families:
        families[name] = new_family(stage, KEYS[name])
    family = families[name]
    with stage.side_door.connection() as connection:
        for things in (family.sections, family.children, family.parents, family.owners):
            connection.execute(f"TRUNCATE {things.name} RESTART IDENTITY CASCADE".encode())
        history = f"DELETE FROM system_revisions WHERE collection = '{family.parents.name}'"
        connection.execute(history.encode())
    assert family.parents.add({"id": family.key, "name": "a"})[0]["id"] == family.key
    return family


def new_family(stage: Stage, key: Key) -> Family:
    prefix = table(stage.admin).name
    names = [f"{prefix}_{part}" for part in ("parents", "children", "owners", "sections")]
    parents, children, owners, sections = names
    stage.execute(
        f"CREATE TABLE {owners} (id serial PRIMARY KEY);"
        f"CREATE TABLE {parents} (id {key.kind} PRIMARY KEY, name text,"
        f" owner integer REFERENCES {owners});"
        f"CREATE TABLE {children} (id serial PRIMARY KEY, name text,"
        f" parent {key.kind} REFERENCES {parents}, owner integer REFERENCES {owners});"
        f"CREATE TABLE {sections} (id serial PRIMARY KEY, owner integer REFERENCES {owners},"
        f" item text, collection text)"
    )
    for path, meta in {
        f"{children}/parent": {"one_field": "children", "junction_field": "owner"},
        f"{children}/owner": {"one_field": "parents", "junction_field": "parent"},
        f"{parents}/owner": {"one_field": "own"},
        f"{sections}/owner": {"one_field": "sections", "junction_field": "item"},
    }.items():
        assert stage.admin.patch(f"/relations/{path}", {"meta": meta}).status == 200
    any_item = {
        "one_allowed_collections": [parents],
        "one_collection_field": "collection",
        "junction_field": "owner",
    }
    relation = {"collection": sections, "field": "item", "meta": any_item}
    assert stage.admin.post("/relations", relation).status == 200
    return Family(
        parents=Table(stage.admin, parents),
        children=Table(stage.admin, children),
        owners=Table(stage.admin, owners),
        sections=Table(stage.admin, sections),
        forms=(key.shown, *key.others),
    )


def test_an_item_is_found_by_its_key(family: Family) -> None:
    for form in family.forms:
        assert family.api.get(family.path(form), fields="id").data == {"id": family.key}
        for filter_ in ({"_eq": form}, {"_in": [form]}):
            assert family.parents.get(filter=json.dumps({"id": filter_}), fields="id").data
        operand = f"filter[id][_eq]={as_path(form)}"
        assert family.parents.column("id", operand) == [family.key]
        assert family.parents.column("id", operand.replace("_eq", "_neq")) == []
    count = family.parents.read("aggregate[countDistinct]=id").data
    assert count == [{"countDistinct": {"id": 1}}]


def test_an_item_is_changed_by_its_key(family: Family) -> None:
    api = family.api
    path = family.parents.path
    for form in family.forms:
        by_id = {"filter": {"id": {"_eq": form}}}
        one = [
            api.patch(family.path(form), {"name": "b"}),
            api.patch(family.path(form), {"id": form, "name": "c"}),
        ]
        several = [
            api.patch(path, {"keys": [form, family.key], "data": {"name": "d"}}),
            api.patch(path, [{"id": form, "name": "e"}]),
            api.patch(path, {"query": by_id, "data": {"name": "f"}}),
        ]
        assert [answer.data["id"] for answer in one] == [family.key] * 2
        assert [[item["id"] for item in answer.data] for answer in several] == [[family.key]] * 3
        twice = api.patch(path, [{"id": form, "name": "x"}, {"id": family.key, "name": "y"}])
        assert twice.codes == ["INVALID_PAYLOAD"]
        assert family.name() == "f"


def test_calls_that_name_an_item_take_its_key(family: Family) -> None:
    api = family.api
    name = family.parents.name
    for form in family.forms:
        tag = api.get(family.path(form)).headers["etag"]
        fresh = api.send("PATCH", family.path(form), {"name": "b"}, **{"If-Match": tag})
        assert fresh.status == 200
        stale = api.send("PATCH", family.path(form), {"name": "c"}, **{"If-Match": tag})
        assert stale.status == 412
        repeated = [
            api.send(
                "PATCH",
                family.path(form),
                {"name": form},
                **{"Idempotency-Key": f"{name} {form!r}"},
            )
            for _ in range(2)
        ]
        assert repeated[0].data == repeated[1].data
        assert api.get(f"/permissions/me/{name}/{as_path(form)}").data["update"]["access"]
        named = {"collection": name, "key": form}
        operations = [
            {**named, "id": "changed", "method": "update", "data": {"name": "d"}},
            {**named, "method": "update", "key": {"$result": "changed.id"}, "data": {"name": "e"}},
            {**named, "method": "read"},
        ]
        results = api.post("/batch", {"operations": operations}).data
        assert [(item["id"], item["name"]) for item in results] == [
            (family.key, "d"),
            (family.key, "e"),
            (family.key, "e"),
        ]


def test_an_item_is_deleted_by_its_key_and_created_again(family: Family) -> None:
    api = family.api
    path = family.parents.path
    for form in family.forms:
        by_query = {"query": {"filter": {"id": {"_in": [form]}}}}
        for target, body in ((family.path(form), None), (path, [form]), (path, by_query)):
            assert api.delete(target, body).status == 204
            assert family.parents.read("").data == []
            assert api.post(path, {"id": family.key, "name": "a"}).status == 200
    refused = api.post(path, {"id": family.forms[-1]})
    assert refused.codes == ["RECORD_NOT_UNIQUE"]
    assert refused.errors[0]["value"] == family.forms[-1]


def test_related_items_are_named_by_their_keys(family: Family) -> None:
    api = family.api
    path = f"{family.owners.path}/{family.owners.add({})[0]['id']}"
    collection = family.parents.name
    for number, form in enumerate(family.forms):
        item = {"id": form, "name": f"b{number}"}
        read = {"fields": "own,parents.parent.name,sections.item.name"}
        for named in (form, item):
            written = {
                "own": [named],
                "parents": [{"parent": named}],
                "sections": [{"item": named, "collection": collection}],
            }
            assert api.patch(path, written).status == 200
            name = family.name()
            assert api.get(path, **read).data == {
                "own": [family.key],
                "parents": [{"parent": {"name": name}}],
                "sections": [{"item": {"name": name}}],
            }
        assert family.name() == f"b{number}"
        by_key = {"id": {"_eq": form}}
        for filter_ in (
            {"own": by_key},
            {"parents": {"parent": by_key}},
            {"sections": {f"item:{collection}": by_key}},
        ):
            assert family.owners.get(filter=json.dumps(filter_)).data
        assert api.patch(path, {"own": {"delete": [form]}}).data["own"] == []


def test_a_list_of_an_item_is_replaced_in_every_form_of_its_key(family: Family) -> None:
    read = "?fields=children.name"
    for form in family.forms:
        child = {"name": "b", "parent": form}
        key = family.children.add(child)[0]["id"]
        path = family.path(form) + read
        changed = family.api.patch(path, {"children": {"update": [{"id": key, "name": "c"}]}})
        assert changed.data == {"children": [{"name": "c"}]}
        removed = family.api.patch(path, {"children": {"delete": [key]}})
        assert removed.data == {"children": []}
        family.children.add(child)
        replaced = family.api.patch(path, {"children": [{"name": "d"}]})
        assert replaced.data == {"children": [{"name": "d"}]}
        assert family.api.patch(path, {"children": []}).data == {"children": []}


def changes_of(family: Family, api: Client, form: object) -> Answer:
    return api.get(f"{family.path(form)}/revisions", fields="id,data", sort="id")


def test_the_history_of_an_item_is_found_by_its_key(stage: Stage, family: Family) -> None:
    api = family.api
    grants = [may(name) for name in (family.parents.name, "system_revisions", "system_activity")]
    reader = member(stage, *grants)
    assert api.patch(family.path(family.key), {"name": "b"}).status == 200
    for form in family.forms:
        revisions = changes_of(family, api, form).data
        assert [revision["data"]["name"] for revision in revisions][:2] == ["a", "b"]
        assert len(changes_of(family, reader, form).data) == len(revisions)
        reverted = api.post(f"/utils/revert/{revisions[0]['id']}").data
        assert (reverted["id"], reverted["name"]) == (family.key, "a")
        named = {"collection": family.parents.name, "item": form}
        assert api.post("/comments", {**named, "comment": "Good."}).status == 200
        everything = reader.get("/activity", **{"filter[collection]": family.parents.name}).data
        assert "comment" in [activity["action"] for activity in everything]


def test_an_item_is_shared_by_its_key(stage: Stage, family: Family) -> None:
    role = family.api.get("/users/me", fields="role").data["role"]
    for form in family.forms:
        body = {"collection": family.parents.name, "item": form, "role": role}
        share = family.api.post("/shares", body).data["id"]
        token = stage.anonymous.post("/shares/auth", {"share": share}).data["access_token"]
        guest = stage.anonymous.bearing(token)
        assert guest.get(family.path(form), fields="id").data == {"id": family.key}


def test_a_rule_names_items_by_their_keys(stage: Stage, family: Family) -> None:
    for form in family.forms:
        rule = {"id": {"_in": [form]}}
        name = family.parents.name
        actions = ("read", "update")
        api = member(stage, *(may(name, action=action, permissions=rule) for action in actions))
        assert api.patch(family.path(form), {"name": "b"}).data["id"] == family.key


def test_pages_and_files_of_items_hold_their_keys(family: Family) -> None:
    family.parents.api.post(family.children.path, [{"parent": family.key}] * 3)
    query: Json = {"sort": "parent,-id", "limit": 2, "meta": "next_cursor", "fields": "id"}
    cursor = family.children.get(**query).body["meta"]["next_cursor"]
    assert family.children.get(**query, **{"page[after]": cursor}).data == [{"id": 1}]
    for form in ("csv", "json", "jsonl"):
        exported = family.parents.get(fields="id,name,children", export=form).content
        answer = post_file(family.parents, exported, form=form)
        assert answer.data == {"created": 0, "updated": 1}
        assert family.parents.get(fields="id,name,children", export=form).content == exported
    for key in family.forms:
        content = json.dumps([{"id": key, "name": "b"}])
        assert post_file(family.parents, content, form="json").data["updated"] == 1
    assert family.name() == "b"


def test_items_with_keys_that_no_path_can_hold_are_written_by_bodies(stage: Stage) -> None:
    stage.execute("CREATE TABLE blanks (id text PRIMARY KEY, name text)")
    blanks = Table(stage.admin, "blanks")
    blanks.add({"id": "", "name": "a"})
    assert blanks.api.patch(blanks.path, [{"id": "", "name": "b"}]).data[0]["name"] == "b"
    by_keys = {"keys": [""], "data": {"name": "c"}}
    assert blanks.api.patch(blanks.path, by_keys).data[0]["name"] == "c"
    operation = {"method": "update", "collection": "blanks", "key": "", "data": {"name": "d"}}
    assert blanks.api.post("/batch", {"operations": [operation]}).data[0]["name"] == "d"
    assert post_file(blanks, '[{"id": "", "name": "e"}]', form="json").data["updated"] == 1
    assert blanks.read("").data == [{"id": "", "name": "e"}]
    assert blanks.api.delete(blanks.path, [""]).status == 204


@pytest.mark.parametrize("kind", ["bytea", "jsonb", "text[]"])
def test_items_of_keys_without_a_text_can_only_be_read(stage: Stage, kind: str) -> None:
    things = Table(stage.admin, f"keyed_by_{kind[:4]}")
    stage.execute(f"CREATE TABLE {things.name} (id {kind} PRIMARY KEY, name text)")
    assert things.read("").data == []
    assert things.api.post(things.path, {"name": "a"}).status == 403
    assert things.api.get(f"{things.path}/a").status == 404
