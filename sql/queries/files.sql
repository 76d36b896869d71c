-- name: lock_files
-- Where the contents of files are; no other call changes these rows meanwhile.
SELECT id::text, storage, filename_disk
FROM system_files
WHERE id = ANY ($1::text[]::uuid[])
ORDER BY id
FOR UPDATE;

-- name: find_default_folder
-- The folder of files that come without one.
SELECT storage_default_folder::text
FROM system_settings;

-- name: make_seen_contents
-- What a storage location was seen to hold, until the transaction ends; `file` names the content that something was derived from.
CREATE TEMPORARY TABLE seen_contents (
    path text NOT NULL,
    file uuid,
    old boolean NOT NULL
) ON COMMIT DROP;

-- name: empty_seen_contents
-- Begin with the next location.
TRUNCATE seen_contents;

-- name: add_seen_contents
-- A batch of what a location holds.
INSERT INTO seen_contents (path, file, old)
SELECT path, file::uuid, old::boolean
FROM unnest($1::text[], $2::text[], $3::text[]) AS batch (path, file, old);

-- name: find_stray_contents
-- Contents that are not new and that no file of the location has, and what was derived from contents that are gone.
SELECT seen.path
FROM seen_contents AS seen
WHERE seen.old
  AND NOT EXISTS (
    SELECT
    FROM system_files AS files
    WHERE files.storage = $1::text
      AND files.filename_disk = seen.path
)
  AND NOT EXISTS (
    SELECT
    FROM system_files AS files
    WHERE files.storage = $1::text
      AND split_part(files.filename_disk, '.', 1) = seen.file::text
)
ORDER BY seen.path;

-- name: find_files_without_content
-- Files of the location that are not new and whose content was not seen.
SELECT files.id::text
FROM system_files AS files
WHERE files.storage = $1::text
  AND files.filename_disk IS NOT NULL
  AND files.modified_on < now() - $2::text::interval
  AND NOT EXISTS (SELECT FROM seen_contents AS seen WHERE seen.path = files.filename_disk)
ORDER BY files.id;

-- name: lock_folder_tree
-- Changes of the tree of folders take turns, so that two of them never close a circle or miss each other.
SELECT pg_advisory_xact_lock(hashtextextended('system_folders', 0));

-- name: lock_folders_below
-- Folders with everything below them and what they lie in, held so that no file comes into them; the given ones that are not there are missing.
WITH RECURSIVE tree AS (
    SELECT id
    FROM system_folders
    WHERE id = ANY ($1::text[]::uuid[])
    UNION
    SELECT folders.id
    FROM system_folders AS folders
    JOIN tree ON folders.parent = tree.id
)
SELECT id::text, parent::text
FROM system_folders
WHERE id IN (SELECT id FROM tree)
ORDER BY id
FOR UPDATE;

-- name: lock_files_in_folders
-- The files of folders and where their contents are; no other call changes these rows meanwhile.
SELECT id::text, folder::text, storage, filename_disk
FROM system_files
WHERE folder = ANY ($1::text[]::uuid[])
ORDER BY id
FOR UPDATE;

-- name: find_folder_circle
-- A folder that no way leads to from the top, when there is one: it lies in itself, or below one that does.
WITH RECURSIVE tree AS (
    SELECT id
    FROM system_folders
    WHERE parent IS NULL
    UNION ALL
    SELECT folders.id
    FROM system_folders AS folders
    JOIN tree ON folders.parent = tree.id
)
SELECT id::text
FROM system_folders
WHERE id NOT IN (SELECT id FROM tree)
LIMIT 1;
