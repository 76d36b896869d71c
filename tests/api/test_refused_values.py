"""What only the database refuses is reported with the field and the value that was sent."""

from __future__ import annotations

from typing import Any

import pytest

from cms.items.transfer import imports
from cms.items.write import nested
from tests.client import Answer, Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Stage, Table, field, table

GRADE = "CHECK (((VALUE >= 1) AND (VALUE <= 6)))"


CHECKED = """
    CREATE TYPE {name}_mood AS ENUM ('sad', 'happy');
    CREATE DOMAIN {name}_grade AS integer CHECK (VALUE BETWEEN 1 AND 6);
    ALTER TABLE {name} ADD mood {name}_mood, ADD grade {name}_grade, ADD net inet,
        ADD CONSTRAINT {name}_stars CHECK (stars BETWEEN 1 AND 5),
        ADD CONSTRAINT {name}_both CHECK (stars < price)
"""


CHECKED_MORE = """;
    CREATE DOMAIN {name}_code AS text CHECK (VALUE ~ '^[a-z]+$');
    CREATE DOMAIN {name}_short AS {name}_code CHECK (length(VALUE) < 4);
    ALTER TABLE {name} ADD hearts integer CHECK (hearts > 0), ADD short {name}_short,
        ADD nets inet[], ADD slug text UNIQUE, ADD a integer REFERENCES {name},
        ADD b integer NOT NULL DEFAULT 1 REFERENCES {name} ON DELETE CASCADE
            DEFERRABLE INITIALLY IMMEDIATE
"""


@pytest.fixture
def checked_table(stage: Stage) -> Table:
    return stage.empty_table(
        field("name", "string"), field("stars", "integer"), field("price", "decimal"), sql=CHECKED
    )


def error_of(answer: Answer, *names: str) -> dict[str, Any]:
    assert (answer.status, len(answer.errors)) == (400, 1), answer.text
    return {name: answer.errors[0].get(name) for name in ("code", *names)}


@pytest.mark.parametrize(
    ("item", "name", "rule"),
    [
        ({"name": "x", "stars": 9}, "stars", "CHECK (((stars >= 1) AND (stars <= 5)))"),
        ({"name": "x", "grade": 9}, "grade", GRADE),
        ({"name": "x", "mood": "angry"}, "mood", None),
        ({"name": "x", "net": "10.0.0.999"}, "net", None),
    ],
)
def test_a_new_and_a_changed_item(
    checked_table: Table, item: dict[str, Any], name: str, rule: str | None
) -> None:
    expected = {
        "code": "INVALID_PAYLOAD",
        "collection": checked_table.name,
        "field": name,
        "value": item[name],
        "path": [name],
        "rule": rule,
    }
    names = ("collection", "field", "value", "path", "rule")
    assert error_of(checked_table.api.post(checked_table.path, item), *names) == expected
    key = checked_table.add({"name": "y", "stars": 3})[0]["id"]
    assert (
        error_of(checked_table.api.patch(f"{checked_table.path}/{key}", item), *names) == expected
    )


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([{"stars": 1}, {"stars": 9}, {"stars": 2}], "stars"),
        ([{"stars": 1, "name": "a, b"}, {"stars": 9, "name": "c"}], "stars"),
        ([{"grade": 1}, {"grade": 9}], "grade"),
        ([{"mood": "sad"}, {"mood": "angry"}], "mood"),
    ],
)
def test_several_items(checked_table: Table, items: list[dict[str, Any]], name: str) -> None:
    answer = checked_table.api.post(checked_table.path, items)
    problem = error_of(answer, "field", "value", "index", "path")
    assert problem == {
        "code": "INVALID_PAYLOAD",
        "field": name,
        "value": items[1][name],
        "index": 1,
        "path": [name],
    }


def test_a_rule_of_two_fields_names_both(checked_table: Table) -> None:
    answer = checked_table.api.post(checked_table.path, {"stars": 3, "price": 1})
    assert error_of(answer, "fields", "rule", "field") == {
        "code": "INVALID_PAYLOAD",
        "fields": ["stars", "price"],
        "rule": "CHECK (((stars)::numeric < price))",
        "field": None,
    }


