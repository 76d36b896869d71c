"""`meta.item_duplication_fields`: what a copy of an item takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cms.config import Config
from tests.api.nesting import item, make_relations
from tests.client import Client
from tests.things import Json, staged, template_with

pytestmark = pytest.mark.release

PATHS = [
    "title",
    "author.name",
    "author.boss.name",
    "comments.text",
    "tags.tags_id.name",
    "sections.item:notes.text",
]


@pytest.fixture(scope="module")
def related(settings: Config, make_database: Callable[..., str], template: str) -> Iterator[str]:
    with template_with(settings, make_database, template, fill=make_relations) as name:
        yield name


@pytest.fixture
def admin(settings: Config, make_database: Callable[..., str], related: str) -> Iterator[Client]:
    with staged(settings, make_database, related) as stage:
        yield stage.admin


def keep(admin: Client, paths: object) -> list[Json]:
    """Set the paths of posts, and return what is wrong with them."""
    answer = admin.patch("/collections/posts", {"meta": {"item_duplication_fields": paths}})
    return [] if answer.status == 200 else answer.errors


def kept(admin: Client) -> object:
    return admin.get("/collections/posts").data["meta"]["item_duplication_fields"]


@pytest.mark.release
def test_paths_lead_to_fields(admin: Client) -> None:
    assert keep(admin, PATHS) == []
    wrong = [
        "nowhere",
        "author.nowhere",
        "title.name",
        "sections.item:tags.name",
        "",
        "author.",
        "system_users.email",
    ]
    faults = keep(admin, [*wrong, "title"])
    assert [fault["reason"] for fault in faults] == [
        f'"{path}" leads to no field' for path in wrong
    ]
    assert {fault["field"] for fault in faults} == {"meta.item_duplication_fields"}
    for shape in ({"a": 1}, "title", [1], [["title"]], 5):
        assert [fault["code"] for fault in keep(admin, shape)] == ["INVALID_PAYLOAD"]
    assert kept(admin) == PATHS
    body = {"collection": "new", "schema": {}, "meta": {"item_duplication_fields": ["nowhere"]}}
    assert admin.post("/collections", body).status == 400
    assert keep(admin, None) == []
    assert kept(admin) is None


@pytest.mark.release
@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/fields/posts/title", PATHS[1:]),
        ("/fields/comments/text", [*PATHS[:3], *PATHS[4:]]),
        ("/fields/comments/post", [*PATHS[:3], *PATHS[4:]]),
        ("/fields/people/boss", [PATHS[0], PATHS[1], *PATHS[3:]]),
        ("/relations/posts/author", [PATHS[0], *PATHS[3:]]),
        ("/relations/posts_tags/posts_id", [*PATHS[:4], PATHS[5]]),
        ("/relations/posts_tags/tags_id", [*PATHS[:4], PATHS[5]]),
        ("/collections/comments", [*PATHS[:3], *PATHS[4:]]),
        ("/collections/people", [PATHS[0], *PATHS[3:]]),
        ("/collections/tags", [*PATHS[:4], PATHS[5]]),
        ("/collections/notes", PATHS[:5]),
    ],
)
def test_what_is_deleted_leaves_the_paths(admin: Client, path: str, left: list[str]) -> None:
    assert keep(admin, PATHS) == []
    assert admin.delete(path).status == 204
    assert kept(admin) == left
    assert admin.get("/items/posts", fields=",".join(left)).status == 200


def test_paths_follow_new_names(admin: Client) -> None:
    assert keep(admin, PATHS) == []
    for field, name in (
        ("posts/author", "writer"),
        ("people/name", "called"),
        ("comments/text", "body"),
    ):
        assert admin.patch(f"/fields/{field}", {"field": name}).status == 200
    assert kept(admin) == [
        "title",
        "writer.called",
        "writer.boss.called",
        "comments.body",
        *PATHS[4:],
    ]


def test_a_copy_is_made_by_reading_and_posting(admin: Client) -> None:
    lists = (
        "comments.text,steps.text,steps.place,tags.tags_id,sections.kind,sections.item,"
        "sections.sort"
    )
    fields = f"title,author,{lists}"
    whole = {
        "title": "first",
        "author": {"name": "Ann"},
        "comments": [{"text": "a"}, {"text": "b"}],
        "steps": [{"text": "one"}, {"text": "two"}],
        "tags": [{"tags_id": {"name": "x"}}],
        "sections": [{"kind": "headings", "item": {"title": "H"}}],
    }
    key = admin.post("/items/posts", whole).data["id"]
    before = item(admin, f"posts/{key}", fields)
    assert admin.post(f"/items/posts?fields={fields}", before).data == before
    assert item(admin, f"posts/{key}", fields) == before


@pytest.mark.release
def test_a_list_that_is_gone_is_allowed_nobody(admin: Client) -> None:
    fields = ["title", "comments", "author"]
    body = {"role": None, "collection": "posts", "action": "read", "fields": fields}
    key = admin.post("/permissions", body).data["id"]
    assert admin.delete("/fields/comments/post").status == 204
    assert admin.get(f"/permissions/{key}").data["fields"] == ["title", "author"]
    assert (
        admin.patch(f"/permissions/{key}", {"fields": ["title", "author", "steps"]}).status == 200
    )
    assert admin.delete("/collections/steps").status == 204
    assert admin.get(f"/permissions/{key}").data["fields"] == ["title", "author"]
