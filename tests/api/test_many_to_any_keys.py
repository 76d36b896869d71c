"""A key at a many-to-any field leads to an item that the caller can see, or is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table


class Pages(NamedTuple):
    """Pages whose sections are items of headings or texts, by way of a junction."""

    pages: Table
    headings: Table
    texts: Table
    junction: Table


@pytest.fixture(scope="module")
def pages(stage: Stage) -> Pages:
    admin = stage.admin
    name = field("name", "string")
    made = [table(admin, name) for _ in range(3)]
    junction = table(
        admin, field("page", "integer"), field("item", "string"), field("collection", "string")
    )
    pages, headings, texts = made
    sections = {
        "collection": junction.name,
        "field": "page",
        "related_collection": pages.name,
        "meta": {"one_field": "sections", "junction_field": "item"},
    }
    items = {
        "collection": junction.name,
        "field": "item",
        "meta": {
            "one_allowed_collections": [headings.name, texts.name],
            "one_collection_field": "collection",
            "junction_field": "page",
        },
    }
    for body in (sections, items):
        assert admin.post("/relations", body).status == 200
    headings.add({"name": "seen"}, {"name": "hidden"})
    pages.add({"name": "a", "sections": [{"collection": headings.name, "item": 1}]})
    return Pages(pages, headings, texts, junction)


def wrong(pages: Pages) -> list[tuple[dict[str, Any], str, list[object]]]:
    headings = pages.headings.name
    return [
        ({"collection": headings, "item": 999999}, "INVALID_FOREIGN_KEY", ["item"]),
        ({"collection": pages.texts.name, "item": 1}, "INVALID_FOREIGN_KEY", ["item"]),
        ({"collection": headings, "item": "abc"}, "INVALID_FOREIGN_KEY", ["item"]),
        ({"collection": headings, "item": "1e400"}, "INVALID_FOREIGN_KEY", ["item"]),
        ({"collection": headings, "item": ""}, "INVALID_FOREIGN_KEY", ["item"]),
        ({"item": 1}, "INVALID_PAYLOAD", ["item"]),
        ({"collection": "nowhere", "item": 1}, "INVALID_PAYLOAD", ["collection"]),
    ]


def require_refusal(answer: Answer, code: str, path: list[object]) -> None:
    assert (answer.status, answer.codes) == (400, [code]), answer
    assert answer.errors[0]["path"] == path, answer.text


def test_a_key_that_leads_nowhere_is_refused_however_it_is_sent(pages: Pages) -> None:
    admin = pages.pages.api
    before = pages.junction.get(limit=-1).data
    for row, code, path in wrong(pages):
        at_first = ["sections", 0, *path]
        require_refusal(admin.post(pages.pages.path, {"sections": [row]}), code, at_first)
        require_refusal(admin.post(pages.junction.path, row), code, path)
        require_refusal(admin.post(pages.junction.path, [row]), code, path)
        operation = {"method": "create", "collection": pages.junction.name, "data": row}
        require_refusal(admin.post("/batch", {"operations": [operation]}), code, path)
        require_refusal(admin.post(f"/utils/import/{pages.junction.name}", [row]), code, path)
    assert pages.junction.get(limit=-1).data == before


def test_a_change_is_refused_by_what_is_stored_beside_it(pages: Pages) -> None:
    admin = pages.pages.api
    one = f"{pages.junction.path}/1"
    moved = {"collection": pages.texts.name}
    for change in ({"item": 999999}, {"item": "abc"}, moved):
        require_refusal(admin.patch(one, change), "INVALID_FOREIGN_KEY", ["item"])
        many = admin.patch(pages.junction.path, {"keys": [1], "data": change})
        require_refusal(many, "INVALID_FOREIGN_KEY", ["item"])
        listed = admin.patch(f"{pages.pages.path}/1", {"sections": [{"id": 1, **change}]})
        require_refusal(listed, "INVALID_FOREIGN_KEY", ["sections", 0, "item"])
    require_refusal(admin.patch(one, {"collection": None}), "INVALID_PAYLOAD", ["item"])
    assert admin.get(one).data["item"] == "1"


def test_keys_that_lead_to_items_are_taken_as_they_are_stored(pages: Pages) -> None:
    headings = pages.headings.name
    rows: list[dict[str, Any]] = [
        {"collection": headings, "item": 1},
        {"collection": headings, "item": "01"},
        {"collection": headings, "item": {"id": 77, "name": "new"}},
        {"collection": headings, "item": 77},
        {"collection": headings, "item": None},
        {"collection": headings},
    ]
    page = pages.pages.add({"sections": rows})[0]["id"]
    stored = pages.junction.column("item", f'filter={{"page":{page}}}&sort=id')
    assert stored == ["1", "1", "77", "77", None, None]
    read = pages.pages.api.get(f"{pages.pages.path}/{page}?fields=sections.item.name")
    assert [section["item"] for section in read.data["sections"]][:2] == [{"name": "seen"}] * 2


def test_what_is_sent_back_unchanged_is_taken_although_its_item_is_gone(pages: Pages) -> None:
    (heading,) = pages.headings.add({"name": "gone"})
    section = {"collection": pages.headings.name, "item": heading["id"]}
    (row,) = pages.junction.add(section)
    path = f"{pages.junction.path}/{row['id']}"
    assert pages.headings.api.delete(f"{pages.headings.path}/{heading['id']}").status == 204
    assert pages.junction.api.patch(path, pages.junction.api.get(path).data).status == 200


def caller(stage: Stage, pages: Pages) -> Client:
    shown = may(pages.headings.name, permissions={"name": {"_neq": "hidden"}})
    own = [may(pages.junction.name, action=action) for action in ("read", "create", "update")]
    return member(stage, shown, *own)


def test_hidden_items_are_refused_as_missing_ones(stage: Stage, pages: Pages) -> None:
    api = caller(stage, pages)
    headings = pages.headings.name
    answers: list[Any] = []
    for key in (2, 999999):
        body = {"collection": headings, "item": key}
        one = f"{pages.junction.path}/1"
        for answer in (api.post(pages.junction.path, body), api.patch(one, body)):
            require_refusal(answer, "INVALID_FOREIGN_KEY", ["item"])
            problems = [{**error, "value": None} for error in answer.errors]
            answers.append(problems)
    assert answers[:2] == answers[2:]
    assert api.post(pages.junction.path, {"collection": headings, "item": 1}).status == 200
