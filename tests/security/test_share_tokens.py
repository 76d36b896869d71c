"""A share's token shows one item and what is related to it, whatever is asked."""

from __future__ import annotations

from typing import Any

import pytest
from falcon.inspect import inspect_routes

from tests.active_flows import make_flow, step
from tests.client import Client
from tests.members import may, new_role
from tests.security.footprints import footprint
from tests.sharing import PUBLISHED, SHARED, Magazine, keys

Json = dict[str, Any]


@pytest.fixture(scope="module")
def guest(mag: Magazine) -> Client:
    return mag.open(mag.share())


VISIBLE: dict[str, list[int]] = {
    "articles": [1, 2, 3],
    "authors": [2, 3],
    "comments": [1],
    "tags": [1, 2],
    "articles_tags": [1, 2],
    "blocks": [1, 2],
    "texts": [1],
    "pictures": [1],
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", VISIBLE)
def test_of_each_collection_only_related_rows_are_read(guest: Client, name: str) -> None:
    visible = VISIBLE[name]
    path = f"/items/{name}"
    assert keys(guest, path) == visible
    assert guest.get(path, **{"aggregate[count]": "*"}).data == [{"count": len(visible)}]
    assert guest.get(path, meta="total_count,filter_count", limit=1).body["meta"] == {
        "total_count": len(visible),
        "filter_count": len(visible),
    }
    assert guest.get(path, **{"filter[_or][0][id][_gte]": 0, "fields": "id"}).data == [
        {"id": key} for key in visible
    ]
    for key in range(1, 6):
        assert guest.get(f"{path}/{key}").status == (200 if key in visible else 404)
    exported = guest.get(path, export="csv", fields="id").text.split()
    assert exported[1:] == [str(key) for key in visible]


def test_files_and_users_are_those_that_are_related(mag: Magazine, guest: Client) -> None:
    # The file of a picture is two relations and a junction away.
    assert keys(guest, "/files") == [mag.files[0]]
    assert keys(guest, "/users") == [mag.users[0]]
    assert guest.get(f"/users/{mag.users[0]}").data == {
        "id": mag.users[0],
        "first_name": "Ann",
    }
    for number, file in enumerate(mag.files):
        assert guest.get(f"/assets/{file}").status == (200 if number == 0 else 404)


def test_nested_reads_lead_to_nothing_more(guest: Client) -> None:
    query = (
        "fields=author.name,author.boss.name,author.articles.title,parent.title"
        ",parent.parent.title,parent.tags.tag.name,parent.comments.text"
        ",children.title,children.children.title,children.author.name"
        ",tags.tag.name,tags.tag.articles.article.title"
        ",comments.text,comments.writer.first_name"
        ",blocks.item:texts.body,blocks.item:pictures.caption"
    )
    article = guest.get(f"/items/articles/{SHARED}?{query}").data
    assert article == {
        "author": {
            "name": "Author",
            "boss": None,
            "articles": [{"title": "Shared"}],
        },
        "parent": {"title": "Parent", "parent": None, "tags": [], "comments": []},
        "children": [{"title": "Child", "children": [], "author": None}],
        "tags": [
            {"tag": {"name": "one", "articles": [{"article": {"title": "Shared"}}]}},
            {"tag": {"name": "two", "articles": [{"article": {"title": "Shared"}}]}},
        ],
        "comments": [{"text": "shown", "writer": {"first_name": "Ann"}}],
        "blocks": [{"item": {"body": "shown"}}, {"item": {"caption": "shown"}}],
    }


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("filter[author][boss][name][_eq]=Boss", 0),
        ("filter[parent][title][_eq]=Parent", 1),
        ("filter[parent][author][name][_eq]=Else", 0),
        ("filter[author][name][_eq]=Else", 0),
        ("filter[children][children][title][_eq]=Grandchild", 0),
        ("filter[comments][text][_eq]=hidden", 0),
        ("filter[tags][tag][name][_eq]=other", 0),
        ("filter[count(comments)][_eq]=1", 1),
        ("search=Grandchild", 0),
        ("search=Shared", 1),
    ],
)
def test_filters_and_searches_guess_nothing(guest: Client, query: str, number: int) -> None:
    assert len(guest.get(f"/items/articles?{query}").data) == number


@pytest.mark.parametrize(
    "query",
    [
        "fields=secret",
        "filter[secret][_eq]=swordfish",
        "sort=secret",
        "aggregate[min]=secret",
        "groupBy=secret",
        "fields=author.articles.secret",
        "deep[children][_filter][secret][_eq]=x&fields=children.id",
    ],
)
def test_hidden_fields_stay_hidden(guest: Client, query: str) -> None:
    assert guest.get(f"/items/articles?{query}").status == 403


def test_deep_queries_stay_inside(guest: Client) -> None:
    query = "fields=children.id&deep[children][_filter][children][title][_eq]=Grandchild"
    assert guest.get(f"/items/articles/{SHARED}?{query}").data == {"children": []}


def test_unrelated_collections_are_as_good_as_missing(guest: Client) -> None:
    for path in ("/items/notes", "/items/notes/1", "/items/no_such"):
        assert guest.get(path).codes == ["FORBIDDEN"]


KNOWN_TO_ALL = {
    "/server/ping",
    "/server/health",
    "/server/info",
    "/auth",
    "/settings",
    "/docs",
    "/shares/info/{key}",
}
"""Routes that tell everybody something, and are read by a share as by anybody."""
OF_THE_ITEM = {
    "/items/{collection}",
    "/items/{collection}/{key}",
    "/files",
    "/users",
    "/permissions/me",
    "/permissions/me/{collection}/{key}",
    "/server/specs/oas",
}
CALLS_OF_ANYBODY = {
    "/auth/login",
    "/auth/refresh",
    "/auth/logout",
    "/auth/password/request",
    "/auth/password/reset",
    "/users/register",
    "/users/register/verify-email",
    "/users/invite/accept",
    "/shares/auth",
}
"""Routes whose answer does not depend on who calls."""


