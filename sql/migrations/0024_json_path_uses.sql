-- Paths that clients make up crowd out no path that recurs.

ALTER TABLE system_json_paths ADD COLUMN uses bigint NOT NULL DEFAULT 1;

COMMENT ON TABLE system_json_paths IS 'Paths into JSON that reads have searched or sorted by, a hundred of each collection: what cms doctor asks indexes for';
COMMENT ON COLUMN system_json_paths.uses IS 'How often a process has used it in a day, at most, rounded down to a power of two';
