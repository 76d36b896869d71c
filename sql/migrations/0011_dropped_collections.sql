-- The history of a collection stays when the collection goes, and is none of the next one's that has its name.

CREATE TABLE system_dropped_collections (
    collection text NOT NULL,
    last_activity bigint NOT NULL,
    last_revision bigint NOT NULL,
    CONSTRAINT system_dropped_collections_pkey PRIMARY KEY (collection)
);

COMMENT ON TABLE system_dropped_collections IS 'Collections that are gone and have left a history: up to these ids it is of items that no table has any more';
