"""The log of signed requests; flows whose requests have failed for days are switched off."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from cms.database.connections import single_values
from cms.database.statements import statement
from cms.flows.run import Run, Services
from cms.items.write import writes
from cms.mail.notifications import Notification, notify
from cms.schema.system import FLOWS
from cms.store.identity import Identity

MIN_FAILURES = 10
"""Failures before a flow is switched off, however long they have lasted: two failures in a week are
no outage."""

MAX_URL_LENGTH = 2_000
MAX_REASON_LENGTH = 500
NO_ADDRESS = "(no address)"

log = logging.getLogger("cms")


class Delivery(NamedTuple):
    """One attempt to deliver a webhook; without a status, `reason` says why there is no answer."""

    message: str
    url: str
    status: int | None
    reason: str | None
    milliseconds: float


def record_delivery(run: Run, delivery: Delivery, *, has_failed: bool) -> None:
    """Log a delivery; switch the flow off once deliveries have failed for `flows_max_outage`."""
    if run.operation is None:
        return
    if delivery.reason is not None:
        # The message of the other server, which may repeat secrets that it was sent.
        reason = str(run.secrets.masked(delivery.reason))[:MAX_REASON_LENGTH]
        delivery = delivery._replace(reason=reason)
    values = (
        run.flow,
        run.operation,
        run.id,
        delivery.message,
        without_secrets(str(run.secrets.masked(delivery.url))),
        run.attempt,
        delivery.status,
        delivery.reason,
        delivery.milliseconds,
        has_failed,
        run.services.config.flows_max_outage.total_seconds(),
        MIN_FAILURES,
    )
    fetch = run.services.store.database.fetch_primary
    if run.transaction is not None:
        # A second connection could wait for ever for those who wait for this transaction.
        fetch = run.transaction.transaction.execute
    rows = fetch(statement("record_delivery"), values)
    # The statement returns a row if the outage has lasted too long. A filter flow is not switched
    # off here: that is a write of its own, which could wait for the open transaction for ever. The
    # next delivery outside of a filter flow does it.
    if rows and run.transaction is None:
        switch_off(run.services, run.flow, delivery)


def switch_off(services: Services, flow: str, delivery: Delivery) -> None:
    """Make a flow inactive, and tell all administrators unless somebody else has just done so."""
    target = writes.WriteTarget(FLOWS)
    # As a write of items like any other, so that the history and other flows see it.
    service = Identity(is_service=True)
    writes.update_one(services.store, service, target, key=flow, payload={"status": "inactive"})
    with services.store.database.transaction() as transaction:
        # Deletes the outages and returns the flow's name; of two workers that switch off at once,
        # one gets the row and writes the notification.
        rows = transaction.execute(statement("end_outages"), (flow,))
        if not rows:
            return
        administrators = single_values(transaction.execute(statement("find_administrators")))
        days = services.config.flows_max_outage / timedelta(days=1)
        message = (
            f"Its signed requests to {_host(delivery.url)} have failed for {days:g} "
            f"days, the last one because of this: {delivery.reason}. Switch it on again once the "
            "other server answers."
        )
        subject = f'The flow "{rows[0][0]}" is switched off'
        notify(transaction.execute, administrators, Notification(subject, message, FLOWS, flow))
    log.warning("flow %s is switched off: its requests have failed for %g days", flow, days)


def without_secrets(url: str) -> str:
    """Return a URL for a log: without its query, which often holds a key, and its credentials."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return NO_ADDRESS
    host = parts.netloc.rpartition("@")[2]
    query = "…" if parts.query else ""
    plain = parts._replace(netloc=host, query=query, fragment="").geturl()
    return plain[:MAX_URL_LENGTH]


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or NO_ADDRESS
    except ValueError:
        return NO_ADDRESS
