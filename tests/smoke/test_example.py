"""The page docs/example.md, pasted into a shell beside a real service."""

from __future__ import annotations

import pytest

from tests.smoke.pasting import ROOT, blocks_of, require_shown_answers
from tests.smoke.running import new_folder, serving

pytestmark = pytest.mark.slow


def test_the_example_of_the_documentation_works_as_it_stands() -> None:
    page = blocks_of((ROOT / "docs" / "example.md").read_text())
    assert len(page) > 10
    with new_folder() as folder, serving(folder) as service:
        require_shown_answers(service, page)
