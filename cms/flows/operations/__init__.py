"""The types of operations of flows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.flows.definition.operation_types import OPERATION_TYPES as TYPES
from cms.flows.operations.basic import (
    condition,
    run_script,
    sleep,
    throw_error,
    transform,
    trigger,
    write_log,
)
from cms.flows.operations.item_operations import (
    create_items,
    delete_items,
    read_items,
    update_items,
)
from cms.flows.operations.messages import send_mail, send_notification
from cms.flows.operations.request import send_request
from cms.flows.operations.web_tokens import json_web_token
from cms.flows.run import OperationType

OPERATIONS: Mapping[str, OperationType] = MappingProxyType(
    {
        "condition": OperationType(TYPES["condition"], condition),
        "exec": OperationType(TYPES["exec"], run_script, may_wait=True),
        "item-create": OperationType(TYPES["item-create"], create_items, sees_run=False),
        "item-delete": OperationType(TYPES["item-delete"], delete_items, sees_run=False),
        "item-read": OperationType(TYPES["item-read"], read_items, sees_run=False),
        "item-update": OperationType(TYPES["item-update"], update_items, sees_run=False),
        "json-web-token": OperationType(TYPES["json-web-token"], json_web_token, sees_run=False),
        "log": OperationType(TYPES["log"], write_log, sees_run=False),
        "mail": OperationType(TYPES["mail"], send_mail, sees_run=False),
        "notification": OperationType(TYPES["notification"], send_notification, sees_run=False),
        "request": OperationType(TYPES["request"], send_request, may_wait=True, sees_run=False),
        "sleep": OperationType(TYPES["sleep"], sleep, may_wait=True, sees_run=False),
        "throw-error": OperationType(TYPES["throw-error"], throw_error, sees_run=False),
        "transform": OperationType(TYPES["transform"], transform, sees_run=False),
        # Without a slot: the flow that it runs takes slots of its own.
        "trigger": OperationType(TYPES["trigger"], trigger),
    }
)
