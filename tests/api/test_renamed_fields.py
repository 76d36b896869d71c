"""Whatever names a field follows its new name; every place that might is in a list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cms.config import Config
from cms.dashboards.definition.panel_types import PANEL_OPTIONS_WITH_NAMES, PANEL_TYPES
from cms.flows.definition.flow_references import OPTIONS_WITH_NAMES
from cms.flows.definition.operation_types import OPERATION_TYPES
from cms.flows.definition.trigger_types import TRIGGER_TYPES
from cms.structure.stored_references import STORED_REFERENCES
from tests.active_flows import Json, make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage, Table, field, table

FOLLOWED_BY_STATEMENTS = {
    "system_collections": {"archive_field", "sort_field"},
    "system_fields": {"field", "group"},
    "system_flows": {"options"},
    "system_operations": {"options"},
    "system_permissions": {"fields"},
    "system_relations": {"many_field", "one_field", "junction_field", "sort_field"}
    | {"one_collection_field"},
    "system_revisions": {"data", "delta"},
}
"""Columns that follow without `STORED_REFERENCES`: by statements, and flows as a whole."""

WITHOUT_NAMES = {
    # Texts, choices, and names of collections, which do not change.
    "system_collections": {"collection", "icon", "color", "note", "translations", "archive_value"}
    | {"unarchive_value", "accountability", "group", "collapse"},
    "system_fields": {"collection", "special", "interface", "display", "width", "translations"}
    | {"note", "validation_message"},
    "system_relations": {"many_collection", "one_collection", "one_allowed_collections"}
    | {"one_deselect_action"},
    "system_permissions": {"collection", "action"},
    "system_presets": {"bookmark", "collection", "search", "layout", "icon", "color"},
    "system_panels": {"name", "icon", "color", "note", "type"},
    "system_flows": {"name", "icon", "color", "description", "status", "trigger", "accountability"},
    "system_operations": {"name", "key", "type"},
    "system_revisions": {"collection", "item", "version"},
    "system_settings": None,
    "system_dashboards": None,
    "system_files": None,
    "system_folders": None,
    "system_notifications": None,
    "system_shares": None,
    "system_translations": None,
    # What has happened, with the names of that time; and those of the version before.
    "system_index_requests": None,
    "system_constraint_requests": None,
    "system_activity": None,
    "system_dropped_collections": None,
    "system_flow_deliveries": None,
    "system_flow_runs": None,
    "system_flow_schedules": None,
    "system_idempotency": None,
    "system_json_paths": None,
    # Accounts, and the service itself.
    "system_migrations": None,
    "system_queue": None,
    "system_recovery_codes": None,
    "system_roles": None,
    "system_saml_answers": None,
    "system_sessions": None,
    "system_users": None,
}
"""Columns without names of fields; None: all of the table."""

OPERATION_OPTIONS_WITHOUT_NAMES = {
    "condition": {"filter"},  # it names values of the run, and items among them
    "exec": {"code"},  # scripts are not searched
    "item-create": {"collection", "permissions", "emitEvents"},
    "item-read": {"collection", "permissions", "emitEvents", "key"},
    "item-update": {"collection", "permissions", "emitEvents", "key"},
    "item-delete": {"collection", "permissions", "emitEvents", "key"},
    "log": {"message"},
    "mail": {"to", "cc", "bcc", "subject", "type", "body", "template", "data"},
    "notification": {"recipient", "subject", "message", "collection", "item", "permissions"},
    "request": {"method", "url", "headers", "body", "sign", "secret"},
    "sleep": {"milliseconds"},
    "transform": {"json"},
    "trigger": {"flow", "payload", "iterationMode", "batchSize"},
    "json-web-token": {"operation", "payload", "token", "secret", "options"},
    "throw-error": {"code", "status", "message"},
}
"""Options that name no field but in templates, which follow in all of them."""

TRIGGER_OPTIONS = {
    "event": {"type", "scope", "collections", "return"},
    "webhook": {"method", "async", "return", "cacheEnabled"},
    "schedule": {"cron"},
    "manual": {"collections", "location", "requireSelection", "fields", "async", "return"}
    | {"requireConfirmation", "confirmationDescription"},
    "operation": {"return"},
}
PANEL_OPTIONS_WITHOUT_NAMES = {
    "collection",
    "function",
    "aggregation",
    "prefix",
    "suffix",
    "decimals",
    "limit",
    "sortDirection",
    "precision",
    "range",
    "text",
}


def columns(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield the columns of system tables that can hold names: texts and JSON."""
    listed = stage.value(
        "SELECT json_agg(json_build_array(table_name, column_name)) "
        "FROM information_schema.columns JOIN information_schema.tables USING (table_name) "
        "WHERE table_name ~ '^system_' AND table_type = 'BASE TABLE' "
        "AND table_name !~ '_(default|[0-9_]+)$' "
        "AND data_type IN ('text', 'json', 'jsonb', 'ARRAY')"
    )
    yield from map(tuple, listed)


