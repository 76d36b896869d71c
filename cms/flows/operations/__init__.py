"""The operations of flows, by type; their options are in cms/flows/definition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.flows.operations.basic import (
    condition,
    sleep,
    throw_error,
    transform,
    write_log,
)
from cms.flows.operations.exec import run_script
from cms.flows.operations.item_operations import (
    create_items,
    delete_items,
    read_items,
    update_items,
)
from cms.flows.operations.messages import send_mail, send_notification
from cms.flows.operations.request import send_request
from cms.flows.operations.trigger import trigger
from cms.flows.operations.web_tokens import json_web_token
from cms.flows.run import OperationFunction

OPERATIONS: Mapping[str, OperationFunction] = MappingProxyType(
    {
        "condition": condition,
        "exec": run_script,
        "item-create": create_items,
        "item-delete": delete_items,
        "item-read": read_items,
        "item-update": update_items,
        "json-web-token": json_web_token,
        "log": write_log,
        "mail": send_mail,
        "notification": send_notification,
        "request": send_request,
        "sleep": sleep,
        "throw-error": throw_error,
        "transform": transform,
        "trigger": trigger,
    }
)
