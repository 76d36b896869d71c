"""DELETE /items/{collection} and /items/{collection}/{id}."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.things import Stage, Table, field, table


@pytest.fixture
def numbers(stage: Stage) -> Table:
    """Five items, n from 1 to 5, with the same keys."""
    numbers = stage.empty_table(field("n", "integer"))
    numbers.add(*({"n": n} for n in range(1, 6)))
    return numbers


def test_one_item_goes_by_its_key(numbers: Table) -> None:
    answer = numbers.api.delete(f"{numbers.path}/2")
    assert (answer.status, answer.text) == (204, "")
    assert numbers.column("id") == [1, 3, 4, 5]
    assert numbers.api.delete(f"{numbers.path}/2").status == 404


@pytest.mark.parametrize(
    "body", [[2, 4, "2"], {"keys": ["4", 2]}, {"query": {"filter": {"n": {"_in": [2, 4]}}}}]
)
def test_several_items_go_by_keys_or_by_a_query(numbers: Table, body: object) -> None:
    assert numbers.api.delete(numbers.path, body).status == 204
    assert numbers.column("id") == [1, 3, 5]


def test_a_query_may_name_an_order_and_a_limit(numbers: Table) -> None:
    assert numbers.api.delete(numbers.path, {"query": {"sort": "-n", "limit": 2}}).status == 204
    assert numbers.column("id") == [1, 2, 3]


def test_a_query_that_sorts_by_an_aggregate_deletes_nothing(numbers: Table) -> None:
    query = {"aggregate": {"sum": "n"}, "sort": "-sum.n", "limit": 1}
    answer = numbers.api.delete(numbers.path, {"query": query})
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])
    assert numbers.column("id") == [1, 2, 3, 4, 5]


def test_a_query_that_finds_nothing_deletes_nothing(numbers: Table) -> None:
    assert numbers.api.delete(numbers.path, {"query": {"filter": {"n": 9}}}).status == 204
    assert len(numbers.column("id")) == 5


@pytest.mark.parametrize("body", [[1, 9], {"keys": [1, 9]}, [1, "x"]])
def test_one_unknown_key_refuses_the_whole_batch(numbers: Table, body: object) -> None:
    answer = numbers.api.delete(numbers.path, body)
    assert (answer.status, answer.codes) == (404, ["NOT_FOUND"])
    assert len(numbers.column("id")) == 5


@pytest.mark.parametrize(
    "body", [None, {}, 1, "1", {"keys": 1}, [None], [[1]], [{"id": 1}], {"query": None}]
)
def test_a_body_of_another_shape_is_refused(numbers: Table, body: object) -> None:
    answer = numbers.api.delete(numbers.path, body)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert len(numbers.column("id")) == 5


def test_an_item_that_others_need_stays(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE needed (id serial PRIMARY KEY); CREATE TABLE needing (id serial PRIMARY KEY, "
        "needed integer NOT NULL REFERENCES needed); INSERT INTO needed VALUES (1), (2); "
        "INSERT INTO needing VALUES (1, 2)"
    )
    answer = stage.admin.delete("/items/needed", [1, 2])
    assert (answer.status, answer.codes) == (400, ["INVALID_FOREIGN_KEY"])
    assert Table(stage.admin, "needed").column("id") == [1, 2]


def test_nobody_but_an_administrator_may_delete(stage: Stage) -> None:
    one = table(stage.admin)
    one.add({})
    for path, body in ((f"{one.path}/1", None), (one.path, [1]), ("/items/nowhere/1", None)):
        answer = stage.anonymous.delete(path, body)
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert one.column("id") == [1]


def test_a_misspelt_query_deletes_nothing(stage: Stage, admin: Client) -> None:
    stage.execute("CREATE TABLE kept (id integer PRIMARY KEY); INSERT INTO kept VALUES (1)")
    admin.post("/utils/cache/clear")
    for method in (admin.delete, admin.patch):
        answer = method("/items/kept", {"query": {"filtre": {"id": 2}}, "data": {}})
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
    assert admin.get("/items/kept").data == [{"id": 1}]


@pytest.mark.quick(2)
@pytest.mark.parametrize("path", ["/items/kept", "/users", "/files", "/folders", "/comments"])
def test_a_filter_beside_the_query_deletes_nothing(stage: Stage, admin: Client, path: str) -> None:
    stage.execute(
        "CREATE TABLE IF NOT EXISTS kept (id integer PRIMARY KEY); "
        "INSERT INTO kept VALUES (1) ON CONFLICT DO NOTHING"
    )
    admin.post("/utils/cache/clear")
    before = admin.get(path, limit=-1).data
    body = {"query": {}, "filter": {"id": 2}}
    for answer in (admin.delete(path, body), admin.patch(path, {**body, "data": {}})):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert answer.errors[0]["field"] == "filter"
    assert admin.get(path, limit=-1).data == before


def test_keys_and_a_query_together_delete_nothing(numbers: Table) -> None:
    for method in (numbers.api.delete, numbers.api.patch):
        answer = method(numbers.path, {"keys": [1], "query": {}, "data": {"n": 9}})
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
    assert numbers.column("n") == [1, 2, 3, 4, 5]


def test_a_row_that_a_trigger_turns_away_refuses_the_whole_write(
    stage: Stage, admin: Client
) -> None:
    stage.execute(
        "CREATE TABLE picky (id integer PRIMARY KEY);"
        "CREATE FUNCTION turn_away() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW; END$$;"
        "CREATE TRIGGER turn_away BEFORE INSERT ON picky FOR EACH ROW EXECUTE FUNCTION turn_away()"
    )
    answer = admin.post("/items/picky", [{"id": 1}, {"id": 2}])
    assert (answer.status, answer.codes) == (422, ["NOT_WRITTEN"])
    assert admin.get("/items/picky").data == []
