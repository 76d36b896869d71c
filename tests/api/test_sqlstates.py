"""Each row of the table of SQLSTATEs is what is answered where a real trigger raises its states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from cms.database.sqlstates import SQLSTATES, Origin, Reaction, SqlstateAnswer, answer_to
from cms.errors import STATUS
from tests.client import Answer
from tests.house.test_docs import page
from tests.things import Json, Stage

SENTENCE = "not on Sundays"
ANY_CLASS = "MY001"
PT = ("PT400", "PT409", "PT422", "PT499", "PT399", "PT500", "PT302", "PT4AB")
RAISED_BY_NOBODY = ("57P01", "57P02", "57P03")
LONG = "".join(str(number**5) for number in range(4_000))
_numbers = count(1)

WORDS = {
    Reaction.RULE_VIOLATED: "permission to access this",
    Reaction.ROWS_MISSING: "kept",
    Reaction.DEADLOCK: "busy with other changes",
    Reaction.TOO_SLOW: "longer than DB_STATEMENT_TIMEOUT",
    Reaction.LOCKED: "hold a lock",
    Reaction.FULL: "no room left",
    Reaction.SHORT_OF_RESOURCES: "lacks the means",
    Reaction.UNREACHABLE: "does not answer",
    Reaction.UNEXPECTED: "",
}
"""What answers say where the sentence of the trigger is not all of them."""


def states() -> Iterator[str]:
    """Yield every state of the table, with a subclass of each class, and those of one's own."""
    named: dict[str, None] = dict.fromkeys((ANY_CLASS, "45000", "ZZ123", *PT))
    for row in SQLSTATES:
        for state in row.states:
            named[state if len(state) == 5 else f"{state:0<5}"] = None
    yield from (state for state in named if state not in ("00000", *RAISED_BY_NOBODY))


def raising(stage: Stage, body: str) -> str:
    """Return the path of a new table with a trigger whose function has this body."""
    name = f"raising_{next(_numbers)}"
    stage.execute(
        f"CREATE TABLE {name} (id integer PRIMARY KEY, n integer CHECK (n > 0), m integer UNIQUE);"
        f"INSERT INTO {name} VALUES (7, 1, 1);"
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN {body.replace('raising', name)} RETURN NEW; END$$;"
        f"CREATE TRIGGER {name} BEFORE INSERT ON {name} FOR EACH ROW WHEN (NEW.id < 3) "
        f"EXECUTE FUNCTION {name}()"
    )
    return f"/items/{name}"


def answers(stage: Stage, body: str) -> list[Answer]:
    path = raising(stage, body)
    items = [{"id": 1}, {"id": 2}]
    return [stage.admin.post(path, {"id": 1}), stage.admin.post(path, items)]


def require(answer: Answer, row: SqlstateAnswer, state: str) -> None:
    """Require that an answer is that of a row."""
    assert (answer.status, answer.codes) == (row.status(state), [row.code]), (row, answer)
    message = answer.errors[0]["message"]
    if row.reaction is Reaction.OWN_WORDS:
        assert message == SENTENCE
        assert answer.errors[0]["reason"] == SENTENCE
    else:
        assert SENTENCE not in message or "lacks the means" in message
        assert WORDS[row.reaction] in message
    assert ("retry-after" in answer.headers) == (answer.status == 503)


@pytest.mark.quick(6)
@pytest.mark.parametrize("state", list(states()))
def test_what_a_trigger_raises_is_answered_as_the_table_says(stage: Stage, state: str) -> None:
    body = f"RAISE EXCEPTION '{SENTENCE}' USING ERRCODE = '{state}';"
    for answer in answers(stage, body):
        require(answer, answer_to(state, Origin.RAISED), state)


EXPECTED = {
    "P0001": 400, "P0002": 400, "P0004": 400, "45000": 400, "ZZ123": 400, "MY001": 400,
    "22000": 400, "22012": 400, "23505": 400, "23514": 400, "42501": 403, "42P01": 400,
    "55000": 400, "PT400": 400, "PT409": 409, "PT422": 422, "PT499": 499, "PT399": 400,
    "PT500": 400, "PT302": 400, "PT4AB": 400, "40001": 503, "53100": 507, "55P03": 503,
    "57014": 503, "08006": 503, "53200": 503, "58030": 503, "XX000": 500, "2F005": 400,
    "0A000": 400, "25006": 400, "CM403": 403, "CM400": 422,
}  # fmt: skip


