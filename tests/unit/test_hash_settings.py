"""The settings of argon2: what it takes, and what a process can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from cms.config import ConfigError, load
from cms.hashing.hash_parameters import HashParameters
from cms.hashing.passwords import Passwords

LANES = {"HASH_PARALLELISM": "64", "HASH_TIME_COST": "1"}


def test_the_default_is_the_first_recommendation_of_owasp(tmp_path: Path) -> None:
    assert load({}, folder=tmp_path).hash_parameters == HashParameters(2, 19_456, 1)


@pytest.mark.parametrize(
    ("name", "text", "takes"),
    [
        ("HASH_TIME_COST", "0", "a whole number from 1 to 100"),
        ("HASH_TIME_COST", "101", "a whole number from 1 to 100"),
        ("HASH_MEMORY_COST", "7", "a whole number from 8 to 1048576"),
        ("HASH_MEMORY_COST", "64mb", "a whole number from 8 to 1048576"),
        ("HASH_MEMORY_COST", "1048577", "a whole number from 8 to 1048576"),
        ("HASH_PARALLELISM", "0", "a whole number from 1 to 64"),
        ("HASH_PARALLELISM", "65", "a whole number from 1 to 64"),
    ],
)
def test_a_value_beyond_the_bounds_is_refused_at_the_start(
    name: str, text: str, takes: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        load({name: text}, folder=tmp_path)
    assert refused.value.problems == (f"{name} takes {takes}, not {text!r}.",)


def test_each_lane_has_eight_kibibytes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load({**LANES, "HASH_MEMORY_COST": "511"}, folder=tmp_path)
    problem = "HASH_MEMORY_COST takes at least 8 for each lane of HASH_PARALLELISM: 512."
    assert refused.value.problems == (problem,)


def test_argon2_takes_the_least(tmp_path: Path) -> None:
    config = load({**LANES, "HASH_MEMORY_COST": "512"}, folder=tmp_path)
    made = Passwords(config.hash_parameters).hashed("a")
    assert made.startswith("$argon2id$v=19$m=512,t=1,p=64$")
