"""A collection of sentences for searches by relevance: a title, and a body that is longer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from random import Random

import psycopg

from bench import data
from bench.search_indexes import make_searchable
from bench.serving import RunningServer
from bench.wire import exchange, request

NAME = "sentences"
WORDS = 20_000
TITLE_WORDS = 5
BODY_WORDS = 30

_FIELDS = [{"field": "title", "type": "string"}, {"field": "body", "type": "text"}]
_CONSONANTS = ("b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w")
_SYLLABLES = [
    first + vowel for first in (*_CONSONANTS, "x", "z", "th") for vowel in ("a", "e", "i", "o", "u")
]
_SPREAD = 104_729
"""A prime, by which each word has other syllables than the one before."""


def words() -> list[str]:
    """Return different words of three or four of 100 syllables, the most frequent one first."""
    return list(map(_word, range(WORDS)))


def make(service: RunningServer, dsn: str, *, token: str, rows: int) -> None:
    """Make the collection, fill it and make it searchable."""
    payload = {"collection": NAME, "schema": {}, "fields": [data.KEY, *_FIELDS]}
    exchange(service.address, request("POST", "/collections", token=token, payload=payload))
    with psycopg.connect(dsn, autocommit=True) as connection:
        _fill(connection, rows)
    make_searchable(service, token, NAME)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"VACUUM (ANALYZE) {NAME}".encode())


def index_words(environ: Mapping[str, str]) -> None:
    """Make the indexes of words, which pages by relevance use."""
    command = [sys.executable, "-m", "cms", "index", NAME, "--words"]
    subprocess.run(command, env={**os.environ, **environ}, check=True, stdout=subprocess.DEVNULL)


def set_title_weight(service: RunningServer, token: str, weight: int) -> None:
    """Let a word in the title count so much; in the body it counts 1."""
    payload = {"meta": {"search_weight": weight}}
    exchange(
        service.address, request("PATCH", f"/fields/{NAME}/title", token=token, payload=payload)
    )


def _fill(connection: psycopg.Connection, rows: int) -> None:
    random = Random(1)
    vocabulary = words()
    copy = f"COPY {NAME} (title, body) FROM STDIN".encode()
    with connection.cursor() as cursor, cursor.copy(copy) as target:
        for _ in range(rows):
            title = _sentence(vocabulary, TITLE_WORDS, random)
            target.write_row((title, _sentence(vocabulary, BODY_WORDS, random)))


def _sentence(vocabulary: Sequence[str], length: int, random: Random) -> str:
    # By the square, the first word is in every fifth row and the last one in each thousandth.
    indexes = [int(len(vocabulary) * random.random() ** 2) for _ in range(length)]
    return " ".join(vocabulary[index] for index in indexes)


def _word(number: int) -> str:
    spread = number * _SPREAD % 1_000_000
    syllables = [spread // 10_000, spread // 100 % 100, spread % 100]
    if number % 2:
        syllables.append(number % 100)
    return "".join(_SYLLABLES[syllable] for syllable in syllables)
