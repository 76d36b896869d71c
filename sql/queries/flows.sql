-- Flows and their operations.

-- name: find_flow_definitions
-- What flows say: the trigger and its options, the first operation, and all operations as JSON.
SELECT
    flows.id::text,
    flows.trigger,
    flows.options::text,
    flows.operation::text,
    coalesce(
        (
            SELECT json_agg(
                json_build_object(
                    'id', operations.id,
                    'key', operations.key,
                    'type', operations.type,
                    'options', operations.options,
                    'resolve', operations.resolve,
                    'reject', operations.reject
                )
                ORDER BY operations.date_created, operations.position_x, operations.position_y,
                    operations.id
            )
            FROM system_operations AS operations
            WHERE operations.flow = flows.id
        ),
        '[]'
    )::text,
    flows.status = 'active',
    flows.accountability
FROM system_flows AS flows
WHERE flows.id = ANY ($1::uuid[]);

-- name: find_flows_of_operations
-- The flows that operations belong to.
SELECT DISTINCT flow::text
FROM system_operations
WHERE id = ANY ($1::uuid[]);

-- name: queue_runs
-- Queues a run of the flow $1 for each JSON text of $2, caused by the trigger $3, with the accountability $4 and the
-- depth $5; returns the runs in their order.
INSERT INTO system_flow_runs (flow, trigger, input, accountability, depth)
SELECT $1::uuid, $3::text, data, $4::json, $5::integer
FROM unnest($2::text[]::json[]) WITH ORDINALITY AS cause (data, number)
ORDER BY number
RETURNING id::text;
