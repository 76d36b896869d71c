"""What bad input gets: a clear error with its code and path, nothing half done, never a 500."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from falcon import testing

from tests.client import Client
from tests.things import Stage, Table, field, table


@pytest.fixture(scope="module")
def notes(admin: Client) -> Table:
    return table(admin, field("t", "text"), field("n", "integer"), field("j", "json"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "item"),
        (b" ", "JSON"),
        (b"{", "line 1"),
        (b'{"t": "a",}', "line 1"),
        (b"{\"t\": 'a'}", "line 1"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"t": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"t": "\\ud800"}', "surrogate"),
        (b'{"\\uDFFF": 1}', "surrogate"),
        (b'{"t": "a\\u0000b"}', "U+0000"),
        (b'{"a\\u0000b": 1}', "U+0000"),
        (b'{"t": "a\x00b"}', "line 1"),
        (b'{"n": NaN}', "NaN"),
        (b'{"n": -Infinity}', "Infinity"),
        (b"[" * 100_000, "deep"),
        (b'{"a":' * 2_000 + b"1" + b"}" * 2_000, "deep"),
        (b'{"j":' + b"[" * 900 + b'"\\ud800"' + b"]" * 900 + b"}", ""),
        (b"5", "item"),
        (b'"x"', "item"),
        (b"null", "item"),
        (b"[5]", "object"),
        (b"[[{}]]", "object"),
        (b'{"colour": 1}', "colour"),
        ('{"it\\"s 100% ; 👩": 1}'.encode(), "100%"),
    ],
)
def test_a_body_that_is_no_item_is_refused_with_its_reason(
    notes: Table, raw: bytes, reason: str
) -> None:
    answer = notes.api.send("POST", notes.path, raw=raw)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer.text
    assert reason in answer.errors[0]["message"]
    assert notes.get().data == []


def test_ten_to_the_four_hundredth_is_refused_where_it_does_not_fit(notes: Table) -> None:
    raw = '{"n": 1' + "0" * 400 + "}"
    answer = notes.api.send("POST", notes.path, raw=raw)
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        400,
        ["VALUE_OUT_OF_RANGE"],
        "n",
    )
    assert notes.api.get(f"{notes.path}/1{'0' * 400}").status == 404


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_another_content_type_is_415(notes: Table, content_type: str) -> None:
    for method in ("POST", "PATCH", "DELETE", "SEARCH"):
        headers = {"Content-Type": content_type}
        answer = notes.api.send(method, notes.path, raw=b"{}", **headers)
        assert (answer.status, answer.codes) == (415, ["UNSUPPORTED_MEDIA_TYPE"]), answer


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/a+json"]
)
def test_every_kind_of_json_is_taken(notes: Table, content_type: str) -> None:
    answer = notes.api.send(
        "SEARCH", notes.path, raw=b'{"query":{}}', **{"Content-Type": content_type}
    )
    assert answer.status == 200


def test_a_body_over_the_limit_is_413(make_client: Callable[..., Client], admin_token: str) -> None:
    admin = make_client(max_payload_size=1000).bearing(admin_token)
    small = table(admin, field("t", "text"))
    fits = '{"t": "%s"}'
    assert admin.send("POST", small.path, raw=fits % ("x" * 991)).status == 200
    answer = admin.send("POST", small.path, raw=fits % ("x" * 992))
    assert (answer.status, answer.codes, answer.errors[0]["limit"]) == (
        413,
        ["CONTENT_TOO_LARGE"],
        1000,
    )
    assert len(small.get().data) == 1


@pytest.mark.parametrize(("size", "status"), [(10, 200), (2000, 413)])
def test_a_chunked_body_is_read_to_its_end_and_to_the_limit(
    make_client: Callable[..., Client], size: int, status: int
) -> None:
    app = make_client(max_payload_size=1000).app
    environ = testing.create_environ(
        "/auth/login", method="POST", headers={"Content-Type": "application/json"}
    )
    body = (
        b'{"email": "admin@example.com", "password": "correct horse battery staple"}' + b" " * size
    )
    environ |= {
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked",
    }
    environ.pop("CONTENT_LENGTH", None)
    seen = testing.StartResponseMock()
    b"".join(app(environ, seen))
    assert str(seen.status).startswith(str(status))


def nested(depth: int) -> str:
    return '{"_and":[' * depth + '{"n":1}' + "]}" * depth


@pytest.mark.parametrize(
    "query_string",
    [
        "filter=" + nested(1000),
        "filter=" + nested(60),
        "filter" + "[_and][0]" * 1000 + "[n]=1",
        'filter={"_or":[' + ",".join(['{"n":1}'] * 600) + "]}",
        "filter[n][_in]=" + ",".join(["1"] * 10_001),
        "fields=" + ",".join(f"f{n}" for n in range(5_000)),
        "&".join(f"a{n}=1" for n in range(5_001)),
        "sort=" + "t." * 3000 + "t",
        "deep=" + '{"t":' * 3000 + "1" + "}" * 3000,
        "deep=" + '{"t":' * 400 + "{}" + "}" * 400,
        "deep=" + '{"t":' * 60 + "{}" + "}" * 60,
        "filter=%00",
        "filter[t]=%00",
        "filter[%00]=1",
        "search=%00",
        "fields=%00",
        "filter=%7B%22t%22%3A%22%5Cud800%22%7D",
        "filter[t]=1&filter[t][_eq]=1",
        "filter=1&filter[t]=1",
        "limit=1" + "0" * 400,
        "limit=%D9%A1",
        "offset=%EF%BC%95",
        "limit=1&page=%E0%A5%A7",
        "filter[n]=1" + "0" * 400,
        "filter={",
        "filter=[]",
        "aggregate={",
        "deep=[1]",
    ],
)
def test_a_query_that_is_too_much_or_wrong_is_refused(notes: Table, query_string: str) -> None:
    answer = notes.read(query_string)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), answer.text
    assert len(answer.text) < 10_000


def test_half_a_letter_in_a_query_string_is_no_fault(notes: Table) -> None:
    for query_string in (
        "search=%ff",
        "filter[t]=%ed%a0%80",
        "%ff=%fe",
        "search=%",
        "search=%z",
        "=&=;",
        "filter[t=1",
    ):
        assert notes.read(query_string).status == 200, query_string


@pytest.mark.parametrize(
    "name", ['it"s', "a'b", "100%", "%s", "a;DROP TABLE x", "👩", "{0}", "$1", "a\\b", "*", ""]
)
def test_an_odd_name_of_a_field_is_refused_wherever_it_stands(notes: Table, name: str) -> None:
    queries: list[dict[str, Any]] = [
        {"filter": {name: {"_eq": 1}}},
        {"groupBy": [name]},
        {"aggregate": {"min": name or "x"}},
        {"sort": [name]},
    ]
    for query in [*queries, {"fields": [name]}] if name not in ("*", "") else queries:
        answer = notes.api.search(notes.path, query)
        if name or "filter" in query:
            assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), query


def test_the_answer_to_a_query_that_the_database_cannot_do_is_no_fault(stage: Stage) -> None:
    stage.execute(
        "CREATE VIEW broken AS SELECT 1 AS id, "
        "1 / (SELECT count(*) FROM pg_class WHERE relname = 'x') AS n"
    )
    answer = Table(stage.admin, "broken").get()
    assert answer.status == 400
    assert "division" not in answer.text


def test_an_unknown_route_and_a_wrong_method_are_reported(notes: Table) -> None:
    answer = notes.api.get(f"{notes.path}/1/2/3")
    assert (answer.status, answer.codes) == (404, ["ROUTE_NOT_FOUND"])
    answer = notes.api.send("PUT", notes.path)
    assert (answer.status, answer.codes) == (405, ["METHOD_NOT_ALLOWED"])
    assert {"GET", "POST", "PATCH", "DELETE", "SEARCH"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.release
def test_opening_every_relation_of_every_relation_has_an_end(admin: Client) -> None:
    tree = table(admin, *(field(f"parent_{n}", "integer") for n in range(4)))
    for n in range(4):
        relation = {
            "collection": tree.name,
            "field": f"parent_{n}",
            "related_collection": tree.name,
            "schema": {},
        }
        assert admin.post("/relations", relation).status == 200
    assert tree.get(fields="*.*.*").data == []
    answer = tree.get(fields=".".join("*" * 10))
    assert (answer.status, answer.codes, answer.errors[0]["parameter"]) == (
        400,
        ["INVALID_QUERY"],
        "fields",
    )