def test_every_column_that_can_hold_names_is_in_a_list(stage: Stage) -> None:
    known = {(reference.table, reference.column) for reference in STORED_REFERENCES}
    for declared in (FOLLOWED_BY_STATEMENTS, WITHOUT_NAMES):
        for table_name, names in declared.items():
            known |= {(table_name, name) for name in names or ()}
    everything_without = {name for name, names in WITHOUT_NAMES.items() if names is None}
    unknown = [each for each in columns(stage) if each not in known]
    assert [each for each in unknown if each[0] not in everything_without] == []


def test_every_option_that_can_hold_names_is_in_a_list() -> None:
    for kind, options in OPERATION_TYPES.items():
        named = OPTIONS_WITH_NAMES.get(kind, {}).keys()
        assert options.options.keys() == named | OPERATION_OPTIONS_WITHOUT_NAMES[kind], kind
    for kind, options in TRIGGER_TYPES.items():
        assert options.options.keys() == TRIGGER_OPTIONS[kind], kind
    for kind, panel_type in PANEL_TYPES.items():
        names = panel_type.checks.keys()
        assert names <= PANEL_OPTIONS_WITH_NAMES.keys() | PANEL_OPTIONS_WITHOUT_NAMES, kind


# What follows


@pytest.fixture
def authors(admin: Client) -> Table:
    return table(admin, field("name", "string"), field("rank", "integer"))


@pytest.fixture
def pages(admin: Client, authors: Table) -> Table:
    pages = table(
        admin, field("title", "string"), field("author", "integer"), field("meta", "json")
    )
    relation = {"collection": pages.name, "field": "author", "related_collection": authors.name}
    listed = {**relation, "meta": {"one_field": "pages", "sort_field": None}}
    assert admin.post("/relations", listed).status == 200
    return pages


def rename(admin: Client, owner: Table, before: str, after: str) -> None:
    assert admin.patch(f"/fields/{owner.name}/{before}", {"field": after}).status == 200


def renamed(value: Any) -> Any:
    """Return a value with the new names of the tests in it."""
    text = json.dumps(value)
    return json.loads(text.replace("title", "headline").replace("name", "called"))


OF_AUTHOR: dict[str, Any] = {
    "template": "{{name}} ({{ rank }})",
    "filter": {"_and": [{"name": {"_eq": "title"}}, {"pages": {"title": {"_nnull": True}}}]},
    "fields": ["name", "pages.title"],
    "sort": "-name",
    "enableCreate": False,
}
OF_PAGES: dict[str, Any] = {
    "template": "{{title}} {{author.name}}",
    "fields": ["title"],
    "sortField": "title",
}


