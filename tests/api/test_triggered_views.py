"""Views are written by the actions that they have INSTEAD OF triggers for, as tables are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.client import Answer
from tests.members import may, member
from tests.things import Stage
from tests.waiting import eventually

# Grouped and joined on the outer side: PostgreSQL locks no row of such a view.
SHOP = """
CREATE TABLE makers (id serial PRIMARY KEY, name text UNIQUE);
CREATE TABLE parts (
    id serial PRIMARY KEY, name text UNIQUE, maker integer REFERENCES makers,
    price integer CHECK (price > 0)
);
CREATE TABLE sales (id serial PRIMARY KEY, part integer REFERENCES parts ON DELETE CASCADE);
CREATE VIEW offers AS
    SELECT parts.id, parts.name, parts.price, parts.maker, count(sales.id) AS sold,
        max(parts.xmin::text) AS xmin
    FROM parts
    LEFT JOIN sales ON sales.part = parts.id
    GROUP BY parts.id;
CREATE FUNCTION write_offer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(new.name, old.name) = 'kept' THEN RETURN NULL; END IF;
    IF tg_op = 'DELETE' THEN
        DELETE FROM parts WHERE id = old.id;
        RETURN old;
    END IF;
    IF tg_op = 'INSERT' THEN
        INSERT INTO parts (name, price, maker)
            VALUES (trim(new.name), coalesce(new.price, 1), new.maker)
            RETURNING id, name, price INTO new.id, new.name, new.price;
        IF new.name = 'keyless' THEN new.id := NULL; END IF;
    ELSE
        UPDATE parts SET name = new.name, price = new.price, maker = new.maker WHERE id = old.id;
        IF new.name = 'keyless' THEN new.id := NULL; END IF;
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER write_offer INSTEAD OF INSERT OR UPDATE OR DELETE ON offers
    FOR EACH ROW EXECUTE FUNCTION write_offer();
CREATE VIEW only_new AS SELECT id, name, price, maker FROM parts;
CREATE TRIGGER write_offer INSTEAD OF INSERT ON only_new
    FOR EACH ROW EXECUTE FUNCTION write_offer();
CREATE VIEW only_read AS SELECT id, name, price FROM parts;
CREATE VIEW unnamed AS SELECT name FROM parts;
CREATE TRIGGER write_offer INSTEAD OF DELETE ON unnamed
    FOR EACH ROW EXECUTE FUNCTION write_offer();
INSERT INTO system_relations (many_collection, many_field, one_collection, one_field) VALUES
    ('offers', 'maker', 'makers', 'offers'), ('sales', 'part', 'offers', NULL);
