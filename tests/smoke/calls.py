"""Requests to a running service."""

from __future__ import annotations

import requests

from tests.smoke.running import TIMEOUT_SECONDS, Service


def url(service: Service, path: str) -> str:
    return f"http://127.0.0.1:{service.port}{path}"


def run_a_flow(service: Service) -> None:
    """Make a flow and have it run as a job; the administrator's password is `a password`."""
    login = {"email": "admin@example.com", "password": "a password"}
    answer = requests.post(url(service, "/auth/login"), json=login, timeout=TIMEOUT_SECONDS)
    headers = {"Authorization": f"Bearer {answer.json()['data']['access_token']}"}
    flow = {"name": "Hook", "trigger": "webhook", "options": {"method": "GET", "async": True}}
    made = requests.post(
        url(service, "/flows"), json=flow, headers=headers, timeout=TIMEOUT_SECONDS
    )
    path = f"/flows/trigger/{made.json()['data']['id']}"
    assert requests.get(url(service, path), headers=headers, timeout=TIMEOUT_SECONDS).ok
