"""Graphs, schedules and options of flows, before they reach the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.flows.definition.flow import FlowDefinition, FlowOperation, Graph, graph_problems
from cms.flows.definition.operation_types import OPERATION_TYPES
from cms.flows.definition.trigger_types import TRIGGER_TYPES, ScheduleError, parse_schedule
from cms.option_checks import IncompleteOption
from cms.schema.system import FLOWS

BERLIN = ZoneInfo("Europe/Berlin")
UUID = "6d82432b-98a5-4064-a153-8f8c8bb1257b"


def graph(first: str | None, **ends: tuple[str | None, str | None]) -> Graph:
    """Return a graph of operations with the names of their two ends."""
    operations = {
        name: FlowOperation(name, f"key_{name}", "log", {}, resolve, reject)
        for name, (resolve, reject) in ends.items()
    }
    return Graph(operations, first)


def problems(value: Graph) -> list[tuple[str | None, str, str]]:
    return [
        (
            None if problem.collection == FLOWS else problem.key,
            str(problem.path[0]),
            problem.reason.split()[0],
        )
        for problem in graph_problems(FlowDefinition("flow", None, {}, value))
    ]


def test_a_tree_of_operations_has_no_problems() -> None:
    tree = graph("a", a=("b", "c"), b=("d", None), c=(None, None), d=(None, None), e=(None, None))
    assert problems(tree) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (graph("x", a=(None, None)), (None, "operation", "the")),
        (graph("a", a=("x", None)), ("a", "resolve", "the")),
        (graph("a", a=(None, "a")), ("a", "reject", "it")),
        (graph("a", a=("b", None), b=("a", None)), ("b", "resolve", "it")),
        (graph(None, a=("b", None), b=("c", None), c=(None, "a")), ("c", "reject", "it")),
        (
            graph("a", a=("b", "c"), b=("d", None), c=("d", None), d=("a", None)),
            ("d", "resolve", "it"),
        ),
    ],
    ids=["first", "unknown", "itself", "cycle", "cycle apart", "cycle behind a join"],
)
def test_a_wrong_way_is_named_with_its_end(
    value: Graph, expected: tuple[str | None, str, str]
) -> None:
    assert problems(value) == [expected]


def test_keys_may_not_look_like_values_of_the_run() -> None:
    operation = FlowOperation("a", "$last", "log", {})
    assert problems(Graph({"a": operation})) == [("a", "key", "names")]


def test_ways_of_a_flow_may_join_again() -> None:
    joined = graph("a", a=("b", "c"), b=("d", "d"), c=("d", None), d=(None, None), e=("a", None))
    assert problems(joined) == []


def test_the_ways_of_thousands_of_operations_are_followed() -> None:
    ends = {f"o{i}": (f"o{i + 1}", f"o{i + 1}") for i in range(5000)}
    assert problems(graph("o0", **ends, o5000=(None, None))) == []
    assert problems(graph("o0", **ends, o5000=("o0", None))) == [("o5000", "resolve", "it")]


names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.tuples(st.none() | names, st.none() | names)), st.none() | names)
def test_a_graph_without_problems_can_be_walked_to_its_end(
    ends: dict[str, tuple[str | None, str | None]], first: str | None
) -> None:
    value = graph(first, **ends)
    if problems(value):
        return
    ways = [[first]] if first else []
    while ways:
        way = ways.pop()
        assert len(set(way)) == len(way)
        ways += [[*way, end] for end in ends[way[-1]] if end]


# Schedules


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 * * * *", "2026-03-01 10:15:00"),
        ("30 12 * * mon", "2026-03-02 11:30:00"),
        ("*/20 * * * * *", "2026-03-01 10:00:20"),
        ("0 0 0 1 1 *", "2026-12-31 23:00:00"),
        ("  0   0   L   *   * ", "2026-03-30 22:00:00"),
    ],
)
def test_schedules_are_in_the_time_zone_of_the_project(expression: str, expected: str) -> None:
    schedule = parse_schedule(expression, BERLIN)
    following = schedule.next(datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC))
    assert following.strftime("%Y-%m-%d %H:%M:%S") == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *", "30 30 2 * * *"])
def test_a_moment_that_the_clocks_leave_out_comes_right_after_the_gap(expression: str) -> None:
    schedule = parse_schedule(expression, BERLIN)
    following = schedule.next(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert following == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *"])
def test_a_moment_that_comes_twice_counts_once(expression: str) -> None:
    schedule = parse_schedule(expression, BERLIN)
    first = schedule.next(datetime(2026, 10, 24, 12, tzinfo=UTC))
    second = schedule.next(first)
    assert first.date() == datetime(2026, 10, 25).date()
    assert second - first > timedelta(hours=20)


@given(
    st.sampled_from(["30 2 * * *", "0,30 2,3 * * *", "15 30 1-3 * * *", "*/20 * * * *"]),
    st.datetimes(datetime(2026, 3, 28), datetime(2026, 3, 30))
    | st.datetimes(datetime(2026, 10, 24), datetime(2026, 10, 26)),
)
def test_the_next_moment_is_never_one_that_has_been(expression: str, after: datetime) -> None:
    moment = after.replace(tzinfo=UTC)
    assert parse_schedule(expression, BERLIN).next(moment) > moment


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "@daily",
        "a b c d e",
        "*" + " " * 300 + "* * * *",
        5,
        None,
        ["* * * * *"],
    ],
)
def test_an_expression_that_names_no_moment_is_refused(expression: object) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(expression, BERLIN)


@given(st.text(alphabet="0123456789*/,-L# MONJAN", max_size=30))
def test_every_text_is_a_schedule_or_refused(expression: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    try:
        schedule = parse_schedule(expression, BERLIN)
    except ScheduleError:
        return
    assert schedule.next(moment) > moment


# Options


GOOD_OPERATIONS = {
    "condition": {"filter": {"$trigger": {"payload": {"price": {"_gt": 5}}}}},
    "exec": {"code": "module.exports = async function (data) { return '{{' }"},
    "item-create": {"collection": "pages", "payload": [{"a": 1}], "permissions": "$full"},
    "item-read": {"collection": "pages", "query": {"limit": 1}, "permissions": UUID},
    "item-update": {"collection": "pages", "key": [1, "b"], "payload": {"a": "{{$last}}"}},
    "item-delete": {"collection": "{{$trigger.collection}}", "query": "{{$last}}"},
    "log": {"message": {"any": ["{{$trigger}}"]}},
    "mail": {"to": ["a@example.com"], "subject": "Hello", "body": "Text", "type": "markdown"},
    "notification": {"recipient": [UUID], "subject": "Hello"},
    "request": {
        "method": "post",
        "url": "https://example.com/",
        "headers": [{"header": "X-Name", "value": "a"}],
        "body": {"a": 1},
    },
    "sleep": {"milliseconds": "250"},
    "transform": {"json": [1, "{{$last}}"]},
    "trigger": {"flow": UUID, "payload": "{{$last}}", "iterationMode": "serial"},
    "json-web-token": {"operation": "sign", "payload": {"a": 1}, "secret": "{{$env.KEY}}"},
    "throw-error": {"code": "NO", "status": 418, "message": "No"},
}


def test_all_fifteen_types_are_there() -> None:
    assert OPERATION_TYPES.keys() == GOOD_OPERATIONS.keys()
    assert len(OPERATION_TYPES) == 15


@pytest.mark.parametrize("name", GOOD_OPERATIONS)
def test_good_options_have_no_errors(name: str) -> None:
    assert list(OPERATION_TYPES[name].errors(GOOD_OPERATIONS[name])) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("item-create", {"collection": "a", "payload": '{"a": "{{$last}}"}'}),
        ("item-update", {"collection": "a", "payload": '[{"id": 1, "a": 2}]'}),
        ("item-update", {"collection": "a", "payload": [{"id": 1, "a": "{{$last}}"}]}),
        ("item-update", {"collection": "a", "payload": "{{$last}}"}),
        ("item-read", {"collection": "a", "query": '{"limit": 1}'}),
        ("json-web-token", {"operation": "sign", "payload": '{"a": 1}', "options": "{}"}),
        ("mail", {"to": ['"Lovelace, Ada" <a@example.com>'], "subject": "a", "body": {"a": 1}}),
        (
            "mail",
            {"to": '"Lovelace, Ada" <a@example.com>, b@example.com', "subject": "a", "body": "a"},
        ),
        ("notification", {"recipient": UUID, "subject": "Hello", "permissions": "$full"}),
        ("request", {"method": "PROPFIND", "url": "https://example.com/?q={{$last}}"}),
        ("throw-error", {"state": 400, "error_on_reject": True}),
    ],
)
def test_options_may_be_written_as_directus_writes_them(
    name: str, options: dict[str, object]
) -> None:
    assert list(OPERATION_TYPES[name].errors(options)) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("condition", {"filter": None}),
        ("exec", {"code": ""}),
        ("item-create", {}),
        ("item-update", {"collection": "a", "payload": {}}),
        ("log", {}),
        ("mail", {"to": [], "subject": "", "body": ""}),
        ("notification", {"recipient": []}),
        ("request", {"url": "", "headers": [{"header": "a"}], "sign": True}),
        ("sleep", {}),
        ("transform", {}),
        ("trigger", {}),
        ("json-web-token", {}),
    ],
)
def test_what_is_missing_is_told_from_what_is_wrong(name: str, options: dict[str, object]) -> None:
    errors = list(OPERATION_TYPES[name].errors(options))
    assert errors
    assert all(isinstance(error, IncompleteOption) for error in errors), errors


@pytest.mark.parametrize(
    ("name", "options", "path"),
    [
        ("condition", {}, ("filter",)),
        ("condition", {"filter": {"a": {"_nope": 1}}}, ("filter",)),
        ("exec", {"code": " "}, ("code",)),
        ("item-create", {"collection": "a", "payload": [1]}, ("payload", 0)),
        (
            "item-create",
            {"collection": "a", "payload": {}, "permissions": "$all"},
            ("permissions",),
        ),
        ("item-update", {"collection": "a", "payload": {}}, ("key",)),
        ("item-update", {"collection": "a", "payload": '{"a": 1}'}, ("key",)),
        ("item-update", {"collection": "a", "payload": [1]}, ("payload", 0)),
        ("item-create", {"collection": "a", "payload": '{"a": {{$last}}}'}, ("payload",)),
        ("item-read", {"collection": "a", "query": '{"filtr": {}}'}, ("query", "filtr")),
        ("item-read", {"collection": "a", "query": {"filtr": {}}}, ("query", "filtr")),
        ("item-delete", {"collection": "a", "key": [1, None]}, ("key", 1)),
        ("item-delete", {"collection": "a", "key": 1, "emitEvents": "no"}, ("emitEvents",)),
        ("mail", {"to": "a@example.com, b", "subject": "a", "body": "a"}, ("to",)),
        ("mail", {"to": ["a@example.com", "b"], "subject": "a", "body": "a"}, ("to", 1)),
        ("mail", {"to": "a@example.com", "subject": "a"}, ("body",)),
        ("request", {"url": "ftp://example.com"}, ("url",)),
        ("request", {"url": "http://a/", "headers": {"a b": "c"}}, ("headers", "a b")),
        (
            "request",
            {"url": "http://a/", "headers": [{"header": "a", "value": "b\r\nc: d"}]},
            ("headers", 0),
        ),
        ("sleep", {"milliseconds": -1}, ("milliseconds",)),
        ("sleep", {"milliseconds": True}, ("milliseconds",)),
        ("trigger", {"flow": "no uuid"}, ("flow",)),
        ("throw-error", {"status": 200}, ("status",)),
        ("log", {"message": ["{{1 + 1}}"]}, ("message", 0)),
        ("log", [], ()),
    ],
)
def test_a_wrong_option_is_named(name: str, options: object, path: tuple[str | int, ...]) -> None:
    (error,) = OPERATION_TYPES[name].errors(options)
    assert error.path == path
    assert str(error)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("event", {"type": "filter", "scope": ["items.create"], "collections": ["pages"]}),
        ("event", {"type": "action", "scope": ["files.upload", "auth.login", "users.delete"]}),
        ("webhook", {}),
        ("webhook", {"method": "GET", "async": False, "return": "$last", "cacheEnabled": True}),
        ("schedule", {"cron": "0 */5 * * * *"}),
        ("manual", {"collections": ["pages"], "location": "both", "requireSelection": False}),
        ("operation", None),
    ],
)
def test_good_triggers_have_no_errors(name: str, options: object) -> None:
    assert list(TRIGGER_TYPES[name].errors(options)) == []


@pytest.mark.parametrize(
    ("name", "options", "path"),
    [
        ("event", {"type": "action"}, ("scope",)),
        ("event", {"type": "action", "scope": []}, ("scope",)),
        ("event", {"type": "later", "scope": ["items.create"]}, ("type",)),
        ("event", {"type": "action", "scope": ["items.creat", "items.read"]}, ("scope", 0)),
        ("webhook", {"method": "HEAD"}, ("method",)),
        ("webhook", {"async": "{{$trigger}}"}, ("async",)),
        ("schedule", {}, ("cron",)),
        ("schedule", {"cron": "0 0 30 2 *"}, ("cron",)),
        ("manual", {"location": "left"}, ("location",)),
    ],
)
def test_a_wrong_option_of_a_trigger_is_named(
    name: str, options: object, path: tuple[str | int, ...]
) -> None:
    (error,) = TRIGGER_TYPES[name].errors(options)
    assert error.path == path


def test_a_script_is_refused_where_none_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.flows.definition.options.SCRIPT_ENGINE", "no_such_engine")
    (error,) = OPERATION_TYPES["exec"].errors({"code": "module.exports = () => 1"})
    assert error.path == ("code",)
    assert "headless-cms[script]" in str(error)


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 19, "\N{SUPERSCRIPT TWO}"])
def test_a_text_of_very_many_digits_is_no_number(digits: str) -> None:
    errors = OPERATION_TYPES["sleep"].errors({"milliseconds": digits}, are_rendered=True)
    assert [str(error) for error in errors] == ["it is a whole number"]


@pytest.mark.parametrize(
    "text",
    [
        f"urn:uuid:{UUID}",
        f"{{{UUID}",
        "\N{ARABIC-INDIC DIGIT THREE}" * 32,
        f" {UUID}",
        UUID.replace("-", "", 1),
    ],
)
def test_what_only_python_takes_for_a_uuid_is_none(text: str) -> None:
    errors = OPERATION_TYPES["trigger"].errors({"flow": text}, are_rendered=True)
    assert [str(error) for error in errors] == ["it is a UUID"]
