"""What a snapshot keeps drops what was used longest ago, and stays
within its bounds whoever uses it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from cms.query.language.ast import Query, Window
from cms.query.sql.statement import Statement
from cms.schema.build import NO_STRUCTURE
from cms.schema.model import Version
from cms.store import snapshot
from cms.store.snapshot import CachedStatement, Snapshot


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """A snapshot that keeps 100 statements, of 1,000,000 characters in all."""
    monkeypatch.setattr(snapshot, "MAX_STATEMENT_CHARACTERS", 1_000_000)
    monkeypatch.setattr(snapshot, "MAX_STATEMENTS", 100)
    return Snapshot(Version(1, 1, 1), NO_STRUCTURE, "")


def missed() -> CachedStatement:
    pytest.fail("it is not there any more")


def of(text: str) -> CachedStatement:
    return CachedStatement(Statement(text, (), (), ()), set())


def query(number: int) -> Query:
    return Query(window=Window(number))


def test_what_is_used_stays_whatever_comes(kept: Snapshot) -> None:
    kept.statements.setdefault_with("used", lambda: of("used"))
    for number in range(1_000):
        kept.statements.setdefault_with(query(number), lambda: of("passing"))
        assert kept.statements.setdefault_with("used", missed).statement.text == "used"
    assert len(kept.statements) == 100


def test_long_statements_push_out_what_was_used_longest_ago(kept: Snapshot) -> None:
    for number in range(100):
        kept.statements.setdefault_with(number, lambda: of("short"))
    kept.statements.setdefault_with(0, missed)
    kept.statements.setdefault_with("long", lambda: of("x" * 989_000))
    assert set(kept.statements.keys()) == {0, "long"}


def test_a_statement_that_is_longer_than_all_room_is_answered_all_the_same(kept: Snapshot) -> None:
    assert (
        len(kept.statements.setdefault_with("long", lambda: of("x" * 2_000_000)).statement.text)
        == 2_000_000
    )


def test_what_a_key_and_literals_hold_counts_as_the_text_does(kept: Snapshot) -> None:
    operands = tuple(f"operand {number}" for number in range(1_000))
    for number in range(100):
        kept.prepared_reads[number, "x" * 20_000] = of("short")
        kept.statements[number] = of("short")._replace(literals=operands)
        kept.write_statements[number, operands] = of("short")
    assert len(kept.prepared_reads) <= 50
    assert len(kept.statements) <= 20
    assert len(kept.write_statements) <= 20


@pytest.mark.release
def test_many_threads_leave_it_within_its_bounds(kept: Snapshot) -> None:
    def use(seed: int) -> None:
        random = Random(seed)
        for _ in range(3_000):
            number = random.randrange(200)
            text = "x" * (number * 500)
            statement = kept.statements.setdefault_with(
                query(number),
                lambda: of(text),  # noqa: B023
            )
            assert statement.statement.text == text
            assert len(kept.statements) <= 100

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert 0 < sum(len(plan.statement.text) for plan in kept.statements.values()) <= 1_000_000
