"""Filter flows: inside the transaction of a write, before its rows are written."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cms.errors import Problem, Refused, capitalized
from cms.flows.definition.templates import RenderedTooLarge
from cms.flows.execution import MAX_DEPTH, Cause, Execution, refusal_of, run_now
from cms.flows.program import program_of
from cms.flows.run import OpenTransaction, RunContext, RunLimits, Services
from cms.items.write.transaction.event_runs import accountability_of
from cms.schema.system import event_name
from cms.store.table_hooks import FilterEvent

log = logging.getLogger("cms.flows")

MAX_LOGGED_MESSAGES = 1_000
"""Characters of the messages of a rejected operation, in the log of the service."""

_PAYLOAD_MAKERS = frozenset({"transform", "exec"})
"""Operations whose result is the payload where a flow does not say what it returns."""


@dataclass(frozen=True, slots=True)
class FlowPayloadFilter:
    """Runs the filter flows of an event, each with the payload that the one before it returned."""

    services: Services

    def __call__(self, event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
        if (event.client.depth or 0) > MAX_DEPTH:
            reason = f"{MAX_DEPTH} runs of flows in a row have each caused the next one"
            raise _unprocessable(reason)
        with event.transaction.filter_time.running():
            return self._filtered(event, payload, keys)

    def _filtered(self, event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
        transaction = OpenTransaction(event.transaction, event.context)
        # A write of many items holds its transaction no longer than one of a single item.
        seconds_spent = event.transaction.filter_time.seconds
        limits = RunLimits.for_write(self.services.config.flows_sync_timeout, seconds_spent)
        context = RunContext(event.context.snapshot, limits, transaction)
        for flow in event.flows:
            # In the order of the flows' creation: each gets the payload of the one before it.
            fetch = event.transaction.execute
            program = program_of(self.services, event.context.snapshot, flow, fetch)
            # Deleted by a flow before it in this same transaction.
            if program is None:
                continue
            cause = Cause(
                "event",
                _trigger(event, payload, keys),
                accountability_of(event.context, event.client),
                event.client.depth or 0,
            )
            execution = run_now(self.services, program, cause, context=context)
            if execution.outcome.rejected:
                _log_refusal(execution)
                raise refusal_of(execution)
            payload = _changed(execution, payload)
        return payload


def _trigger(event: FilterEvent, payload: object, keys: Sequence[object]) -> dict[str, object]:
    trigger: dict[str, object] = {
        "event": event_name(event.collection, event.verb),
        "collection": event.collection,
        "payload": payload,
    }
    if event.verb != "create":
        trigger["keys"] = list(keys)
    return trigger


def _changed(execution: Execution, payload: object) -> object:
    """Return the payload that a flow returns, or the one before."""
    steps = execution.outcome.steps
    has_return = execution.program.definition.options.get("return") is not None
    if not has_return and not (steps and steps[-1].type in _PAYLOAD_MAKERS):
        return payload
    try:
        result = execution.result
    except RenderedTooLarge:
        raise _unprocessable("what a filter flow returns is too large") from None
    # A payload is an object: a flow that returns anything else leaves it as it was.
    return result if isinstance(result, Mapping) else payload


def _log_refusal(execution: Execution) -> None:
    """Log in the service's log why a write is refused: the run's log is undone with the write."""
    messages = ""
    if execution.program.definition.accountability == "all":
        text = "; ".join(_messages(execution.outcome.values["$last"]))
        messages = str(execution.run.secrets.masked(text))[:MAX_LOGGED_MESSAGES]
    log.info("flow %s refuses a write: %s %s", execution.program.flow, execution.reason, messages)


def _messages(result: object) -> Iterator[str]:
    """Yield the messages of the errors in a rejection, whose other members may be the payload."""
    if isinstance(result, Mapping) and "message" in result:
        yield str(result["message"])
    elif isinstance(result, Mapping):
        yield from _messages(result.get("errors"))
    elif isinstance(result, list):
        for error in result:
            yield from _messages(error)


def _unprocessable(reason: str) -> Refused:
    sentence = f"{capitalized(reason)}."
    return Refused(Problem("UNPROCESSABLE_CONTENT", sentence, {"reason": reason}))
