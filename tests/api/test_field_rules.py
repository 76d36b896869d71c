"""A field's `validation` and `conditions` are looked at when they are saved."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import field, table


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("meta", "path"),
    [
        ({"validation": {"_regex": "("}}, "meta.validation"),
        ({"validation": {"_and": [{"title": {"_what": 1}}]}}, "meta.validation"),
        ({"validation": "x"}, "meta.validation"),
        ({"conditions": [{"rule": {"title": {"_between": [1]}}}]}, "meta.conditions"),
        ({"conditions": "always"}, "meta.conditions"),
        ({"conditions": {"rule": {}}}, "meta.conditions"),
        ({"conditions": [{"rule": {}}, 5]}, "meta.conditions"),
    ],
)
def test_a_rule_that_nothing_could_keep_is_refused_with_its_place(
    admin: Client, meta: Any, path: str
) -> None:
    things = table(admin, field("title", "string"))
    answer = admin.patch(f"/fields/{things.name}/title", {"meta": meta})
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        400,
        ["INVALID_PAYLOAD"],
        path,
    )
    answer = admin.post(
        f"/fields/{things.name}", {"field": "other", "type": "string", "meta": meta}
    )
    assert (answer.status, answer.errors[0]["field"]) == (400, path)


def test_sound_rules_are_kept_as_they_came(admin: Client) -> None:
    things = table(admin, field("title", "string"))
    meta = {
        "validation": {"title": {"_regex": "^[a-z]+$", "_submitted": True}},
        "conditions": [{"name": "short", "rule": {"title": {"_eq": "a"}}, "required": True}],
    }
    stored_meta = admin.patch(f"/fields/{things.name}/title", {"meta": meta}).data["meta"]
    assert {name: stored_meta[name] for name in meta} == meta
    assert admin.patch(f"/fields/{things.name}/title", {"meta": {"validation": None}}).status == 200


def test_conditions_of_a_change_know_whether_a_secret_is_set(admin: Client) -> None:
    key = field("key", "string", special="conceal")
    note = field("note", "string")
    key["meta"]["conditions"] = [{"rule": {"kind": {"_eq": "api"}}, "required": True}]
    note["meta"] = {"conditions": [{"rule": {"key": {"_nnull": True}}, "required": True}]}
    hooks = table(admin, field("kind", "string"), key, note)
    hooks.add({"kind": "web", "key": "x", "note": "n"}, {"kind": "web"})
    assert admin.patch(f"{hooks.path}/1", {"kind": "api"}).status == 200
    assert admin.patch(f"{hooks.path}/2", {"kind": "api"}).status == 422
    assert admin.patch(f"{hooks.path}/1", {"note": None}).status == 422
    assert admin.patch(f"{hooks.path}/2", {"note": None}).status == 200
