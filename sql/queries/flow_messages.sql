-- What flows tell others: signed requests and notifications.

-- name: record_delivery
-- Logs a delivery of a signed request: $1 to $9 are its columns, $10 is whether it has failed. A row is returned when the
-- operation has failed for more than $11 seconds, and $12 times at least, without a success.
WITH operation AS (
    -- It may be deleted while its request runs.
    SELECT id
    FROM system_operations
    WHERE id = $2::uuid
    FOR KEY SHARE
),
delivery AS (
    INSERT INTO system_flow_deliveries (flow, operation, run, message, url, attempt, status, reason, milliseconds)
    SELECT
        $1::uuid, id, $3::uuid, $4::text, $5::text, $6::integer, $7::integer, $8::text, $9::double precision
    FROM operation
),
ended AS (
    DELETE FROM system_flow_outages
    WHERE operation = $2::uuid
      AND NOT $10::boolean
),
outage AS (
    INSERT INTO system_flow_outages (operation)
    SELECT id
    FROM operation
    WHERE $10::boolean
    ON CONFLICT ON CONSTRAINT system_flow_outages_pkey DO UPDATE
        SET failures = system_flow_outages.failures + 1
    RETURNING since, failures
)
SELECT since::text
FROM outage
WHERE since <= now() - make_interval(secs => $11::double precision)
  AND failures >= $12::integer;

-- name: delete_old_deliveries
-- Deletes deliveries that were more than $1 seconds ago.
DELETE FROM system_flow_deliveries
WHERE "timestamp" < now() - make_interval(secs => $1::double precision);

-- name: end_outages
-- Forgets the outages of the flow $1, so that it may try again for as long when it is switched on, and returns its name;
-- nothing where somebody else has just done so.
WITH ended AS (
    DELETE FROM system_flow_outages AS outages
    USING system_operations AS operations
    WHERE operations.id = outages.operation
      AND operations.flow = $1::uuid
    RETURNING outages.operation
)
SELECT name
FROM system_flows
WHERE id = $1::uuid
  AND EXISTS (SELECT FROM ended);

-- name: find_administrators
-- The active users of roles with admin_access, their own or a parent's.
WITH RECURSIVE admins (id) AS (
    SELECT id
    FROM system_roles
    WHERE admin_access
    UNION
    SELECT roles.id
    FROM system_roles AS roles
    JOIN admins ON admins.id = roles.parent
)
SELECT users.id::text
FROM system_users AS users
JOIN admins ON admins.id = users.role
WHERE users.status = 'active';
