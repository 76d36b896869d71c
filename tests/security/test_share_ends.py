"""A share ends at once when it goes, its item or what its creator may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.members import may, member_of, new_role
from tests.sharing import Magazine, keys
from tests.things import field, table

Json = dict[str, Any]


END: dict[str, Callable[[Magazine, Json], object]] = {
    "share": lambda mag, share: mag.writer.delete(f"/shares/{share['id']}"),
    "dates": lambda mag, share: mag.stage.execute(
        f"UPDATE system_shares SET date_end = now() WHERE id = '{share['id']}'"
    ),
    "creator": lambda mag, share: mag.admin.patch(
        f"/users/{share['user_created']}", {"status": "suspended"}
    ),
    "role": lambda mag, share: mag.admin.patch(f"/users/{share['user_created']}", {"role": None}),
    "sharing": lambda mag, share: mag.admin.patch("/items/articles/2", {"status": "draft"}),
    "permission": lambda mag, share: mag.stage.execute(
        "UPDATE system_permissions SET action = 'create' WHERE action = 'share'"
    ),
}
UNDO: dict[str, Callable[[Magazine, Json], object]] = {
    "creator": lambda mag, share: mag.admin.patch(
        f"/users/{share['user_created']}", {"status": "active"}
    ),
    "role": lambda mag, share: mag.admin.patch(
        f"/users/{share['user_created']}", {"role": mag.role}
    ),
    "sharing": lambda mag, share: mag.admin.patch("/items/articles/2", {"status": "published"}),
    "permission": lambda mag, share: mag.stage.execute(
        "UPDATE system_permissions SET action = 'share'"
        " WHERE action = 'create' AND permissions IS NOT NULL"
    ),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("end", END)
def test_a_share_is_dead_at_once(mag: Magazine, end: str) -> None:
    share = mag.share()
    guest = mag.open(share)
    assert keys(guest, "/items/articles") == [1, 2, 3]
    try:
        END[end](mag, share)
        answer = guest.get("/items/articles?fields=id")
        assert answer.status in (401, 403) or answer.data == []
        assert guest.get("/items/articles/2").status in (401, 403, 404)
        assert guest.get("/items/authors/2").status in (401, 403, 404)
    finally:
        if end in UNDO:
            UNDO[end](mag, share)


def test_a_share_is_gone_with_its_creator(mag: Magazine) -> None:
    creator = member_of(mag.stage, mag.role)
    key = creator.get("/users/me").data["id"]
    share = mag.share(by=creator)
    guest = mag.open(share)
    assert keys(guest, "/items/articles") == [1, 2, 3]
    assert mag.admin.delete(f"/users/{key}").status == 204
    assert guest.get("/items/articles?fields=id").status in (401, 403)
    assert mag.use(share).status == 401


def test_a_deleted_item_is_shared_no_more(mag: Magazine) -> None:
    item = mag.admin.post("/items/articles", {"title": "a", "status": "published", "author": 3})
    share = mag.share(item=str(item.data["id"]))
    guest = mag.open(share)
    assert keys(guest, "/items/authors") == [3]
    mag.admin.delete(f"/items/articles/{item.data['id']}")
    assert keys(guest, "/items/authors") == []
    assert keys(guest, "/items/articles") == []


def test_archived_items_are_shared_as_long_as_the_rules_allow_them(mag: Magazine) -> None:
    archive = {"archive_field": "status", "archive_value": "archived"}
    pages = table(mag.admin, field("status", "string"), **archive)
    pages.add({"status": "draft"})
    read = may(pages.name)
    role = new_role(mag.stage, read, may(pages.name, action="share"), app_access=True)
    creator = member_of(mag.stage, role)
    guest = mag.open(mag.share(creator, collection=pages.name, item="1", role=role))
    mag.admin.patch(f"{pages.path}/1", {"status": "archived"})
    assert keys(guest, pages.path) == [1]
    rule = {"status": {"_neq": "archived"}}
    permissions = mag.admin.get(
        "/permissions", **{"filter[role][_eq]": role, "filter[action][_eq]": "share"}
    )
    mag.admin.patch(f"/permissions/{permissions.data[0]['id']}", {"permissions": rule})
    assert keys(guest, pages.path) == []
    mag.admin.patch(f"{pages.path}/1", {"status": "draft"})
    assert keys(guest, pages.path) == [1]


def test_a_shared_singleton_is_read_by_its_collection(mag: Magazine) -> None:
    home = table(mag.admin, field("title", "string"), singleton=True)
    mag.admin.patch(home.path, {"title": "Home"})
    role = new_role(mag.stage, may(home.name), may(home.name, action="share"), app_access=True)
    creator = member_of(mag.stage, role)
    guest = mag.open(mag.share(creator, collection=home.name, item="1", role=role))
    assert guest.get(f"{home.path}?fields=title").data == {"title": "Home"}
    assert guest.patch(home.path, {"title": "Mine"}).status == 403
