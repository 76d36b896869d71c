"""The tour of README.md: the demo is made, and each command prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.smoke.pasting import ROOT, blocks_of, require_shown_answers
from tests.smoke.running import environment, new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]

README = (ROOT / "README.md").read_text()
DEMO_SECONDS = 120


def test_the_tour_shows_what_the_service_answers() -> None:
    tour = README.split("## Five minutes with real data")[1].split("\n## ")[0]
    page = blocks_of(tour)
    assert len(page) > 6
    with new_folder() as folder, serving(folder) as service:
        made = subprocess.run(
            [sys.executable, "-m", "cms", "demo"],
            cwd=folder,
            env=environment(folder, service.port),
            capture_output=True,
            text=True,
            timeout=DEMO_SECONDS,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        cities = re.search(r"world's countries and ([\d,]+) cities", tour)
        assert cities
        assert cities[1].replace(",", "") in made.stdout.replace(",", "")
        require_shown_answers(service, page)
        drawn = (folder / "continents.svg").read_text()
    shown = (ROOT / "docs" / "dashboards" / "by-continent.svg").read_text()
    assert words_of(drawn) == words_of(shown)


def words_of(picture: str) -> list[str]:
    """Return the title, the labels and the values of a chart, whatever its colours are."""
    words = re.findall(r'<(?:text|desc class="value")[^>]*>([^<]+)<', picture)
    assert "Countries by continent" in words
    return words


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"run", "test", "demo", "check"} <= named
    assert named <= targets
