"""POST /batch: several operations on several collections in one transaction (docs/batch.md)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.api.nesting import make_relations
from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table


@pytest.fixture(scope="module", autouse=True)
def relations(admin: Client) -> None:
    make_relations(admin)


@dataclass(frozen=True)
class StoredState:
    """What there is of rows and of history, to see that a refused batch leaves none."""

    stage: Stage

    def state(self) -> list[Any]:
        names = ("people", "posts", "comments", "system_activity", "system_revisions")
        return [self.stage.value(f"SELECT count(*) FROM {name}") for name in names]


@pytest.fixture
def ledger(stage: Stage) -> StoredState:
    return StoredState(stage)


def batch(api: Client, *operations: Json, **headers: str) -> Answer:
    return api.send("POST", "/batch", {"operations": list(operations)}, **headers)


def op(method: str, collection: str, **operation: Any) -> Json:
    return {"method": method, "collection": collection, **operation}


def ref(path: str) -> Json:
    return {"$result": path}


def test_operations_are_done_in_order_and_answered_in_order(admin: Client) -> None:
    people = Table(admin, "people")
    (old,) = people.add({"name": "old"})
    answer = batch(
        admin,
        op("create", "people", data={"name": "new"}, fields=["name"]),
        op("create", "tags", data=[{"name": "a"}, {"name": "b"}], fields="name"),
        op("update", "people", key=old["id"], data={"pin": "1"}, fields=["name", "pin"]),
        op(
            "read",
            "people",
            query={"filter": {"name": {"_in": ["old", "new"]}}, "fields": ["name"], "sort": "name"},
        ),
        op("read", "people", key=old["id"], query={"fields": ["pin"]}),
        op("delete", "people", key=old["id"]),
        op(
            "read",
            "people",
            query={"filter": {"name": {"_in": ["old", "new"]}}, "aggregate": {"count": "*"}},
        ),
    )
    assert answer.data == [
        {"name": "new"},
        [{"name": "a"}, {"name": "b"}],
        {"name": "old", "pin": "1"},
        [{"name": "new"}, {"name": "old"}],
        {"pin": "1"},
        None,
        [{"count": 1}],
    ]


def test_later_operations_refer_to_what_earlier_ones_have_answered(admin: Client) -> None:
    answer = batch(
        admin,
        op("create", "people", id="author", data={"name": "by reference"}),
        op("create", "tags", id="tags", data=[{"name": "x"}, {"name": "y", "size": 7}]),
        op(
            "create",
            "posts",
            id="post",
            data={
                "author": ref("author.id"),
                "title": ref("tags.1.name"),
                "comments": [{"text": ref("author.name")}],
            },
            fields=["*", "comments.text", "author.name"],
        ),
        op("update", "tags", key=ref("tags.0.id"), data={"size": ref("tags.1.size")}),
        op("update", "people", keys=[ref("author.id")], data={"pin": ref("post.comments.0.text")}),
        op(
            "read",
            "posts",
            query={"filter": {"author": {"_eq": ref("author.id")}}, "fields": ["title"]},
        ),
        op("delete", "tags", keys=[ref("tags.0.id"), ref("tags.1.id")]),
    )
    post, tag, people, read = answer.data[2:6]
    assert (post["title"], post["author"], post["comments"]) == (
        "y",
        {"name": "by reference"},
        [{"text": "by reference"}],
    )
    assert (tag["size"], people[0]["pin"], read) == (7, "by reference", [{"title": "y"}])


def test_a_reference_keeps_the_type_of_its_value_and_a_text_is_never_one(admin: Client) -> None:
    fields = [
        field("whole", "bigInteger"),
        field("exact", "decimal", numeric_precision=30, numeric_scale=10),
    ]
    things = table(
        admin, *fields, field("any", "json"), field("text", "text"), field("flag", "boolean")
    )
    digits = "12345678901234567890.0123456789"
    first = {
        "whole": 2**62,
        "any": {"deep": [1, None]},
        "text": '{{a.id}} $a.id {"$result": "a.id"}',
        "flag": False,
    }
    raw = b'{"operations": [{"method": "create", "collection": "%s", "data": {"exact": %s}}]}'
    assert (
        admin.send("POST", "/batch", raw=raw % (things.name.encode(), digits.encode())).status
        == 200
    )
    names = ("whole", "any", "text", "flag", "exact")
    answer = batch(
        admin,
        op("create", things.name, id="a", data=first),
        op("read", things.name, id="exact", key=1),
        op(
            "create",
            things.name,
            data={**{name: ref(f"a.{name}") for name in names}, "exact": ref("exact.exact")},
        ),
        op(
            "create",
            things.name,
            data={"any": {"key": ref("a.id"), "all": [ref("a.any"), ref("a.exact")]}},
        ),
    )
    copied, built = answer.data[2:]
    assert {name: copied[name] for name in first} == first
    assert f'"exact":{digits}' in answer.text
    assert built["any"] == {"key": answer.data[0]["id"], "all": [{"deep": [1, None]}, None]}


def test_one_failing_operation_refuses_all_and_every_fault_of_it_is_reported_with_its_place(
    admin: Client, ledger: StoredState
) -> None:
    before = ledger.state()
    answer = batch(
        admin,
        op("create", "people", id="a", data={"name": "never"}),
        op("create", "posts", data={"author": ref("a.id"), "comments": [{"text": "never"}]}),
        op("create", "tags", data=[{"name": "fine"}, {"size": "x", "nowhere": 1}]),
    )
    assert answer.status == 400
    problems = [
        (fault["code"], fault["operation"], fault["index"], fault["field"])
        for fault in answer.errors
    ]
    assert problems == [
        ("INVALID_PAYLOAD", 2, 1, "size"),
        ("INVALID_PAYLOAD", 2, 1, "nowhere"),
        ("FAILED_VALIDATION", 2, 1, "name"),
    ]
    assert ledger.state() == before


def test_a_fault_of_an_operation_is_not_joined_by_one_of_rows_that_the_batch_had_made(
    admin: Client,
) -> None:
    answer = batch(
        admin,
        op("create", "people", id="a", data={"name": "never"}),
        op("create", "posts", data={"author": ref("a.id"), "comments": [{"text": 7, "no": 1}]}),
    )
    assert answer.codes == ["INVALID_PAYLOAD"] * len(answer.errors)


@pytest.mark.parametrize(
    ("operation", "status", "code"),
    [
        (op("update", "people", key=999999, data={}), 404, "NOT_FOUND"),
        (op("delete", "people", keys=[999999]), 404, "NOT_FOUND"),
        (op("read", "people", key=999999), 404, "NOT_FOUND"),
        (op("read", "nowhere"), 404, "NOT_FOUND"),
        (op("create", "nowhere", data={}), 404, "NOT_FOUND"),
        (op("create", "posts", data={"author": 999999}), 400, "INVALID_FOREIGN_KEY"),
        (op("create", "system_activity", data={}), 403, "FORBIDDEN"),
        (op("update", "people", data={"name": "x"}), 400, "INVALID_PAYLOAD"),
        (op("update", "people", key=None, data={"name": "x"}), 400, "INVALID_PAYLOAD"),
        (op("read", "people", key=None), 400, "INVALID_PAYLOAD"),
        (op("delete", "people", key=[1]), 400, "INVALID_PAYLOAD"),
        (op("delete", "people", keys=None), 400, "INVALID_PAYLOAD"),
        (op("delete", "people", query={"filtre": {}}), 400, "INVALID_PAYLOAD"),
        (op("update", "people", query=1, data={}), 400, "INVALID_PAYLOAD"),
        (op("read", "people", query=[]), 400, "INVALID_PAYLOAD"),
        (op("read", "people", query={"filter": {"nowhere": 1}}), 400, "INVALID_QUERY"),
        (op("create", "people", data={}, fields=["nowhere"]), 400, "INVALID_QUERY"),
        (op("create", "people", data=7), 400, "INVALID_PAYLOAD"),
    ],
)
def test_an_operation_is_refused_as_the_call_alone_would_be(
    admin: Client, ledger: StoredState, operation: Json, status: int, code: str
) -> None:
    before = ledger.state()
    answer = batch(admin, op("create", "people", data={"name": "never"}), operation)
    assert (answer.status, answer.codes[0], answer.errors[0]["operation"]) == (status, code, 1)
    assert ledger.state() == before


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (ref("later.id"), ["data", "pin"]),
        (ref("own.id"), ["data", "pin"]),
        (ref("first.nowhere"), ["data", "pin"]),
        (ref("first.id.id"), ["data", "pin"]),
        (ref("first.0"), ["data", "pin"]),
        (ref(""), ["data", "pin"]),
        ({"$result": 5}, ["data", "pin"]),
        ({"$result": None}, ["data", "pin"]),
        ([1, ref("many.9.id")], ["data", "pin", 1]),
        ([ref("many.-1.id")], ["data", "pin", 0]),
        ({"a": ref("many.²")}, ["data", "pin", "a"]),
        pytest.param(ref(f"many.{'9' * 5_000}"), ["data", "pin"], id="longer than int() takes"),
    ],
)
def test_a_reference_that_leads_nowhere_is_reported_with_its_place(
    admin: Client, operation: Json, path: list[Any]
) -> None:
    answer = batch(
        admin,
        op("create", "people", id="first", data={}),
        op("create", "tags", id="many", data=[{"name": "x"}]),
        op("create", "people", id="own", data={"pin": operation}),
        op("create", "people", id="later", data={}),
    )
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert (answer.errors[0]["operation"], answer.errors[0]["path"]) == (2, path)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"operations": {}},
        {"operations": [], "other": 1},
        {"operations": [op("delete", "people")] * 101},
    ],
)
def test_a_body_of_another_shape_is_refused(admin: Client, body: Any) -> None:
    answer = admin.post("/batch", body)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


def test_every_operation_of_a_wrong_shape_is_reported_at_once(admin: Client) -> None:
    answer = batch(
        admin,
        5,  # type: ignore[arg-type]
        op("erase", "people"),
        op([], "people"),  # type: ignore[arg-type]
        {"method": "delete", "key": 1},
        op("create", "people"),
        op("create", "people", data={}, key=1),
        op("update", "people", data={}, key=1, keys=[1]),
        op("delete", "people"),
        op("read", "people", id="a"),
        op("read", "people", id="a"),
        op("read", "people", id="a.b"),
        op("read", "people", id=1),
    )
    problems = [(fault["operation"], fault.get("field")) for fault in answer.errors]
    expected = ["method", "method", "collection", "data", "key", "key", "key", "id", "id", "id"]
    assert problems == [(0, None), *zip([1, 2, 3, 4, 5, 6, 7, 9, 10, 11], expected, strict=True)]


def test_a_hundred_operations_are_done_and_none_is_as_good(admin: Client) -> None:
    tags = batch(
        admin, *(op("create", "tags", data={"name": str(number)}) for number in range(100))
    ).data
    assert [tag["name"] for tag in tags] == [str(number) for number in range(100)]
    assert batch(admin).data == []


def test_what_references_bring_in_is_bounded_like_a_body(admin: Client) -> None:
    things = table(admin, field("any", "json"))
    long = op("create", things.name, id="long", data={"any": "x" * 100_000})
    assert (
        batch(admin, long, op("create", things.name, data={"any": [ref("long.any")] * 9})).status
        == 200
    )
    answer = batch(admin, long, op("create", things.name, data={"any": [ref("long.any")] * 5_000}))
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert "references" in answer.errors[0]["reason"]


def test_a_body_that_is_nested_too_deeply_is_refused(admin: Client) -> None:
    things = table(admin, field("any", "json"))
    for depth in (300, 900, 5_000):
        raw = '{"operations": [{"method": "create", "collection": "%s", "data": {"any": %s}}]}'
        answer = admin.send("POST", "/batch", raw=raw % (things.name, "[" * depth + "]" * depth))
        assert answer.status in (200, 400), answer


def test_updates_name_items_in_every_way_that_single_calls_do(admin: Client) -> None:
    one, two, three = (
        tag["id"] for tag in Table(admin, "tags").add(*({"name": f"way {n}"} for n in range(3)))
    )
    answer = batch(
        admin,
        op("update", "tags", data=[{"id": one, "size": 1}, {"id": two, "size": 2}]),
        op("update", "tags", keys=[two, three], data={"name": "named"}, fields=["id"]),
        op(
            "update", "tags", query={"filter": {"name": "named"}}, data={"size": 9}, fields=["size"]
        ),
        op("delete", "tags", query={"filter": {"size": {"_eq": 9}}}),
    )
    assert [tag["size"] for tag in answer.data[0]] == [1, 2]
    assert answer.data[1:] == [[{"id": two}, {"id": three}], [{"size": 9}, {"size": 9}], None]


def test_singletons_are_read_made_and_changed(admin: Client) -> None:
    about = table(admin, field("title", "string", default_value="none yet"), singleton=True)
    answer = batch(
        admin,
        op("read", about.name),
        op("update", about.name, data={"title": "one"}),
        op("update", about.name, data={"title": "two"}),
        op("read", about.name),
    )
    assert [item["title"] for item in answer.data] == ["none yet", "one", "two", "two"]
    for refused in (op("create", about.name, data={}), op("update", about.name, key=1, data={})):
        assert batch(admin, refused).status == 404


def test_history_records_every_operation_with_its_parents(admin: Client, stage: Stage) -> None:
    before = stage.value("SELECT max(id) FROM system_activity")
    batch(
        admin,
        op("create", "posts", id="post", data={"title": "told", "comments": [{"text": "within"}]}),
        op("update", "posts", key=ref("post.id"), data={"title": "told again"}),
        op("delete", "posts", key=ref("post.id")),
    )
    path = f"/activity?filter[id][_gt]={before}&sort=id&fields=action,collection"
    recorded = [(entry["action"], entry["collection"]) for entry in admin.get(path).data]
    assert recorded[:3] == [("create", "posts"), ("create", "comments"), ("update", "posts")]
    assert recorded[3:] == [("delete", "posts"), ("update", "comments")]
    parents = f"SELECT count(parent) FROM system_revisions WHERE activity > {before}"
    assert stage.value(parents) == 2


def test_every_operation_is_done_with_the_rights_of_the_caller(
    stage: Stage, ledger: StoredState
) -> None:
    caller = member(
        stage,
        may("people", "id", "name"),
        may("people", "name", action="create", validation={"name": {"_starts_with": "ok"}}),
        may("posts", "title", "author", action="create"),
    )
    before = ledger.state()
    fine = op("create", "people", id="a", data={"name": "ok"})
    for refused, status in (
        (op("create", "people", data={"name": "no"}), 422),
        (op("create", "people", data={"pin": "1"}), 403),
        (op("read", "people", query={"fields": ["pin"]}), 403),
        (op("read", "tags"), 403),
        (op("update", "people", key=ref("a.id"), data={"name": "ok"}), 403),
        (op("delete", "people", key=ref("a.id")), 403),
        (op("create", "posts", data={"author": {"name": "ok", "pin": "1"}}), 403),
        (op("create", "system_users", data={}), 403),
        (op("create", "nowhere", data={}), 403),
    ):
        answer = batch(caller, fine, refused)
        assert (answer.status, answer.errors[0]["operation"]) == (status, 1), answer.text
    assert ledger.state() == before
    done = batch(caller, fine, op("create", "posts", data={"title": "x", "author": ref("a.id")}))
    assert done.data[0]["name"] == "ok"
    assert done.data[1] is None  # it may be written and not be read


def test_without_credentials_only_what_the_public_role_may_do_is_done(
    stage: Stage, ledger: StoredState
) -> None:
    before = ledger.state()
    for operation in (op("create", "people", data={}), op("read", "people")):
        assert batch(stage.anonymous, operation).status == 403
    assert ledger.state() == before


def test_a_batch_goes_on_under_the_rights_that_it_began_with(admin: Client) -> None:
    """To make a role moves the counter of rights, under which a call
    of its own would be done again.
    """
    assignments = table(admin, field("role", "uuid"))
    relation = {
        "collection": assignments.name,
        "field": "role",
        "related_collection": "system_roles",
    }
    assert admin.post("/relations", relation).status == 200
    answer = batch(
        admin,
        op("create", assignments.name, id="assignment", data={"role": {"name": "made here"}}),
        op("read", assignments.name, key=ref("assignment.id"), query={"fields": ["role.name"]}),
        op("delete", assignments.name, key=ref("assignment.id")),
    )
    assert answer.data[1] == {"role": {"name": "made here"}}


def test_an_idempotency_key_does_a_batch_once(admin: Client, ledger: StoredState) -> None:
    operations = (
        op("create", "people", id="a", data={}),
        op("create", "posts", data={"author": ref("a.id")}),
    )
    first = batch(admin, *operations, **{"Idempotency-Key": "batch 1"})
    state = ledger.state()
    again = batch(admin, *operations, **{"Idempotency-Key": "batch 1"})
    assert (again.status, again.text, ledger.state()) == (200, first.text, state)
    assert batch(admin, operations[0], **{"Idempotency-Key": "batch 1"}).status == 422


def test_batches_that_take_rows_in_any_order_all_pass(admin: Client) -> None:
    keys = [tag["id"] for tag in Table(admin, "tags").add(*({"name": "x"} for _ in range(6)))]

    def work(client: int) -> list[int]:
        random = Random(client)
        answers = []
        for number in range(3):
            order = random.sample(keys, len(keys))
            answers.append(
                batch(
                    admin, *(op("update", "tags", key=key, data={"size": number}) for key in order)
                )
            )
        return [answer.status for answer in answers]

    with ThreadPoolExecutor(3) as pool:
        assert {status for statuses in pool.map(work, range(3)) for status in statuses} == {200}


def test_an_operation_on_an_item_that_has_changed_since_refuses_all(
    admin: Client, ledger: StoredState
) -> None:
    people = Table(admin, "people")
    keys = [person["id"] for person in people.add({"name": "one"}, {"name": "two"})]
    tags = [admin.get(f"/items/people/{key}").headers["etag"] for key in keys]

    def change(key: int, tag: str) -> Json:
        return op("update", "people", key=key, if_match=tag, data={"pin": "1"})

    assert batch(admin, *map(change, keys, tags)).status == 200
    before = ledger.state()
    answer = batch(
        admin,
        op("create", "people", data={}),
        op("delete", "people", key=keys[0], if_match=tags[0]),
    )
    assert (answer.status, answer.codes, answer.errors[0]["operation"]) == (
        412,
        ["PRECONDITION_FAILED"],
        1,
    )
    tag = admin.get(f"/items/people/{keys[0]}").headers["etag"]
    assert batch(admin, change(keys[0], tag), change(keys[0], tag)).status == 412
    assert ledger.state() == before
    assert batch(admin, op("delete", "people", key=keys[0], if_match=tag)).data == [None]
    of_several = op("update", "people", keys=keys, if_match=tag, data={})
    wrong = batch(admin, of_several, change(keys[1], 5))  # type: ignore[arg-type]
    assert [fault["field"] for fault in wrong.errors] == ["if_match", "if_match"]