def test_no_problem_names_a_rule_on_hidden_fields(stage: Stage, checked_table: Table) -> None:
    create = may(checked_table.name, "name", action="create", presets={"stars": 9})
    reader_of_names = member(stage, create, may(checked_table.name, "id", "name"))
    error = reader_of_names.post(checked_table.path, {"name": "x"}).errors[0]
    assert "stars" not in str(error)
    assert not {"field", "fields", "rule", "constraint", "value"} & error.keys()
    both = member(
        stage,
        may(checked_table.name, "stars", action="create", presets={"price": 1}),
        may(checked_table.name, "stars"),
    )
    error = both.post(checked_table.path, {"stars": 3}).errors[0]
    assert "price" not in str(error)
    sighted = member(stage, may(checked_table.name, "stars", action="create"))
    assert error_of(
        sighted.post(checked_table.path, {"stars": 9}), "field", "value", "constraint"
    ) == {
        "code": "INVALID_PAYLOAD",
        "field": "stars",
        "value": 9,
        "constraint": None,
    }


def test_a_preset_is_nobodys_word(stage: Stage, checked_table: Table) -> None:
    caller = member(stage, may(checked_table.name, action="create", presets={"stars": 9}))
    error = caller.post(checked_table.path, {"name": "x"}).errors[0]
    assert (error["field"], "value" in error) == ("stars", False)


def test_an_import_reports_line_field_and_value(checked_table: Table) -> None:
    path = f"/utils/import/{checked_table.name}"
    for file, expected in (
        ("name,stars\r\na,1\r\nb,9\r\n", (3, "stars", 9)),
        ("name,grade\r\na,1\r\nb,9\r\n", (3, "grade", 9)),
        ("name,mood\r\na,sad\r\nb,angry\r\n", (3, "mood", "angry")),
        ("name,stars\r\na,x\r\nb,1\r\n", (2, "stars", "x")),
    ):
        answer = checked_table.api.send("POST", path, raw=file, **{"Content-Type": "text/csv"})
        assert [(error["line"], error["field"], error["value"]) for error in answer.errors] == [
            expected
        ], answer


def test_the_address_of_another_user(admin: Client) -> None:
    admin.post("/users", {"email": "taken@example.com"})
    answer = admin.post("/users", {"email": "Taken@Example.com"})
    assert error_of(answer, "field", "value", "collection", "path") == {
        "code": "RECORD_NOT_UNIQUE",
        "field": "email",
        "value": "Taken@Example.com",
        "collection": "system_users",
        "path": ["email"],
    }


@pytest.mark.parametrize("name", ["focal_point_x", "focal_point_y"])
def test_the_focal_point_of_a_file_is_reported_with_its_range(admin: Client, name: str) -> None:
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; '
        b'filename="x.txt"\r\n\r\nhi\r\n--edge--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=edge"}
    key = admin.send("POST", "/files", raw=body, **kind).data["id"]
    error = admin.patch(f"/files/{key}", {name: 1.5}).errors[0]
    assert (error["field"], error["value"]) == (name, 1.5)
    assert "from 0 to 1" in error["message"]


# All of them in one answer


@pytest.fixture
def many(stage: Stage) -> Table:
    """The same with more that the database checks, and one item."""
    fields = [field("name", "string"), field("stars", "integer"), field("price", "decimal")]
    things = stage.empty_table(*fields, sql=CHECKED + CHECKED_MORE)
    things.add({"id": 1, "slug": "taken", "b": 1})
    return things


def faults(answer: Answer, *names: str) -> list[tuple[Any, ...]]:
    problems = [
        tuple(error.get(name) for name in ("code", "field", "value", *names))
        for error in answer.errors
    ]
    return sorted(problems, key=str)


WRONG: dict[str, Any] = {
    "stars": 9,
    "hearts": -1,
    "grade": 7,
    "short": "ABC",
    "net": "nowhere",
    "nets": ["10.0.0.1", "there"],
    "slug": "taken",
    "a": 98,
    "b": 99,
}
CODES = {"slug": "RECORD_NOT_UNIQUE", "a": "INVALID_FOREIGN_KEY", "b": "INVALID_FOREIGN_KEY"}


