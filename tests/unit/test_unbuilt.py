"""What is settled but not built yet is refused by name; what is not the
service's is none of its business.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cms.config import load
from cms.not_implemented import UNBUILT
from cms.settings import SETTINGS
from tests.unit.test_config import DOCS, problems_of


@pytest.mark.parametrize("pattern", UNBUILT)
def test_what_is_not_built_yet_is_refused_by_name(pattern: str, tmp_path: Path) -> None:
    name = pattern.replace("<NAME>", "GITHUB")
    sentence = f"is not built yet ({UNBUILT[pattern]}): remove it."
    assert problems_of({name: "1"}, tmp_path) == (f"{name} {sentence}",)
    (tmp_path / ".env").write_text(f"{name}_FILE=kept\n")
    assert problems_of({}, tmp_path) == (f"{name}_FILE {sentence}",)
    assert load({f"{name}_FILE": ""}, folder=tmp_path / "elsewhere").port == 8055


def test_variables_of_others_are_passed_over(tmp_path: Path) -> None:
    others = (
        "AUTH_TOKEN",
        "AUTH_GITHUB_ID",
        "REDIS_URL",
        "REDIS_PORT",
        "FLOWS",
        "METRICS",
        "SECRETS",
        "PORTS",
    )
    assert load(dict.fromkeys(others, "1"), folder=tmp_path) == load({}, folder=tmp_path)


def test_what_is_not_built_yet_is_no_setting_and_is_documented() -> None:
    assert not set(UNBUILT) & {setting.name for setting in SETTINGS}
    page = DOCS.read_text()
    plain = [name for name in UNBUILT if "<NAME>" not in name]
    assert [name for name in plain if f"`{name}`" not in page] == []
