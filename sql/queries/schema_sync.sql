-- Rows of system collections for snapshots, as JSON.

-- name: snapshot_roles
-- All roles.
SELECT to_json(stored)::text
FROM system_roles AS stored;

-- name: snapshot_permissions
-- All permissions.
SELECT to_json(stored)::text
FROM system_permissions AS stored;

-- name: snapshot_flows
-- All flows, with options that may hold secrets.
SELECT to_json(stored)::text
FROM system_flows AS stored;

-- name: snapshot_operations
-- The operations of all flows, with options that may hold secrets.
SELECT to_json(stored)::text
FROM system_operations AS stored;

-- name: snapshot_dashboards
-- All dashboards.
SELECT to_json(stored)::text
FROM system_dashboards AS stored;

-- name: snapshot_panels
-- The panels of all dashboards.
SELECT to_json(stored)::text
FROM system_panels AS stored;

-- name: snapshot_settings
-- The settings: one row, or none before their first change.
SELECT to_json(stored)::text
FROM system_settings AS stored;