INSERT INTO system_fields (collection, field, special) VALUES ('makers', 'offers', ARRAY['o2m']);
"""


@pytest.fixture(scope="module", autouse=True)
def shop(stage: Stage) -> None:
    stage.execute(SHOP)


@pytest.fixture(autouse=True)
def empty_shop(stage: Stage, shop: None) -> Iterator[None]:
    yield
    with stage.side_door.connection() as connection:
        connection.execute(
            b"TRUNCATE parts, makers, sales, system_activity, system_revisions RESTART IDENTITY"
        )


def refused(answer: Answer) -> tuple[int, list[str]]:
    return answer.status, answer.codes


def test_items_of_a_view_are_created_as_its_trigger_returns_them(stage: Stage) -> None:
    made = stage.admin.post("/items/offers?fields=id,name,price,sold", {"name": " a "})
    assert made.data == {"id": 1, "name": "a", "price": 1, "sold": 0}
    items = [{"name": "b"}, {"price": 4}, {"name": "c"}]
    several = stage.admin.post("/items/offers?fields=name,price", items)
    assert several.data == [
        {"name": "b", "price": 1},
        {"name": None, "price": 4},
        {"name": "c", "price": 1},
    ]


def test_items_of_a_view_are_changed_and_deleted_in_every_form(stage: Stage) -> None:
    api = stage.admin
    keys = [item["id"] for item in api.post("/items/offers", [{"name": n} for n in "abcdef"]).data]
    one, two, three, four, _, six = keys
    assert api.patch(f"/items/offers/{one}", {"price": 10}).data["price"] == 10
    assert api.patch("/items/offers", [{"id": two, "price": 20}, {"id": one}]).status == 200
    assert api.patch("/items/offers", {"keys": [three, four], "data": {"price": 30}}).status == 200
    query = {"filter": {"name": "e"}}
    assert api.patch("/items/offers", {"query": query, "data": {"price": 50}}).status == 200
    operation = {"method": "update", "collection": "offers", "key": six, "data": {"price": 60}}
    assert api.post("/batch", {"operations": [operation]}).status == 200
    rows = [{"id": six, "price": 61}, {"name": "g"}]
    assert api.post("/utils/import/offers", rows).data == {"created": 1, "updated": 1}
    prices = "SELECT array_agg(price ORDER BY name) FROM parts"
    assert stage.value(prices) == [10, 20, 30, 30, 50, 61, 1]
    assert api.delete(f"/items/offers/{one}").status == 204
    assert api.delete("/items/offers", [two, three]).status == 204
    assert api.delete("/items/offers", {"query": {"filter": {"name": "d"}}}).status == 204
    assert stage.value(prices) == [50, 61, 1]
    for answer in (api.delete("/items/offers/99"), api.patch("/items/offers/99", {"price": 1})):
        assert refused(answer) == (404, ["NOT_FOUND"])


def test_the_history_of_a_view_holds_what_its_triggers_have_written(stage: Stage) -> None:
    key = stage.admin.post("/items/offers", {"name": " a "}).data["id"]
    stage.admin.patch(f"/items/offers/{key}", {"price": 5})
    stage.admin.delete(f"/items/offers/{key}")
    fields = "activity.action,item,data.name,data.price,delta.price"
    path = f"/revisions?filter[collection]=offers&sort=id&fields={fields}"
    created, changed, deleted = stage.admin.get(path).data
    assert (created["activity"], created["item"]) == ({"action": "create"}, str(key))
    assert created["data"]["name"] == "a"
    assert changed["activity"] == {"action": "update"}
    assert changed["delta"]["price"] == 5
    assert deleted["activity"] == {"action": "delete"}
    assert deleted["data"]["price"] == 5
    again = stage.admin.post("/items/offers", {"name": "b"}).data["id"]
    stage.admin.patch(f"/items/offers/{again}", {"price": 7})
    first = stage.admin.get(f"/revisions?filter[item]={again}&sort=id&limit=1").data[0]
    assert stage.admin.post(f"/utils/revert/{first['id']}").data["price"] == 1


CALLS: list[tuple[str, str, object]] = [
    ("POST", "/items/offers", {"name": "kept"}),
    ("POST", "/items/offers", [{"name": "x"}, {"name": "kept"}]),
    ("PATCH", "/items/offers/1", {"price": 3}),
    ("PATCH", "/items/offers", [{"id": 2, "price": 3}, {"id": 1, "price": 3}]),
    ("DELETE", "/items/offers/1", None),
    ("DELETE", "/items/offers", [2, 1]),
    ("PATCH", "/items/makers/1", {"offers": {"create": [{"name": "kept"}]}}),
    ("POST", "/utils/import/offers", [{"name": "kept"}]),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_row_that_the_trigger_of_a_view_keeps_back_is_not_written(
    stage: Stage, call: tuple[str, str, object]
) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(
            b"INSERT INTO makers (name) VALUES ('m');"
            b"INSERT INTO parts (name, price) VALUES ('kept', 1), ('free', 1)"
        )
    answer = stage.admin.send(*call)
    assert refused(answer) == (422, ["NOT_WRITTEN"])
    assert answer.errors[0]["collection"] == "offers"
    assert stage.value("SELECT array_agg(name || price ORDER BY id) FROM parts") == [
        "kept1",
        "free1",
    ]


@pytest.mark.parametrize("accountability", ["all", "activity", None])
def test_a_trigger_that_gives_a_row_no_key_is_told_to_its_author(
    stage: Stage, accountability: str | None
) -> None:
    meta = {"meta": {"accountability": accountability}}
    assert stage.admin.patch("/collections/offers", meta).status == 200
    key = stage.admin.post("/items/offers", {"name": "a"}).data["id"]
    for answer in (
        stage.admin.post("/items/offers", {"name": "keyless"}),
        stage.admin.post("/items/offers", [{"name": "b"}, {"name": "keyless"}]),
        stage.admin.patch(f"/items/offers/{key}", {"name": "keyless"}),
    ):
        assert refused(answer) == (422, ["NOT_WRITTEN"])
        assert 'NEW."id"' in answer.errors[0]["message"]
        assert answer.errors[0]["field"] == "id"
    assert stage.value("SELECT array_agg(name) FROM parts") == ["a"]
    stage.admin.patch("/collections/offers", {"meta": {"accountability": "all"}})


def test_what_the_tables_beneath_refuse_is_told_as_theirs(stage: Stage) -> None:
    stage.admin.post("/items/offers", [{"name": "a"}, {"name": "b"}])
    for body, code in (
        ({"name": "a"}, "RECORD_NOT_UNIQUE"),
        ({"name": "c", "price": -1}, "INVALID_PAYLOAD"),
        ({"name": "c", "maker": 99}, "INVALID_FOREIGN_KEY"),
    ):
        for method, path in (("POST", "/items/offers"), ("PATCH", "/items/offers/2")):
            assert refused(stage.admin.send(method, path, body)) == (400, [code])


WITHOUT_TRIGGER: list[tuple[str, str, object]] = [
    ("PATCH", "/items/only_new/1", {"price": 2}),
    ("PATCH", "/items/only_new", [{"id": 1, "price": 2}]),
    ("PATCH", "/items/only_new", {"keys": [1], "data": {"price": 2}}),
    ("PATCH", "/items/only_new", {"query": {}, "data": {"price": 2}}),
    ("DELETE", "/items/only_new/1", None),
    ("DELETE", "/items/only_new", [1]),
    ("DELETE", "/items/only_new", {"query": {}}),
    ("POST", "/utils/import/only_new", [{"id": 1, "price": 2}]),
    (
        "POST",
        "/batch",
        {"operations": [{"method": "delete", "collection": "only_new", "key": 1}]},
    ),
    ("POST", "/items/only_read", {"name": "b"}),
    ("PATCH", "/items/only_read/1", {"name": "b"}),
    ("DELETE", "/items/only_read/1", None),
    ("DELETE", "/items/unnamed/1", None),
]
WORDS = {"only_new": "INSTEAD OF", "only_read": "INSTEAD OF", "unnamed": "column id"}


def name_in(call: tuple[str, str, object]) -> str:
    return next(name for name in WORDS if name in str(call))


@pytest.mark.parametrize("call", WITHOUT_TRIGGER)
def test_a_view_is_not_written_by_an_action_that_it_has_no_trigger_for(
    stage: Stage, call: tuple[str, str, object]
) -> None:
    assert stage.admin.post("/items/only_new", {"name": "a"}).data["id"] == 1
    actions = ("read", "create", "update", "delete")
    rights = [may(name, action=action) for name in WORDS for action in actions]
    for api in (stage.admin, member(stage, *rights)):
        answer = api.send(*call)
        assert refused(answer) == (403, ["FORBIDDEN"])
        assert WORDS[name_in(call)] in answer.errors[0]["message"]
    assert stage.value("SELECT array_agg(name || price) FROM parts") == ["a1"]


def test_items_of_a_view_are_written_nested(stage: Stage) -> None:
    api = stage.admin
    maker = api.post("/items/makers?fields=id,offers.*", {"offers": [{"name": "a"}, {"name": "b"}]})
    first, second = (offer["id"] for offer in maker.data["offers"])
    path = f"/items/makers/{maker.data['id']}"
    changes = {"create": [{"name": "c"}], "update": [{"id": first, "price": 9}]}
    assert api.patch(path, {"offers": changes}).status == 200
    assert api.patch(path, {"offers": [{"id": first, "name": "d"}, {"name": "e"}]}).status == 200
    names = "SELECT array_agg(name ORDER BY name) FROM parts WHERE maker"
    assert stage.value(f"{names} = 1") == ["d", "e"]
    assert stage.value(f"{names} IS NULL") == ["b", "c"]
    parents = "SELECT count(parent) FROM system_revisions WHERE collection = 'offers'"
    assert stage.value(f"{parents} AND item IN ('{first}', '{second}')") == 2
    sale = api.post("/items/sales?fields=id,part.*", {"part": {"name": "f", "price": 3}}).data
    assert (sale["part"]["name"], sale["part"]["sold"]) == ("f", 1)
    changed = {"part": {"id": sale["part"]["id"], "price": 4}}
    assert api.patch(f"/items/sales/{sale['id']}", changed).status == 200
    assert stage.value("SELECT price FROM parts WHERE name = 'f'") == 4


def test_a_view_that_shows_the_version_of_its_rows_compares_if_match(stage: Stage) -> None:
    stage.admin.post("/items/offers", {"name": "a"})
    tag = stage.admin.get("/items/offers/1").headers["etag"]
    assert "-" in tag
    headers = {"If-Match": tag}
    path = "/items/offers/1"
    assert stage.admin.send("PATCH", path, {"price": 2}, **headers).status == 200
    stale = stage.admin.send("PATCH", path, {"price": 3}, **headers)
    assert refused(stale) == (412, ["PRECONDITION_FAILED"])
    assert refused(stage.admin.send("DELETE", path, **headers)) == (
        412,
        ["PRECONDITION_FAILED"],
    )
    new = {"If-Match": stage.admin.get(path).headers["etag"]}
    assert stage.admin.send("DELETE", path, **new).status == 204
    assert refused(stage.admin.send("DELETE", path, **new)) == (404, ["NOT_FOUND"])


def test_masked_fields_of_a_view_leave_its_version_alone(stage: Stage) -> None:
    stage.admin.post("/items/offers", {"name": "a"})
    rights = [
        may("offers", "id", "name"),
        may("offers", "price", "sold", permissions={"maker": {"name": {"_eq": "m"}}}),
    ]
    answer = member(stage, *rights).get("/items/offers/1")
    assert answer.data == {"id": 1, "name": "a", "price": None, "sold": None}
    tag, whole = (api.headers["etag"] for api in (answer, stage.admin.get("/items/offers/1")))
    assert tag.partition("-")[0] == whole.partition("-")[0]


def test_a_view_without_versions_takes_if_match_with_a_star_only(stage: Stage) -> None:
    stage.execute(
        "CREATE OR REPLACE VIEW bare AS SELECT id, name, price, maker FROM parts;"
        "CREATE OR REPLACE TRIGGER w INSTEAD OF UPDATE ON bare FOR EACH ROW "
        "EXECUTE FUNCTION write_offer(); INSERT INTO parts (name) VALUES ('a')"
    )
    path = "/items/bare/1"
    tag = stage.admin.get(path).headers["etag"]
    answer = stage.admin.send("PATCH", path, {"price": 3}, **{"If-Match": tag})
    assert refused(answer) == (412, ["PRECONDITION_FAILED"])
    assert '"xmin"' in answer.errors[0]["message"]
    star = stage.admin.send("PATCH", path, {"price": 3}, **{"If-Match": "*"})
    assert star.status == 200
    gone = stage.admin.send("PATCH", "/items/bare/9", {"price": 3}, **{"If-Match": "*"})
    assert refused(gone) == (404, ["NOT_FOUND"])


def test_rules_of_permissions_hold_for_rows_of_a_view(stage: Stage) -> None:
    stage.admin.post("/items/offers", [{"name": "a", "price": 1}, {"name": "b", "price": 9}])
    cheap = {"price": {"_lt": 5}}
    actions = ("read", "create", "update", "delete")
    clerk = member(stage, *(may("offers", action=each, permissions=cheap) for each in actions))
    assert clerk.patch("/items/offers/1", {"price": 2}).status == 200
    for answer in (
        clerk.patch("/items/offers/1", {"price": 8}),
        clerk.post("/items/offers", {"name": "c", "price": 8}),
    ):
        assert refused(answer) == (403, ["FORBIDDEN"])
    for answer in (
        clerk.patch("/items/offers/2", {"price": 1}),
        clerk.delete("/items/offers/2"),
    ):
        assert refused(answer) == (404, ["NOT_FOUND"])
    assert clerk.post("/items/offers", {"name": "c", "price": 4}).status == 200
    assert clerk.delete("/items/offers/1").status == 204


@pytest.mark.parametrize(
    "call",
    [
        ("PATCH", "/items/offers/1", {"price": 2}),
        ("PATCH", "/items/makers/1", {"offers": [1]}),
        ("POST", "/items/sales", {"part": {"id": 1, "price": 3}}),
        ("DELETE", "/items/offers", {"query": {}}),
    ],
)
def test_writes_of_a_view_take_turns(stage: Stage, call: tuple[str, str, object]) -> None:
    stage.admin.post("/items/offers", {"name": "a"})
    stage.admin.post("/items/makers", {"name": "m"})
    lock = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' offers', 1))"
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(stage.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute(lock.encode())
        answer = pool.submit(stage.admin.send, *call)
        eventually(lambda: stage.value(waiting) or answer.done())
        assert not answer.done(), call
        other.commit()
        assert answer.result().status in (200, 204)


def test_a_trigger_that_comes_and_goes_counts_at_once(stage: Stage) -> None:
    change = "CREATE TRIGGER more INSTEAD OF UPDATE ON only_new FOR EACH ROW EXECUTE FUNCTION "
    stage.admin.post("/items/only_new", {"name": "a"})
    path = "/items/only_new/1"
    assert stage.admin.patch(path, {"price": 2}).status == 403
    stage.execute(f"{change} write_offer()")
    assert stage.admin.patch(path, {"price": 2}).status == 200
    stage.execute("DROP TRIGGER more ON only_new")
    assert stage.admin.patch(path, {"price": 3}).status == 403
    assert stage.value("SELECT price FROM parts") == 2


def test_what_can_be_done_with_a_view_is_told(stage: Stage) -> None:
    paths = stage.admin.get("/server/specs/oas").body["paths"]
    assert set(paths["/items/only_new"]) & {"get", "post", "patch", "delete"} == {"get", "post"}
    assert set(paths["/items/only_new/{key}"]) & {"get", "patch", "delete"} == {"get"}
    assert set(paths["/items/offers/{key}"]) & {"get", "patch", "delete"} == {
        "get",
        "patch",
        "delete",
    }
    assert "/items/only_read/{key}" not in paths
    every = [may("only_new", action=each) for each in ("read", "create", "update", "delete")]
    for api in (stage.admin, member(stage, *every)):
        rights = api.get("/permissions/me").data["only_new"]
        possible = {action for action, right in rights.items() if right["access"] == "full"}
        assert possible & {"create", "update", "delete"} == {"create"}
    stage.admin.post("/items/only_new", {"name": "a"})
    of_item = stage.admin.get("/permissions/me/only_new/1").data
    assert (of_item["update"]["access"], of_item["delete"]["access"]) == (False, False)


def test_a_singleton_may_be_a_view(stage: Stage) -> None:
    stage.execute(
        "CREATE VIEW shown AS SELECT id, name, price, maker FROM parts WHERE name = 'the one';"
        "CREATE TRIGGER w INSTEAD OF INSERT OR UPDATE ON shown FOR EACH ROW "
        "EXECUTE FUNCTION write_offer()"
    )
    assert stage.admin.patch("/collections/shown", {"meta": {"singleton": True}}).status == 200
    assert stage.admin.patch("/items/shown", {"name": "the one"}).status == 200
    assert stage.admin.patch("/items/shown", {"price": 4}).data["price"] == 4
    assert stage.value("SELECT count(*) FROM parts") == 1


def test_items_of_a_view_are_sorted_by_hand(stage: Stage) -> None:
    meta = {"meta": {"sort_field": "price"}}
    assert stage.admin.patch("/collections/offers", meta).status == 200
    for name in "abc":
        stage.admin.post("/items/offers", {"name": name, "price": 1})
    assert stage.admin.post("/utils/sort/offers", {"item": 3, "to": 1}).status == 204
    assert stage.value("SELECT array_agg(name ORDER BY price) FROM parts") == ["c", "a", "b"]
    stage.admin.patch("/collections/offers", {"meta": {"sort_field": None}})


def test_a_view_whose_column_draws_keys_from_a_sequence_gets_them(stage: Stage) -> None:
    stage.execute(
        "CREATE SEQUENCE numbers; CREATE VIEW numbered AS SELECT id, name FROM parts;"
        "ALTER VIEW numbered ALTER id SET DEFAULT nextval('numbers');"
        "CREATE FUNCTION write_numbered() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN INSERT INTO parts (id, name) VALUES (new.id, new.name); RETURN new; END$$;"
        "CREATE TRIGGER w INSTEAD OF INSERT ON numbered FOR EACH ROW "
        "EXECUTE FUNCTION write_numbered()"
    )
    items: list[dict[str, object]] = [{"name": "a"}, {"id": 5, "name": "b"}, {}, {"name": "d"}]
    answer = stage.admin.post("/items/numbered", items)
    assert [item["id"] for item in answer.data] == [1, 5, 2, 3]
    stage.execute("SELECT setval('numbers', 5)")
    again = [stage.admin.post("/items/numbered", item).data["id"] for item in ({}, {"id": 8}, {})]
    assert again[:2] == [6, 8]
    assert again[2] not in (1, 2, 3, 5, 6, 8)
