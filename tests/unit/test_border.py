"""The border of psycopg's errors, where no database can be made to raise them."""

from __future__ import annotations

import psycopg

from cms.errors import Refused
from cms.store.border import domain_error


def test_a_server_that_goes_in_the_middle_of_its_answer_is_not_available() -> None:
    found = domain_error(psycopg.DatabaseError("server closed the connection unexpectedly"))
    assert isinstance(found, Refused)
    assert (found.status, found.problems[0].code) == (503, "SERVICE_UNAVAILABLE")
