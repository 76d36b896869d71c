"""The system tables: an entry for each, with the facts that PostgreSQL's catalogue does not have.

sql/schema.sql has their columns, types and constraints, and the catalogue reads them from there as
it does for any table. A test compares the names in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType

SYSTEM_PREFIX = "system_"
QUEUE_PREFIX = "procrastinate_"
"""Begins the names of the tables that the library of background jobs makes."""

LIMIT_RULE = "it is a whole number from 1, or null for no limit"
"""The rule of columns that hold a limit."""
_FRACTION_RULE = "it is a number from 0 to 1"
_ONE_ROW_RULE = "there is one row, of the id 1"

# The tables that other modules name.
ACTIVITY = "system_activity"
COLLECTIONS = "system_collections"
DASHBOARDS = "system_dashboards"
FIELDS = "system_fields"
FILES = "system_files"
FLOWS = "system_flows"
FLOW_DELIVERIES = "system_flow_deliveries"
FLOW_RUNS = "system_flow_runs"
FOLDERS = "system_folders"
NOTIFICATIONS = "system_notifications"
OPERATIONS = "system_operations"
PANELS = "system_panels"
PERMISSIONS = "system_permissions"
PRESETS = "system_presets"
RELATIONS = "system_relations"
REVISIONS = "system_revisions"
ROLES = "system_roles"
SETTINGS = "system_settings"
SHARES = "system_shares"
TRANSLATIONS = "system_translations"
USERS = "system_users"


@dataclass(frozen=True, slots=True)
class AliasTarget:
    """Where the items of a to-many field are: rows whose `many_field` points to this table."""

    many_collection: str
    many_field: str


@dataclass(frozen=True, slots=True)
class Choices:
    """The words that a column takes, as its check lists them, in the order of error sentences."""

    words: tuple[str, ...]
    is_nullable: bool = False

    @property
    def rule(self) -> str:
        """The rule of the check, as a sentence."""
        *others, last = (*self.words, "null") if self.is_nullable else self.words
        return f"it is {', '.join(others)} or {last}"


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A system table: the facts about it besides its columns."""

    name: str
    _: KW_ONLY
    is_listed: bool = True
    """Whether the table is a collection; no request ever sees any other."""
    endpoint: str = ""
    """The path of its items: /items does not have them."""
    is_structure: bool = False
    """Whether the rows describe collections, fields or relations."""
    is_writable: bool = False
    """Whether items are written like any others, with the checks of their hooks."""
    is_singleton: bool = False
    special: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The markers of `meta.special` by fields; json columns need none."""
    aliases: Mapping[str, AliasTarget] = field(default_factory=dict)
    """The to-many fields."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Columns that point to a collection's `id` without a foreign key: the history stays when the
    row that it is about is deleted."""
    internal_columns: frozenset[str] = frozenset()
    """Columns that clients can neither read nor write."""
    unrecorded_columns: frozenset[str] = frozenset()
    """Columns such as the moment of the last login: a change of nothing else leaves no history."""
    withheld_columns: frozenset[str] = frozenset()
    """Columns that may hold secrets in any form: history and events leave their values out."""
    unique_in_any_case: frozenset[str] = frozenset()
    """Columns that are unique without regard to capitals."""
    choices: Mapping[str, Choices] = field(default_factory=dict)
    """The columns that take a few words only."""
    check_rules: Mapping[str, str] = field(default_factory=dict)
    """The rules that other checks of the table enforce, by the names of their constraints."""

    def rule_of(self, constraint: str) -> str | None:
        """Return the rule that a check of the table enforces, by the name of the constraint."""
        for column, choices in self.choices.items():
            if constraint == f"{self.name}_{column}_check":
                return choices.rule
        return self.check_rules.get(constraint)


_CREATION = {"date_created": ("date-created",), "user_created": ("user-created",)}
_ACCOUNTABILITY = Choices(("all", "activity"), is_nullable=True)


_ALL = (
    SystemTable(
        ACTIVITY,
        endpoint="/activity",
        special={
            "timestamp": ("date-created",),
        },
        aliases={
            "revisions": AliasTarget(REVISIONS, "activity"),
        },
        references={
            "user": USERS,
        },
    ),
    SystemTable(
        COLLECTIONS,
        endpoint="/collections",
        is_structure=True,
        choices={
            "accountability": _ACCOUNTABILITY,
            "collapse": Choices(("open", "closed", "locked")),
        },
    ),
    SystemTable(
        DASHBOARDS,
        endpoint="/dashboards",
        is_writable=True,
        special=_CREATION,
        aliases={
            "panels": AliasTarget(PANELS, "dashboard"),
        },
    ),
    # Requests of the version before, as those of `system_index_requests`.
    SystemTable(
        "system_constraint_requests",
        is_listed=False,
        choices={
            "kind": Choices(("unique", "foreign_key")),
        },
    ),
    SystemTable("system_dropped_collections", is_listed=False),
    SystemTable(FIELDS, endpoint="/fields", is_structure=True),
    SystemTable(
        FILES,
        endpoint="/files",
        special={
            "uploaded_on": ("date-created",),
            "uploaded_by": ("user-created",),
            "modified_on": ("date-updated",),
            "modified_by": ("user-updated",),
        },
        check_rules={
            "system_files_focal_point_x_check": _FRACTION_RULE,
            "system_files_focal_point_y_check": _FRACTION_RULE,
        },
    ),
    SystemTable(
        FLOW_DELIVERIES,
        endpoint="/flows/deliveries",
        special={
            "timestamp": ("date-created",),
        },
    ),
    SystemTable("system_flow_outages", is_listed=False),
    SystemTable(
        FLOWS,
        endpoint="/flows",
        is_writable=True,
        special=_CREATION,
        aliases={
            "operations": AliasTarget(OPERATIONS, "flow"),
        },
        choices={
            "accountability": _ACCOUNTABILITY,
            "status": Choices(("active", "inactive")),
            "trigger": Choices(
                ("event", "webhook", "schedule", "manual", "operation"), is_nullable=True
            ),
        },
    ),
    SystemTable(
        FLOW_RUNS,
        endpoint="/flows/runs",
        special={
            "date_created": ("date-created",),
        },
        references={
            "flow": FLOWS,
        },
        # What a run was started with may hold anything; the log shows it with secrets masked.
        internal_columns=frozenset({"input", "worker"}),
        choices={
            "state": Choices(("queued", "running", "done", "rejected", "failed")),
        },
    ),
    SystemTable("system_flow_schedules", is_listed=False),
    SystemTable(FOLDERS, endpoint="/folders"),
    SystemTable("system_idempotency", is_listed=False),
    SystemTable("system_index_requests", is_listed=False),
    SystemTable("system_json_paths", is_listed=False),
    SystemTable("system_migrations", is_listed=False),
    SystemTable(
        NOTIFICATIONS,
        endpoint="/notifications",
        is_writable=True,
        special={
            "timestamp": ("date-created",),
            "sender": ("user-created",),
        },
        choices={
            "status": Choices(("inbox", "archived")),
        },
    ),
    SystemTable(
        OPERATIONS,
        endpoint="/operations",
        is_writable=True,
        # Options of operations hold tokens and passwords of other services, under names that nobody
        # knows beforehand.
        withheld_columns=frozenset({"options"}),
        special=_CREATION,
    ),
    SystemTable(
        PANELS,
        endpoint="/panels",
        is_writable=True,
        special=_CREATION,
    ),
    SystemTable(
        PERMISSIONS,
        endpoint="/permissions",
        is_writable=True,
        special={"fields": ("cast-csv",)},
        choices={
            "action": Choices(("read", "create", "update", "delete", "share")),
        },
    ),
    SystemTable(PRESETS, endpoint="/presets", is_writable=True),
    SystemTable("system_queue", is_listed=False),
    SystemTable("system_recovery_codes", is_listed=False),
    SystemTable(
        RELATIONS,
        endpoint="/relations",
        is_structure=True,
        choices={
            "one_deselect_action": Choices(("nullify", "delete")),
        },
    ),
    SystemTable(
        REVISIONS,
        endpoint="/revisions",
        special={
            "created": ("date-created",),
        },
        references={
            "activity": ACTIVITY,
            "parent": REVISIONS,
        },
    ),
    SystemTable(
        ROLES,
        endpoint="/roles",
        is_writable=True,
        aliases={
            "users": AliasTarget(USERS, "role"),
        },
    ),
    SystemTable("system_saml_answers", is_listed=False),
    SystemTable(
        "system_sessions",
        is_listed=False,
        choices={
            "mode": Choices(("json", "cookie", "session")),
        },
        check_rules={
            "system_sessions_holder_check": "a session is of either a user or a share",
        },
    ),
    SystemTable(
        SETTINGS,
        endpoint="/settings",
        is_writable=True,
        is_singleton=True,
        choices={
            "storage_asset_transform": Choices(("all", "none", "presets")),
        },
        check_rules={
            "system_settings_auth_login_attempts_check": LIMIT_RULE,
            "system_settings_one_row": _ONE_ROW_RULE,
        },
    ),
    SystemTable(
        SHARES,
        endpoint="/shares",
        is_writable=True,
        special={
            "password": (
                "hash",
                "conceal",
            ),
            **_CREATION,
        },
        # They change with every use of a share, which is no change of the share itself.
        internal_columns=frozenset({"failed_logins", "login_after"}),
        unrecorded_columns=frozenset({"times_used"}),
    ),
    SystemTable(TRANSLATIONS, endpoint="/translations", is_writable=True),
    SystemTable(
        USERS,
        endpoint="/users",
        is_writable=True,
        special={
            "password": (
                "hash",
                "conceal",
            ),
            # Of a static token only the digest is stored: it is compared, and never shown.
            "token": (
                "conceal",
                "digest",
            ),
            # No hash: the service computes codes from the secret itself.
            "tfa_secret": ("conceal",),
            "auth_data": ("conceal",),
        },
        # The state of logins and of registration, which only these read and change.
        internal_columns=frozenset({"failed_logins", "login_after", "tfa_step", "unverified"}),
        unrecorded_columns=frozenset({"last_access", "last_page"}),
        unique_in_any_case=frozenset({"email"}),
        choices={
            "status": Choices(("active", "invited", "draft", "suspended", "archived")),
        },
    ),
    SystemTable(
        "system_version",
        is_listed=False,
        check_rules={
            "system_version_one_row": _ONE_ROW_RULE,
        },
    ),
)

SYSTEM_TABLES: Mapping[str, SystemTable] = MappingProxyType({table.name: table for table in _ALL})

# So that no caller has to ask first whether a table is the service's.
NO_TABLE = SystemTable("", is_listed=False)
"""Stands in for the entry of any other table; all its settings have their defaults."""

SYSTEM_COLLECTIONS = frozenset(table.name for table in _ALL if table.is_listed)
STRUCTURE_COLLECTIONS = frozenset(table.name for table in _ALL if table.is_structure)
ENDPOINTS: Mapping[str, str] = MappingProxyType(
    {table.name: table.endpoint for table in _ALL if table.endpoint}
)
"""The paths of the system collections that have one."""


def is_system(collection: str) -> bool:
    """Tell whether a name is one of the service, whether there is such a table or not."""
    return collection.startswith(SYSTEM_PREFIX)


def system_table(collection: str) -> SystemTable:
    """Return the entry of a system table, `NO_TABLE` for any other collection."""
    return SYSTEM_TABLES.get(collection, NO_TABLE)


def choices_of(collection: str, column: str) -> tuple[str, ...]:
    """Return the words that a column of a system table takes."""
    return SYSTEM_TABLES[collection].choices[column].words


def event_name(collection: str, verb: str) -> str:
    """Return the name of an event: items.create, users.update and so on."""
    if not is_system(collection):
        return f"items.{verb}"
    return f"{collection.removeprefix(SYSTEM_PREFIX)}.{verb}"


SERVER_OWNED = frozenset(
    {
        "filename_disk",
        "filesize",
        "type",
        "width",
        "height",
        "charset",
        "metadata",
        "uploaded_by",
        "uploaded_on",
        "modified_by",
        "modified_on",
    }
)
"""Fields that clients cannot set."""

CREATE_ONLY = frozenset({"id", "storage"})
"""Fields that clients can set only when they create a file."""
