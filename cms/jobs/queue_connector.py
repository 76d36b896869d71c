"""The connections of the queue, which listen to the notifications of one schema alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, cast

from procrastinate import PsycopgConnector
from procrastinate.connector import Notify

from cms.database.statements import statement


class QueueConnector(PsycopgConnector):
    """Listens to the channels of its schema: workers of other installations are not woken."""

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        row = cast(dict[str, Any], await self.execute_query_one_async(statement("find_schema")))
        schema = row["current_schema"]
        own = [channel_of_schema(channel, schema) for channel in channels]
        await super().listen_notify(on_notification, own)


def channel_of_schema(channel: str, schema: str) -> str:
    """Return the name of a channel as sql/queue/notifications_of_one_schema.sql makes it."""
    digest = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()
    return f"{channel}@{digest[:8]}"
