"""A small magazine, a writer who may share its articles, and tokens of such shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.client import Answer, Client
from tests.files.forms import FileService
from tests.members import may, member_of, new_role
from tests.things import Stage, field, make_collections

Json = dict[str, Any]

COLLECTIONS: dict[str, list[Json]] = {
    "articles": [
        field("title", "string"),
        field("secret", "string"),
        field("status", "string"),
        field("author", "integer"),
        field("editor", "integer"),
        field("cover", "uuid"),
        field("parent", "integer"),
    ],
    "authors": [field("name", "string"), field("boss", "integer")],
    "comments": [
        field("text", "string"),
        field("article", "integer"),
        field("writer", "uuid"),
        field("hidden", "boolean"),
    ],
    "tags": [field("name", "string")],
    "articles_tags": [field("article", "integer"), field("tag", "integer")],
    "blocks": [field("article", "integer"), field("item", "string"), field("kind", "string")],
    "texts": [field("body", "string")],
    "pictures": [field("caption", "string"), field("file", "uuid")],
    "notes": [field("text", "string")],
}
RELATIONS: list[tuple[str, str, str | None, Json]] = [
    # No field leads back from authors to the articles that they edit.
    ("articles", "author", "authors", {"one_field": "articles"}),
    ("articles", "editor", "authors", {}),
    ("articles", "cover", "system_files", {}),
    ("articles", "parent", "articles", {"one_field": "children"}),
    ("authors", "boss", "authors", {}),
    ("comments", "article", "articles", {"one_field": "comments"}),
    ("comments", "writer", "system_users", {}),
    ("articles_tags", "article", "articles", {"one_field": "tags", "junction_field": "tag"}),
    ("articles_tags", "tag", "tags", {"one_field": "articles"}),
    ("blocks", "article", "articles", {"one_field": "blocks", "junction_field": "item"}),
    (
        "blocks",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["texts", "pictures"]},
    ),
    ("pictures", "file", "system_files", {}),
]
ARTICLE_FIELDS = (
    "id",
    "title",
    "status",
    "author",
    "editor",
    "cover",
    "parent",
    "children",
    "comments",
    "tags",
    "blocks",
)
PUBLISHED = {"status": {"_eq": "published"}}
PERMISSIONS = [
    may("articles", *ARTICLE_FIELDS, permissions=PUBLISHED),
    may("articles", action="share", permissions=PUBLISHED),
    may("authors"),
    may("comments", permissions={"hidden": {"_eq": False}}),
    *(may(name) for name in ("tags", "articles_tags", "blocks", "texts", "pictures", "notes")),
    may("system_files", "id", "title", "type"),
    may("system_users", "id", "first_name"),
    *(
        may(name, action=action)
        for name in ("articles", "authors", "comments", "notes", "system_files", "system_users")
        for action in ("create", "update", "delete")
    ),
]
SHARED = 2


@dataclass(frozen=True)
class Magazine:
    """Four articles, the second of which is shared by the writer, and two files of five."""

    stage: Stage
    writer: Client
    writer_id: str
    role: str
    files: list[str]
    users: list[str]

    @property
    def admin(self) -> Client:
        return self.stage.admin

    def share(self, by: Client | None = None, **values: object) -> Json:
        body = {"collection": "articles", "item": str(SHARED), "role": self.role, **values}
        share: Json = (by or self.writer).post("/shares", body).data
        return share

    def open(self, share: Json, password: str | None = None) -> Client:
        return self.stage.anonymous.bearing(self.use(share, password).data["access_token"])

    def use(self, share: Json, password: str | None = None, **body: object) -> Answer:
        login = {"share": share["id"], **body}
        if password is not None:
            login["password"] = password
        return self.stage.anonymous.post("/shares/auth", login)


def keys(client: Client, path: str) -> list[Any]:
    """Return the keys of all items that a caller reads at a path."""
    return sorted(item["id"] for item in client.get(f"{path}?fields=id&limit=-1").data)


def magazine(service: FileService) -> Magazine:
    stage = service.stage
    make_collections(stage.admin, COLLECTIONS, RELATIONS)
    files = [service.add(f"text {number}".encode())["id"] for number in range(5)]
    role = new_role(stage, *PERMISSIONS, app_access=True)
    writer = member_of(stage, role, first_name="Will")
    users = [
        stage.admin.post("/users", {"first_name": name, "email": f"{name}@example.com"}).data["id"]
        for name in ("Ann", "Ben", "Cho")
    ]
    rows: dict[str, list[Json]] = {
        "authors": [{"name": name, "boss": None} for name in ("Boss", "Author", "Editor", "Else")],
        "tags": [{"name": name} for name in ("one", "two", "other")],
        "texts": [{"body": body} for body in ("shown", "elsewhere")],
        "pictures": [{"caption": "shown", "file": files[1]}, {"caption": "elsewhere"}],
        "notes": [{"text": "private"}],
        "articles": [
            {"title": "Parent", "status": "published", "author": 4, "cover": files[2]},
            {
                "title": "Shared",
                "secret": "swordfish",
                "status": "published",
                "author": 2,
                "editor": 3,
                "cover": files[0],
                "parent": 1,
            },
            {"title": "Child", "status": "published", "parent": 2},
            {"title": "Grandchild", "status": "published", "author": 2, "parent": 3},
            {"title": "Draft child", "status": "draft", "parent": 2},
        ],
        "comments": [
            {"text": "shown", "article": 2, "writer": users[0], "hidden": False},
            {"text": "hidden", "article": 2, "writer": users[1], "hidden": True},
            {"text": "elsewhere", "article": 1, "writer": users[2], "hidden": False},
        ],
        "articles_tags": [
            {"article": 2, "tag": 1},
            {"article": 2, "tag": 2},
            {"article": 1, "tag": 3},
        ],
        "blocks": [
            {"article": 2, "item": "1", "kind": "texts"},
            {"article": 2, "item": "1", "kind": "pictures"},
            {"article": 1, "item": "2", "kind": "texts"},
            {"article": 1, "item": "2", "kind": "pictures"},
        ],
    }
    for name, items in rows.items():
        answer = stage.admin.post(f"/items/{name}", items)
        assert answer.status == 200, answer
    assert stage.admin.patch("/items/authors/2", {"boss": 1}).status == 200
    writer_id = writer.get("/users/me").data["id"]
    return Magazine(stage, writer, writer_id, role, files, users)