@pytest.mark.parametrize("state", EXPECTED)
def test_the_statuses_of_what_is_raised_are_these(state: str) -> None:
    row = answer_to(state, Origin.RAISED)
    assert row.status(state) == EXPECTED[state]
    if row.status(state) < 500 and state[:2] != "CM":
        assert row.reaction is Reaction.OWN_WORDS
        assert row.code == ("FORBIDDEN" if state == "42501" else "UNPROCESSABLE_CONTENT")


FAILING: list[tuple[str, int, str, str]] = [
    ("NEW.n := 1 / 0;", 400, "UNPROCESSABLE_CONTENT", "division by zero"),
    ("NEW.n := 'x'::integer;", 400, "UNPROCESSABLE_CONTENT", "invalid input syntax"),
    ("NEW.n := 3000000000;", 400, "UNPROCESSABLE_CONTENT", "out of range"),
    ("ASSERT NEW.id > 5, 'too few';", 400, "UNPROCESSABLE_CONTENT", "too few"),
    (
        "SELECT id INTO STRICT NEW.n FROM raising WHERE id = 99;",
        400,
        "UNPROCESSABLE_CONTENT",
        "query returned no rows",
    ),
    (
        "INSERT INTO raising VALUES (NEW.id + 10, -1);",
        400,
        "INVALID_PAYLOAD",
        "breaks a rule of the table",
    ),
    (
        "INSERT INTO raising VALUES (NEW.id + 10, 1, 1);",
        400,
        "RECORD_NOT_UNIQUE",
        "must be unique",
    ),
    (
        "INSERT INTO raising VALUES (NULL);",
        400,
        "NOT_NULL_VIOLATION",
        "A value is required",
    ),
    ("NEW.n := CASE NEW.id WHEN 99 THEN 1 END; CASE NEW.id WHEN 99 THEN NULL; END CASE;",
     400, "INVALID_PAYLOAD", "case not found"),
    ("NEW.n := (SELECT generate_series(1, 2));", 400, "INVALID_PAYLOAD", "more than one row"),
    ("INSERT INTO nowhere VALUES (1);", 500, "INTERNAL_SERVER_ERROR", ""),
    ("NEW.nothing := 1;", 500, "INTERNAL_SERVER_ERROR", ""),
    ("PERFORM no_function(1);", 500, "INTERNAL_SERVER_ERROR", ""),
    ("EXECUTE 'SELEC 1';", 500, "INTERNAL_SERVER_ERROR", ""),
    ("PERFORM 1::uuid;", 500, "INTERNAL_SERVER_ERROR", ""),
    ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; COMMIT;", 500, "INTERNAL_SERVER_ERROR", ""),
    ("PERFORM nextval('nowhere_seq');", 500, "INTERNAL_SERVER_ERROR", ""),
]  # fmt: skip
"""Bodies of triggers that raise nothing themselves."""


@pytest.mark.quick(4)
@pytest.mark.parametrize(("body", "status", "code", "words"), FAILING)
def test_a_trigger_that_fails_is_told_from_one_that_refuses(
    stage: Stage, body: str, status: int, code: str, words: str
) -> None:
    for answer in answers(stage, body):
        assert (answer.status, answer.codes) == (status, [code]), answer
        assert words in answer.errors[0]["message"]
        assert "retry-after" not in answer.headers
        # What a trigger refuses elsewhere may quote the row of another.
        assert "detail" not in answer.text.lower()


def test_a_trigger_that_ends_without_a_row_is_broken(stage: Stage) -> None:
    path = raising(stage, "IF NEW.id = 3 THEN RETURN NEW; END IF;")
    name = path.rpartition("/")[2]
    stage.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN END$$"
    )
    answer = stage.admin.post(path, {"id": 1})
    assert (answer.status, answer.codes) == (500, ["INTERNAL_SERVER_ERROR"])


