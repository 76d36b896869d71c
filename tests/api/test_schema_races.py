"""Diffs applied at once, by several processes, and to large tables."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import psycopg
import pytest

from cms.structure import indexes
from tests.api.test_structure_races import simultaneously, statuses
from tests.client import Client
from tests.index_building import is_indexed
from tests.things import Json, field, make_collections
from tests.waiting import eventually

pytestmark = pytest.mark.release

DUPLICATES = """
    SELECT count(*) FROM pg_index AS one JOIN pg_index AS other USING (indrelid, indkey, indclass)
    WHERE one.indexrelid < other.indexrelid AND one.indexprs IS NULL AND other.indexprs IS NULL
    AND indrelid = 'things'::regclass
"""


def with_collection(document: Json, name: str) -> Json:
    record = {"collection": name, "meta": {}, "schema": {}}
    return {**document, "collections": [*document["collections"], record]}


def test_of_two_diffs_at_once_one_is_applied(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    clients = [make_client().bearing(admin_token) for _ in range(4)]
    document = clients[0].get("/schema/snapshot").data
    calls = []
    for number, client in enumerate(clients):
        target = with_collection(document, f"new_{number}")
        diff = client.post("/schema/diff", target).data
        calls.append(partial(client.post, "/schema/apply", diff))
    answers = simultaneously(*calls)
    assert statuses(answers) == [204, 400, 400, 400]
    for client in clients:
        assert len(client.get("/schema/snapshot").data["collections"]) == 1


def test_the_same_diff_at_once_is_applied_once(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    clients = [make_client().bearing(admin_token) for _ in range(4)]
    document = with_collection(clients[0].get("/schema/snapshot").data, "new")
    diff = clients[0].post("/schema/diff", document).data
    answers = simultaneously(*(partial(client.post, "/schema/apply", diff) for client in clients))
    assert statuses(answers) == [204] * 4


def test_indexes_of_large_tables_are_built_once(
    api: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [field(name, "integer") for name in "ab"]
    make_collections(api, {"things": fields, "others": []}, [])
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)
    document = api.get("/schema/snapshot").data
    target = deepcopy(document)
    for record in target["fields"]:
        if record["field"] in ("a", "b"):
            record["schema"]["is_indexed"] = True
    for record in target["collections"]:
        record["meta"] |= {"searchable": True, "sort_field": "a"}
        if record["collection"] == "others":
            record["meta"]["sort_field"] = None
    relation = {"collection": "things", "field": "b", "related_collection": "others"}
    target["relations"].append({**relation, "meta": {}})
    diff = api.post("/schema/diff", target).data
    assert api.post("/schema/apply", diff).status == 204
    assert api.post("/schema/diff", target).status == 204
    eventually(lambda: is_indexed(api, "things", "a", "b"))
    assert api.post("/schema/diff", target).status == 204
    with psycopg.connect(dsn) as connection:
        assert connection.execute(DUPLICATES).fetchone() == (0,)
