"""A Redis of the tests' own, which they kill, stop and start again."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import redis

from tests.smoke.running import TIMEOUT_SECONDS, free_port
from tests.waiting import eventually


@dataclass
class RedisServer:
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is needed")
        words = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(words, cwd="/tmp", stdout=subprocess.DEVNULL)
        eventually(self._answers)
        assert self.process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Run a Redis on a free port."""
    server = RedisServer(free_port())
    server.start()
    try:
        yield server
    finally:
        server.kill()