REFUSED: list[tuple[str, str, Json]] = [
    ("23505", "a integer UNIQUE", {"a": 1}),
    ("23P01", "a int4range DEFAULT '[1,3)', EXCLUDE USING gist (a WITH &&)", {}),
    ("23503", "a integer REFERENCES {name}", {"a": 99}),
    ("23502", "a integer NOT NULL GENERATED ALWAYS AS (b + 0) STORED", {"b": None}),
    ("23514", "a integer, CHECK (a < 5)", {"a": 9}),
    ("22001", "a varchar(3) GENERATED ALWAYS AS (c) STORED", {"c": "long"}),
    ("22003", "a smallint GENERATED ALWAYS AS (b) STORED", {"b": 99_999}),
    ("22008", "a date GENERATED ALWAYS AS ('2024-01-01'::date + b) STORED", {"b": 2_147_000_000}),
    ("22015", "a integer CHECK (c::interval IS DISTINCT FROM '1 day')", {"c": "P99999999999Y"}),
    ("22026", "a bit(3) GENERATED ALWAYS AS (CASE b WHEN 9 THEN B'1111' END) STORED", {"b": 9}),
    ("2200H", "a integer GENERATED ALWAYS AS IDENTITY (MAXVALUE 2 START 2)", {}),
    ("54000", "a text UNIQUE GENERATED ALWAYS AS (c) STORED", {"c": LONG}),
    ("42601", "a tsquery", {"a": "& &"}),
    ("22P02", "a point", {"a": "nowhere"}),
    ("22012", "a integer GENERATED ALWAYS AS (1 / b) STORED", {"b": 0}),
]
"""Columns of a table, and an item that the database itself refuses with an SQLSTATE."""


@pytest.mark.quick(4)
@pytest.mark.parametrize(("state", "columns", "item"), REFUSED)
def test_what_a_table_refuses_is_answered_as_the_table_says(
    stage: Stage, state: str, columns: str, item: Json
) -> None:
    name = f"refusing_{state.lower()}"
    stage.execute(
        f"CREATE TABLE {name} (id serial PRIMARY KEY, b integer DEFAULT 1, c text, "
        f"{columns.format(name=name)})"
    )
    path = f"/items/{name}"
    assert stage.admin.post(path, {"b": 1, "c": None}).status == 200
    origin = Origin.VALUE if state == "42601" else Origin.STATEMENT
    row = answer_to(state, origin)
    if state == "23505":
        assert stage.admin.post(path, item).status == 200
    bodies: list[object] = [item]
    # Two rows of nothing but defaults are in conflict here.
    if state not in ("23P01", "2200H"):
        bodies.append([{}, item])
    for body in bodies:
        answer = stage.admin.post(path, body)
        assert (answer.status, answer.codes) == (STATUS[row.code], [row.code]), answer
        message = answer.errors[0]["message"]
        if row.reaction is Reaction.CONFLICT:
            assert row.sentence in message, answer


def test_what_functions_of_other_statements_refuse_keeps_their_words(stage: Stage) -> None:
    stage.execute(
        "CREATE FUNCTION is_good(n integer) RETURNS boolean LANGUAGE plpgsql AS "
        "$$BEGIN IF n = 13 THEN RAISE 'an unlucky number' USING ERRCODE = 'PT418'; END IF; "
        "RETURN true; END$$;"
        "CREATE TABLE lucky (id integer PRIMARY KEY, n integer CHECK (is_good(n)), "
        "d integer DEFAULT 1);"
        "CREATE VIEW lucky_view AS SELECT id, is_good(n + 1) AS good FROM lucky"
    )
    answer = stage.admin.post("/items/lucky", {"id": 1, "n": 13})
    assert (answer.status, answer.codes) == (418, ["UNPROCESSABLE_CONTENT"])
    assert stage.admin.post("/items/lucky", {"id": 1, "n": 12}).status == 200
    read = stage.admin.get("/items/lucky_view")
    assert (read.status, read.codes) == (418, ["UNPROCESSABLE_CONTENT"])
    assert read.errors[0]["message"] == "an unlucky number"


def described(row: SqlstateAnswer) -> str:
    """Return the line of a row in docs/errors.md."""
    whole = [f"`{state}`" for state in row.states if len(state) == 5]
    classes = [f"`{state}`" for state in row.states if 0 < len(state) < 5]
    parts = [*whole]
    if classes:
        parts.append(("class " if len(classes) == 1 else "classes ") + ", ".join(classes))
    status = (
        400 if row.reaction is Reaction.OWN_WORDS and row.status("") == 400 else STATUS[row.code]
    )
    return (
        f"| {', '.join(parts) or 'any other'} | {row.origin.value if row.origin else 'any'} "
        f"| {status} `{row.code}` | {row.sentence or row.reaction.value} |"
    )


def test_the_documentation_has_the_table() -> None:
    table = "\n".join(map(described, SQLSTATES))
    assert table in page("errors.md"), table
