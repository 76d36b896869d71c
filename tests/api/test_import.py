"""POST /utils/import/{collection}: files of items, all of them or none (docs/import.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from psycopg.pq.abc import PGresult

from cms.app import create_app
from cms.config import Config
from cms.database.wire import Wire
from cms.items.transfer import imports
from cms.items.transfer.imports import BATCH_ROWS
from cms.items.transfer.sources import SourceRow
from cms.items.write.item_writes import ParsedPayload
from tests.client import Answer, Client
from tests.file_imports import TYPES, post_file
from tests.things import Stage, Table, admin_token, field, table


def form_of(
    body: bytes, *, filename: str, kind: str = "application/octet-stream", name: str = "file"
) -> bytes:
    head = (
        f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: '
        f"{kind}\r\n\r\n"
    )
    return b"--edge\r\n" + head.encode() + body + b"\r\n--edge--\r\n"


def lines(answer: Answer) -> list[tuple[int, str, object]]:
    return [(error["line"], error["code"], error.get("field")) for error in answer.errors]


THINGS = (
    field("name", "string", is_nullable=False),
    field("price", "decimal"),
    field("code", "string", is_unique=True),
)


@pytest.fixture
def make_things(things: Table, stage: Stage, settings: Config) -> Iterator[Callable[..., Table]]:
    """Make the same collection's table through an application of its own, with other settings."""
    clients: list[Client] = []

    def make(**changes: Any) -> Table:
        app = create_app(replace(settings, database_url=stage.dsn, database_pool_size=2, **changes))
        clients.append(Client(app).bearing(admin_token(settings, stage.dsn)))
        return Table(clients[-1], things.name)

    yield make
    for client in clients:
        client.close()


def test_rows_of_keys_that_are_there_change_items_and_others_are_new(things: Table) -> None:
    things.add({"name": "a", "price": 1}, {"name": "b", "price": 2})
    answer = post_file(things, "id,name,price\r\n1,A,\r\n,c,3\r\n9,i,9\r\n")
    assert answer.data == {"created": 2, "updated": 1}
    rows = [(item["id"], item["name"], item["price"]) for item in things.get(sort="id").data]
    assert rows == [(1, "A", None), (2, "b", 2), (3, "c", 3), (9, "i", 9)]


def test_automatic_keys_go_on_behind_those_that_a_file_brought(things: Table) -> None:
    post_file(things, "id,name\n40,a\n20,b\n")
    assert things.add({"name": "c"})[0]["id"] == 41
    assert post_file(things, "id,name\n5,e\n").data["created"] == 1
    assert things.add({"name": "d"})[0]["id"] == 42


@pytest.mark.parametrize("form", TYPES)
def test_every_format_imports_the_same_items(things: Table, form: str) -> None:
    bodies = {
        "csv": '\ufeffname,price\n"a, ""b""\nc",1.50\n\nd,\n',
        "json": '\ufeff[ {"name": "a, \\"b\\"\\nc",\n"price": 1.50},\n{"name": "d", "price": null} '
        "] \n",
        "jsonl": '{"name": "a, \\"b\\"\\nc", "price": 1.50}\n\n{"name": "d", "price": null}',
    }
    assert post_file(things, bodies[form].encode(), form=form).data == {
        "created": 2,
        "updated": 0,
    }
    assert [(item["name"], item["price"]) for item in things.get().data] == [
        ('a, "b"\nc', 1.5),
        ("d", None),
    ]


@pytest.mark.parametrize(("form", "empty"), [("csv", "name\n"), ("json", "[]"), ("jsonl", "")])
def test_a_file_without_rows_does_nothing(things: Table, form: str, empty: str) -> None:
    assert post_file(things, empty, form=form).data == {"created": 0, "updated": 0}


@pytest.mark.parametrize(
    ("filename", "kind", "body"),
    [
        ("x.csv", "application/octet-stream", b"name\na\n"),
        ("X.CSV", "application/vnd.ms-excel", b"name\na\n"),
        ("x.ndjson", "text/plain", b'{"name": "a"}'),
        ("x", "application/json", b'[{"name": "a"}]'),
    ],
)
def test_a_form_is_recognised_by_the_name_of_its_file_or_by_its_type(
    things: Table, filename: str, kind: str, body: bytes
) -> None:
    raw = form_of(body, filename=filename, kind=kind)
    answer = post_file(things, raw, headers={"Content-Type": "multipart/form-data; boundary=edge"})
    assert answer.data == {"created": 1, "updated": 0}