@pytest.mark.release
def test_no_route_writes_or_shows_more(mag: Magazine) -> None:
    share = mag.share()
    guest = mag.open(share)
    mag.stage.anonymous.get("/server/health")
    before = footprint(mag.stage.dsn)
    values = {
        "collection": "articles",
        "key": "2",
        "field": "title",
        "revision": "1",
        "name": "a",
        "provider": "none",
    }
    bodies: list[Json] = [
        {},
        {"title": "x"},
        {"keys": [2], "data": {"title": "x"}},
        {"collection": "articles", "item": "2", "comment": "Mine."},
        {"comment": "Mine."},
        {"share": share["id"], "emails": ["ann@example.com"]},
        {"item": 2, "to": 1},
        {"string": "x", "hash": "x", "password": "x", "otp": "1"},
        {"operations": [{"method": "create", "collection": "comments", "data": {"text": "x"}}]},
    ]
    for route in inspect_routes(guest.app):
        if route.path in CALLS_OF_ANYBODY:
            continue
        path = route.path.format(**values)
        for method in sorted({method.method for method in route.methods} - {"OPTIONS", "HEAD"}):
            for body in [None] if method == "GET" else bodies:
                answer = guest.send(method, path, body)
                assert answer.status < 500, answer
                if answer.status < 300:
                    assert method in ("GET", "QUERY", "SEARCH"), answer
                    assert route.path in KNOWN_TO_ALL | OF_THE_ITEM, answer
    assert footprint(mag.stage.dsn) == before


def test_names_of_rights_are_those_of_the_item(guest: Client) -> None:
    rights = guest.get("/permissions/me").data
    assert rights.keys() == {*VISIBLE, "system_files", "system_users", "system_settings"}
    for by_action in rights.values():
        assert {name for name, can in by_action.items() if can["access"] != "none"} == {"read"}


def test_the_document_of_openapi_describes_what_the_share_shows(guest: Client) -> None:
    document = guest.get("/server/specs/oas").body
    described = {path.split("/")[2] for path in document["paths"] if path.startswith("/items/")}
    assert described - {"{collection}"} == set(VISIBLE)
    types = guest.get("/server/specs/types", language="typescript").text
    assert "notes" not in types
    assert "articles" in types


def test_a_cookie_of_a_share_shows_no_more(mag: Magazine) -> None:
    answer = mag.use(mag.share(), mode="session")
    assert answer.data.keys() == {"expires"}
    (cookie,) = answer.cookies.values()
    headers = {"Cookie": f"{cookie.name}={cookie.value}"}
    anonymous = mag.stage.anonymous
    titles = anonymous.send("GET", "/items/articles?fields=id", **headers).data
    assert [item["id"] for item in titles] == [1, 2, 3]
    assert anonymous.send("GET", "/items/notes", **headers).status == 403


def test_an_administrators_role_shows_the_item_alone(mag: Magazine) -> None:
    role = new_role(mag.stage, admin_access=True)
    guest = mag.open(mag.share(mag.admin, role=role))
    # Drafts, too, and all fields: the role may read everything.
    assert keys(guest, "/items/articles") == [1, 2, 3, 5]
    assert guest.get("/items/articles/2?fields=secret").data == {"secret": "swordfish"}
    assert keys(guest, "/files") == [mag.files[0]]
    for path in ("/items/notes", "/users", "/roles", "/permissions", "/flows", "/activity"):
        assert guest.get(path).status == 403
    assert guest.patch("/items/articles/2", {"title": "x"}).status == 403


@pytest.mark.parametrize(
    "rule",
    [
        {"_and": [PUBLISHED, {"comments": {"writer": {"_eq": "$CURRENT_USER"}}}]},
        {"comments": {"writer": {"_in": ["$CURRENT_USER", "$CURRENT_ROLE"]}}},
        {"comments": {"writer": {"first_name": {"_eq": "$CURRENT_USER.first_name"}}}},
    ],
)
def test_variables_of_the_creators_rules_stand_for_the_creator(mag: Magazine, rule: Json) -> None:
    role = new_role(
        mag.stage,
        may("articles", "id"),
        may("articles", action="share", permissions=rule),
        may("comments"),
        may("system_users"),
        app_access=True,
    )
    token = "a-static-token-of-ann"
    ann = mag.users[0]
    change = {"role": role, "token": token, "status": "active"}
    assert mag.admin.patch(f"/users/{ann}", change).status == 200
    share = mag.share(mag.stage.anonymous.bearing(token), role=role)
    guest = mag.open(share)
    assert keys(guest, "/items/articles") == [2]
    mag.admin.patch("/items/comments/1", {"writer": mag.users[1]})
    assert guest.get("/items/articles?fields=id").data == []
    mag.admin.patch("/items/comments/1", {"writer": ann})
    assert keys(guest, "/items/articles") == [2]
    mag.admin.patch(f"/users/{ann}", {"role": None})


def test_a_share_opens_no_webhook(mag: Magazine) -> None:
    flow = make_flow(mag.admin, "webhook", {}, [step("one", "transform", {"json": 1})])
    assert mag.admin.get(f"/flows/trigger/{flow}").status == 200
    assert mag.open(mag.share()).get(f"/flows/trigger/{flow}").status == 403
