"""Items that a call names for a flow, where they are more than one page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cms.config import Config
from tests.active_flows import make_flow
from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(settings, query_limit_max=2)


@pytest.mark.release
def test_a_user_may_name_more_items_than_a_page_has(stage: Stage, admin: Client) -> None:
    pages = stage.empty_table(field("title", "string"))
    pages.add(*({"title": title} for title in "aaaab"))
    options = {"collections": [pages.name], "return": "{{$trigger.body.keys}}"}
    flow = make_flow(admin, "manual", options, [])
    rule = {"title": {"_eq": "a"}}
    caller = member(stage, may("system_flows"), may(pages.name, permissions=rule))
    call = {"collection": pages.name, "keys": [4, 3, 2, 1]}
    assert caller.post(f"/flows/trigger/{flow}", call).data == [4, 3, 2, 1]
    # The one that is hidden is on the last page.
    call["keys"] = [1, 2, 3, 4, 5]
    assert caller.post(f"/flows/trigger/{flow}", call).codes == ["NOT_FOUND"]