def test_what_is_no_such_file_is_refused(things: Table) -> None:
    multipart = {"Content-Type": "multipart/form-data; boundary=edge"}
    whole = form_of(b"name\na\n", filename="x.csv")
    refused = [
        (post_file(things, "<a/>", headers={"Content-Type": "text/xml"}), 415),
        (post_file(things, form_of(b"", filename="x.pdf"), headers=multipart), 415),
        (post_file(things, form_of(b"", filename="x.csv", name="other"), headers=multipart), 400),
        (post_file(things, whole[:-20], headers=multipart), 400),
        (post_file(things, whole, headers={"Content-Type": "multipart/form-data"}), 400),
        (post_file(things, b"", headers=multipart), 400),
        (post_file(things, b""), 400),
    ]
    assert [
        (answer.status, answer.text) for answer, status in refused if answer.status != status
    ] == []
    assert things.get().data == []


BAD_JSON = [
    ('{"name": "a"}', 1),
    ("", 1),
    ("[", 1),
    ('[{"name": "a"}', 1),
    ('[\n{"name": "a"}\n{"name": "b"}]', 3),
    ('[{"name": "a"},]', 1),
    ('[{"name": "a"}]\n]', 2),
    ('[\n{"name": "a"},\n{"name": oops}]', 3),
    ('[{"name": "a\\u0000"}]', 1),
    ("[" * 100_000, 1),
]


@pytest.mark.parametrize(("body", "line"), BAD_JSON)
def test_an_array_that_is_no_json_is_reported_with_its_line(
    things: Table, body: str, line: int
) -> None:
    answer = post_file(things, body, form="json")
    assert (answer.status, lines(answer)) == (400, [(line, "INVALID_PAYLOAD", None)])
    assert things.get().data == []


def test_items_are_whole_wherever_a_piece_of_the_file_ends(things: Table) -> None:
    items = [{"name": "é" * (n % 250), "price": n * 1_000_003} for n in range(1_500)]
    body = json.dumps(items, ensure_ascii=False)
    assert len(body.encode()) > 5 * 2**16
    assert post_file(things, body.encode(), form="json").data["created"] == len(items)
    assert things.column("price", "limit=-1&sort=id") == [item["price"] for item in items]


def test_a_bad_line_is_reported_beside_the_others(things: Table) -> None:
    answer = post_file(
        things, '{"name": "a"}\nnonsense\n{"name": []}\n7\n{"name": "b\\u0000"}\n', form="jsonl"
    )
    assert (answer.status, [line for line, _, _ in lines(answer)]) == (400, [2, 3, 4, 5])
    broken = post_file(things, b"name\n\xff\n")
    assert (broken.status, lines(broken)) == (400, [(2, "INVALID_PAYLOAD", None)])
    unclosed = post_file(things, 'name\n"a\n')
    assert (unclosed.status, lines(unclosed)) == (400, [(2, "INVALID_PAYLOAD", None)])


def test_everything_that_is_wrong_is_reported_with_its_line_and_nothing_is_written(
    things: Table, stage: Stage
) -> None:
    before = stage.value("SELECT count(*) FROM system_activity")
    rows = [
        "name,price,code",
        "a,1,x",
        ",2,y",
        '"b\nb",three,z',
        f"c,4,{'z' * 300}",
        "d,5",
        "e,6,x",
    ]
    answer = post_file(things, "\n".join(rows))
    assert lines(answer) == [
        (3, "FAILED_VALIDATION", "name"),
        (4, "INVALID_PAYLOAD", "price"),
        (6, "VALUE_TOO_LONG", "code"),
        (7, "INVALID_PAYLOAD", None),
        (8, "RECORD_NOT_UNIQUE", "code"),
    ]
    assert answer.status == 422
    assert things.get().data == []
    assert stage.value("SELECT count(*) FROM system_activity") == before


def test_what_the_database_refuses_is_reported_with_the_line_of_its_row(
    things: Table, stage: Stage
) -> None:
    rows = [f"row {n},{n}" for n in range(200)]
    rows[150] = "again,7"
    answer = post_file(things, "\n".join(["name,code", *rows]))
    assert (answer.status, lines(answer)) == (400, [(152, "RECORD_NOT_UNIQUE", "code")])
    assert stage.value(f'SELECT count(*) FROM "{things.name}"') == 0


@pytest.mark.release
def test_no_more_than_a_hundred_faults_are_reported_and_their_number(things: Table) -> None:
    answer = post_file(things, "name,price\n" + "a,x\n" * 12_000)
    assert len(answer.errors) == 101
    assert [error["line"] for error in answer.errors[:100]] == list(range(2, 102))
    # How many were known when the service stopped looking.
    assert answer.errors[100]["total"] > 100


@pytest.mark.parametrize(
    ("header", "named"),
    [("name,nowhere", "nowhere"), ("name,name", "name"), (",name", ""), (",,", None)],
)
def test_a_header_names_fields_that_are_there_each_once(
    things: Table, header: str, named: str | None
) -> None:
    answer = post_file(things, f"{header}\na,b\n")
    assert (answer.status, answer.errors[0]["line"]) == (400, 1)
    assert answer.errors[0].get("field") == (named or None)


