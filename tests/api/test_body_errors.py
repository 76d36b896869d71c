"""Errors of a web server while it reads a body: whether the client or the service is at fault."""

from __future__ import annotations

import errno
import io
import json
from typing import Any

import pytest
from falcon.testing import create_environ

from tests.things import Stage


class FailingInput(io.BytesIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def read(self, size: int | None = -1) -> bytes:
        raise self.error


def answer_to(stage: Stage, error: Exception) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Content-Length": "5"}
    environ = create_environ("/auth/login", method="POST", headers=headers)
    environ["wsgi.input"] = FailingInput(error)
    started: list[Any] = []
    body = b"".join(stage.admin.app(environ, lambda *head: started.append(head)))
    ((status, answer_headers, *_),) = started
    # The rest of the body is not there for the next request.
    assert ("Connection", "close") in answer_headers
    return int(status.split()[0]), json.loads(body)["errors"][0]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), 400, "INVALID_PAYLOAD"),
        (ValueError("bad chunk"), 400, "INVALID_PAYLOAD"),
        (MemoryError(), 503, "SERVICE_UNAVAILABLE"),
        (RuntimeError("can't start new thread"), 503, "SERVICE_UNAVAILABLE"),
        (RuntimeError("can't allocate lock"), 503, "SERVICE_UNAVAILABLE"),
        (OSError(errno.EMFILE, "Too many open files"), 503, "SERVICE_UNAVAILABLE"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 503, "SERVICE_UNAVAILABLE"),
        (OSError(errno.ENOSPC, "No space left on device"), 507, "INSUFFICIENT_STORAGE"),
        (RuntimeError("a fault of the server"), 500, "INTERNAL_SERVER_ERROR"),
        (TypeError("a fault of the server"), 500, "INTERNAL_SERVER_ERROR"),
    ],
    ids=str,
)
def test_only_what_breaks_a_body_is_the_fault_of_the_client(
    stage: Stage, error: Exception, status: int, code: str
) -> None:
    answered, problem = answer_to(stage, error)
    assert (answered, problem["extensions"]["code"]) == (status, code)
    assert str(error) not in json.dumps(problem) or not str(error)
