"""Templates of flows: paths into the values of a run, and nothing else."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.flows.definition.operation_types import OPERATION_TYPES
from cms.flows.definition.templates import (
    FixedValue,
    Lookup,
    RenderedTooLarge,
    TemplateError,
    lookups,
    parse_template,
)

SCOPE = {
    "$trigger": {
        "body": {
            "items": [{"title": "One"}, {"title": "Two"}],
            "count": 12345678901234567890,
            "is_new": True,
            "note": None,
            "0": "zero",
            "first name": {"x": "Ada", "it's": "fine", "a.b[0]": [True]},
        }
    },
    "read-it": ["first"],
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def render(value: object) -> object:
    return parse_template(value).render(SCOPE)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{$trigger.body.count}}", 12345678901234567890),
        ("{{ $trigger.body.is_new }}", True),
        ("{{$trigger.body.note}}", None),
        ("{{$trigger.body.items}}", [{"title": "One"}, {"title": "Two"}]),
        ("{{$trigger.body.items[1].title}}", "Two"),
        ("{{$trigger.body.items.1.title}}", "Two"),
        ("{{$trigger.body.0}}", "zero"),
        ("{{read-it[0]}}", "first"),
        ('{{$trigger.body["first name"].x}}', "Ada"),
        ("{{ $trigger['body']['first name'][\"it's\"] }}", "fine"),
        ("{{$trigger.body['first name']['a.b[0]'][0]}}", True),
        ('{{$trigger.body[""]}}', None),
    ],
)
def test_a_template_of_one_path_keeps_the_type(template: str, value: object) -> None:
    assert render(template) == value


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{$trigger.body.items[0].title}} and more", "One and more"),
        ("{{$trigger.body.count}}!", "12345678901234567890!"),
        ("new: {{$trigger.body.is_new}}", "new: true"),
        ("[{{$trigger.body.note}}]", "[]"),
        ("{{$trigger.body.items}}.", '[{"title":"One"},{"title":"Two"}].'),
        ("{{read-it.0}}{{read-it.0}}", "firstfirst"),
    ],
)
def test_inside_a_text_values_are_written_out(template: str, text: str) -> None:
    assert render(template) == text


@pytest.mark.parametrize(
    "path",
    ["missing", "$trigger.body.items[2]", "$trigger.body.items.title", "read-it[0].x", "$last"],
)
def test_a_path_that_leads_nowhere_is_empty(path: str) -> None:
    assert render("{{" + path + "}}") is None
    assert render("a {{" + path + "}} b") == "a  b"


def test_templates_stand_at_any_depth_and_in_names() -> None:
    template = {"list": [1, {"{{read-it[0]}} name": "{{$trigger.body.is_new}}"}], "null": None}
    assert render(template) == {"list": [1, {"first name": True}], "null": None}


@pytest.mark.parametrize(
    "text",
    ["{{1 + 1}}", "{{}}", "{{ }}", "{{a..b}}", "{{a.b()}}", "{{a[b]}}", "{{a[-1]}}", "{{a|upper}}"],
)
def test_anything_but_a_path_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template({"list": ["fine", text]})
    assert caught.value.path == ("list", 1)


@pytest.mark.parametrize("text", ["__class__", "$trigger.__class__.__mro__", "read-it.append"])
def test_what_python_knows_of_a_value_is_out_of_reach(text: str) -> None:
    assert render("{{" + text + "}}") is None


def test_a_rendered_text_is_not_a_template_again() -> None:
    template = parse_template("{{a}} {{b}}")
    assert template.render({"a": "{{b}}", "b": "{{a}}"}) == "{{b}} {{a}}"


def test_the_lookups_of_a_template_can_be_listed() -> None:
    template = parse_template({"{{a}}": ["{{b.c}} {{$env.KEY}}", 1], "x": "{{d}}"})
    paths = [".".join(lookup.steps) for lookup in lookups(template)]
    assert paths == ["a", "b.c", "$env.KEY", "d"]


@given(json_values)
def test_values_without_braces_stay_as_they_are(value: object) -> None:
    if "{{" not in str(value):
        template = parse_template(value)
        assert isinstance(template, FixedValue)
        assert template.render({}) == value


@given(st.text(alphabet="{}$.[]a0 "))
def test_every_text_is_a_template_or_refused(text: str) -> None:
    with suppress(TemplateError):
        parse_template(text).render({"a": [{"0": "a"}]})


@pytest.mark.clock
@pytest.mark.parametrize("text", ["{{" + " " * 20_000, "{{" * 20_000, "{{ \n" * 20_000])
def test_braces_that_nothing_closes_are_read_at_once(text: str) -> None:
    start = time.perf_counter()
    assert render(text) == text
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("index", ["9" * 5000, "10", "\N{SUPERSCRIPT TWO}"])
def test_an_index_behind_the_end_of_a_list_leads_nowhere(index: str) -> None:
    assert Lookup(("read-it", index)).render(SCOPE) is None


def test_a_text_that_repeats_a_large_value_is_not_written() -> None:
    template = parse_template("{{body}}" * 17)
    with pytest.raises(RenderedTooLarge):
        template.render({"body": "x" * 2**20})


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://a.example/?q={{q}}&n={{n}}", "https://a.example/?q=a%20%26%20b%23%3D%C3%A9&n=5"),
        ("https://a.example/?q=x-{{q}}", "https://a.example/?q=x-a%20%26%20b%23%3D%C3%A9"),
        ("{{base}}/items/{{path}}?f={{object}}", "https://b.example/items/a/b?f=%7B%22a%22%3A1%7D"),
        # Names, and whole queries that an operation has made.
        ("{{base}}?{{query}}", "https://b.example?a=1&b=2"),
        ("{{base}}?x=1&{{query}}", "https://b.example?x=1&a=1&b=2"),
        ("{{whole}}&c={{q}}", "https://b.example/?a=1&b=2&c=a%20%26%20b%23%3D%C3%A9"),
        ("{{whole}}", "https://b.example/?a=1&b=2"),
        ("https://a.example/?q=a&b", "https://a.example/?q=a&b"),
    ],
)
def test_values_in_the_query_of_a_requested_url_are_encoded(url: str, sent: str) -> None:
    values = {
        "q": "a & b#=é",
        "n": 5,
        "base": "https://b.example",
        "path": "a/b",
        "object": {"a": 1},
        "query": "a=1&b=2",
        "whole": "https://b.example/?a=1&b=2",
    }
    template = OPERATION_TYPES["request"].options["url"].template(url)
    assert template.render(values) == sent
    # Elsewhere values stand as they are.
    assert parse_template("?q={{q}}").render(values) == "?q=a & b#=é"
