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
-- One row.
INSERT INTO entries (title, body, status, views, author)
VALUES ($1, $2, $3, $4, $5)
RETURNING id, title, body, status, views, author

-- name: create_many
-- Rows as one array for each column.
INSERT INTO entries (title, body, status, views, author)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer[])
RETURNING id, title, body, status, views, author

-- name: update
-- Two columns of one row.
UPDATE entries
SET title = $2, views = $3
WHERE id = $1
RETURNING id, title, body, status, views, author
