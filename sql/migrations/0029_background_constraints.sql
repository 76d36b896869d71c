-- Constraints of large tables are checked in the background, and an insertion of several rows is whole.

CREATE TABLE system_constraint_requests (
    collection text NOT NULL,
    field text NOT NULL,
    kind text NOT NULL,
    is_violated boolean DEFAULT FALSE NOT NULL,
    CONSTRAINT system_constraint_requests_pkey PRIMARY KEY (collection, field, kind),
    CONSTRAINT system_constraint_requests_kind_check CHECK (kind IN ('unique', 'foreign_key'))
);

COMMENT ON TABLE system_constraint_requests IS 'Constraints of fields of large tables that were asked for and do not hold for all rows yet';
COMMENT ON COLUMN system_constraint_requests.is_violated IS 'Whether rows were found for which it does not hold; it is not tried again until it is asked for again';

-- An insertion of several rows that is one statement is committed with it, before anybody can count what it answers.
CREATE FUNCTION system_refuse_missing_rows() RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a trigger has turned rows away' USING ERRCODE = 'CM400';
END
$$;

COMMENT ON FUNCTION system_refuse_missing_rows() IS 'Gives up a whole insertion of which a trigger has turned some rows away';