def expected(names: Any) -> list[tuple[Any, ...]]:
    return sorted(
        ((CODES.get(name, "INVALID_PAYLOAD"), name, WRONG[name]) for name in names), key=str
    )


def test_keys_of_several_columns_exclusions_and_lists(stage: Stage, checked_table: Table) -> None:
    stage.execute(
        f"ALTER TABLE {checked_table.name} ADD span int4range, "
        "ADD EXCLUDE USING gist (span WITH &&), "
        f'ADD "a, b" integer,'
        f' ADD UNIQUE (name, stars), ADD UNIQUE (name, "a, b"), ADD codes varchar(3)[]'
    )
    checked_table.add({"name": "x", "stars": 1, "span": "[1,5)", "a, b": 7})
    post = checked_table.api.post
    for items in ({"name": "x", "stars": 1}, [{"name": "y"}, {"name": "x", "stars": 1}]):
        assert error_of(post(checked_table.path, items), "fields")["fields"] == ["name", "stars"]
    assert error_of(post(checked_table.path, {"name": "x", "a, b": 7}), "fields")["fields"] == [
        "name",
        "a, b",
    ]
    expected = {"code": "RECORD_NOT_UNIQUE", "field": "span", "value": "[2,3)"}
    assert error_of(post(checked_table.path, {"span": "[2,3)"}), "field", "value") == expected
    error = error_of(post(checked_table.path, {"codes": ["abcd"]}), "field", "value")
    assert error == {"code": "VALUE_TOO_LONG", "field": "codes", "value": ["abcd"]}
    caller = member(
        stage, may(checked_table.name, "name", "stars", action="create", presets={"a, b": 7})
    )
    error = caller.post(checked_table.path, {"name": "x"}).errors[0]
    assert "a, b" not in str(error)


def test_all_that_the_database_minds_of_an_item_is_reported(many: Table) -> None:
    for names in (
        WRONG,
        ["stars", "hearts"],
        ["a", "b"],
        ["slug", "b"],
        ["stars", "slug", "a"],
        ["net", "a"],
    ):
        item = {name: WRONG[name] for name in names}
        assert faults(many.api.post(many.path, item)) == expected(names), names
        key = many.add({"name": "fine"})[0]["id"]
        assert faults(many.api.patch(f"{many.path}/{key}", item)) == expected(names), names
        assert (
            faults(many.api.patch(many.path, {"keys": [1, key], "data": item})) == expected(names)
            or "slug" in names
        )


def test_what_the_database_minds_is_reported_beside_what_the_service_minds(many: Table) -> None:
    answer = many.api.post(
        many.path, {"name": "x" * 300, "price": "much", "stars": 9, "short": "ABC"}
    )
    assert [error["field"] for error in answer.errors] == ["name", "price", "short", "stars"]


def test_every_item_and_every_related_item_is_reported_with_its_place(many: Table) -> None:
    items = [
        {"stars": 9},
        {"grade": 1},
        {"grade": 8, "a": {"hearts": 0, "b": {"slug": "taken"}}},
        {"stars": 8},
    ]
    assert faults(many.api.post(many.path, items), "index", "path") == [
        ("INVALID_PAYLOAD", "grade", 8, 2, ["grade"]),
        ("INVALID_PAYLOAD", "hearts", 0, 2, ["a", "hearts"]),
        ("INVALID_PAYLOAD", "stars", 8, 3, ["stars"]),
        ("INVALID_PAYLOAD", "stars", 9, 0, ["stars"]),
        ("RECORD_NOT_UNIQUE", "slug", "taken", 2, ["a", "b", "slug"]),
    ]
    assert len(many.get().data) == 1


