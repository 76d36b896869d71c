"""The types of operations and the options of each (docs/flows.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cms.flows.definition.options import (
    Option,
    Options,
    addresses,
    any_json,
    headers,
    http_token,
    key,
    key_or_keys,
    mail_body,
    object_or_objects,
    permissions,
    query,
    rule,
    script,
    signing_secrets,
    url,
    uuid,
    uuid_or_uuids,
)
from cms.option_checks import boolean, json_object, one_of, text, whole_number

MAX_SLEEP_MILLISECONDS = 24 * 60 * 60 * 1000
MAX_BATCH_SIZE = 10_000

_ITEMS = {
    "collection": Option(text, is_required=True),
    # Fixed when the flow is saved: data of a caller must not choose the rights.
    "permissions": Option(permissions, takes_templates=False),
}
_WRITES = {**_ITEMS, "emitEvents": Option(boolean)}
_SELECTION = {"key": Option(key_or_keys), "query": Option(query, is_json=True)}
_VALUE = Option(any_json, is_required=True, may_become_null=True)
_JSON_VALUE = replace(_VALUE, is_json=True)
_JSON_OBJECT = Option(json_object, is_json=True)
_JSON_ITEMS = Option(object_or_objects, is_required=True, is_json=True)
_KEY_OR_QUERY = (("key", "query"),)
"""An update or deletion without either would be one of all items."""

OPERATION_TYPES: Mapping[str, Options] = MappingProxyType(
    {
        "condition": Options({"filter": Option(rule, is_required=True, is_json=True)}),
        "exec": Options({"code": Option(script, is_required=True, takes_templates=False)}),
        "item-create": Options({**_WRITES, "payload": _JSON_ITEMS}),
        "item-read": Options({**_ITEMS, **_SELECTION, "emitEvents": Option(boolean)}),
        "item-update": Options(
            {**_WRITES, **_SELECTION, "payload": _JSON_ITEMS},
            one_of=_KEY_OR_QUERY,
            list_with_keys="payload",
        ),
        "item-delete": Options({**_WRITES, **_SELECTION}, one_of=_KEY_OR_QUERY),
        "log": Options({"message": _VALUE}),
        "mail": Options(
            {
                "to": Option(addresses, is_required=True),
                "cc": Option(addresses),
                "bcc": Option(addresses),
                "subject": Option(text, is_required=True),
                "type": Option(one_of("markdown", "html", "text", "wysiwyg", "template")),
                "body": Option(mail_body),
                "template": Option(text),
                "data": _JSON_OBJECT,
            },
            one_of=(("body", "template"),),
        ),
        "notification": Options(
            {
                "recipient": Option(uuid_or_uuids, is_required=True),
                "subject": Option(text, is_required=True),
                "message": Option(text),
                "collection": Option(text),
                "item": Option(key),
                "permissions": _ITEMS["permissions"],
            }
        ),
        # Only the form of an address is checked here: at the time of the request the settings
        # decide which hosts may be asked.
        "request": Options(
            {
                "method": Option(http_token),
                "url": Option(url, is_required=True, is_url=True),
                "headers": Option(headers),
                "body": Option(any_json),
                "sign": Option(boolean),
                "secret": Option(signing_secrets),
            },
            needs=(("sign", "secret"),),
        ),
        "sleep": Options(
            {"milliseconds": Option(whole_number(0, MAX_SLEEP_MILLISECONDS), is_required=True)}
        ),
        "transform": Options({"json": _JSON_VALUE}),
        "trigger": Options(
            {
                "flow": Option(uuid, is_required=True),
                "payload": Option(any_json, is_json=True),
                "iterationMode": Option(one_of("parallel", "serial", "batch")),
                "batchSize": Option(whole_number(1, MAX_BATCH_SIZE)),
            }
        ),
        "json-web-token": Options(
            {
                "operation": Option(one_of("sign", "verify", "decode"), is_required=True),
                "payload": _JSON_OBJECT,
                "token": Option(text),
                "secret": Option(text),
                "options": _JSON_OBJECT,
            },
            one_of=(("payload", "token"),),
        ),
        "throw-error": Options(
            {
                "code": Option(text),
                "status": Option(whole_number(400, 599)),
                "message": Option(text),
            }
        ),
    }
)
