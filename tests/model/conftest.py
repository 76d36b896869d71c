"""The database of a module that is compared with a model, and the user whose rights count."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.client import Client
from tests.members import member_of, new_role
from tests.model.rights_generate import FIRST_NAME, PARENT, ROLE, ROLE_NAME, USER
from tests.things import Stage


@pytest.fixture(scope="module")
def connection(stage: Stage) -> Iterator[psycopg.Connection]:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def caller(stage: Stage) -> Client:
    """A user whose id, name and role are values that rows hold, too."""
    new_role(stage, id=PARENT)
    new_role(stage, id=ROLE, name=ROLE_NAME, parent=PARENT)
    return member_of(stage, ROLE, id=USER, first_name=FIRST_NAME)
