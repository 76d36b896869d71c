"""The compiler over the tables that a module makes on its stage."""

from __future__ import annotations

import pytest

from tests.sql.compiler import Compiler, compiler_of
from tests.things import Stage


@pytest.fixture(scope="module")
def compiler(stage: Stage) -> Compiler:
    return compiler_of(stage)
