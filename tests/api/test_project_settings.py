"""/settings: who reads them, and what they refuse."""

from __future__ import annotations

import time

import pytest

from cms.access.app_access import PUBLIC_SETTINGS
from tests.client import Client
from tests.members import member
from tests.things import Stage


def test_everybody_reads_what_a_login_page_shows(
    stage: Stage, admin: Client, anonymous: Client
) -> None:
    assert anonymous.get("/settings").data.keys() == set(PUBLIC_SETTINGS)
    assert member(stage).get("/settings").data.keys() >= set(PUBLIC_SETTINGS)
    assert admin.get("/settings").data.keys() > set(PUBLIC_SETTINGS)
    hidden = anonymous.get("/settings", fields="auth_login_attempts")
    assert (hidden.status, hidden.codes) == (403, ["FORBIDDEN"])


@pytest.mark.parametrize(
    ("policy", "password"),
    [
        ("^(a+)+$", "a" * 200 + "!"),
        ("^(a|a)*$", "a" * 200 + "!"),
        ("^(a|aa)+$", "a" * 200 + "!"),
        ("(x+x+)+y", "x" * 200),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 200),
    ],
)
def test_a_policy_takes_time_in_proportion_to_the_password(
    admin: Client, policy: str, password: str
) -> None:
    assert admin.patch("/settings", {"auth_password_policy": policy}).status == 200
    try:
        begin = time.process_time()
        answer = admin.post("/users", {"email": "slow@example.com", "password": password})
        assert (answer.status, answer.errors[0]["field"]) == (422, "password")
        # One that goes back and forth would take longer than the world is old.
        assert time.process_time() - begin < 60
    finally:
        admin.patch("/settings", {"auth_password_policy": None})


@pytest.mark.parametrize("policy", ["(?=.*[a-z])", "(", "a{1001}", "\\1", "x" * 1001, 1, []])
def test_a_policy_that_is_no_pattern_is_refused(admin: Client, policy: object) -> None:
    answer = admin.patch("/settings", {"auth_password_policy": policy})
    assert answer.status in (400, 422)
    assert answer.errors[0]["field"] == "auth_password_policy"
    assert admin.get("/settings").data["auth_password_policy"] is None


@pytest.mark.parametrize(
    ("presets", "path"),
    [
        ({"key": "a"}, []),
        (["a"], [0]),
        ([{}], [0, "key"]),
        ([{"key": "system-large"}], [0, "key"]),
        ([{"key": "a b"}], [0, "key"]),
        ([{"key": "a"}, {"key": "a"}], [1, "key"]),
        ([{"key": "a", "width": 0}], [0, "width"]),
        ([{"key": "a", "width": "wide"}], [0, "width"]),
        ([{"key": "a", "fit": "stretch"}], [0, "fit"]),
        ([{"key": "a", "colour": "red"}], [0, "colour"]),
        ([{"key": "a", "transforms": '[["rm"]]'}], [0, "transforms[0]"]),
    ],
)
def test_a_preset_that_makes_no_picture_is_refused_with_its_place(
    admin: Client, presets: object, path: list[object]
) -> None:
    answer = admin.patch("/settings", {"storage_asset_presets": presets})
    assert answer.status in (400, 422)
    error = answer.errors[0]
    assert error["field"] == "storage_asset_presets"
    reported = [part for part in error.get("path", []) if part != "storage_asset_presets"]
    assert reported[: len(path)] == path
    assert admin.get("/settings").data["storage_asset_presets"] in (None, [])
