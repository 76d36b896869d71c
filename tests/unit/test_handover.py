"""Chunks that one thread makes and another one takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from cms.files.storage import Abandoned, Handover

TIMEOUT_SECONDS = 20.0


def interrupted() -> bool:
    raise KeyboardInterrupt


def breaking() -> Iterator[bytes]:
    yield b"a"
    raise KeyboardInterrupt


def test_chunks_come_in_their_order() -> None:
    handover = Handover()
    taken: Queue[list[bytes]] = Queue()
    taker = threading.Thread(target=lambda: taken.put(list(handover.taken())), daemon=True)
    taker.start()
    with handover:
        handover.give([b"a", b"b", b"c"], has_ended=lambda: False)
    assert taken.get(timeout=TIMEOUT_SECONDS) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("has_ended", [lambda: False, interrupted], ids=["once", "twice"])
def test_the_taker_ends_when_the_maker_is_interrupted_while_the_taker_is_busy(
    has_ended: object,
) -> None:
    """Ctrl-C and the end of a terminal come more than once."""
    handover = Handover()
    is_interrupted = threading.Event()
    ends: Queue[str] = Queue()

    def take() -> None:
        is_interrupted.wait(TIMEOUT_SECONDS)
        try:
            for _ in handover.taken():
                continue
        except Abandoned:
            ends.put("abandoned")
        else:
            ends.put("whole")

    threading.Thread(target=take, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), handover:
        handover.give(breaking(), has_ended=has_ended)  # type: ignore[arg-type]
    is_interrupted.set()
    assert ends.get(timeout=TIMEOUT_SECONDS) == "abandoned"
