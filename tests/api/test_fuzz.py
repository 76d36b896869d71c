"""Random requests at every endpoint: never a fault, always the envelope,
never a literal in a statement's text.

A failure prints the request that caused it, and a line that repeats it; on CI
the requests are the same every time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from falcon.inspect import inspect_routes
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cms.app import create_app
from cms.config import Config
from cms.database.connections import Transaction
from cms.database.reader import Reader
from cms.errors import STATUS
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.operators import OPERATORS, OperandKind
from cms.schema.types import TYPES
from tests.client import ADMIN_EMAIL, Answer
from tests.things import Stage, field

Request = tuple[str, str, Any]

TRACER = "zqmarkqz"
KINDS = [
    kind for kind in TYPES if kind not in ("alias", "unknown") and not kind.startswith("geometry")
]
FIELDS = ["id", *(f"a_{kind}" for kind in KINDS), "many", "parent", "nothing", "*"]

examples = settings(
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


@pytest.fixture(scope="module", autouse=True)
def collections_of_all_types(stage: Stage) -> None:
    """A collection of every type that points to itself, a singleton, and
    some that the requests may ruin.
    """
    fields = [*(field(f"a_{kind}", kind) for kind in KINDS), field("parent", "integer")]
    for name, meta in (("things", {}), ("single", {"singleton": True}), ("scratch", {})):
        body = {"collection": name, "schema": {}, "meta": meta, "fields": fields}
        assert stage.admin.post("/collections", body).status == 200
    relation = {
        "collection": "things",
        "field": "parent",
        "related_collection": "things",
        "schema": {},
    }
    assert stage.admin.post("/relations", relation | {"meta": {"one_field": "many"}}).status == 200
    rows = [{"a_string": "a", "a_integer": 1, "a_json": [1]}, {"parent": 1, "a_csv": ["x"]}]
    assert stage.admin.post("/items/things", rows).status == 200


@pytest.fixture(scope="module")
def statements(stage: Stage) -> Iterator[list[str]]:
    """The text of every statement that reaches the database, definitions excepted."""
    seen: list[str] = []
    fetch = Reader.fetch
    execute = Transaction.execute
    read = Transaction.read  # in portions; others come by `execute`

    def fetching(self: Reader, text: str, values: Sequence[object] = (), **options: Any) -> Any:
        seen.append(text)
        return fetch(self, text, values, **options)

    def reading(self: Transaction, text: str, values: Sequence[object], *, chunking: Any) -> Any:
        if chunking:
            seen.append(text)
        return read(self, text, values, chunking=chunking)

    def executing(
        self: Transaction, text: str, values: Sequence[object] = (), **options: Any
    ) -> Any:
        seen.append(text)
        return execute(self, text, values, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "fetch", fetching)
        patch.setattr(Transaction, "execute", executing)
        patch.setattr(Transaction, "read", reading)
        yield seen


# Values

NASTY = [
    "'",
    '"',
    "%",
    "%s",
    "\\",
    ";--",
    "$1",
    "{0}",
    "\0",
    "\u202e",
    "👩",
    "'; DROP TABLE things; --",
    "a,b",
    "null",
]
ODD = [
    10**400,
    -(2**63) - 1,
    2**63,
    1e308,
    -0.0,
    5e-324,
    "1e400",
    "NaN",
    "$NOW",
    "$NOW(-1 day)",
    "$CURRENT_USER",
    "$NOW(",
]
ODD += [
    "2024-02-30",
    "9999-12-31T23:59:59.999999Z",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "AA==",
    "",
    "true",
    "1,2,3",
]
marked = st.builds(lambda text: text + TRACER, st.text(max_size=5) | st.sampled_from(NASTY))
literals: st.SearchStrategy[Any] = st.one_of(
    marked,
    st.sampled_from(ODD),
    st.integers(-5, 5),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.text(),
)
values = st.recursive(
    literals,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(marked | st.sampled_from(FIELDS), inner, max_size=3)
    ),
    max_leaves=6,
)
deep = st.builds(
    lambda depth, wrap: nested(depth, wrap),
    st.sampled_from([10, 55, 100, 260]),
    st.sampled_from(["_and", "many", "a", 0]),
)


def nested(depth: int, wrap: str | int) -> object:
    value: object = 1
    for _ in range(depth):
        if isinstance(wrap, int):
            value = [value]
        elif wrap == "_and":
            value = {wrap: [value]}
        else:
            value = {wrap: value}
    return value


# Queries

FUNCTIONS = sorted({name for kind in TYPES.values() for name in kind.functions})
plain_names = st.sampled_from(FIELDS)
calls = st.builds(
    lambda function, name: f"{function}({name})",
    st.sampled_from(FUNCTIONS),
    plain_names,
)
names = (
    plain_names
    | calls
    | st.builds(lambda *steps: ".".join(steps), plain_names, plain_names)
    | marked
)
operators = st.sampled_from([*OPERATORS, "_some", "_none", "_and", "_or", "_like"])
tests = st.dictionaries(operators, literals | st.lists(literals, max_size=3), max_size=2)
filters = st.recursive(
    st.dictionaries(names, tests | literals, max_size=2),
    lambda inner: (
        st.fixed_dictionaries({"_or": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"_and": st.lists(inner, max_size=3)})
        | st.dictionaries(st.sampled_from(["parent", "many", "id"]), inner, max_size=2)
    ),
    max_leaves=5,
)
lists = st.lists(names | st.builds("-{}".format, names), max_size=4)
windows = st.integers(-2, 5) | st.sampled_from(ODD)
parameters: dict[str, st.SearchStrategy[Any]] = {
    "fields": lists,
    "filter": filters | deep,
    "sort": lists
    | st.builds(
        lambda function, name: [f"-{function}.{name}"],
        st.sampled_from(list(AGGREGATES)),
        plain_names,
    ),
    "limit": windows,
    "offset": windows,
    "page": windows,
    "search": literals,
    "meta": st.sampled_from(["*", "total_count", "filter_count,total_count", "x", ["*"]]),
    "aggregate": st.dictionaries(
        st.sampled_from([*AGGREGATES, "median"]), plain_names | lists, max_size=2
    ),
    "groupBy": lists,
    "alias": st.dictionaries(st.sampled_from(["one", "two", "a b"]), names, max_size=2),
    "deep": st.dictionaries(
        plain_names, st.fixed_dictionaries({}, optional={"_limit": windows, "_filter": filters})
    )
    | deep,
}
queries = st.fixed_dictionaries(
    {}, optional={name: strategy | values for name, strategy in parameters.items()}
)
queries |= st.fixed_dictionaries({}, optional=parameters)


def brackets(value: object, name: str) -> list[str]:
    if isinstance(value, dict):
        return [
            pair
            for key, inner in value.items()
            for pair in brackets(inner, f"{name}[{quote(str(key), safe='')}]")
        ]
    if isinstance(value, list):
        return [pair for n, inner in enumerate(value) for pair in brackets(inner, f"{name}[{n}]")]
    return [f"{name}={quote(str(value), errors='replace')}"]


def as_brackets(query: dict[str, object]) -> str:
    return "&".join(pair for name, value in query.items() for pair in brackets(value, name))


def as_json(query: dict[str, object]) -> str:
    """Groups as JSON, everything else as it is."""
    groups = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in query.items()
    }
    return as_brackets(groups)


noise = st.text(max_size=30).map(lambda text: quote(text, safe="[]=&%+", errors="replace"))
endless = st.sampled_from(
    ["filter=" + '{"_and":[' * 2000, "deep=" + '{"many":' * 2000, "fields=" + "many." * 2000 + "id"]
)
query_strings = st.builds(as_brackets, queries) | st.builds(as_json, queries) | noise | endless

# Bodies

fitting: dict[str, st.SearchStrategy[Any]] = {
    "a_string": marked,
    "a_text": marked,
    "a_integer": st.integers(-5, 5),
    "a_bigInteger": st.integers(-(2**63), 2**63 - 1),
    "a_decimal": st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    "a_boolean": st.booleans(),
    "a_date": st.dates().map(str),
    "a_json": values,
    "a_csv": st.lists(marked.filter(lambda text: "," not in text), max_size=2),
    "parent": st.sampled_from([None, 1, 2]),
}
items = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, values)) | st.dictionaries(
    plain_names, values, max_size=3
)
keys = st.lists(literals | st.integers(1, 3), max_size=3)
items |= st.fixed_dictionaries({}, optional=fitting)
bodies = st.one_of(
    items,
    st.lists(items, max_size=3),
    st.builds(lambda strategy, data: {"keys": strategy, "data": data}, keys, items),
    st.builds(lambda query, data: {"query": query, "data": data}, queries, items),
    st.builds(lambda query: {"query": query}, queries),
    keys,
    values,
    deep,
)
definitions = st.fixed_dictionaries(
    {},
    optional={
        "collection": st.sampled_from(["scratch", "scratch_two", "bad name", "system_x", 5]),
        "field": st.sampled_from(["a_string", "extra", "parent", "many", "bad name", 5]),
        "type": st.sampled_from([*TYPES, "nonsense", None]),
        "related_collection": st.sampled_from(["things", "scratch", "nowhere", None, 5]),
        "schema": st.none()
        | values
        | st.fixed_dictionaries({}, optional={"default_value": values, "max_length": windows}),
        "meta": st.none()
        | values
        | st.dictionaries(st.sampled_from(["note", "special", "one_field"]), values, max_size=3),
        "fields": st.lists(
            st.fixed_dictionaries({"field": plain_names, "type": st.sampled_from(KINDS)}),
            max_size=3,
        ),
    },
)
logins = st.fixed_dictionaries(
    {}, optional={"email": literals | st.just(ADMIN_EMAIL), "password": literals}
)
raws = st.binary(max_size=30) | st.text(max_size=30).map(
    lambda text: text.encode("utf-8", "replace")
)
raws |= st.just(b"[" * 100_000)


# Paths

METHODS = st.sampled_from(
    ["GET", "POST", "POST", "PATCH", "PATCH", "DELETE", "SEARCH", "SEARCH", "PUT"]
)
collections = st.sampled_from(
    ["things", "things", "single", "nowhere", "system_users", "system_activity"]
)
scratch = st.sampled_from(["scratch", "scratch_two", "nowhere", "system_users"])
item_keys = st.sampled_from(["1", "2", "x", "1e400", "%00", "1.5"]) | marked.map(
    lambda text: quote(text, safe="")
)


# What must hold


def check(answer: Answer, request: str) -> None:
    assert answer.status != 500, request
    if answer.status < 400:
        return
    codes = [entry["extensions"]["code"] for entry in answer.body["errors"]]
    assert codes, request
    assert answer.status == STATUS[codes[0]], request
    assert all(
        code in STATUS and entry["message"]
        for code, entry in zip(codes, answer.body["errors"], strict=True)
    )


def send(stage: Stage, statements: list[str], request: Request) -> None:
    """Send a request as the administrator and as nobody, and check what came of it."""
    method, path, body = request
    note(f"{method} {path} {body!r}")
    statements.clear()
    sent: dict[str, Any] = {"raw": body} if isinstance(body, bytes) else {"body": body}
    for client in (stage.admin, stage.anonymous):
        check(client.send(method, path, **sent), f"{method} {path}")
    assert [text for text in statements if TRACER in text] == []


# Requests


@st.composite
def reads(draw: st.DrawFn) -> Request:
    return "GET", f"/items/{draw(collections)}?{draw(query_strings)}", None


@st.composite
def item_requests(draw: st.DrawFn) -> Request:
    key = draw(st.sampled_from(["", "", "/"])) and f"/{draw(item_keys)}"
    return (
        draw(METHODS),
        f"/items/{draw(collections)}{key}?{draw(query_strings)}",
        draw(bodies | raws),
    )


@st.composite
def other_requests(draw: st.DrawFn, routes: list[str]) -> Request:
    route = draw(st.sampled_from(routes))
    path = route.replace("{collection}", draw(scratch)).replace("{field}", quote(draw(plain_names)))
    body = draw(
        logins | raws
        if path.startswith("/auth")
        else definitions | st.lists(definitions, max_size=2) | values
    )
    return draw(METHODS), f"{path}?{draw(query_strings)}", body


storable = st.text(
    st.characters(exclude_characters="\0,", exclude_categories=["Cs"]), max_size=5
) | st.sampled_from([text for text in NASTY if text not in ("\0", "a,b")])
texts = storable.filter(lambda text: not text.startswith("$")).map(
    lambda text: text + TRACER
)  # those are variables
good_items = st.fixed_dictionaries(
    {"a_string": texts},
    optional={
        "a_text": texts,
        "a_json": texts | st.lists(texts),
        "a_csv": st.lists(texts),
        "a_hash": texts,
    },
)
worded = [
    name
    for name, strategy in OPERATORS.items()
    if strategy.operand_kind in (OperandKind.ONE, OperandKind.LIST, OperandKind.PATTERN)
]
good_filters = st.dictionaries(
    st.sampled_from(["a_string", "a_text"]),
    st.dictionaries(st.sampled_from(worded), texts),
    max_size=2,
)


@st.composite
def good_requests(draw: st.DrawFn) -> Request:
    """Requests that succeed, with marked literals wherever a literal may stand."""
    query: dict[str, Any] = {
        "filter": draw(good_filters),
        "search": draw(texts),
        "fields": ["id", "a_string"],
    }
    match draw(st.integers(0, 5)):
        case 0:
            return "GET", f"/items/things?{as_json(query)}", None
        case 1:
            return "SEARCH", "/items/things", {"query": query}
        case 2:
            return (
                "POST",
                "/items/things?fields=id",
                draw(st.lists(good_items, min_size=1, max_size=3)),
            )
        case 3:
            return "PATCH", "/items/things?fields=id", {"query": query, "data": draw(good_items)}
        case 4:
            return "DELETE", "/items/things", {"query": query}
        case _:
            return "PATCH", "/items/single", draw(good_items)


@examples
@given(request=good_requests())
def test_good_requests_with_marked_literals(
    stage: Stage, statements: list[str], request: Request
) -> None:
    method, path, body = request
    statements.clear()
    answer = stage.admin.send(method, path, body)
    assert answer.status in (200, 204), answer.text
    assert [text for text in statements if TRACER in text] == []


@examples
@given(request=reads())
def test_reads_of_a_list(stage: Stage, statements: list[str], request: Request) -> None:
    send(stage, statements, request)


@examples
@given(request=item_requests())
def test_every_method_of_items(stage: Stage, statements: list[str], request: Request) -> None:
    send(stage, statements, request)


@pytest.fixture(scope="module")
def paths(settings: Config) -> list[str]:
    """Every route that the application has, those of items excepted."""
    app = create_app(replace(settings, database_url="postgresql://nowhere"))
    return sorted(
        route.path for route in inspect_routes(app) if not route.path.startswith("/items")
    )


@pytest.mark.release
@examples
@given(data=st.data())
def test_every_other_route(
    stage: Stage, statements: list[str], paths: list[str], data: Any
) -> None:
    send(stage, statements, data.draw(other_requests(paths)))


def test_the_statements_are_seen(stage: Stage, statements: list[str]) -> None:
    statements.clear()
    assert stage.admin.get(f"/items/things?filter[a_string]={TRACER}").status == 200
    assert any('"a_string" = $' in text for text in statements)
