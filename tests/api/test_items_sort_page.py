"""Sort, limit, offset and page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client import Client
from tests.things import Stage, Table, field, table


@pytest.fixture(scope="module")
def books(admin: Client) -> Table:
    """Items 1 to 5: two pairs of the same group, and one of none."""
    books = table(
        admin,
        field("title", "string"),
        field("shelf", "integer"),
        field("out", "timestamp"),
        field("tags", "csv"),
        field("extra", "json"),
        field("secret", "hash"),
    )
    rows: list[tuple[str | None, int | None, str | None]] = [
        ("b", 2, "2001-01-01"),
        ("a", 1, "2003-01-01"),
        (None, 2, None),
        ("B", 1, "2002-06-01"),
        ("c", None, "2001-06-01"),
    ]
    books.add(*({"title": title, "shelf": shelf, "out": out} for title, shelf, out in rows))
    return books


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("-id", [5, 4, 3, 2, 1]),
        ("shelf", [2, 4, 1, 3, 5]),
        ("-shelf", [5, 1, 3, 2, 4]),
        ("shelf,-id", [4, 2, 3, 1, 5]),
        ("-out", [3, 2, 4, 5, 1]),
        ("year(out),-out", [5, 1, 4, 2, 3]),
        (" -shelf , -title ", [5, 3, 1, 2, 4]),
        ("shelf,shelf,-shelf", [2, 4, 1, 3, 5]),
    ],
)
def test_items_are_sorted_as_asked_with_null_as_the_largest_and_the_key_last(
    books: Table, sort: str, expected: list[int]
) -> None:
    assert books.column("id", f"sort={sort}") == expected
    if sort:
        assert (
            books.column("id", "&".join(f"sort[]={term}" for term in sort.split(","))) == expected
        )


@pytest.mark.parametrize(
    "sort",
    [
        "nothing",
        "-",
        "title,,id",
        "*",
        "tags.x",
        "title.x",
        "extra",
        "secret",
        "year(title)",
        "count.id",
        "?",
        "--id",
    ],
)
def test_what_has_no_order_is_refused(books: Table, sort: str) -> None:
    answer = books.get(sort=sort)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


def test_csv_sorts_by_its_stored_form(books: Table) -> None:
    assert books.get(sort="tags").status == 200


def test_too_many_terms_are_refused(books: Table) -> None:
    assert books.get(sort=",".join(["id"] * 100)).status == 200
    assert books.get(sort=",".join(["id"] * 101)).codes == ["INVALID_QUERY"]


def test_the_collections_sort_field_is_the_usual_order(admin: Client, stage: Stage) -> None:
    manual = table(admin, field("place", "integer"), field("secret", "hash"), sort_field="place")
    manual.add({"place": 2}, {"place": None}, {"place": 1})
    assert manual.column("id") == [3, 1, 2]
    assert manual.column("id", "sort=-id") == [3, 2, 1]
    stage.execute(
        f"UPDATE system_collections SET sort_field = 'secret' WHERE collection = '{manual.name}'"
    )
    assert manual.column("id") == [1, 2, 3]


@pytest.mark.parametrize(
    ("query_string", "expected"),
    [
        ("limit=2", [1, 2]),
        ("limit=2&offset=1", [2, 3]),
        ("limit=2&page=1", [1, 2]),
        ("limit=2&page=3", [5]),
        ("limit=2&page=4", []),
        ("limit=2&page=2&offset=0", [1, 2]),
        ("offset=4", [5]),
        ("offset=9", []),
        ("limit=0", []),
        ("limit=-1", [1, 2, 3, 4, 5]),
        ("limit=-1&offset=3", [4, 5]),
        ("limit=-1&page=1", [1, 2, 3, 4, 5]),
        ("limit=-1&page=2", []),
        ("limit=-1&page=9", []),
        ("limit=&page=&offset=", [1, 2, 3, 4, 5]),
        ("page=2", []),
        (f"limit={10**18 - 1}&offset={10**18 - 1}", []),
    ],
)
def test_a_page_is_cut_by_limit_and_offset_or_page(
    books: Table, query_string: str, expected: list[int]
) -> None:
    assert books.column("id", query_string) == expected


@pytest.mark.parametrize("parameter", ["limit", "offset", "page"])
@pytest.mark.parametrize(
    "value", ["-2", "x", "1.5", "1e3", "0x1", "true", "9" * 400, str(2**62 + 1), "1,2"]
)
def test_a_wrong_limit_offset_or_page_is_refused(books: Table, parameter: str, value: str) -> None:
    answer = books.get(**{parameter: value})
    assert (answer.status, answer.codes, answer.errors[0]["parameter"]) == (
        400,
        ["INVALID_QUERY"],
        parameter,
    )


def test_page_zero_is_the_first_page(books: Table) -> None:
    for query_string in ("limit=2&page=0", "limit=2&page=0&meta=*"):
        assert books.column("id", query_string) == books.column("id", "limit=2&page=1")
    assert books.column("id", "page=0&offset=1&limit=2") == books.column("id", "offset=1&limit=2")


def test_a_page_out_of_range_is_refused(books: Table) -> None:
    for query_string in (
        "page=-1",
        "offset=-1",
        f"page={2**62}&limit={2**62}",
        "limit[a]=1",
        "limit=1&limit=2",
    ):
        assert set(books.read(query_string).codes) == {"INVALID_QUERY"}, query_string


def test_without_a_limit_a_page_has_a_hundred_items(admin: Client) -> None:
    many = table(admin)
    many.add(*({} for _ in range(150)))
    assert len(many.get().data) == 100
    assert many.column("id", "page=2") == list(range(101, 151))
    assert len(many.get(limit=-1).data) == 150
    assert len(many.get(limit=120).data) == 120


def test_the_settings_bound_a_page(make_client: Callable[..., Client], admin_token: str) -> None:
    client = make_client(query_limit_default=2, query_limit_max=4)
    admin = client.bearing(admin_token)
    few = table(admin)
    few.add(*({} for _ in range(6)))
    assert few.column("id") == [1, 2]
    assert few.column("id", "limit=-1") == few.column("id", "limit=9") == [1, 2, 3, 4]
    assert few.column("id", "limit=-1&page=2") == [5, 6]


def test_pages_of_equal_values_never_overlap(admin: Client) -> None:
    same = table(admin, field("n", "integer"))
    same.add(*({"n": number % 2} for number in range(40)))
    items = [
        key for page in range(1, 5) for key in same.column("id", f"sort=-n&limit=10&page={page}")
    ]
    assert sorted(items) == list(range(1, 41))