@pytest.mark.release
def test_options_of_interfaces_and_displays_follow(
    admin: Client, pages: Table, authors: Table
) -> None:
    condition = {"rule": {"title": {"_eq": 1}}, "options": {"template": "{{name}}"}, "name": "x"}
    written: dict[str, Any] = {
        f"{pages.name}/author": {
            "options": OF_AUTHOR,
            "display_options": {"template": "{{name}}"},
            "conditions": [condition],
        },
        f"{authors.name}/pages": {
            "options": OF_PAGES,
            "display_options": {"template": "{{title}}"},
        },
        # Members of a value, and links with values of the item itself.
        f"{pages.name}/meta": {
            "options": {
                "template": "{{title}}",
                "fields": ["title"],
                "links": [{"label": "{{title}}", "url": "https://example.com/{{title}}"}],
            }
        },
        f"{pages.name}/title": {
            "options": {"selectedCollection": authors.name, "template": "{{name}}"}
        },
    }
    for path, meta in written.items():
        assert admin.patch(f"/fields/{path}", {"meta": meta}).status == 200
    rename(admin, pages, "title", "headline")
    rename(admin, authors, "name", "called")

    def meta_of(path: str) -> Any:
        return admin.get(f"/fields/{path}").data["meta"]

    meta = meta_of(f"{pages.name}/author")
    assert meta["options"] == {
        **renamed(OF_AUTHOR),
        "filter": {
            "_and": [{"called": {"_eq": "title"}}, {"pages": {"headline": {"_nnull": True}}}]
        },
    }
    assert meta["display_options"] == {"template": "{{called}}"}
    assert meta["conditions"] == [
        {
            "rule": {"headline": {"_eq": 1}},
            "options": {"template": "{{called}}"},
            "name": "x",
        }
    ]
    meta = meta_of(f"{authors.name}/pages")
    assert meta["options"] == renamed(OF_PAGES)
    assert meta["display_options"] == {"template": "{{headline}}"}
    assert meta_of(f"{pages.name}/meta")["options"] == {
        "template": "{{title}}",
        "fields": ["title"],
        "links": [{"label": "{{headline}}", "url": "https://example.com/{{headline}}"}],
    }
    assert meta_of(f"{pages.name}/headline")["options"]["template"] == "{{called}}"


@pytest.mark.release
def test_presets_follow_in_all_that_they_keep(admin: Client, pages: Table, authors: Table) -> None:
    preset: dict[str, Any] = {
        "collection": pages.name,
        "filter": {"author": {"name": {"_eq": "x"}}},
        "layout_query": {
            "tabular": {"fields": ["title", "author.name"], "sort": ["-title"], "page": 1},
            "cards": {"sort": "title,-author.name"},
        },
        "layout_options": {
            "tabular": {"widths": {"title": 200, "author.name": 90}, "spacing": "compact"},
            "cards": {"title": "{{title}}", "subtitle": "{{author.name}}", "icon": "title"},
            "calendar": {"startDateField": "title", "template": "{{title}}"},
            "kanban": {"groupField": "author", "groupTitle": "name"},
        },
    }
    key = admin.post("/presets", preset).data["id"]
    rename(admin, pages, "title", "headline")
    rename(admin, authors, "name", "called")
    stored = admin.get(f"/presets/{key}").data
    assert stored["filter"] == renamed(preset["filter"])
    assert stored["layout_query"] == renamed(preset["layout_query"])
    expected = renamed(preset["layout_options"])
    expected["cards"] = {
        "title": "{{headline}}",
        "subtitle": "{{author.called}}",
        "icon": "title",
    }
    assert stored["layout_options"] == expected