def test_rows_of_the_call_itself_are_no_fault(many: Table) -> None:
    many.add({"id": 7, "slug": "moves"})
    items = [
        {"id": 50, "slug": "new"},
        {"id": 51, "a": 50, "slug": "new"},
        {"id": 52, "a": 52, "b": 51, "stars": 9},
    ]
    assert faults(many.api.post(many.path, items), "index") == [
        ("INVALID_PAYLOAD", "stars", 9, 2),
        ("RECORD_NOT_UNIQUE", "slug", "new", 1),
    ]
    swap = [{"id": 1, "slug": "free", "stars": 9}, {"id": 7, "slug": "taken"}]
    assert faults(many.api.patch(many.path, swap), "index") == [("INVALID_PAYLOAD", "stars", 9, 0)]


def test_a_rule_of_several_fields_is_reported_for_every_item_that_breaks_it(many: Table) -> None:
    items = [{"stars": 3, "price": 1}, {"stars": 2, "price": 9}, {"stars": 5, "price": 5}]
    answer = many.api.post(many.path, items)
    assert [(error["index"], error["fields"]) for error in answer.errors] == [
        (0, ["stars", "price"]),
        (2, ["stars", "price"]),
    ]


def test_of_many_faults_the_first_hundred_are_reported(many: Table) -> None:
    answer = many.api.post(many.path, [{"net": f"bad {number}"} for number in range(500)])
    assert (answer.status, len(answer.errors)) == (400, 100)


def test_the_operations_of_a_batch_report_every_problem(many: Table) -> None:
    operation = {"method": "create", "collection": many.name, "data": {"stars": 9, "hearts": 0}}
    answer = many.api.post(
        "/batch", {"operations": [{"method": "read", "collection": many.name}, operation]}
    )
    assert faults(answer, "operation") == [
        ("INVALID_PAYLOAD", "hearts", 0, 1),
        ("INVALID_PAYLOAD", "stars", 9, 1),
    ]


def test_a_check_that_cannot_be_tried_is_passed_over(stage: Stage, many: Table) -> None:
    stage.execute(
        f"CREATE FUNCTION odd(what {many.name}) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT "
        f"what.id % 2 = 1';"
        f"ALTER TABLE {many.name} ADD CHECK (odd({many.name}.*) OR odd({many.name}.*) IS NULL) NOT "
        f"VALID,"
        f" ADD n integer CHECK (100 / n > 0)"
    )
    assert faults(
        many.api.post(many.path, {"id": 3, "stars": 9, "hearts": 0, "n": 0, "short": "ABC"})
    ) == [
        ("INVALID_PAYLOAD", "hearts", 0),
        ("INVALID_PAYLOAD", "short", "ABC"),
        ("INVALID_PAYLOAD", "stars", 9),
    ]


def test_nobody_learns_what_a_hidden_item_holds_by_a_value_that_no_type_takes(
    stage: Stage, many: Table
) -> None:
    seen = {"permissions": {"name": {"_eq": "seen"}}}
    caller = member(
        stage, *(may(many.name, action=action, **seen) for action in ("read", "update"))
    )
    answers = [
        caller.patch(f"{many.path}/{key}", {"net": "nowhere", "slug": "taken"}) for key in (1, 2)
    ]
    assert [(answer.status, answer.text) for answer in answers] == [(404, answers[0].text)] * 2


def test_both_focal_points_of_a_file(admin: Client) -> None:
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; '
        b'filename="x.txt"\r\n\r\nhi\r\n--edge--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=edge"}
    key = admin.send("POST", "/files", raw=body, **kind).data["id"]
    answer = admin.patch(f"/files/{key}", {"focal_point_x": 1.5, "focal_point_y": -1})
    assert faults(answer) == [
        ("INVALID_PAYLOAD", "focal_point_x", 1.5),
        ("INVALID_PAYLOAD", "focal_point_y", -1),
    ]
    assert all("from 0 to 1" in error["message"] for error in answer.errors)


# Imports


