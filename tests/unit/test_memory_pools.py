"""Threads of the service share a few pools of memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT_ARENAS = """
import ctypes, os, sys, threading
from cms.processes.memory import limit_arenas

if "limited" in sys.argv:
    limit_arenas()
barrier = threading.Barrier(8)

def use_memory():
    blocks = [bytearray(10_000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=use_memory) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(library.fdopen(1, b"w"))
library.malloc_info(0, stream)
library.fflush(stream)
"""


def arenas(*arguments: str) -> int:
    """Return how many pools of memory a process of eight threads makes."""
    run = subprocess.run(
        [sys.executable, "-c", COUNT_ARENAS, *arguments], capture_output=True, check=True
    )
    return run.stdout.count(b"<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has arenas")
def test_threads_of_the_service_share_pools_of_memory() -> None:
    assert arenas() > 2
    assert arenas("limited") <= 2
