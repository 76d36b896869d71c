"""What revisions hold of items is not narrowed by rights, and so no member reads it by any way."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field, table


@pytest.mark.parametrize("name", ["data", "delta"])
def test_no_member_reads_hidden_fields_or_rows_in_revisions(stage: Stage, admin: Client, name: str) -> None:
    things = table(admin, field("title", "string"), field("note", "string"))
    things.add({"title": "seen", "note": "swordfish"}, {"title": "unseen", "note": "swordfish"})
    rights = may(things.name, "id", "title", permissions={"id": 1}), may("system_revisions"), may("system_activity")
    caller = member(stage, *rights)
    for path in ("/revisions", "/items/system_revisions", f"/items/{things.name}/1/revisions"):
        shown = caller.get(path)
        assert shown.status == 200
        assert "swordfish" not in shown.text
        for asked in (f"fields={name}", f"filter[{name}][_nnull]=true", f"aggregate[count]={name}"):
            assert caller.get(f"{path}?{asked}").status == 403
    last = admin.get("/revisions", **{"filter[collection]": things.name, "sort": "-id"}).data[0]
    assert name not in caller.get(f"/revisions/{last['id']}").data
    assert "swordfish" not in caller.get("/revisions", export="csv").text
    assert caller.post(f"/utils/revert/{last['id']}").status == 403
    assert last[name]["note"] == "swordfish"
