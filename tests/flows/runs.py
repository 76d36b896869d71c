"""Runs of flows for tests of single operations, without flows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cms.config import Config
from cms.flows.operations import OPERATIONS
from cms.flows.run import Rejected, Run, Services
from cms.store.identity import ANONYMOUS, ClientInfo, Identity
from tests.things import Stage

SERVICE = Identity(is_service=True)


def services_of(stage: Stage, config: Config, **settings: object) -> Services:
    """Return the services of a stage's application, with other settings for its operations."""
    ours = replace(config, **settings)  # type: ignore[arg-type]
    return Services(stage.admin.app.store, ours, OPERATIONS)


def new_run(
    services: Services, identity: Identity = SERVICE, values: Mapping[str, Any] | None = None
) -> Run:
    """Return a run of a flow that is no row."""
    accountability = {"user": identity.user, "role": None, "ip": identity.client.ip}
    scope = {"$trigger": {}, "$accountability": accountability, **(values or {})}
    return Run(services, str(uuid.uuid4()), identity, scope)


def do(run: Run, kind: str, **options: Any) -> Any:
    """Do one operation with options that are rendered already, as the engine does it."""
    operation = OPERATIONS[kind]
    assert list(operation.options.errors(options, are_rendered=True)) == []
    return operation.run(options, run)


def rejection(run: Run, kind: str, **options: Any) -> Any:
    """Do one operation that rejects, and return what it leaves."""
    try:
        result = do(run, kind, **options)
    except Rejected as rejected:
        return rejected.result
    raise AssertionError(f"not rejected: {result!r}")


def somebody(ip: str = "192.0.2.1") -> Identity:
    return ANONYMOUS.with_client(ClientInfo(ip))
