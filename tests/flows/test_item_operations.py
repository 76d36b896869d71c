"""The operations item-create, -read, -update and -delete: results, rights and filter flows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cms.config import Config
from cms.errors import Refused
from cms.extensions import OWN
from cms.flows.operations import OPERATIONS
from cms.flows.run import OpenTransaction, Rejected, Run, Services
from cms.store.identity import Identity
from cms.store.store import Store
from tests.flows.runs import SERVICE, do, new_run, rejection, somebody
from tests.members import grant, may, new_role
from tests.things import Stage, Table, field, table


def refusal(run: Run, kind: str, **options: Any) -> str:
    with pytest.raises(Refused) as refused:
        do(run, kind, **options)
    return refused.value.problems[0].code


def test_creating_returns_the_keys(run: Run, pages: Table) -> None:
    name = pages.name
    assert do(run, "item-create", collection=name, payload={"title": "One"}) == [1]
    two = [{"title": "Two"}, {"title": "Three"}]
    assert do(run, "item-create", collection=name, payload=two) == [2, 3]
    assert pages.column("title", "sort=id") == ["One", "Two", "Three"]


def test_keys_of_text_stay_text(run: Run, stage: Stage) -> None:
    body = {
        "collection": "codes",
        "schema": {},
        "fields": [{"field": "code", "type": "string", "schema": {"is_primary_key": True}}],
    }
    assert stage.admin.post("/collections", body).status == 200
    assert do(run, "item-create", collection="codes", payload={"code": "7"}) == ["7"]


def test_reading_returns_items(run: Run, pages: Table) -> None:
    pages.add({"title": "One", "views": 1}, {"title": "Two", "views": 2}, {"title": "Three"})
    name = pages.name
    query = {"filter": {"views": {"_gte": 1}}, "fields": ["title"], "sort": ["-id"]}
    assert do(run, "item-read", collection=name, query=query) == [
        {"title": "Two"},
        {"title": "One"},
    ]
    one = {"fields": ["title"]}
    assert do(run, "item-read", collection=name, key=3, query=one) == {"title": "Three"}
    assert do(run, "item-read", collection=name, key="2", query=one) == {"title": "Two"}
    several = do(run, "item-read", collection=name, key=[1, 3], query={**one, "sort": ["id"]})
    assert several == [{"title": "One"}, {"title": "Three"}]
    aggregate = {"aggregate": {"sum": "views"}}
    assert do(run, "item-read", collection=name, query=aggregate) == [{"sum": {"views": 3}}]
    assert refusal(run, "item-read", collection=name, key=9) == "NOT_FOUND"


@pytest.mark.parametrize(
    "selection",
    [{"key": None}, {"key": None, "query": {"sort": "id"}}, {"query": {"filter": None}}],
)
@pytest.mark.parametrize("kind", ["item-read", "item-update", "item-delete"])
def test_a_key_or_filter_of_a_template_that_leads_nowhere_selects_nothing(
    run: Run, pages: Table, kind: str, selection: dict[str, Any]
) -> None:
    pages.add({"title": "One"})
    options = {"collection": pages.name, "payload": {"title": "Gone"}, **selection}
    if kind != "item-update":
        del options["payload"]
    with pytest.raises(Rejected) as rejected:
        OPERATIONS[kind].run(options, run)
    assert "all items" in str(rejected.value.result)
    assert pages.column("title") == ["One"]


def test_keys_of_more_items_than_a_read_returns_are_refused(
    stage: Stage, services: Services, pages: Table, settings: Config
) -> None:
    pages.add(*({"title": str(number)} for number in range(4)))
    store = Store(
        replace(settings, query_limit_max=2), services.store.database, hooks=OWN.store_hooks()
    )
    run = new_run(Services(store, services.config, OPERATIONS))
    options: dict[str, Any] = {"collection": pages.name, "key": [1, 2, 3]}
    assert "2 items at most" in rejection(run, "item-read", **options)["message"]
    assert len(do(run, "item-read", **options, query={"limit": 1})) == 1
    assert len(do(run, "item-read", collection=pages.name, key=[1, 2, "2"])) == 2
    # What is written has no pages.
    assert do(run, "item-update", **options, payload={"views": 1}) == [1, 2, 3]
    query = {"filter": {"views": {"_null": True}}}
    assert do(run, "item-delete", collection=pages.name, query=query) == [4]
    assert do(run, "item-delete", **options) == [1, 2, 3]


def test_changing_returns_the_keys(run: Run, pages: Table) -> None:
    pages.add({"title": "One"}, {"title": "Two"}, {"title": "Three"})
    name = pages.name
    new = {"views": 5}
    assert do(run, "item-update", collection=name, key=1, payload=new) == [1]
    assert do(run, "item-update", collection=name, key=["2", 3], payload=new) == [2, 3]
    query = {"filter": {"title": {"_eq": "Two"}}}
    assert do(run, "item-update", collection=name, query=query, payload={"views": 6}) == [2]
    assert do(run, "item-update", collection=name, query={"filter": {"id": 9}}, payload=new) == []
    assert pages.column("views", "sort=id") == [5, 6, 5]
    assert refusal(run, "item-update", collection=name, key=9, payload=new) == "NOT_FOUND"


def test_deleting_returns_the_keys(run: Run, pages: Table) -> None:
    pages.add(*({"title": str(number)} for number in range(5)))
    name = pages.name
    assert do(run, "item-delete", collection=name, key=1) == [1]
    assert do(run, "item-delete", collection=name, key=[2, "3"]) == [2, 3]
    query = {"filter": {"title": {"_eq": "3"}}}
    assert do(run, "item-delete", collection=name, query=query) == [4]
    assert pages.column("id") == [5]
    assert refusal(run, "item-delete", collection=name, key=9) == "NOT_FOUND"


def test_a_singleton_is_changed_without_its_key(run: Run, stage: Stage) -> None:
    single = table(stage.admin, field("title", "string"), singleton=True)
    options = {"collection": single.name, "query": {}, "payload": {"title": "Here"}}
    assert do(run, "item-update", **options) == [1]
    assert single.get().data["title"] == "Here"


def test_the_rights_are_those_that_the_option_names(
    stage: Stage, services: Services, pages: Table
) -> None:
    role = new_role(stage, may(pages.name, "title", action="create"))
    item = {"collection": pages.name, "payload": {"title": "One"}}
    public = new_run(services, somebody())
    assert refusal(public, "item-create", **item) == "FORBIDDEN"
    assert refusal(public, "item-create", **item, permissions="$trigger") == "FORBIDDEN"
    assert refusal(public, "item-create", **item, permissions="$public") == "FORBIDDEN"
    assert do(public, "item-create", **item, permissions="$full") == [1]
    # The role may create, but not read what it has created.
    assert do(public, "item-create", **item, permissions=role) == [2]
    assert refusal(public, "item-read", collection=pages.name, permissions=role) == "FORBIDDEN"
    payload = {"title": "One", "views": 1}
    options = {"collection": pages.name, "payload": payload, "permissions": role}
    assert refusal(public, "item-create", **options) == "FORBIDDEN"


def test_the_rights_of_the_caller_are_those_of_now(
    stage: Stage, services: Services, pages: Table
) -> None:
    public = new_run(services, somebody())
    item = {"collection": pages.name, "payload": {"title": "One"}}
    assert refusal(public, "item-create", **item) == "FORBIDDEN"
    grant(stage, None, [may(pages.name, action="create")])
    assert do(public, "item-create", **item) == [1]


def test_the_history_names_the_caller_and_the_service_has_no_name(
    stage: Stage, services: Services, pages: Table
) -> None:
    admin = stage.value("SELECT id::text FROM system_users LIMIT 1")
    item = {"collection": pages.name, "payload": {"title": "One"}}
    do(new_run(services, Identity(user=admin)), "item-create", **item)
    do(new_run(services, SERVICE), "item-create", **item)
    query = f"filter[collection]={pages.name}&fields=user&sort=id"
    assert [entry["user"] for entry in stage.admin.get(f"/activity?{query}").data] == [admin, None]


def test_system_collections_are_written_through_their_checks(run: Run) -> None:
    options = {"collection": "system_users", "payload": {"email": "flow@example.com"}}
    (key,) = do(run, "item-create", **options)
    users = do(run, "item-read", collection="system_users", key=key)
    assert (users["email"], users["password"]) == ("flow@example.com", None)
    assert refusal(run, "item-create", **options) == "RECORD_NOT_UNIQUE"
    assert refusal(run, "item-create", collection="system_activity", payload={}) == "FORBIDDEN"
    assert refusal(run, "item-read", collection="system_sessions") == "NOT_FOUND"


def test_in_a_filter_flow_everything_happens_in_its_transaction(
    services: Services, pages: Table
) -> None:
    """What an operation rejects is undone, and the transaction goes on."""
    name = pages.name

    for attempt in services.store.write(SERVICE):
        with attempt as context:
            run = new_run(services)
            run.transaction = OpenTransaction(attempt.begin_transaction(), context)
            keys = do(run, "item-create", collection=name, payload={"title": "One"})
            assert refusal(run, "item-create", collection=name, payload={"id": 1}) != ""
            items = do(run, "item-read", collection=name, query={"fields": ["title"]})
            assert pages.column("id") == []
    assert [keys, items] == [[1], [{"title": "One"}]]
    assert pages.column("title") == ["One"]


def test_what_an_operation_writes_passes_the_filter_flows(
    stage: Stage, run: Run, pages: Table
) -> None:
    name = pages.name
    refuse_by_filter(stage, name, "items.delete")
    slug_by_filter(stage, name)
    assert do(run, "item-create", collection=name, payload={"title": "New"}) == [1]
    assert do(run, "item-update", collection=name, key=1, payload={"title": "Newer"}) == [1]
    assert pages.column("views") == [7]
    options = {"collection": name, "key": 1}
    assert refusal(run, "item-delete", **options) == "KEPT"
    # Without events the filters are passed over, too.
    assert do(run, "item-delete", **options, emitEvents=False) == [1]


def slug_by_filter(stage: Stage, collection: str) -> None:
    options = {"json": {"title": "{{$trigger.payload.title}}", "views": 7}}
    filter_flow(stage, collection, "items.update", {"type": "transform", "options": options})


def refuse_by_filter(stage: Stage, collection: str, scope: str) -> None:
    options = {"code": "KEPT", "status": 409}
    filter_flow(stage, collection, scope, {"type": "throw-error", "options": options})


def filter_flow(stage: Stage, collection: str, scope: str, operation: dict[str, Any]) -> None:
    options = {"type": "filter", "scope": [scope], "collections": [collection]}
    body: dict[str, Any] = {"name": scope, "trigger": "event", "options": options}
    body["operations"] = [{"key": "first", **operation}]
    answer = stage.admin.post("/flows", body)
    assert answer.status == 200, answer.text
