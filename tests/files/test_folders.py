"""/folders: a tree that is changed and deleted whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.client import with_other_status
from tests.files.forms import FileService


def make(files: FileService, name: str, parent: str | None = None) -> str:
    return str(files.admin.post("/folders", {"name": name, "parent": parent}).data["id"])


def test_folders_are_made_read_renamed_and_moved(files: FileService) -> None:
    top = make(files, "top")
    other = make(files, "other")
    folder = files.admin.post("/folders", {"name": "in", "parent": top}).data
    assert folder == {"id": folder["id"], "name": "in", "parent": top}
    assert files.admin.get(f"/folders/{folder['id']}?fields=name,parent.name").data == {
        "name": "in",
        "parent": {"name": "top"},
    }
    changed = files.admin.patch(f"/folders/{folder['id']}", {"name": "inner", "parent": other}).data
    assert changed == {"id": folder["id"], "name": "inner", "parent": other}
    assert files.admin.patch(f"/folders/{folder['id']}", {"parent": None}).data["parent"] is None
    names = files.admin.search(
        "/folders", {"filter": {"id": {"_in": [top, other]}}, "sort": ["name"]}
    ).data
    assert [row["name"] for row in names] == ["other", "top"]


def test_several_folders_at_once(files: FileService) -> None:
    folders = files.admin.post("/folders", [{"name": "a"}, {"name": "b"}]).data
    keys = [row["id"] for row in folders]
    assert [row["name"] for row in folders] == ["a", "b"]
    top = make(files, "top")
    assert [
        row["parent"]
        for row in files.admin.patch("/folders", {"keys": keys, "data": {"parent": top}}).data
    ] == [
        top,
        top,
    ]
    changed = files.admin.patch("/folders", [{"id": key, "name": key} for key in keys]).data
    assert [row["name"] for row in changed] == keys


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"name": None}, 422),
        ({"name": ""}, 400),
        ({"name": {}}, 400),
        ({"name": "x", "parent": "nonsense"}, 400),
        ({"name": "x", "parent": str(uuid4())}, 400),
        ({"name": "x", "nonsense": 1}, 400),
        ("x", 400),
        (None, 400),
    ],
)
def test_a_folder_that_is_wrong_is_refused(files: FileService, body: Any, status: int) -> None:
    answer = files.admin.post("/folders", body)
    assert answer.status == status, answer.text


def test_no_folder_comes_to_lie_in_itself(files: FileService) -> None:
    top = make(files, "top")
    middle = make(files, "middle", top)
    bottom = make(files, "bottom", middle)
    for parent in (top, middle, bottom):
        answer = files.admin.patch(f"/folders/{top}", {"parent": parent})
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), answer
    crossed = [{"id": top, "parent": bottom}, {"id": middle, "parent": None}]
    assert (
        files.admin.patch("/folders", crossed).status == 200
    )  # a tree all the same: middle, bottom, top
    one = str(uuid4())
    two = str(uuid4())
    cycle = [{"id": one, "name": "1", "parent": two}, {"id": two, "name": "2", "parent": one}]
    assert files.admin.post("/folders", cycle).status == 422
    assert files.admin.get(f"/folders/{one}").status == 404


SLOW = """
CREATE FUNCTION wait_a_moment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1);
    RETURN NEW; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON system_folders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait_a_moment();