def test_an_import_reports_every_row_that_the_database_refuses(
    many: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_ROWS", 4)
    rows = [
        "9,0,,",
        "1,1,x,",
        ",,taken,77",
        ",,y,1",
        ",,x,",
        "1,1,z,88",
        "no,-1,,",
        "8,1,,",
        ",,w,99",
    ]
    answer = post_file(many, "\r\n".join(["stars,hearts,slug,a", *rows]))
    assert faults(answer, "line") == [
        ("INVALID_FOREIGN_KEY", "a", 77, 4),
        ("INVALID_FOREIGN_KEY", "a", 88, 7),
        ("INVALID_FOREIGN_KEY", "a", 99, 10),
        ("INVALID_PAYLOAD", "hearts", "-1", 8),
        ("INVALID_PAYLOAD", "hearts", 0, 2),
        ("INVALID_PAYLOAD", "stars", "no", 8),
        ("INVALID_PAYLOAD", "stars", 8, 9),
        ("INVALID_PAYLOAD", "stars", 9, 2),
        ("RECORD_NOT_UNIQUE", "slug", "taken", 4),
        ("RECORD_NOT_UNIQUE", "slug", "x", 6),
    ]
    assert [error["line"] for error in answer.errors] == sorted(
        error["line"] for error in answer.errors
    )
    assert len(many.get().data) == 1


def test_an_import_reports_no_row_that_points_to_a_refused_one(many: Table) -> None:
    answer = post_file(many, "id,stars,a\r\n20,9,\r\n21,1,20\r\n22,1,21\r\n23,1,24\r\n")
    assert faults(answer, "line") == [
        ("INVALID_FOREIGN_KEY", "a", 24, 5),
        ("INVALID_PAYLOAD", "stars", 9, 2),
    ]


def test_an_import_reports_no_row_that_points_to_one_beside_a_refused_one(
    many: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_ROWS", 2)
    for wrong in ("no", "9"):
        answer = post_file(many, f"id,stars,a\r\n20,{wrong},\r\n21,1,\r\n22,1,21\r\n")
        assert [(error["field"], error["line"]) for error in answer.errors] == [("stars", 2)], (
            answer
        )


@pytest.mark.release
def test_an_import_stops_asking_the_database_after_a_hundred_faults(
    many: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_ROWS", 10)
    tried: list[int] = []
    write = nested.write_tree

    def counted(executor: Any, authorizer: Any, payload: Any) -> Any:
        tried.append(len(payload.root.rows))
        return write(executor, authorizer, payload)

    monkeypatch.setattr(imports, "write_tree", counted)
    answer = post_file(many, "stars\r\n" + "9\r\n" * 5_000)
    assert (len(answer.errors), answer.errors[-1]["total"]) == (101, 100)
    assert sum(tried) < 1_000


def test_sums_that_are_out_of_range_name_their_fields(stage: Stage) -> None:
    sums = table(stage.admin, field("v", "float"), field("w", "float"))
    sums.add({"v": 1.7e308, "w": 1}, {"v": 1.7e308, "w": 2})
    for query in (
        "aggregate[sum]=v",
        "aggregate[avg]=v&aggregate[count]=w",
        "aggregate[avg]=v&export=csv",
    ):
        answer = sums.read(query)
        assert answer.codes == ["VALUE_OUT_OF_RANGE"]
        assert answer.errors[0]["field"] == "v"
    both = sums.read("aggregate[sum]=v,w").errors[0]
    assert both["fields"] == ["v", "w"]
    reads = {"method": "read", "collection": sums.name, "query": {"aggregate": {"avg": ["v"]}}}
    assert sums.api.post("/batch", {"operations": [reads]}).errors[0]["field"] == "v"


@pytest.mark.parametrize("kind", ["bit(3)", "bit varying(3)", "bit"])
def test_bits_of_another_length_name_their_field(stage: Stage, kind: str) -> None:
    things = Table(stage.admin, f"bits_{len(kind)}")
    stage.execute(f"CREATE TABLE {things.name} (id serial PRIMARY KEY, v {kind})")
    for value in ("1010", "x", "12"):
        (error,) = things.api.post(things.path, [{"v": "1"}, {"v": value}]).errors[-1:]
        assert (error["code"], error["field"], error["index"]) == ("INVALID_PAYLOAD", "v", 1)
