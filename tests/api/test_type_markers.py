"""The markers in meta.special that make a type: a field does not lose its type with them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.things import Stage, Table, field, filled_things

things = filled_things(
    [field("code", "hash"), field("words", "csv")], [{"code": "swordfish", "words": ["a", "b"]}]
)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["code", "words"])
@pytest.mark.parametrize(
    "meta",
    [{"special": []}, {"special": None}, {"special": ["conceal"]}, {"note": "n"}, None],
    ids=str,
)
def test_a_field_keeps_the_marker_of_its_type(
    stage: Stage, things: Table, name: str, meta: Mapping[str, object] | None
) -> None:
    path = f"/fields/{things.name}/{name}"
    assert stage.admin.patch(path, {"meta": meta}).status == 200
    record = stage.admin.get(path).data
    types = {"code": ("hash", "hash"), "words": ("csv", "cast-csv")}
    expected_type, marker = types[name]
    assert (record["type"], marker in record["meta"]["special"]) == (expected_type, True)
    shown = stage.admin.get(f"{things.path}/1?fields={name}").data[name]
    masked = name == "code" or meta == {"special": ["conceal"]}
    assert shown == ("**********" if masked else ["a", "b"])
    assert stage.admin.patch(path, {"meta": {"special": None}}).status == 200
