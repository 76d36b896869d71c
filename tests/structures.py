"""Random structures, made by the calls of clients: collections, fields and relations."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.client import Client

Json = dict[str, Any]

NAMES = ("apples", "birds", "clouds", "doors")
FIELDS = ("alpha", "beta", "gamma", "delta", "state", "position")
KEYS: tuple[Json, ...] = (
    {
        "field": "id",
        "type": "integer",
        "schema": {"is_primary_key": True, "has_auto_increment": True},
    },
    {"field": "id", "type": "bigInteger", "schema": {"is_primary_key": True}},
    {
        "field": "id",
        "type": "uuid",
        "schema": {"is_primary_key": True},
        "meta": {"special": ["uuid"]},
    },
    {"field": "code", "type": "string", "schema": {"is_primary_key": True, "max_length": 20}},
)
COLUMNS: tuple[Json, ...] = (
    {"type": "string"},
    {"type": "string", "schema": {"max_length": 40, "default_value": "it's"}},
    {"type": "string", "schema": {"max_length": 200, "is_unique": True}},
    {"type": "text", "schema": {"is_nullable": False, "default_value": ""}},
    {
        "type": "text",
        "meta": {"note": "yes", "validation": {"_and": [{"state": {"_nnull": True}}]}},
    },
    {"type": "integer", "schema": {"is_indexed": True}},
    {"type": "integer", "schema": {"default_value": 7, "comment": "a 'seven'"}},
    {"type": "bigInteger"},
    {"type": "float", "schema": {"default_value": 1.5}},
    {"type": "decimal", "schema": {"numeric_precision": 12, "numeric_scale": 3}},
    {"type": "decimal", "schema": {"default_value": "0.10"}},
    {"type": "boolean", "schema": {"default_value": False, "is_nullable": False}},
    {"type": "date"},
    {"type": "time"},
    {"type": "datetime"},
    {"type": "timestamp", "schema": {"default_value": "now()"}},
    {"type": "timestamp", "meta": {"special": ["date-created"], "readonly": True, "hidden": True}},
    {"type": "uuid", "meta": {"special": ["user-created"]}},
    {"type": "json", "meta": {"options": {"deep": [1, 2.5, {"x": None}]}, "interface": "list"}},
    {"type": "csv", "meta": {"width": "half", "sort": 3}},
    {"type": "hash"},
    {"type": "binary"},
    {"type": "alias", "meta": {"special": ["alias", "group", "no-data"], "interface": "group-raw"}},
    {"type": "alias", "meta": {"special": ["alias", "no-data"], "note": "text"}},
)
SORTABLE = ("string", "integer", "bigInteger", "uuid")
DELETIONS = ("CASCADE", "SET NULL", "NO ACTION", "RESTRICT")


def make_structure(admin: Client, random: Random) -> None:
    """Make up to four collections with fields and relations, and a folder in which some are."""
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    keys = {name: random.choice(KEYS) for name in names}
    for name in names:
        send(admin, "POST", "/collections", collection(random, name, keys[name]))
    for name in names:
        for _ in range(random.randint(0, 2)):
            make_relation(admin, random, name, keys)
    if random.random() < 0.6:
        folder = random.choice(("folder", *(set(NAMES) - set(names))))
        send(admin, "POST", "/collections", {"collection": folder, "meta": {"icon": "box"}})
        for name in random.sample(names, random.randint(0, len(names))):
            send(admin, "PATCH", f"/collections/{name}", {"meta": {"group": folder}})


def collection(random: Random, name: str, key: Json) -> Json:
    fields = [key]
    for field in random.sample(FIELDS, random.randint(0, len(FIELDS))):
        fields.append({"field": field, **random.choice(COLUMNS)})
    meta: Json = {"note": random.choice((None, "A note")), "searchable": random.random() < 0.5}
    columns = [field["field"] for field in fields if field["type"] != "alias"]
    sortable = [field["field"] for field in fields if field["type"] in SORTABLE]
    if random.random() < 0.5:
        meta["sort_field"] = random.choice(sortable)
    if random.random() < 0.3:
        meta["display_template"] = "{{" + random.choice(columns) + "}}"
        meta["item_duplication_fields"] = [random.choice(columns)]
    schema = {"comment": random.choice((None, "a table"))}
    return {"collection": name, "meta": meta, "schema": schema, "fields": fields}


def make_relation(admin: Client, random: Random, name: str, keys: dict[str, Json]) -> None:
    field = random.choice(("owner", "parent", "thing"))
    target = random.choice(list(keys))
    kind = random.choice(("m2o", "m2o", "m2m", "m2a"))
    if kind == "m2m":
        meta: Json = {
            "junction_collection": f"{name}_links",
            "one_field": random.choice((None, "back")),
        }
        links: Json = {
            "collection": name,
            "field": "links",
            "related_collection": target,
            "meta": meta,
        }
        # A second list through the same junction would be one too many.
        admin.post("/relations", links)
        return
    if admin.get(f"/fields/{name}/{field}").status == 200:
        return
    if kind == "m2a":
        send(admin, "POST", f"/fields/{name}", {"field": f"{field}_collection", "type": "string"})
        send(admin, "POST", f"/fields/{name}", {"field": field, "type": "string"})
        settings: Json = {
            "one_collection_field": f"{field}_collection",
            "one_allowed_collections": sorted(keys)[: random.randint(1, 2)],
        }
        body: Json = {
            "collection": name,
            "field": field,
            "related_collection": None,
            "meta": settings,
        }
        send(admin, "POST", "/relations", body)
        return
    key = keys[target]
    schema = {"max_length": 20} if key["type"] == "string" else {}
    send(admin, "POST", f"/fields/{name}", {"field": field, "type": key["type"], "schema": schema})
    relation: Json = {
        "collection": name,
        "field": field,
        "related_collection": target,
        "schema": {"on_delete": random.choice(DELETIONS)},
        "meta": {"one_field": random.choice((None, f"{name}_{field}"))},
    }
    send(admin, "POST", "/relations", relation)


def send(admin: Client, method: str, path: str, body: Json) -> None:
    answer = admin.send(method, path, body)
    assert answer.status == 200, answer.text
