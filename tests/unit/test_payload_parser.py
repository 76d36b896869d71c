"""Payloads taken apart: which rows they hold, how these refer to each other, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cms.errors import Refused
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.stages.parsed import (
    ColumnRows,
    Expects,
    Owner,
    ParsedSet,
    ParsedToMany,
    ParsedToOne,
    PendingKey,
)
from cms.schema.model import Collection
from cms.schema.payload import ItemParser
from tests.unit.library import AUTHORS, BOOKS, COUNTRIES, LIBRARY, TOPICS, item_parser

PENDING = "the key of a row that is written first"

Item = Mapping[str, object]


def parser(max_depth: int = 3) -> PayloadParser:
    return PayloadParser(LIBRARY, max_depth, item_parser)


def parse(*items: object, expects: Expects = Expects.ABSENT) -> ParsedSet:
    """Parse sound items of books."""
    sound = parser()
    parsed = sound.parse(BOOKS, items, expects)
    assert sound.problems.entries == []
    return parsed


def problems(*items: object) -> list[tuple[object, ...]]:
    """Return code, index, path and reason of what is wrong with items of books."""
    wrong = parser()
    wrong.parse(BOOKS, items, Expects.ABSENT)
    return [
        (
            problem.code,
            problem.extensions.get("index"),
            problem.extensions.get("path"),
            problem.extensions.get("reason"),
        )
        for _, problem in wrong.problems.entries
    ]


def values(parsed: ParsedSet) -> list[dict[str, object]]:
    """Return the values of the rows, with PENDING for keys that are not known yet."""
    return [
        {
            name: PENDING if isinstance(value, PendingKey) else value
            for name, value in row.values.items()
        }
        for row in parsed.rows
    ]


def to_one(parsed: ParsedSet) -> ParsedToOne:
    (only,) = parsed.to_one
    return only


def to_many(parsed: ParsedSet) -> ParsedToMany:
    (only,) = parsed.to_many
    return only


# Items


def test_an_item_becomes_a_row_of_texts() -> None:
    parsed = parse({"id": 5, "title": "a", "author": None})
    assert values(parsed) == [{"id": "5", "title": "a", "author": None}]
    assert parsed.rows[0].sent == {"id": 5, "title": "a", "author": None}
    assert (parsed.level, parsed.is_flat) == (0, True)


def test_items_of_the_same_fields_are_parsed_by_columns() -> None:
    parsed = parse({"title": "a"}, {"title": "b"}, expects=Expects.PRESENT)
    assert isinstance(parsed.rows, ColumnRows)
    assert [row.values for row in parsed.rows] == [{"title": "a"}, {"title": "b"}]
    assert [row.position.number for row in parsed.rows] == [0, 1]
    assert [row.expects for row in parsed.rows] == [Expects.PRESENT] * 2


def test_items_of_other_fields_have_their_numbers_too() -> None:
    parsed = parse({"title": "a"}, {"author": 1})
    assert values(parsed) == [{"title": "a"}, {"author": "1"}]
    assert [row.position.number for row in parsed.rows] == [0, 1]


def test_a_call_without_items_has_no_rows() -> None:
    assert parse().rows == []


def test_items_of_another_shape_are_problems_and_no_rows() -> None:
    wrong = parser()
    parsed = wrong.parse(BOOKS, [5, {"title": "a"}, None], Expects.ABSENT)
    assert values(parsed) == [{"title": "a"}]
    assert [number for number, _ in wrong.problems.entries] == [0, 2]


def test_all_problems_of_all_items_are_gathered() -> None:
    assert problems({"id": "x", "nothing": 1}, {"author": 1.5}) == [
        ("INVALID_PAYLOAD", 0, ["id"], "it must be a whole number"),
        ("INVALID_PAYLOAD", 0, ["nothing"], "there is no such field"),
        ("INVALID_PAYLOAD", 1, ["author"], "it must be a whole number"),
    ]


# Objects at to-one fields


def test_an_object_is_a_row_of_its_own_that_the_item_points_to() -> None:
    parsed = parse({"title": "a", "author": {"name": "Ann"}})
    assert values(parsed) == [{"title": "a", "author": PENDING}]
    author = to_one(parsed)
    assert (author.name, author.targets.collection, author.targets.level) == ("author", AUTHORS, 1)
    assert values(author.targets) == [{"name": "Ann"}]
    assert author.pairs == ((0, 0),)
    (row,) = author.targets.rows
    assert (row.expects, row.owner, row.position.path) == (Expects.ANY, Owner(0), ("author",))


def test_objects_of_all_items_are_one_set() -> None:
    parsed = parse({"author": {"name": "Ann"}}, {"title": "x"}, {"author": {"name": "Bob"}})
    assert values(to_one(parsed).targets) == [{"name": "Ann"}, {"name": "Bob"}]
    assert to_one(parsed).pairs == ((0, 0), (2, 1))


def test_objects_of_one_key_are_one_row_in_which_later_values_win() -> None:
    parsed = parse(
        {"author": {"id": 7, "name": "Ann", "agent": 1}}, {"author": {"id": 7, "name": "Bob"}}
    )
    assert values(to_one(parsed).targets) == [{"id": "7", "name": "Bob", "agent": "1"}]
    assert to_one(parsed).pairs == ((0, 0), (1, 0))
    assert to_one(parsed).targets.rows[0].owner == Owner(0)


def test_a_later_value_takes_the_place_of_an_object() -> None:
    parsed = parse({"author": {"id": 7, "agent": {"name": "x"}}}, {"author": {"id": 7, "agent": 9}})
    authors = to_one(parsed).targets
    assert values(authors) == [{"id": "7", "agent": "9"}]
    assert to_one(authors).pairs == ()


def test_items_of_a_view_may_be_named_by_their_key_alone() -> None:
    (country,) = parse({"country": {"id": 1}}).to_one
    assert country.targets.collection is COUNTRIES
    assert country.targets.rows[0].expects is Expects.PRESENT
    ((code, _, path, _),) = problems({"country": {"id": 1, "name": "x"}})
    assert (code, path) == ("FORBIDDEN", ["country"])


# Lists


def test_elements_are_rows_that_point_to_their_owner_with_their_place() -> None:
    parsed = parse({"pages": [{"text": "a"}, {"text": "b", "position": 9}]})
    pages = to_many(parsed)
    assert values(pages.elements) == [
        {"text": "a", "position": "1", "book": PENDING},
        {"text": "b", "position": "9", "book": PENDING},
    ]
    assert (pages.pairs, pages.replaced_lists) == (((0, 0), (0, 1)), (0,))
    assert [row.owner for row in pages.elements.rows] == [Owner(0, pages.link.far)] * 2
    assert [row.position.path for row in pages.elements.rows] == [("pages", 0), ("pages", 1)]


def test_a_key_in_a_list_is_a_row_that_is_there() -> None:
    (row,) = to_many(parse({"pages": [5]})).elements.rows
    assert (row.values["id"], row.expects, row.sent) == ("5", Expects.PRESENT, {"id": 5})


def test_a_list_may_be_changed_instead_of_replaced() -> None:
    changes = {"create": [{"text": "new"}], "update": [{"id": 1}, 2], "delete": [3, "4"]}
    pages = to_many(parse({"pages": changes}))
    assert pages.replaced_lists == ()
    assert [row.expects for row in pages.elements.rows] == [
        Expects.ABSENT,
        Expects.PRESENT,
        Expects.PRESENT,
    ]
    # Only an array that replaces the list tells the places of its elements.
    assert "position" not in pages.elements.rows[0].values
    removals = [(removal.owner, removal.sent, removal.values) for removal in pages.removals]
    assert removals == [(0, 3, {"id": "3"}), (0, "4", {"id": "4"})]
    assert pages.removals[1].position.path == ("pages", "delete", 1)


@pytest.mark.parametrize(
    ("pages", "path", "reason"),
    [
        ("x", None, "it must be an array, or an object that holds create, update or delete"),
        ({"remove": []}, None, "it must be an array, or an object that holds create, update or"),
        ({"create": {}}, ["pages", "create"], "it must be an array"),
        ({"create": [5]}, ["pages", "create", 0], "it must be an object"),
        ([None], ["pages", 0], "it must be an object or a key"),
        ([[1]], ["pages", 0], "it must be an object or a key"),
        ([{"id": 1}, {"id": 1}], ["pages", 1], "it is there twice"),
        ([1, "1"], ["pages", 1], "it is there twice"),
        ({"delete": ["x"]}, ["pages", "delete", 0], "it must be a whole number"),
        ([{"text": {}}], ["pages", 0, "text"], "it must be a string"),
    ],
)
def test_a_wrong_list_is_reported_with_its_position(
    pages: object, path: list[object] | None, reason: str
) -> None:
    ((code, _, problem_path, problem_reason), *_) = problems({"pages": pages})
    assert code == "INVALID_PAYLOAD"
    assert problem_path == (path or ["pages"])
    assert str(problem_reason).startswith(reason)


def test_an_object_that_is_named_twice_may_have_one_list_only() -> None:
    author = {"id": 7, "books": [{"title": "x"}]}
    (problem,) = problems({"author": author}, {"author": author})
    assert problem[1:] == (1, ["author"], "it is there twice")


# Many-to-any


def test_a_new_item_names_the_collection_of_its_object() -> None:
    parsed = parse({"topic_kind": "topics", "topic": {"name": "x"}})
    assert values(parsed) == [{"topic_kind": "topics", "topic": PENDING}]
    assert to_one(parsed).targets.collection is TOPICS
    ((code, _, path, reason),) = problems({"topic": {"name": "x"}})
    assert (code, path) == ("INVALID_PAYLOAD", ["topic"])
    assert reason == '"topic_kind" must say to which collection it belongs'


def test_objects_of_stored_items_wait_for_their_collections() -> None:
    waiting = parser()
    items: list[Item] = [{"id": 1, "topic": {"name": "x"}}, {"id": 2, "topic": {"name": "y"}}]
    parsed = waiting.parse(BOOKS, items, Expects.PRESENT)
    assert [(item.row, item.field) for item in parsed.unresolved] == [(0, "topic"), (1, "topic")]
    assert parsed.to_one == ()
    attached = waiting.attach_resolved(parsed, ["topics", "authors"])
    assert attached.unresolved == ()
    targets = {target.targets.collection.name: target for target in attached.to_one}
    assert {name: values(targets[name].targets) for name in targets} == {
        "topics": [{"name": "x"}],
        "authors": [{"name": "y"}],
    }
    assert (targets["topics"].pairs, targets["authors"].pairs) == (((0, 0),), ((1, 0),))
    assert waiting.problems.entries == []


# Limits and hidden names


def test_a_payload_is_no_deeper_than_the_limit() -> None:
    nested: dict[str, Any] = {"author": {"agent": {"name": "x"}}}
    assert parser(2).parse(BOOKS, [nested], Expects.ABSENT).to_one
    with pytest.raises(Refused) as refused:
        parser(1).parse(BOOKS, [nested], Expects.ABSENT)
    (problem,) = refused.value.problems
    assert "deeper than 1" in problem.message
    assert problem.extensions["path"] == ["author", "agent"]


def test_a_name_that_the_caller_must_not_name_refuses_the_payload_at_once() -> None:
    def allowed(of: Collection, expects: Expects) -> ItemParser:
        return ItemParser(of, lambda name: False, names=frozenset({"title"}))

    limited = PayloadParser(LIBRARY, 3, allowed)
    with pytest.raises(Refused) as refused:
        limited.parse(BOOKS, [{"title": "a"}, {"title": "b", "author": 1}], Expects.ABSENT)
    assert [problem.code for problem in refused.value.problems] == ["FORBIDDEN"]
