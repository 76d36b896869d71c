"""CSV as programs of many countries write it: delimiters, line ends, encodings (docs/import.md)."""

from __future__ import annotations

import pytest

from tests.file_imports import post_file
from tests.things import Stage, Table, field


@pytest.fixture
def things(stage: Stage) -> Table:
    return stage.empty_table(field("name", "string"), field("price", "decimal"))


CSV_OF_PROGRAMS = {
    "semicolons": "name;price\r\nGröße;1.5\r\na,b;2\r\n",
    "tabs": "name\tprice\nGröße\t1.5\na,b\t2\n",
    "bars": "name|price\nGröße|1.5\na,b|2\n",
    "line ends of old Macs": 'name,price\rGröße,1.5\r"a,b",2\r',
    "a byte order mark": '\ufeffname,price\r\nGröße,1.5\r\n"a,b",2\r\n',
    "a line for the delimiter": "sep=;\r\nname;price\r\nGröße;1.5\r\na,b;2\r\n",
    "quoted names": '"name";"price"\nGröße;1.5\n"a,b";2\n',
    "blanks around names": 'name , price\nGröße,1.5\n"a,b",2\n',
    "blank lines": '\n\nname,price\n\nGröße,1.5\n\n"a,b",2\n\n',
    "rows and columns without content": "name;price;;\nGröße;1.5;;\n;;;\na,b;2;;\n;;;\n",
    "no line end": "name;price\nGröße;1.5\na,b;2",
}


@pytest.mark.parametrize("text", CSV_OF_PROGRAMS.values(), ids=CSV_OF_PROGRAMS)
def test_csv_is_read_as_spreadsheet_programs_of_many_countries_write_it(
    things: Table, text: str
) -> None:
    assert post_file(things, text.encode()).data == {"created": 2, "updated": 0}
    assert things.column("name", "sort=id") == ["Größe", "a,b"]
    assert things.column("price", "sort=id") == [1.5, 2]


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [
        ("utf-16", "text/csv"),
        ("utf-8-sig", "text/csv; charset=utf-8"),
        ("cp1252", 'text/csv; charset="windows-1252"'),
        ("cp1251", "text/csv; charset=windows-1251"),
        ("shift_jis", "text/tab-separated-values; charset=Shift_JIS"),
        ("gb18030", "text/csv; header=present; charset=gb18030"),
    ],
)
def test_csv_in_other_encodings_is_read_by_its_mark_or_by_the_name_of_its_charset(
    things: Table, encoding: str, kind: str
) -> None:
    name = {"cp1252": "Größe", "cp1251": "Москва"}.get(encoding, "東京")
    body = f"name\tprice\r\n{name}\t2\r\n".encode(encoding)
    answer = post_file(things, body, headers={"Content-Type": kind})
    assert answer.data == {"created": 1, "updated": 0}
    assert things.column("name") == [name]


def test_a_file_in_an_unknown_encoding_is_refused_with_the_line_and_the_way_out(
    things: Table,
) -> None:
    body = "name;price\nplain;1\nGröße;2\n".encode("cp1252")
    [error] = post_file(things, body).errors
    assert error["line"] == 3
    assert "text/csv; charset=windows-1252" in error["reason"]
    for charset in ("klingon", "zlib", "rot13", "x" * 1000):
        kind = f"text/csv; charset={charset}"
        answer = post_file(things, body, headers={"Content-Type": kind})
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), charset
    assert things.column("id") == []


@pytest.mark.parametrize("line", ["a;1;x", "a", "a;1;;x"])
def test_a_row_with_content_in_too_many_or_too_few_cells_is_refused(
    things: Table, line: str
) -> None:
    answer = post_file(things, f"name;price\nb;2\n{line}\n".encode())
    assert [(error["line"], error["code"]) for error in answer.errors] == [(3, "INVALID_PAYLOAD")]
    assert things.column("id") == []
