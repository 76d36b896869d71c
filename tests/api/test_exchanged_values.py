"""Items of one call exchange the values of a unique field."""

from __future__ import annotations

import pytest

from tests.things import Json, Stage, Table, field, table

POSITION = field("position", "integer", is_unique=True)


def later_unique(stage: Stage) -> Table:
    things = table(stage.admin, field("position", "integer"))
    path = f"/fields/{things.name}/position"
    assert stage.admin.patch(path, {"schema": {"is_unique": True}}).status == 200
    return things


def added(stage: Stage) -> Table:
    things = table(stage.admin)
    assert stage.admin.post(f"/fields/{things.name}", POSITION).status == 200
    return things


def at_first(stage: Stage) -> Table:
    return table(stage.admin, POSITION)


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [at_first, added, later_unique])
def test_an_array_of_changes_exchanges_them(stage: Stage, make: object) -> None:
    assert callable(make)
    things: Table = make(stage)
    things.add({"position": 1}, {"position": 2}, {"position": 3})
    changes = [{"id": 1, "position": 2}, {"id": 2, "position": 3}, {"id": 3, "position": 1}]
    assert things.api.patch(things.path, changes).status == 200
    assert things.column("position", "sort=id") == [2, 3, 1]
    taken = things.api.patch(things.path, [{"id": 1, "position": 3}, {"id": 2, "position": 2}])
    assert taken.status == 200
    refused = things.api.patch(things.path, [{"id": 1, "position": 2}, {"id": 3, "position": 9}])
    assert refused.codes == ["RECORD_NOT_UNIQUE"]
    assert (refused.errors[0]["index"], refused.errors[0]["field"]) == (0, "position")
    assert things.column("position", "sort=id") == [3, 2, 1]


def test_elements_of_a_list_exchange_them(stage: Stage) -> None:
    owners = table(stage.admin)
    things = table(stage.admin, POSITION, field("owner", "integer"))
    relation = {
        "collection": things.name,
        "field": "owner",
        "related_collection": owners.name,
        "meta": {"one_field": "things"},
    }
    assert stage.admin.post("/relations", relation).status == 200
    owners.add({"things": [{"position": 1}, {"position": 2}]})
    swapped = [{"id": 1, "position": 2}, {"id": 2, "position": 1}]
    for sent in (swapped, {"update": [{"id": 1, "position": 1}, {"id": 2, "position": 2}]}):
        assert stage.admin.patch(f"{owners.path}/1", {"things": sent}).status == 200
    assert things.column("position", "sort=id") == [1, 2]


def test_changes_of_several_statements_tell_how_values_are_exchanged(stage: Stage) -> None:
    things = table(stage.admin, POSITION, field("name", "string"))
    things.add({"position": 1}, {"position": 2})
    moves: list[Json] = [{"id": 1, "position": 2}, {"id": 2, "position": 1}]
    update = {"method": "update", "collection": things.name}
    operations = [{**update, "key": move["id"], "data": move} for move in moves]
    answers = [
        things.api.patch(things.path, [{**moves[0], "name": "a"}, moves[1]]),
        things.api.post("/batch", {"operations": operations}),
        things.api.post("/batch", {"operations": [{**update, "data": [move]} for move in moves]}),
    ]
    for answer in answers:
        assert answer.codes == ["RECORD_NOT_UNIQUE"]
        assert "in one array" in answer.errors[0]["message"]
    alone = things.api.patch(f"{things.path}/1", {"position": 2})
    assert "in one array" not in alone.errors[0]["message"]
    together = {"operations": [{**update, "data": moves}]}
    assert things.api.post("/batch", together).status == 200
