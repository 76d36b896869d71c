"""Tests wait for events, and not for time to pass."""

from __future__ import annotations

from tests.house.source_modules import source_modules

SIMULATED = {
    "tests/faults/mixed_load.py": "loads a service for so long",
    "tests/machines/test_nginx.py": "clients that read nothing for so long",
    "tests/machines/test_upgrades.py": "nginx asks a machine again after `fail_timeout`",
    "tests/mail/test_hanging_servers.py": "a server that drips",
    "tests/smoke/test_connections.py": "a client that takes its time",
    "tests/smoke/test_faults.py": "kills at any moment of a request",
    "tests/smoke/test_flow_runs.py": "an outage, and time for workers to do nothing wrong",
    "tests/smoke/test_worker.py": "time for a worker to end too early",
    "tests/sso/test_broken_providers.py": "a provider that drips",
    "tests/waiting.py": "looks again and again",
    "tests/web/echo.py": "an application that is slow",
    "tests/web/test_attacks.py": "clients that send and read slowly",
    "tests/web/test_clients.py": "clients that send slowly",
    "tests/web/test_pace.py": "clients that read at a pace",
    "tests/web/test_refusals.py": "clients that send at about a deadline",
}
"""The modules that sleep, and what that simulates; all others wait by `tests.waiting`."""


def test_only_what_simulates_something_slow_sleeps() -> None:
    sleeping = {str(module.path) for module in source_modules("tests") if module.sleeps}
    assert sleeping == SIMULATED.keys()
