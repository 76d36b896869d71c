"""All that is wrong with one request is reported in one answer, one entry for each problem."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, filled_things, table

things = filled_things(
    [field("name", "string"), field("price", "decimal"), field("data", "json")],
    [{"name": "x", "price": 1}],
)


def locations(things: Table, query: str) -> list[object]:
    answer = things.read(quote(query, safe="=&,[]"))
    assert answer.status == 400, answer.text
    return [
        error.get("path") or error.get("parameter") or error.get("field") for error in answer.errors
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=x&offset=-1&page=-1&meta=nope", ["limit", "offset", "page", "meta"]),
        ("sort=a,,b&limit=x&fields=a,,b", ["fields", "sort", "limit"]),
        ("aggregate[nope]=*&groupBy=a,,b&limit=-2", ["aggregate", "groupBy", "limit"]),
        ("alias[1a]=name&search=" + "x" * 2000, ["alias", "search"]),
        ("filter[price][_between]=1&sort=a,,b", ["filter[price][_between]", "sort"]),
        (
            "deep[a][_limit]=x&deep[a][_sort]=a,,b&limit=x",
            ["deep[a][_sort]", "deep[a][_limit]", "limit"],
        ),
        ("deep[a][b][_page]=x&deep[c][_page]=x", ["deep[a][b][_page]", "deep[c][_page]"]),
        ("deep=[&filter={", ["deep", "filter"]),
    ],
)
def test_wrong_parameters(things: Table, query: str, expected: list[str]) -> None:
    assert locations(things, query) == expected


def test_wrong_tests_of_one_filter(things: Table) -> None:
    tests = {
        "_and": [
            {"price": {"_between": [1]}},
            {"_or": [{"name": {"_nope": 1}}, {"price": {"_null": "x"}}]},
        ],
        "name": {"_in": [None]},
    }
    assert locations(things, f"filter={json.dumps(tests)}") == [
        "filter[_and][0][price][_between]",
        "filter[_and][1][_or][0][name][_nope]",
        "filter[_and][1][_or][1][price][_null]",
        "filter[name][_in]",
    ]


def test_wrong_names_operators_and_operands(things: Table) -> None:
    query = (
        "fields=nope,name,years&sort=-nothing&filter[price][_contains]=1&filter[id][_gt]=x"
        "&filter[gone]=1"
    )
    answer = things.read(query)
    assert answer.status == 400
    assert sorted(str(error.get("field") or error.get("place")) for error in answer.errors) == [
        "gone",
        "nope",
        "nothing",
        "price",
        f"{things.name}.id _gt",
        "years",
    ]


def test_wrong_parameters_and_wrong_names(things: Table) -> None:
    query = "limit=x&fields=gone&sort=-lost&filter[price][_contains]=1&filter[name][_nope]=1"
    assert locations(things, query) == ["filter[name][_nope]", "limit", "gone", "lost"]
    assert locations(things, "alias[1a]=name&fields=a") == ["alias"]


def test_wrong_operands(things: Table) -> None:
    answer = things.read(
        "filter[price][_gt]=x&filter[id][_in]=1,y&filter[price][_lt]=" + "9" * 1001
    )
    assert answer.codes == ["INVALID_QUERY", "VALUE_OUT_OF_RANGE", "INVALID_QUERY"]


def test_the_body_of_a_search(things: Table) -> None:
    answer = things.api.search(
        things.path, {"limit": "x", "sort": [1], "filter": {"name": {"_nope": 1}}}
    )
    assert [error["parameter"] for error in answer.errors] == ["filter", "sort", "limit"]


def test_the_same_fault_is_reported_once_and_many_are_cut_short(things: Table) -> None:
    assert len(things.read("fields=nope,nope&sort=nope").errors) == 1
    many = ",".join(f"nope{n}" for n in range(1_000))
    assert len(things.read(f"fields={many}").errors) == 100


def test_problems_name_no_field_that_is_hidden_from_the_caller(stage: Stage, things: Table) -> None:
    caller = member(stage, may(things.name, "id", "name"))
    hidden, missing = (
        caller.get(
            f"{things.path}?fields={name}&filter[id][_contains]=1&filter[name]=y&sort={name}"
        )
        for name in ("price", "xrice")
    )
    assert (hidden.status, hidden.codes, hidden.text) == (403, ["FORBIDDEN"], missing.text)


# Bodies


def summary(answer: Answer) -> list[tuple[object, ...]]:
    """Return field, value and index of each problem."""
    assert 400 <= answer.status < 500, answer.text
    return [(error.get("field"), error.get("value"), error.get("index")) for error in answer.errors]


def test_a_collection(admin: Client, things: Table) -> None:
    meta = {"color": "red", "sort_field": "gone", "archive_field": "lost", "group": "nowhere"}
    assert summary(admin.patch(f"/collections/{things.name}", {"meta": meta})) == [
        ("meta.color", "red", None),
        ("meta.sort_field", "gone", None),
        ("meta.archive_field", "lost", None),
        ("meta.group", "nowhere", None),
    ]
    body = {
        "collection": things.name,
        "schema": {},
        "meta": {"sort_field": "gone", "group": "nowhere"},
    }
    assert summary(admin.post("/collections", body)) == [
        ("collection", things.name, None),
        ("meta.sort_field", "gone", None),
        ("meta.group", "nowhere", None),
    ]
    other = table(admin).name
    changes = [{"collection": name, "meta": {"color": name}} for name in (things.name, other)]
    assert summary(admin.patch("/collections", changes)) == [
        ("meta.color", things.name, 0),
        ("meta.color", other, 1),
    ]


def test_a_field(admin: Client, things: Table) -> None:
    path = f"/fields/{things.name}"
    body = {"field": "name", "type": "integer", "collection": "other", "schema": {"max_length": 3}}
    assert summary(admin.post(path, body)) == [
        ("collection", None, None),
        ("schema.max_length", 3, None),
        ("field", "name", None),
    ]
    change = {"type": "nope", "meta": {"width": "x"}, "schema": {"max_length": "y"}}
    assert summary(admin.patch(f"{path}/name", change)) == [
        ("type", "nope", None),
        ("meta.width", "x", None),
        ("schema.max_length", "y", None),
    ]
    fixed = {
        "meta": {"special": ["nope"]},
        "schema": {"is_primary_key": True, "has_auto_increment": True},
    }
    assert [field for field, _, _ in summary(admin.patch(f"{path}/name", fixed))] == [
        "meta.special",
        "schema.is_primary_key",
        "schema.has_auto_increment",
    ]
    changes = [{"field": name, "meta": {"width": name}} for name in ("name", "price")]
    assert summary(admin.patch(path, changes)) == [
        ("meta.width", "name", 0),
        ("meta.width", "price", 1),
    ]


def test_a_type_that_values_do_not_fit(admin: Client, things: Table) -> None:
    for new_type in ("integer", "uuid", "date"):
        (error,) = admin.patch(f"/fields/{things.name}/name", {"type": new_type}).errors
        assert (error["code"], error["collection"], error["field"]) == (
            "INVALID_PAYLOAD",
            things.name,
            "type",
        )
        assert error["value"] == new_type
        assert '"name" would be lost' in error["message"], new_type


def test_a_relation(admin: Client, things: Table) -> None:
    body = {"collection": things.name, "field": "gone", "related_collection": "nowhere"}
    assert summary(
        admin.post(
            "/relations", {**body, "meta": {"one_field": "1x", "one_collection_field": "lost"}}
        )
    ) == [
        ("field", "gone", None),
        ("related_collection", "nowhere", None),
        ("meta.one_collection_field", "lost", None),
        ("meta.one_field", "1x", None),
    ]
    assert summary(
        admin.post("/relations", {"collection": 5, "field": 6, "related_collection": 7})
    ) == [
        ("collection", 5, None),
        ("field", 6, None),
        ("related_collection", 7, None),
    ]


def test_the_settings_and_roles(admin: Client) -> None:
    ratios = [{"text": "x", "value": 1}, 5, {"text": "x", "value": -1}]
    presets = [{"key": "!"}, {"key": "a", "nope": 1}]
    answer = admin.patch(
        "/settings",
        {"project_color": "red", "custom_aspect_ratios": ratios, "storage_asset_presets": presets},
    )
    assert [(error["path"], error["value"]) for error in answer.errors] == [
        (["project_color"], "red"),
        (["storage_asset_presets", 0, "key"], "!"),
        (["storage_asset_presets", 1, "nope"], 1),
        (["custom_aspect_ratios", 1], 5),
        (["custom_aspect_ratios", 2], {"text": "x", "value": -1}),
    ]
    answer = admin.post("/roles", {"name": "x", "ip_access": ["10.0.0.1", "y", "z"]})
    assert [(error["path"], error["value"]) for error in answer.errors] == [
        (["ip_access", 1], "y"),
        (["ip_access", 2], "z"),
    ]


def test_a_permission(admin: Client, things: Table) -> None:
    unfit = {
        "fields": ["gone", "name"],
        "presets": {"lost": 1, "price": "x"},
        "permissions": {"nowhere": 1},
    }
    answer = admin.post("/permissions", {"collection": things.name, "action": "create", **unfit})
    assert [error["code"] for error in answer.errors] == ["UNPROCESSABLE_CONTENT"] * 4
    for name, error in zip(("gone", "lost", "price", "nowhere"), answer.errors, strict=True):
        assert f'"{name}"' in error["message"]
    wrong = {
        "collection": "nowhere",
        "action": "fly",
        "validation": {"_and": [{"a": {"_x": 1}}, {"b": {"_y": 1}}]},
    }
    answer = admin.post("/permissions", wrong)
    assert [(error["field"], error.get("valid")) for error in answer.errors] == [
        ("collection", None),
        ("action", ["read", "create", "update", "delete", "share"]),
        ("validation", None),
        ("validation", None),
    ]


def test_the_operations_of_a_batch(admin: Client, things: Table) -> None:
    operations = [
        {"method": "fly", "collection": 5, "id": "a.b"},
        {"method": "delete", "collection": things.name, "zz": 1, "yy": 1},
    ]
    answer = admin.post("/batch", {"operations": operations})
    assert [(error["operation"], error["field"]) for error in answer.errors] == [
        (0, "method"),
        (0, "collection"),
        (0, "id"),
        (1, "yy"),
        (1, "zz"),
        (1, "key"),
    ]


def test_bodies_of_texts(admin: Client) -> None:
    for path, body, expected in (
        ("/auth/login", {"otp": 5}, ["email", "password", "otp"]),
        ("/users/register", {"email": 5, "first_name": 5}, ["email", "password", "first_name"]),
        ("/auth/password/reset", {}, ["token", "password"]),
        ("/users/me/tfa/enable", {"secret": 5}, ["secret", "otp"]),
    ):
        answer = admin.post(path, body)
        assert (answer.status, [error["field"] for error in answer.errors]) == (400, expected), path


def test_the_addresses_of_an_invitation(admin: Client) -> None:
    role = admin.post("/roles", {"name": "invited"}).data["id"]
    assert admin.post("/users", {"email": "known@example.com"}).status == 200
    answer = admin.post("/users/invite", {"email": ["x", "known@example.com", "y"], "role": role})
    assert [(error["field"], error["index"]) for error in answer.errors] == [
        ("email", 0),
        ("email", 2),
    ]
    (error,) = admin.post(
        "/users/invite", {"email": ["new@example.com", "known@example.com"], "role": role}
    ).errors
    assert (error["code"], error["value"], error["index"]) == (
        "RECORD_NOT_UNIQUE",
        "known@example.com",
        1,
    )


def test_unknown_parameters_of_a_change_by_query(things: Table) -> None:
    answer = things.api.patch(
        things.path, {"query": {"fliter": {}, "limt": 1}, "data": {"name": "x"}}
    )
    assert [error["reason"].split('"')[1] for error in answer.errors] == ["fliter", "limt"]


@pytest.mark.release
def test_of_thousands_of_faults_in_a_body_the_first_hundred_are_reported(stage: Stage) -> None:
    """What an enum takes is repeated in each of them: a small body must
    not come to an answer of gigabytes.
    """
    name = table(stage.admin).name + "_sized"
    labels = ", ".join(f"'{number:060}'" for number in range(100))
    stage.execute(f"CREATE TYPE {name}_size AS ENUM ({labels})")
    stage.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, size {name}_size)")
    items = [{"size": "none"} for _ in range(5_000)]
    for answer in (
        stage.admin.post(f"/items/{name}", items),
        stage.admin.patch(
            f"/items/{name}", [{"id": index, **item} for index, item in enumerate(items)]
        ),
        member(stage, may(name), may(name, action="create")).post(f"/items/{name}", items),
    ):
        assert answer.status == 400, answer
        assert [error["index"] for error in answer.errors] == list(range(100)), answer
    assert stage.value(f"SELECT count(*) FROM {name}") == 0


def test_no_answer_holds_more_than_two_hundred_errors(admin: Client, things: Table) -> None:
    """Whatever the route: a comment has nothing to do with items."""
    answer = admin.post("/comments", {f"k{number}": 1 for number in range(5_000)})
    assert answer.status == 400
    assert 100 <= len(answer.errors) <= 200
