-- Indexes of fields in large tables are built in the background.

CREATE TABLE system_index_requests (
    collection text NOT NULL,
    field text NOT NULL,
    CONSTRAINT system_index_requests_pkey PRIMARY KEY (collection, field)
);

COMMENT ON TABLE system_index_requests IS 'Fields of large tables whose indexes were asked for and are not built yet';
