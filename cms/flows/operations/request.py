"""The operation `request`: asks another server, or delivers a signed webhook to it.

Signed requests are logged, and flows whose requests have failed for days are switched off.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from cms import jsontext
from cms.database.connections import single_values
from cms.database.statements import statement
from cms.flows.definition.options import texts_of
from cms.flows.definition.signature import parse_secret, signature_headers
from cms.flows.run import Rejected, RenderedOptions, Run, Services
from cms.items.write import writes
from cms.mail.notifications import Notification, notify
from cms.outgoing.outgoing_addresses import AddressDenied, AddressFilter, HostDenied
from cms.outgoing.outgoing_requests import (
    FetchError,
    FetchLimits,
    OutgoingRequest,
    OutgoingResponse,
    ResponseTooLarge,
    fetch,
)
from cms.schema.system import FLOWS
from cms.store.identity import Identity

MAX_SECONDS = 30.0
"""For the whole exchange, with redirects; less where the run has less time left."""
MIN_SECONDS = 0.01

MAX_RESPONSE_BYTES = 10 * 2**20

_OWN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_JSON = "application/json"
_CHARSET = re.compile(
    r"utf-?8|utf-16(?:le|be)?|(?:us-)?ascii|latin-?1|iso-8859-\d+|(?:windows-|cp)125\d"
    r"|shift_jis|euc-(?:jp|kr)|gb(?:2312|k|18030)|big5|koi8-[ru]"
)
_FIRST_REDIRECT_STATUS = 300
_FIRST_ERROR_STATUS = 400
# Time-out, too early, too many requests, and faults of the other server: they may pass.
_TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)})

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


class RequestOutcome(NamedTuple):
    """The outcome of a request; `status` is None without an answer, and `reason` says why."""

    status: int | None
    reason: str
    headers: Mapping[str, str] = {}
    data: object = None
    is_transient: bool = False
    has_failed: bool = True

    @property
    def result(self) -> dict[str, object]:
        return {
            "status": self.status,
            "statusText": self.reason,
            "headers": dict(self.headers),
            "data": self.data,
        }


def send_request(options: RenderedOptions, run: Run) -> object:
    """Send a request and return its answer; reject with the same shape for an error."""
    headers = headers_of(options.get("headers"))
    body = _body(options.get("body"), headers)
    message = None
    if options.get("sign"):
        message = _message(run)
        keys = list(map(parse_secret, texts_of(options["secret"])))
        seconds = int(time.time())
        headers |= signature_headers(keys, message=message, seconds=seconds, body=body or b"")
    method = str(options.get("method") or "GET").upper()
    # Blanks are what people write; other characters are quoted when the request is sent.
    url = options["url"].strip().replace(" ", "%20")
    # A signed message is for one receiver only.
    outgoing = OutgoingRequest(url, method, headers, body, follows_redirects=message is None)
    start = time.perf_counter()
    outcome = _exchange(outgoing, run)
    milliseconds = round((time.perf_counter() - start) * 1000, 3)
    if message is not None:
        reason = outcome.reason if outcome.has_failed else None
        delivery = Delivery(message, outgoing.url, outcome.status, reason, milliseconds)
        record_delivery(run, delivery, has_failed=outcome.has_failed)
    if outcome.has_failed:
        raise Rejected(outcome.result, is_transient=outcome.is_transient)
    return outcome.result


def _exchange(outgoing: OutgoingRequest, run: Run) -> RequestOutcome:
    config = run.services.config
    hosts = config.flows_request_allow_list
    address_filter = replace(AddressFilter.from_config(config), hosts=hosts)
    seconds = min(MAX_SECONDS, run.limits.seconds_left)
    limits = FetchLimits(max(seconds, MIN_SECONDS), MAX_RESPONSE_BYTES)
    try:
        with fetch(outgoing, address_filter, limits=limits) as response:
            content = b"".join(response.chunks)
    except AddressDenied as denied:
        # The name of a host may only be unknown for a while.
        return RequestOutcome(None, str(denied), is_transient=isinstance(denied, HostDenied))
    except FetchError as failed:
        return RequestOutcome(None, str(failed), is_transient=True)
    except ResponseTooLarge:
        return RequestOutcome(None, f"it answers with more than {MAX_RESPONSE_BYTES // 2**20} MB")
    # A redirect of a signed request counts as a failure.
    first_error = _FIRST_ERROR_STATUS if outgoing.follows_redirects else _FIRST_REDIRECT_STATUS
    headers = {name: _storable(value) for name, value in response.headers.items()}
    return RequestOutcome(
        response.status,
        _storable(response.reason),
        headers,
        _data(response, content),
        is_transient=response.status in _TRANSIENT_STATUSES,
        has_failed=response.status >= first_error,
    )


def _data(response: OutgoingResponse, content: bytes) -> object:
    """Return the value of a body in JSON, else its text; None for no body."""
    if not content:
        return None
    media_type, _, parameters = response.headers.get("content-type", "").partition(";")
    media_type = media_type.strip().lower()
    if media_type == _JSON or media_type.endswith("+json"):
        try:
            return jsontext.loads(content)
        # The server answers with something else than the type that it names.
        except ValueError:
            return _text(content, "utf-8")
    _, _, charset = parameters.lower().partition("charset=")
    return _text(content, charset.split(";")[0].strip(' "') or "utf-8")


def _text(content: bytes, charset: str) -> str:
    # Some codecs of Python are not for texts, and some take quadratic time.
    name = charset if _CHARSET.fullmatch(charset) else "utf-8"
    try:
        return _storable(content.decode(name, errors="replace"))
    except LookupError:
        return _storable(content.decode(errors="replace"))


def _storable(text: str) -> str:
    """Return a text for the log of the run: PostgreSQL stores no U+0000."""
    return text.replace("\0", "\ufffd")


def headers_of(value: object) -> dict[str, str]:
    """Return the headers of an object, or of a list of objects with `header` and `value`.

    Those that say how a message is sent are left out: the service sends it in its own way.
    """
    named: Iterable[tuple[str, object]] = ()
    if isinstance(value, list):
        named = [(str(entry["header"]), entry["value"]) for entry in value]
    elif isinstance(value, Mapping):
        named = value.items()
    return {name: str(content) for name, content in named if name.lower() not in _OWN_HEADERS}


def _body(value: object, headers: dict[str, str]) -> bytes | None:
    """Return the bytes of a body, and add its media type to the headers if they have none."""
    if value is None:
        return None
    content = value.encode() if isinstance(value, str) else jsontext.dumps(value)
    if "content-type" not in map(str.lower, headers):
        # A text may be JSON as well: a template may have made it.
        is_json = not isinstance(value, str) or _is_json(value)
        headers["Content-Type"] = _JSON if is_json else "text/plain; charset=utf-8"
    return content


def _is_json(text: str) -> bool:
    try:
        jsontext.loads(text)
    except ValueError:
        return False
    return True


def _message(run: Run) -> str:
    """Return the id of a webhook, the same at every attempt of a run."""
    if run.id is None:
        return f"msg_{uuid.uuid4().hex}"
    # uuid5 makes of one run and operation the same id each time.
    return f"msg_{uuid.uuid5(uuid.UUID(run.id), str(run.operation)).hex}"


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
    rows = run.fetch(statement("record_delivery"), values)
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