def naming_steps(pages: Table) -> list[Json]:
    """Return operations that name fields in all ways."""
    source = {"collection": pages.name, "permissions": "$full"}
    with_title = '{"filter": {"title": {"_eq": "a"}}, "fields": ["title", "author.name"]}'
    grouped = {"aggregate": {"count": "title"}, "groupBy": ["title"], "sort": "title"}
    payload = {"title": "b", "author": {"name": "{{read[0].author.name}}"}}
    return [
        step("read", "item-read", {**source, "query": with_title}, resolve="check"),
        step(
            "check",
            "condition",
            {"filter": {"$trigger": {"payload": {"title": {"_eq": "a"}}}}},
            resolve="create",
        ),
        step(
            "create",
            "item-create",
            {**source, "emitEvents": False, "payload": payload},
            resolve="note",
        ),
        step(
            "note",
            "log",
            {"message": '{{$trigger.payload.title}} {{read[0]["author"].name}} {{$NOW}}'},
            resolve="update",
        ),
        step(
            "update",
            "item-update",
            {
                **source,
                "emitEvents": False,
                "query": {"filter": {"title": {"_eq": "b"}}},
                "payload": {"title": "c"},
            },
            resolve="group",
        ),
        step("group", "item-read", {**source, "query": grouped}, resolve="delete"),
        step(
            "delete",
            "item-delete",
            {**source, "emitEvents": False, "query": {"filter": {"title": {"_eq": "c"}}}},
        ),
    ]


@pytest.mark.release
def test_flows_go_on_after_a_field_that_they_name_was_renamed(
    stage: Stage, admin: Client, settings: Config, pages: Table, authors: Table
) -> None:
    steps = naming_steps(pages)
    source = {"collection": pages.name, "permissions": "$full"}
    event = {"type": "action", "scope": ["items.create"], "collections": [pages.name]}
    flow = make_flow(admin, "event", event, steps)
    one = step("one", "item-read", {**source, "query": {"sort": ["-title"], "limit": 1}})
    returns: Mapping[str, object] = {"path": "$last[0].title", "text": "{{one[0].title}}!"}
    webhooks = {
        name: make_flow(admin, "webhook", {"return": value}, [one])
        for name, value in returns.items()
    }
    manual = {"collections": [pages.name], "fields": ["title", {"field": "title"}]}
    by_hand = make_flow(admin, "manual", manual, [])
    rename(admin, pages, "title", "headline")
    rename(admin, authors, "name", "called")
    pages.add({"headline": "a", "author": {"called": "Ada"}})
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert [entry["status"] for entry in run["steps"]] == ["resolve"] * len(steps), run["steps"]
    assert run["steps"][3]["log"][0].startswith("a Ada 2")
    assert admin.get(pages.path, fields="headline").data == [{"headline": "a"}]
    assert admin.get(f"/flows/trigger/{webhooks['path']}").data == "a"
    assert admin.get(f"/flows/trigger/{webhooks['text']}").data == "a!"
    stored = admin.get(f"/flows/{by_hand}").data["options"]["fields"]
    assert stored == ["headline", {"field": "title"}]


def test_a_removed_field_stays_in_what_would_mean_more_without_it(
    admin: Client, pages: Table
) -> None:
    query = {"filter": {"title": {"_eq": "a"}}}
    options = {"collection": pages.name, "query": query}
    flow = make_flow(admin, "webhook", {}, [step("read", "item-read", options)])
    meta = {"options": {"template": "{{title}}"}, "display_options": {"template": "{{title}}"}}
    of_list = admin.get(f"/fields/{pages.name}/author").data["meta"]
    assert of_list
    preset = {"collection": pages.name, "layout_query": {"tabular": {"fields": ["title"]}}}
    key = admin.post("/presets", preset).data["id"]
    assert admin.patch(f"/fields/{pages.name}/author", {"meta": meta}).status == 200
    assert admin.delete(f"/fields/{pages.name}/title").status == 204
    operations = admin.get(f"/flows/{flow}", fields="operations.options").data["operations"]
    assert operations == [{"options": options}]
    assert admin.get(f"/flows/trigger/{flow}").status == 422
    assert admin.get(f"/presets/{key}").status == 200
    assert admin.get(f"/fields/{pages.name}/author").status == 200
