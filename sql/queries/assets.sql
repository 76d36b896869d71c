-- name: find_asset_settings
-- The settings of assets with the counters: which transforms are allowed, and which files everybody may read.
SELECT
    version.structure,
    version.access,
    version.flows,
    settings.storage_asset_transform,
    settings.storage_asset_presets::text,
    array_remove(
        ARRAY[
            settings.project_logo,
            settings.public_favicon,
            settings.public_foreground,
            settings.public_background
        ],
        NULL
    )::text[] AS public_files
FROM system_version AS version
CROSS JOIN system_settings AS settings;

-- name: lock_derivative
-- Locks a derivative until the transaction ends, so that one machine makes it and the others wait for it.
SELECT TRUE
FROM pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || $1::text, 0));

-- name: find_current_content
-- Whether a content still belongs to its file.
SELECT TRUE
FROM system_files
WHERE id = $1::uuid
  AND filename_disk = $2::text;
