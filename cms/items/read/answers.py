"""The bodies of answers: those of reads are never larger than MAX_ANSWER_SIZE."""

from __future__ import annotations

from collections.abc import Mapping

from cms import jsontext
from cms.errors import answer_too_large
from cms.processes.memory import note_memory_use


def json_body(answer: Mapping[str, object], max_bytes: int | None) -> bytes:
    """Return an answer as JSON; raises `Refused` INVALID_QUERY for one that is too large.

    `max_bytes` is None for one that reports work which is done and cannot be refused any more.
    """
    body = jsontext.dumps(answer)
    # The memory of a large body goes back to the system once the answer is sent.
    note_memory_use(len(body))
    if max_bytes is not None and len(body) > max_bytes:
        raise answer_too_large(max_bytes)
    return body
