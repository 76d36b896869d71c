"""Passwords: whoever they are compared for, the same work, unless the answer reveals it anyway."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher, Type
from argon2.exceptions import VerifyMismatchError
from hypothesis import given
from hypothesis import strategies as st

from cms.errors import Refused
from cms.hashing import passwords
from cms.hashing.hash_parameters import RFC_9106, HashParameters, dummy_hash, parse_hash
from cms.hashing.passwords import Passwords, hashed_value, limited_hashing
from tests.people import QUICK, record_comparisons

OLDER = HashParameters(2, 16, 2)
OLDEST = "$argon2i$v=19$m=16,t=1,p=1"
PASSWORD = "correct horse"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes of the hashes that are compared."""
    return record_comparisons(monkeypatch)


def mixed() -> Passwords:
    """The passwords of an installation in which some hashes are older."""
    return Passwords(QUICK, other_prefixes=lambda own: [OLDER.prefix, OLDEST, "$2b$"])


def hash_by(parameters: HashParameters) -> str:
    return Passwords(parameters).hashed(PASSWORD)


STORED = {
    "of today": hash_by(QUICK),
    "older": hash_by(OLDER),
    "oldest": PasswordHasher(1, 16, 1, type=Type.I).hash(PASSWORD),
    "none": None,
    "of another service": "$2b$12$abcdefghijklmnopqrstuv",
    "cut off": hash_by(OLDER).rpartition("$")[0],
    "impossible": hash_by(QUICK).replace("m=8", "m=7"),
    "a gigabyte too much": hash_by(QUICK).replace("m=8", "m=2097152"),
}


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_a_wrong_password_is_the_same_work_for_everybody(
    stored: str | None, work: list[str]
) -> None:
    for reveals_match in (False, True):
        work.clear()
        assert not mixed().matches(stored, "wrong", reveals_match=reveals_match)
        assert sorted(work) == sorted([QUICK.prefix, OLDER.prefix, OLDEST])


@pytest.mark.parametrize("name", ["of today", "older"])
def test_a_right_password_is_the_same_work_where_the_answer_does_not_reveal_it(
    name: str, work: list[str]
) -> None:
    assert mixed().matches(STORED[name], PASSWORD)
    assert sorted(work) == sorted([QUICK.prefix, OLDER.prefix, OLDEST])


@pytest.mark.parametrize("name", ["of today", "older"])
def test_a_right_password_is_one_comparison_where_the_answer_reveals_it(
    name: str, work: list[str]
) -> None:
    assert mixed().matches(STORED[name], PASSWORD, reveals_match=True)
    assert len(work) == 1


def test_without_older_hashes_it_is_one_comparison(work: list[str]) -> None:
    ours = Passwords(QUICK)
    for stored in (STORED["of today"], None):
        assert not ours.matches(stored, "wrong")
    assert work == [QUICK.prefix] * 2


def test_stored_hashes_are_looked_through_once(work: list[str]) -> None:
    asked: list[str] = []

    def other_prefixes(own: str) -> list[str]:
        asked.append(own)
        return []

    ours = Passwords(QUICK, other_prefixes=other_prefixes)
    assert asked == []  # not before the first comparison: the process may fork until then
    for stored in (None, STORED["of today"], None):
        ours.matches(stored, "wrong")
    assert asked == [QUICK.prefix]


def test_a_hash_that_came_later_counts_from_its_first_comparison_on(work: list[str]) -> None:
    ours = Passwords(QUICK)
    ours.matches(None, "wrong")
    work.clear()
    for stored in (STORED["older"], None, STORED["of today"]):
        ours.matches(stored, "wrong")
        assert sorted(work) == sorted([QUICK.prefix, OLDER.prefix])
        work.clear()


@given(
    st.builds(HashParameters, st.integers(1, 3), st.integers(32, 64), st.integers(1, 4)),
    st.sampled_from([Type.ID, Type.I, Type.D]),
)
def test_a_dummy_is_a_hash_of_the_same_parameters(parameters: HashParameters, kind: Type) -> None:
    made = PasswordHasher(*parameters, type=kind).hash(PASSWORD)
    parsed = parse_hash(made)
    assert parsed is not None
    assert made.startswith(parsed.prefix + "$")
    dummy = dummy_hash(parsed.prefix)
    assert len(dummy) == len(made)
    again = parse_hash(dummy)
    assert again is not None
    assert again.prefix == parsed.prefix
    # Another error than of a text that is no hash: all of the work is done.
    assert not passwords._verify(dummy, PASSWORD)
    with pytest.raises(VerifyMismatchError):
        PasswordHasher().verify(dummy, PASSWORD)


def test_older_hashes_are_accepted_and_made_anew() -> None:
    ours = Passwords(QUICK)
    stored = hash_by(OLDER)
    assert ours.matches(stored, PASSWORD)
    made = ours.rehashed(stored, PASSWORD)
    assert made is not None
    assert made.startswith(QUICK.prefix)
    assert ours.rehashed(made, PASSWORD) is None


@pytest.mark.parametrize(
    ("parameters", "outcome"),
    [
        (RFC_9106, "verifiable"),
        (HashParameters(10, 8, 1), "verifiable"),
        # Not the most of both: that would be ten passes over 64 MiB.
        (HashParameters(10, 65_536, 4), "too much"),
        (HashParameters(4, 65_536, 4), "too much"),
    ],
)
def test_a_hash_may_ask_for_as_much_as_the_settings_or_as_the_older_ones(
    parameters: HashParameters, outcome: str
) -> None:
    ours = Passwords(HashParameters(10, 16, 2))
    assert ours.is_verifiable(dummy_hash(parameters.prefix)) is (outcome == "verifiable")


def test_values_of_fields_are_hashed_as_the_installation_does() -> None:
    ours = Passwords(QUICK)
    theirs = Passwords(OLDER)
    with limited_hashing(theirs):
        assert hashed_value("a").startswith(OLDER.prefix)
        with limited_hashing(ours):
            assert hashed_value("a").startswith(QUICK.prefix)
        assert hashed_value("a").startswith(OLDER.prefix)


def test_a_call_has_so_many_hashes() -> None:
    ours = Passwords(QUICK)
    with limited_hashing(ours, max_hashes=2):
        hashed_value("a")
        ours.hashed("a")
        with pytest.raises(Refused, match="values that are hashed"):
            hashed_value("a")
    ours.hashed("a")
