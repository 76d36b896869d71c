"""What `deep` may name does not depend on what is shown."""

from __future__ import annotations

import json

import pytest

from tests.client import Client
from tests.things import Table, field, table


@pytest.fixture(scope="module")
def people(admin: Client) -> Table:
    people = table(admin, field("name", "string"), field("boss", "integer"), field("more", "json"))
    relation = {"collection": people.name, "field": "boss", "related_collection": people.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "staff"}}).status == 200
    people.add({"name": "a", "staff": [{"name": "b"}]})
    return people


READS = (
    "? ?fields=* /1? ?fields=name,id ?fields=*.* ?fields=boss.id ?aggregate[count]=* ?export=csv"
)


@pytest.mark.parametrize("form", READS.split())
def test_deep_takes_fields_that_lead_somewhere(people: Table, form: str) -> None:
    for key in (
        "name][_limit",
        "name][nothing][_limit",
        "more][nothing][_sort",
        "staff][name][_limit",
        "nothing",
        "*][_limit",
        "boss][*][_limit",
    ):
        assert people.api.get(f"{people.path}{form}&deep[{key}]=1").codes == ["INVALID_QUERY"], key
    for key in ("staff][_limit", "boss][staff][_limit"):
        assert people.api.get(f"{people.path}{form}&deep[{key}]=1").status == 200, key


@pytest.mark.parametrize("deep", [{"*": {}}, {"*": {"*": {}}}, {"boss": {"*": {"_limit": 1}}}])
def test_deep_takes_no_star(people: Table, deep: object) -> None:
    for fields in ("*", "id", "*.*"):
        answer = people.api.search(people.path, {"fields": fields, "deep": deep})
        assert answer.codes == ["INVALID_QUERY"]
        assert "*" in answer.errors[0]["reason"]
        assert people.api.get(people.path, fields=fields, deep=json.dumps(deep)).status == 400
