"""Whatever has changed, contents are answered as a process answers that has just begun.

A process prepares the read of a file's row once for each policy, and keeps the settings of assets
and what requests came to. Roles, permissions, users, settings, rows, contents and the structure
change here: by the process itself, by another one, and behind the service's back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from uuid import uuid4

import pytest

from tests.client import Answer, Client
from tests.files.forms import FileService
from tests.files.images import picture
from tests.members import may, member_of, new_role
from tests.things import Json, field

pytestmark = [pytest.mark.slow, pytest.mark.release]

CASES = 6
CHANGES_FOR_EACH = 8
FORMS = ("", "?width=8&height=8&fit=cover", "?key=small", "?key=system-small-cover", "?format=auto")
RULES: Sequence[Json | None] = (
    None,
    {"uploaded_by": {"_eq": "$CURRENT_USER"}},
    {"uploaded_by": {"role": {"_eq": "$CURRENT_ROLE"}}},
    {"uploaded_on": {"_lte": "$NOW"}},
    {"folder": {"name": {"_eq": "open"}}},
    {"_or": [{"title": {"_eq": "A"}}, {"folder": {"parent": {"name": {"_eq": "open"}}}}]},
    {"no_such_field": {"_eq": 1}},
)
FIELDS: Sequence[list[str]] = (["*"], ["title"], [], ["id", "type"])
NETWORKS = (None, ["203.0.113.9"], ["127.0.0.1"])
PRESETS = (None, [{"key": "small", "width": 5}], [{"key": "small", "height": 7, "format": "png"}])


@dataclass(frozen=True)
class Cast:
    """Two roles with two users each, and files of these users; `other` is another process."""

    files: FileService
    other: Client
    roles: list[str]
    user_ids: list[str]
    folders: list[str]
    keys: list[str]
    callers: list[Client]

    def paths(self) -> list[str]:
        image = self.keys[-1]
        names = [*self.keys, image.upper(), str(uuid4()), "nonsense"]
        return [f"/assets/{name}" for name in names] + [f"/assets/{image}{one}" for one in FORMS]


@pytest.fixture
def cast(files: FileService, another: Callable[..., Client]) -> Cast:
    stage = files.stage
    stage.execute("DELETE FROM system_permissions")
    permission = may("system_files", "title", permissions={"title": {"_neq": "C"}})
    roles = [new_role(stage, permission, name=name) for name in ("First", "Second")]
    ids = [str(uuid4()) for _ in range(4)]
    users = [member_of(stage, roles[number % 2], id=user) for number, user in enumerate(ids)]
    open_folder = files.admin.post("/folders", {"name": "open"}).data["id"]
    below = files.admin.post("/folders", {"name": "below", "parent": open_folder}).data["id"]
    keys = [files.add(title.encode(), title=title)["id"] for title in "ABC"]
    keys.append(files.add(picture("PNG", (40, 30)), "image.png", title="A")["id"])
    for user, key in zip(ids, keys, strict=True):
        stage.execute(f"UPDATE system_files SET uploaded_by = '{user}' WHERE id = '{key}'")
    callers = [*users, stage.admin, stage.anonymous]
    return Cast(files, another(), roles, ids, [open_folder, below], keys, callers)


def essence(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    return answer.status, answer.content, headers


# Changes: each returns a word for the message of a failure


def change_permissions(cast: Cast, chance: Random, client: Client) -> str:
    role = chance.choice([*cast.roles, None])
    permission = may("system_files", permissions=chance.choice(RULES))
    permission["fields"] = chance.choice(FIELDS)
    body = {"role": role, **permission}
    assert client.post("/permissions", body).status in (200, 422)
    return f"permission {body}"


def drop_permissions(cast: Cast, chance: Random, client: Client) -> str:
    keys = [row["id"] for row in client.get("/permissions?fields=id&limit=-1").data]
    assert client.delete("/permissions", chance.sample(keys, (len(keys) + 1) // 2)).status < 500
    return "fewer permissions"


def change_unseen(cast: Cast, chance: Random, client: Client) -> str:
    """Change a permission as another program does."""
    rule = json.dumps(chance.choice(RULES))
    with cast.files.stage.side_door.connection() as connection:
        connection.execute("UPDATE system_permissions SET permissions = %s", [rule])
    return f"behind the back: all have the rule {rule}"


def change_user(cast: Cast, chance: Random, client: Client) -> str:
    user = chance.choice(cast.user_ids)
    changed = chance.choice(
        [
            {"role": chance.choice([*cast.roles, None])},
            {"status": "suspended"},
            {"status": "active"},
        ]
    )
    assert client.patch(f"/users/{user}", changed).status == 200
    return f"user {user} {changed}"


def change_role(cast: Cast, chance: Random, client: Client) -> str:
    role = chance.choice(cast.roles)
    changed = chance.choice(
        [
            {"admin_access": chance.choice([True, False, False])},
            {"app_access": chance.choice([True, False])},
            {"ip_access": chance.choice(NETWORKS)},
            {"parent": chance.choice([None, *(other for other in cast.roles if other != role)])},
        ]
    )
    assert client.patch(f"/roles/{role}", changed).status in (200, 400)
    return f"role {role} {changed}"


def change_settings(cast: Cast, chance: Random, client: Client) -> str:
    changed = {
        "storage_asset_transform": chance.choice(["all", "none", "presets"]),
        "storage_asset_presets": chance.choice(PRESETS),
        "project_logo": chance.choice([None, *cast.keys]),
    }
    assert client.patch("/settings", changed).status == 200
    return f"settings {changed}"


def change_row(cast: Cast, chance: Random, client: Client) -> str:
    changed = chance.choice(
        [
            {"title": chance.choice("ABC")},
            {"folder": chance.choice([None, *cast.folders])},
            {"filename_download": f"{chance.choice('xyz')}.txt"},
            {"focal_point_x": chance.choice([None, 0, 1]), "focal_point_y": 0},
        ]
    )
    key = chance.choice(cast.keys)
    assert client.patch(f"/files/{key}", changed).status in (200, 400)
    return f"file {key} {changed}"


def change_content(cast: Cast, chance: Random, client: Client) -> str:
    key = chance.choice(cast.keys[:-1])
    cast.files.send(
        "PATCH", f"/files/{key}", ("file", chance.randbytes(9), "new.txt"), client=client
    )
    return f"content of {key}"


def change_structure(cast: Cast, chance: Random, client: Client) -> str:
    body = {"collection": f"c{chance.randrange(10**9)}", "schema": {}}
    assert client.post("/collections", {**body, "fields": [field("a", "string")]}).status == 200
    return "structure"


CHANGES = (
    change_permissions,
    change_permissions,
    drop_permissions,
    change_unseen,
    change_user,
    change_role,
    change_settings,
    change_row,
    change_content,
    change_structure,
)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_process_that_has_answered_before_answers_like_a_new_one(
    cast: Cast, another: Callable[..., Client], seed: int
) -> None:
    chance = Random(seed)
    for _ in range(CHANGES_FOR_EACH):
        change = chance.choice(CHANGES)
        note = change(cast, chance, chance.choice([cast.files.admin, cast.other]))
        new = another(database_pool_size=1)
        for number, caller in enumerate(cast.callers):
            for path in cast.paths():
                old_answer = caller.get(path)
                new_answer = Client(new.app, caller._token).get(path)
                assert essence(old_answer) == essence(new_answer), (note, number, path)
        new.close()