@pytest.mark.release
def test_a_header_of_very_many_names_is_refused_at_once(things: Table) -> None:
    answer = post_file(things, ",".join(f"x{n}" for n in range(100_000)) + "\n")
    assert (answer.status, len(answer.errors), answer.errors[100]["total"]) == (400, 101, 101)


@pytest.mark.release
def test_imports_that_wait_for_each_other_are_both_done(
    things: Table, make_things: Callable[..., Table]
) -> None:
    keys = range(1, 2 * BATCH_ROWS + 1)
    post_file(things, "id,name\n" + "".join(f"{key},a\n" for key in keys))
    bodies = [
        "id,name\n" + "".join(f"{key},{name}\n" for key in order)
        for name, order in (("b", keys), ("c", keys[::-1]))
    ]
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda body: post_file(make_things(), body), bodies))
    assert [answer.data["updated"] for answer in answers] == [len(keys)] * 2
    assert things.column("name", "groupBy=name&aggregate[count]=*") in (["b"], ["c"])


def test_each_batch_is_parsed_while_the_database_writes_the_one_before(
    things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    parse = imports._Import._parse
    wait = Wire._result_after

    def parse_noted(self: imports._Import, rows: Sequence[SourceRow]) -> ParsedPayload:
        steps.append("parsed")
        return parse(self, rows)

    def wait_noted(self: Wire, while_waiting: Callable[[], None]) -> PGresult:
        steps.append("sent")
        result = wait(self, while_waiting)
        steps.append("written")
        return result

    monkeypatch.setattr(imports, "BATCH_ROWS", 2)
    monkeypatch.setattr(imports._Import, "_parse", parse_noted)
    monkeypatch.setattr(Wire, "_result_after", wait_noted)
    assert post_file(things, "name\na\nb\nc\nd\ne\n").data["created"] == 5
    assert steps == ["parsed", *["sent", "parsed", "written"] * 2, "sent", "written"]
    assert things.column("name") == list("abcde")


def test_faults_of_several_batches_are_reported_together(
    things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_ROWS", 2)
    answer = post_file(things, "name,price\na,1\nb,x\nc,3\n,4\ne,5\nf,y\n")
    assert [line for line, _, _ in lines(answer)] == [3, 5, 7]
    assert things.column("name") == []


def test_a_file_that_breaks_off_behind_good_batches_leaves_nothing(
    things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_ROWS", 2)
    answer = post_file(things, 'name\na\nb\nc\nd\n"e\n')
    assert (answer.status, answer.errors[0]["line"]) == (400, 6)
    assert things.column("name") == []


def test_a_key_that_comes_again_changes_the_row_that_it_made(things: Table) -> None:
    assert post_file(things, "id,name\n1,a\n2,b\n1,c\n2,d\n1,e\n").data == {
        "created": 2,
        "updated": 3,
    }
    assert things.column("name") == ["e", "d"]


def test_rows_of_json_may_speak_of_different_fields_and_of_related_items(
    admin: Client, things: Table
) -> None:
    shelves = table(admin, field("name", "string"))
    assert admin.post(f"/fields/{things.name}", field("shelf", "integer")).status == 200
    relation = {"collection": things.name, "field": "shelf", "related_collection": shelves.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "things"}}).status == 200
    items = [{"name": "a"}, {"name": "b", "shelf": {"name": "left"}}, {"price": 2, "name": "c"}]
    assert post_file(things, json.dumps(items), form="json").data["created"] == 3
    assert things.column("shelf") == [None, 1, None]
    assert post_file(shelves, 'name,id,things\nright,,"[1,3]"\nleft,1,\n').data == {
        "created": 1,
        "updated": 1,
    }
    assert things.column("shelf") == [2, 1, 2]
    wrong = post_file(things, "name,shelf\na,1\nb,77\n")
    assert lines(wrong) == [(3, "INVALID_FOREIGN_KEY", "shelf")]


@pytest.mark.quick(1)
@pytest.mark.parametrize("key", ["integer", "string"])
def test_an_object_in_a_refused_row_is_not_taken_for_a_key(
    admin: Client, things: Table, key: str
) -> None:
    shelves = "shelves_of_" + key
    keys = {"field": "id", "type": key, "schema": {"is_primary_key": True}}
    definition = {"collection": shelves, "schema": {}, "fields": [keys]}
    assert admin.post("/collections", definition).status == 200
    assert admin.post(f"/fields/{things.name}", field("shelf", key)).status == 200
    relation = {"collection": things.name, "field": "shelf", "related_collection": shelves}
    assert admin.post("/relations", relation).status == 200
    answer = post_file(things, '{"shelf": {"id": "1"}}\n{"shelf": "77"}', form="jsonl")
    assert lines(answer) == [
        (1, "FAILED_VALIDATION", "name"),
        (2, "FAILED_VALIDATION", "name"),
        (2, "INVALID_FOREIGN_KEY", "shelf"),
    ]


def test_history_records_every_row(things: Table, stage: Stage) -> None:
    things.add({"name": "a"})
    post_file(things, "id,name\n1,A\n,b\n")
    activity = things.api.get(f"/activity?filter[collection]={things.name}&sort=id").data
    actions = [(entry["action"], entry["item"]) for entry in activity]
    assert sorted(actions) == [("create", "1"), ("create", "2"), ("update", "1")]
    deltas = [
        entry["delta"]
        for entry in things.api.get(f"/revisions?filter[collection]={things.name}&sort=id").data
    ]
    assert sorted(delta["name"] for delta in deltas) == ["A", "a", "b"]


def test_new_rows_get_their_specials_their_places_and_their_defaults(admin: Client) -> None:
    things = table(
        admin,
        field("name", "string"),
        field("place", "integer"),
        field("made", "timestamp", special="date-created"),
        field("by", "uuid", special="user-created"),
        field("state", "string", default_value="draft"),
        sort_field="place",
    )
    post_file(things, "name,made\na,2001-01-01T00:00:00Z\nb,\n")
    items = things.get(sort="id").data
    assert [item["place"] for item in items] == [1, 2]
    assert [item["state"] for item in items] == ["draft", "draft"]
    assert all(item["made"] > "2024" and item["by"] for item in items)


def test_rules_of_fields_are_tried_on_every_row(admin: Client) -> None:
    rule = {"meta": {"validation": {"name": {"_starts_with": "ok"}}}}
    things = table(admin, {**field("name", "string"), **rule})
    assert lines(post_file(things, "name\nok\nbad\nok 2\nworse\n")) == [
        (3, "FAILED_VALIDATION", "name"),
        (5, "FAILED_VALIDATION", "name"),
    ]


def test_a_call_that_is_sent_twice_is_done_once(things: Table) -> None:
    key = {"Idempotency-Key": f"once-{things.name}"}
    first, second = (post_file(things, "name\na\n", headers=key) for _ in range(2))
    assert (first.text, things.column("name")) == (second.text, ["a"])
    assert post_file(things, "name\nb\n", headers=key).status == 422


def test_files_and_rows_have_limits(things: Table, make_things: Callable[..., Table]) -> None:
    long = "a" * 1_100_000
    for form, body in [
        ("csv", f"name\n{long}\n"),
        ("json", f'[{{"name": "{long}"}}]'),
        ("jsonl", f'{{"name": "{long}"}}'),
    ]:
        answer = post_file(things, body, form=form)
        assert (answer.status, answer.codes) == (413, ["CONTENT_TOO_LARGE"]), answer
    small = make_things(files_max_upload_size=100)
    for body in ("name\n" + "a\n" * 100, "name\na\n"):
        assert post_file(small, body).status == (413 if len(body) > 100 else 200)


def test_items_are_imported_by_the_structure_of_now(
    things: Table, make_things: Callable[..., Table]
) -> None:
    other = make_things()
    assert post_file(other, "name\na\n").data["created"] == 1
    assert things.api.post(f"/fields/{things.name}", field("fresh", "integer")).status == 200
    assert post_file(other, "name,fresh\nb,1\n").data["created"] == 1


def test_values_that_are_hashed_count_once_however_often_their_rows_are_tried(
    stage: Stage,
) -> None:
    unique = field("name", "string", is_unique=True)
    things = stage.empty_table(unique, field("secret", "hash"))
    things.add({"name": "n30"})
    rows = [{"name": f"n{number}", "secret": "s"} for number in range(60)]
    answer = post_file(things, json.dumps(rows), form="json")
    assert [(error["code"], error["value"]) for error in answer.errors] == [
        ("RECORD_NOT_UNIQUE", "n30")
    ]
    rows[30]["name"] = "another"
    assert post_file(things, json.dumps(rows), form="json").data == {"created": 60, "updated": 0}
    sql = f"SELECT array_agg(secret) FILTER (WHERE secret <> '') FROM {things.name}"
    passwords = things.api.app.store.passwords
    assert [passwords.verifies(stored, "s") for stored in stage.value(sql)] == [True] * 60
    too_many = [{"name": f"m{number}", "secret": "s"} for number in range(101)]
    answer = post_file(things, json.dumps(too_many), form="json")
    assert (answer.status, len(answer.errors)) == (400, 1)
    assert "100 values" in answer.errors[0]["reason"]
