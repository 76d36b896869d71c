-- Dashboards and their panels.

-- name: find_panels
-- Type and options of panels, whose options are to be checked.
SELECT id::text, type, options::text
FROM system_panels
WHERE id = ANY ($1::uuid[]);
