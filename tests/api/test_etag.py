"""ETag, If-None-Match and If-Match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.client import Answer, Client
from tests.things import Stage, Table, field, table

EDITORS = 50
ROUNDS = 2


@pytest.fixture
def two_things(stage: Stage) -> Table:
    two_things = stage.empty_table(field("title", "string"), field("other", "string"))
    two_things.add({"title": "a"}, {"title": "b"})
    return two_things


def tag(api: Client, path: str) -> str:
    return api.get(path).headers["etag"]


def patch(things: Table, title: str, if_match: str, key: object = 1) -> Answer:
    return things.api.send(
        "PATCH", f"{things.path}/{key}", {"title": title}, **{"If-Match": if_match}
    )


def test_the_version_stands_for_the_row_and_the_rest_for_the_answer(two_things: Table) -> None:
    whole, part = (
        tag(two_things.api, f"{two_things.path}/1{query}") for query in ("", "?fields=title")
    )
    assert whole != part
    assert whole.split("-")[0] == part.split("-")[0]
    assert tag(two_things.api, f"{two_things.path}/1") == whole
    two_things.api.patch(f"{two_things.path}/1", {"other": "x"})
    changed = tag(two_things.api, f"{two_things.path}/1?fields=title")
    assert changed.split("-")[0] != part.split("-")[0]
    assert changed.split("-")[1] == part.split("-")[1]


def test_a_client_that_holds_the_answer_gets_304_without_a_body(two_things: Table) -> None:
    for path in (
        f"{two_things.path}/1",
        two_things.path,
        "/users/me?fields=id",
        f"{two_things.path}/1/revisions",
        "/comments",
    ):
        etag = tag(two_things.api, path)
        for header in (etag, f'"other", {etag}', f"W/{etag}", "*"):
            answer = two_things.api.send("GET", path, **{"If-None-Match": header})
            assert (answer.status, answer.text, answer.headers["etag"]) == (304, "", etag), answer
        for header in ('"other"', "", "other", etag.strip('"')):
            assert two_things.api.send("GET", path, **{"If-None-Match": header}).status == 200
    assert (
        two_things.api.send(
            "HEAD", two_things.path, **{"If-None-Match": tag(two_things.api, two_things.path)}
        ).status
        == 304
    )


def test_an_answer_that_changed_is_sent_again(two_things: Table) -> None:
    for path in (f"{two_things.path}/1", two_things.path):
        etag = tag(two_things.api, path)
        two_things.api.patch(f"{two_things.path}/1", {"title": f"new for {path}"})
        assert two_things.api.send("GET", path, **{"If-None-Match": etag}).status == 200


def test_a_change_is_made_by_who_has_seen_the_present_version_only(two_things: Table) -> None:
    seen = tag(two_things.api, f"{two_things.path}/1?fields=id")
    assert patch(two_things, "mine", seen).status == 200
    late = patch(two_things, "theirs", seen)
    assert (late.status, late.codes) == (412, ["PRECONDITION_FAILED"])
    assert two_things.api.send("DELETE", f"{two_things.path}/1", **{"If-Match": seen}).status == 412
    assert two_things.api.get(f"{two_things.path}/1").data["title"] == "mine"
    assert (
        two_things.api.send(
            "DELETE",
            f"{two_things.path}/1",
            **{"If-Match": tag(two_things.api, f"{two_things.path}/1")},
        ).status
        == 204
    )


@pytest.mark.parametrize("form", ["{0}", "W/{0}", '"x-y", {0}', "*"])
def test_several_tags_weak_ones_and_any(two_things: Table, form: str) -> None:
    assert (
        patch(two_things, "new", form.format(tag(two_things.api, f"{two_things.path}/1"))).status
        == 200
    )


@pytest.mark.parametrize("header", ["", "x", '""', '"x"', '"-"', '"a-b-c"', "**"])
def test_what_names_no_version_matches_none(two_things: Table, header: str) -> None:
    assert patch(two_things, "new", header).status == 412


def test_another_items_version_does_not_do_and_a_missing_item_is_missing(two_things: Table) -> None:
    two_things.api.patch(f"{two_things.path}/2", {"title": "later"})
    assert patch(two_things, "new", tag(two_things.api, f"{two_things.path}/2")).status == 412
    assert patch(two_things, "new", "*", key=99).status == 404
    assert patch(two_things, "new", '"x"', key=99).status == 404


def test_a_view_has_an_answer_and_no_version(stage: Stage, two_things: Table) -> None:
    stage.execute(f"CREATE VIEW seen_{two_things.name} AS SELECT * FROM {two_things.name}")
    etag = tag(two_things.api, f"/items/seen_{two_things.name}/1")
    assert "-" not in etag
    assert (
        two_things.api.send(
            "GET", f"/items/seen_{two_things.name}/1", **{"If-None-Match": etag}
        ).status
        == 304
    )


@pytest.mark.release
def test_of_fifty_editors_with_the_same_tag_one_wins(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    """Of two processes, a connection for each editor; only the first
    round finds those still to be opened.
    """
    apps = [make_client(database_pool_size=25).bearing(admin_token) for _ in range(2)]
    things = table(apps[0], field("title", "string"))
    things.add({"title": "first"})
    start = Barrier(EDITORS)

    def edit(number: int, seen: str) -> Answer:
        start.wait()
        path = f"{things.path}/1"
        body = {"title": f"{seen} {number}"}
        return apps[number % 2].send("PATCH", path, body, **{"If-Match": seen})

    with ThreadPoolExecutor(EDITORS) as threads:
        for _ in range(ROUNDS):
            seen = tag(apps[0], f"{things.path}/1")
            answers = list(threads.map(edit, range(EDITORS), [seen] * EDITORS))
            assert Counter(answer.status for answer in answers) == {200: 1, 412: EDITORS - 1}, (
                answers
            )
            won = next(answer for answer in answers if answer.status == 200)
            assert apps[0].get(f"{things.path}/1").data == won.data


@pytest.fixture
def singleton(admin: Client) -> Table:
    return table(
        admin,
        field("title", "string", default_value="new"),
        field("other", "string"),
        singleton=True,
    )


def change(api: Client, path: str, body: dict[str, object], if_match: str) -> Answer:
    return api.send("PATCH", path, body, **{"If-Match": if_match})


def test_a_singleton_has_a_version_before_it_has_a_row(singleton: Table) -> None:
    unmade = tag(singleton.api, singleton.path)
    assert change(singleton.api, singleton.path, {"title": "mine"}, '"x-y"').status == 412
    assert change(singleton.api, singleton.path, {"title": "mine"}, unmade).status == 200
    late = change(singleton.api, singleton.path, {"title": "theirs"}, unmade)
    assert (late.status, late.codes) == (412, ["PRECONDITION_FAILED"])
    assert singleton.get(fields="title").data == {"title": "mine"}
    whole, part = (
        tag(singleton.api, f"{singleton.path}{query}") for query in ("", "?fields=title")
    )
    assert whole.split("-")[0] == part.split("-")[0] != unmade.split("-")[0]
    assert change(singleton.api, singleton.path, {"other": "x"}, part).status == 200
    assert change(singleton.api, singleton.path, {"other": "y"}, part).status == 412
    assert change(singleton.api, singleton.path, {"other": "z"}, "*").status == 200


def test_the_version_of_a_singleton_is_shown_nowhere(singleton: Table) -> None:
    singleton.api.patch(singleton.path, {"title": "a"})
    for query in ("", "?fields=*", "?fields=title", "?meta=*", "?export=json"):
        assert "version" not in singleton.api.get(f"{singleton.path}{query}").text.lower()
    assert singleton.api.search(singleton.path, {"fields": ["title"]}).data == {"title": "a"}
    assert singleton.read("aggregate[count]=*").data == [{"count": 1}]
    assert "-" not in tag(singleton.api, f"{singleton.path}?aggregate[count]=*")


@pytest.mark.parametrize("path", ["/settings", "/users/me"])
def test_settings_and_the_own_account_are_changed_by_who_has_seen_them(
    admin: Client, path: str
) -> None:
    name = "project_name" if path == "/settings" else "title"
    seen = tag(admin, f"{path}?fields={name}")
    assert admin.send("GET", f"{path}?fields={name}", **{"If-None-Match": seen}).status == 304
    assert change(admin, path, {name: "mine"}, seen).status == 200
    late = change(admin, path, {name: "theirs"}, seen)
    assert (late.status, late.codes) == (412, ["PRECONDITION_FAILED"])
    assert admin.get(f"{path}?fields={name}").data == {name: "mine"}
    assert admin.send("GET", f"{path}?fields={name}", **{"If-None-Match": seen}).status == 200
    assert change(admin, path, {name: "again"}, tag(admin, path)).status == 200


@pytest.mark.release
def test_of_editors_who_make_a_singleton_at_once_one_wins(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    api = make_client(database_pool_size=10).bearing(admin_token)
    singleton = table(api, field("title", "string"), singleton=True)
    unmade = tag(api, singleton.path)
    start = Barrier(10)

    def edit(number: int) -> int:
        start.wait()
        return change(api, singleton.path, {"title": str(number)}, unmade).status

    with ThreadPoolExecutor(10) as threads:
        assert Counter(threads.map(edit, range(10))) == {200: 1, 412: 9}