"""
"""A moment between what a transaction has looked at and its end."""


def test_two_that_move_into_each_other_make_no_cycle(files: FileService) -> None:
    one = make(files, "one")
    two = make(files, "two")
    below_one = make(files, "below one", one)
    below_two = make(files, "below two", two)
    files.stage.execute(SLOW)
    try:
        with ThreadPoolExecutor(2) as pool:
            moves = [
                (one, below_two),
                (two, below_one),
            ]  # four rows, so that no lock of a row keeps them apart
            answers = list(
                pool.map(
                    lambda move: files.admin.patch(f"/folders/{move[0]}", {"parent": move[1]}),
                    moves,
                )
            )
    finally:
        files.stage.execute("DROP TRIGGER slow ON system_folders")
    assert sorted(answer.status for answer in answers) == [200, 422]


def test_a_folder_goes_with_everything_in_it(files: FileService) -> None:
    top = make(files, "top")
    bottom = make(files, "bottom", make(files, "middle", top))
    inside = [files.add(folder=top), files.add(folder=bottom, storage="other")]
    outside = files.add(folder=make(files, "outside"))
    assert files.admin.delete(f"/folders/{top}").status == 204
    assert files.admin.get(f"/folders/{bottom}").status == 404
    for file in inside:
        assert files.admin.get(f"/files/{file['id']}").status == 404
    contents = " ".join(files.contents())
    assert not any(file["filename_disk"] in contents for file in inside)
    assert outside["filename_disk"] in contents


def test_what_goes_with_a_folder_is_in_its_history(files: FileService) -> None:
    top = make(files, "top")
    bottom = make(files, "bottom", top)
    upper, lower = (files.add(folder=folder)["id"] for folder in (top, bottom))
    files.admin.patch("/settings", {"storage_default_folder": bottom})
    assert files.admin.delete(f"/folders/{top}").status == 204

    def last(item: str) -> dict[str, Any]:
        query = f"filter[item]={item}&sort=-id&limit=1&fields=*,activity.action"
        (revision,) = files.admin.get(f"/revisions?{query}").data
        return dict(revision)

    gone = {item: last(item) for item in (top, bottom, upper, lower)}
    assert {revision["activity"]["action"] for revision in gone.values()} == {"delete"}
    above = {bottom: top, upper: top, lower: bottom}
    assert {item: gone[item]["parent"] for item in above} == {
        item: gone[over]["id"] for item, over in above.items()
    }
    assert gone[top]["parent"] is None
    setting = last("1")
    assert (setting["delta"], setting["parent"]) == (
        {"storage_default_folder": None},
        gone[bottom]["id"],
    )


def test_a_folder_whose_file_is_in_use_stays_with_everything_in_it(files: FileService) -> None:
    top = make(files, "top")
    free = files.add(folder=top)
    used = files.add(folder=make(files, "in", top))
    files.stage.execute(
        "CREATE TABLE uses (id int PRIMARY KEY, file uuid REFERENCES system_files (id))"
    )
    files.stage.execute(f"INSERT INTO uses VALUES (1, '{used['id']}')")
    with files.nothing_stays():
        assert files.admin.delete(f"/folders/{top}").status == 400
    assert files.admin.get(f"/files/{free['id']}").status == 200


def test_unknown_folders_are_404_and_strangers_get_403(files: FileService) -> None:
    key = make(files, "kept")
    for body in ([key, str(uuid4())], {"keys": ["nonsense"]}):
        assert files.admin.delete("/folders", body).status == 404
    assert files.admin.patch(f"/folders/{uuid4()}", {"name": "x"}).status == 404
    assert files.admin.patch(f"/folders/{key}", {"id": str(uuid4())}).status == 400
    stranger = files.stage.anonymous
    answers = (
        stranger.get("/folders"),
        stranger.post("/folders", {"name": "x"}),
        stranger.delete(f"/folders/{key}"),
    )
    assert with_other_status(answers, 403) == []
    assert files.admin.get(f"/folders/{key}").status == 200


def test_uploads_into_a_folder_that_goes_leave_no_stray(files: FileService) -> None:
    for _ in range(3):
        folder = make(files, "going")
        for _ in range(3):
            files.add(folder=folder)
        with ThreadPoolExecutor(4) as pool:
            uploads = [
                pool.submit(
                    files.send, "POST", "/files", ("folder", folder), ("file", b"late", "late.txt")
                )
                for _ in range(6)
            ]
            going = pool.submit(files.admin.delete, f"/folders/{folder}")
            assert going.result().status == 204
            assert with_other_status((one.result() for one in uploads), 200, 400) == []
        assert (
            files.stage.value(f"SELECT count(*) FROM system_files WHERE folder = '{folder}'") == 0
        )
    rows = files.stage.value("SELECT json_agg(storage || '/' || filename_disk) FROM system_files")
    assert sorted(files.contents()) == sorted(rows or [])
