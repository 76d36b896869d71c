"""How psycopg's errors are mapped, where no database can be made to raise them."""

from __future__ import annotations

import psycopg

from cms.database.error_mapping import map_error
from cms.errors import Refused


def test_a_server_that_goes_in_the_middle_of_its_answer_is_not_available() -> None:
    problem = map_error(psycopg.DatabaseError("server closed the connection unexpectedly"))
    assert isinstance(problem, Refused)
    assert (problem.status, problem.problems[0].code) == (503, "SERVICE_UNAVAILABLE")
