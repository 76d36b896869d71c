"""What `make test` leaves to `make check`."""

from __future__ import annotations

import pytest

from tests.conftest import RELEASE_PATHS


@pytest.mark.quick(2)
@pytest.mark.parametrize("number", range(3))
def test_all_cases_but_the_first_are_left(request: pytest.FixtureRequest, number: int) -> None:
    is_left = request.node.get_closest_marker("release") is not None
    assert is_left == (number >= 2)


def test_what_is_left_is_there() -> None:
    missing = {
        path for path in RELEASE_PATHS if not (path.is_file() or any(path.glob("test_*.py")))
    }
    assert missing == set()
