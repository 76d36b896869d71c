-- name: lock_files
-- Locks files until the transaction ends, and returns where their contents are.
SELECT id::text, storage, filename_disk
FROM system_files
WHERE id = ANY ($1::text[]::uuid[])
ORDER BY id
FOR UPDATE;

-- name: find_default_folder
-- The folder of files that are uploaded without one.
SELECT storage_default_folder::text
FROM system_settings;

-- name: create_seen_contents
-- A temporary list of the contents of a storage location. `file` names the content that a derived one was made from.
-- A table, because a location may hold millions of contents, which come in batches.
CREATE TEMPORARY TABLE seen_contents (
    path text NOT NULL,
    file uuid,
    old boolean NOT NULL
) ON COMMIT DROP;

-- name: empty_seen_contents
-- Empties the list for the next location.
TRUNCATE seen_contents;

-- name: add_seen_contents
-- Adds a batch of contents to the list.
INSERT INTO seen_contents (path, file, old)
SELECT path, file::uuid, old::boolean
FROM unnest($1::text[], $2::text[], $3::text[]) AS batch (path, file, old);

-- name: find_stray_contents
-- Contents that are not new and belong to no file of the location, and those derived from contents that are gone.
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
-- Files of the location that are not new and whose content is not in the list.
SELECT files.id::text
FROM system_files AS files
WHERE files.storage = $1::text
  AND files.filename_disk IS NOT NULL
  AND files.modified_on < now() - $2::text::interval
  AND NOT EXISTS (SELECT FROM seen_contents AS seen WHERE seen.path = files.filename_disk)
ORDER BY files.id;

-- name: lock_folder_tree
-- Changes of the tree of folders take turns, so that no two of them close a cycle together or miss each other's rows.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' system_folders', 0));

-- name: lock_folders_below
-- Locks folders with all below them and returns them with their parents; the lock keeps files from being put there.
-- Of the folders asked for, those that do not exist are missing in the result.
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
-- Locks the files of folders until the transaction ends, and returns where their contents are.
SELECT id::text, folder::text, storage, filename_disk
FROM system_files
WHERE folder = ANY ($1::text[]::uuid[])
ORDER BY id
FOR UPDATE;

-- name: find_folder_cycle
-- A folder that is not reachable from the top, if there is one: it is inside itself, or below a folder that is.
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
