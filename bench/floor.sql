-- name: one
-- One item by its key.
SELECT id, title, body, status, views, rating,
       to_char(published AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), author
FROM articles
WHERE id = $1

-- name: page
-- 25 rows of 4 columns.
SELECT id, title, status, views
FROM articles
ORDER BY id
LIMIT 25 OFFSET $1

-- name: many
-- 1,000 rows of 4 columns.
SELECT id, title, status, views
FROM articles
ORDER BY id
LIMIT 1000 OFFSET $1

-- name: filtered
-- Filtered, sorted by an index, with a to-one.
SELECT a.id, a.title, to_char(a.published AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
       json_build_object('name', w.name)
FROM articles AS a
LEFT JOIN authors AS w ON w.id = a.author
WHERE a.status = 'published'
  AND a.views >= $1
ORDER BY a.published DESC, a.id
LIMIT 25

-- name: nested
-- With a to-one and a many-to-many. The page is cut before its rows are dressed: what stands beside OFFSET would
-- be worked out for the rows that are skipped, too.
SELECT a.id, a.title, json_build_object('name', w.name), (
           SELECT json_agg(json_build_object('tags_id', json_build_object('name', n.name)))
           FROM (
               SELECT t.name
               FROM articles_tags AS j
               JOIN tags AS t ON t.id = j.tags_id
               WHERE j.articles_id = a.id
               ORDER BY j.id
               LIMIT 100
           ) AS n
       )
FROM (SELECT id, title, author FROM articles ORDER BY id LIMIT 25 OFFSET $1) AS a
LEFT JOIN authors AS w ON w.id = a.author
ORDER BY a.id

-- name: groups
-- How many of each status.
SELECT status, count(*)
FROM articles
GROUP BY status
ORDER BY status

-- name: create
-- One row with its activity and revision.
WITH entry AS (
    INSERT INTO entries (title, body, status, views, author)
    VALUES ($5, $6, $7, $8, $9)
    RETURNING id, title, body, status, views, author,
              nextval('system_activity_id_seq') AS activity, nextval('system_revisions_id_seq') AS revision,
              (SELECT row_to_json(d.*) FROM (SELECT id, title, body, status, views, author) AS d) AS data
),
activity AS (
    INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item)
    SELECT activity, 'create', $1::uuid, $2, $3, $4, 'entries', id::text
    FROM entry
),
revision AS (
    INSERT INTO system_revisions (id, activity, collection, item, data, delta)
    SELECT revision, activity, 'entries', id::text, data, data
    FROM entry
)
SELECT id, title, body, status, views, author
FROM entry

-- name: create_many
-- Rows as one array for each column, with their activity and revisions.
WITH entry AS (
    INSERT INTO entries (title, body, status, views, author)
    SELECT * FROM unnest($5::text[], $6::text[], $7::text[], $8::integer[], $9::integer[])
    RETURNING id, title, body, status, views, author,
              nextval('system_activity_id_seq') AS activity, nextval('system_revisions_id_seq') AS revision,
              (SELECT row_to_json(d.*) FROM (SELECT id, title, body, status, views, author) AS d) AS data
),
activity AS (
    INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item)
    SELECT activity, 'create', $1::uuid, $2, $3, $4, 'entries', id::text
    FROM entry
),
revision AS (
    INSERT INTO system_revisions (id, activity, collection, item, data, delta)
    SELECT revision, activity, 'entries', id::text, data, data
    FROM entry
)
SELECT id, title, body, status, views, author
FROM entry

-- name: update
-- Two columns of one row, with activity and the revision of what changed.
WITH old AS (
    SELECT id, title, views
    FROM entries
    WHERE id = $5
    FOR NO KEY UPDATE
),
entry AS (
    UPDATE entries AS e
    SET title = $6, views = $7
    FROM old
    WHERE e.id = old.id
    RETURNING e.id, e.title, e.body, e.status, e.views, e.author,
              nextval('system_activity_id_seq') AS activity, nextval('system_revisions_id_seq') AS revision,
              (SELECT row_to_json(d.*) FROM (SELECT e.id, e.title, e.body, e.status, e.views, e.author) AS d) AS data,
              json_strip_nulls(json_build_object(
                  'title', CASE WHEN e.title IS DISTINCT FROM old.title THEN e.title END,
                  'views', CASE WHEN e.views IS DISTINCT FROM old.views THEN e.views END
              )) AS delta
),
activity AS (
    INSERT INTO system_activity (id, action, "user", ip, user_agent, origin, collection, item)
    SELECT activity, 'update', $1::uuid, $2, $3, $4, 'entries', id::text
    FROM entry
),
revision AS (
    INSERT INTO system_revisions (id, activity, collection, item, data, delta)
    SELECT revision, activity, 'entries', id::text, data, delta
    FROM entry
)
SELECT id, title, body, status, views, author
FROM entry
