-- name: find_asset_settings
-- What the settings say of assets, beside the counters: what may be transformed, and the files that all may read.
SELECT
    version.structure,
    version.access,
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
-- Held until the transaction ends, so that one machine makes a derivative and the others wait for it.
SELECT TRUE
FROM pg_advisory_xact_lock(hashtextextended($1::text, 0));

-- name: find_current_content
-- Whether a content is still its file's.
SELECT TRUE
FROM system_files
WHERE id = $1::uuid
  AND filename_disk = $2::text;
