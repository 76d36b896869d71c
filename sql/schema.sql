-- The system tables as they are after all migrations: for reading, and for nothing else.
-- A change is a new file in sql/migrations and the same change here; a test compares the two.

CREATE TABLE system_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_migrations_pkey PRIMARY KEY (number)
);

COMMENT ON TABLE system_migrations IS 'The migrations that made this schema, in order';
COMMENT ON COLUMN system_migrations.sha256 IS 'Of the file as it was applied';

-- The queue's own tables and functions (procrastinate_…) come from the SQL of the installed package.
CREATE TABLE system_queue (
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_queue_pkey PRIMARY KEY (name)
);

COMMENT ON TABLE system_queue IS 'The migrations of the package procrastinate that its tables hold, from its schema or one by one';

-- Searches use both extensions where they are available. On a server without them, or for an owner who may not
-- create them, there is a warning, and searches work without an index. WHEN OTHERS, because no error of this may
-- stop a migration.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['pg_trgm', 'unaccent'] LOOP
        IF EXISTS (SELECT FROM pg_available_extensions WHERE name = wanted) THEN
            BEGIN
                EXECUTE format('CREATE EXTENSION IF NOT EXISTS %I', wanted);
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'The extension % was not created: %', wanted, SQLERRM;
            END;
        END IF;
    END LOOP;
END
$$;


-- Freshness: one row of counters that triggers move ----------------------------------------------------

CREATE TABLE system_version (
    id integer NOT NULL DEFAULT 1,
    structure bigint NOT NULL DEFAULT 1,
    access bigint NOT NULL DEFAULT 1,
    flows bigint NOT NULL DEFAULT 1,
    CONSTRAINT system_version_pkey PRIMARY KEY (id),
    CONSTRAINT system_version_one_row CHECK (id = 1)
);

COMMENT ON TABLE system_version IS 'Counters that tell every process when what it keeps in memory is out of date; exactly one row';
COMMENT ON COLUMN system_version.structure IS 'Moves with collections, fields and relations';
COMMENT ON COLUMN system_version.access IS 'Moves with roles, permissions, settings and what identifies a user';
COMMENT ON COLUMN system_version.flows IS 'Moves with flows and operations';

INSERT INTO system_version DEFAULT VALUES;

CREATE FUNCTION system_version_refuse() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'The row of system_version cannot be removed';
END
$$;

COMMENT ON FUNCTION system_version_refuse() IS 'Keeps the one row of counters, without which no process would learn of a change';

CREATE TRIGGER system_version_stays
    BEFORE DELETE OR TRUNCATE ON system_version
    FOR EACH STATEMENT EXECUTE FUNCTION system_version_refuse();

-- The schema is that of the table with the trigger: a session may have another search path.
CREATE FUNCTION system_bump() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I.system_version SET %2$I = %2$I + 1', TG_TABLE_SCHEMA, TG_ARGV[0]);
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION system_bump() IS 'Moves the counter of system_version that its argument names';

-- Transition tables instead of UPDATE OF: PostgreSQL does not accept both, and a change of many rows must move the
-- counter once.
CREATE FUNCTION system_bump_for_users() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT id, role, status, token, password, email, tfa_secret FROM new_rows
        EXCEPT
        SELECT id, role, status, token, password, email, tfa_secret FROM old_rows
    ) THEN
        EXECUTE format('UPDATE %I.system_version SET access = access + 1', TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION system_bump_for_users() IS 'Moves the access counter when an update changed what identifies a user or gives rights';

CREATE FUNCTION system_bump_for_shares() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT id, collection, item, role, password, date_start, date_end, user_created FROM new_rows
        EXCEPT
        SELECT id, collection, item, role, password, date_start, date_end, user_created FROM old_rows
    ) THEN
        EXECUTE format('UPDATE %I.system_version SET access = access + 1', TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION system_bump_for_shares() IS 'Moves the access counter when an update changed what a share shows; a use of it moves nothing';


-- Structure: collections, fields, relations ------------------------------------------------------------

CREATE TABLE system_collections (
    collection text NOT NULL,
    icon text,
    color text,
    note text,
    display_template text,
    preview_url text,
    hidden boolean NOT NULL DEFAULT false,
    singleton boolean NOT NULL DEFAULT false,
    translations json,
    archive_field text,
    archive_app_filter boolean NOT NULL DEFAULT true,
    archive_value text,
    unarchive_value text,
    sort_field text,
    accountability text DEFAULT 'all',
    item_duplication_fields json,
    sort integer,
    "group" text,
    collapse text NOT NULL DEFAULT 'open',
    versioning boolean NOT NULL DEFAULT false,
    searchable boolean NOT NULL DEFAULT false,
    CONSTRAINT system_collections_pkey PRIMARY KEY (collection),
    CONSTRAINT system_collections_group_fkey FOREIGN KEY ("group")
        REFERENCES system_collections (collection) ON UPDATE CASCADE ON DELETE SET NULL,
    CONSTRAINT system_collections_accountability_check CHECK (accountability IN ('all', 'activity')),
    CONSTRAINT system_collections_collapse_check CHECK (collapse IN ('open', 'closed', 'locked'))
);

CREATE INDEX system_collections_group_idx ON system_collections ("group");

COMMENT ON TABLE system_collections IS 'Settings of collections; a row without a table of that name is a folder, and a table without a row is usable';
COMMENT ON COLUMN system_collections.searchable IS 'Whether the service keeps indexes that serve searches in the collection';
COMMENT ON COLUMN system_collections.accountability IS 'What a write leaves behind: all is activity and revision, null is nothing';

CREATE TABLE system_fields (
    id integer GENERATED BY DEFAULT AS IDENTITY,
    collection text NOT NULL,
    field text NOT NULL,
    special text[],
    interface text,
    options json,
    display text,
    display_options json,
    readonly boolean NOT NULL DEFAULT false,
    hidden boolean NOT NULL DEFAULT false,
    sort integer,
    width text DEFAULT 'full',
    translations json,
    note text,
    conditions json,
    required boolean NOT NULL DEFAULT false,
    "group" text,
    validation json,
    validation_message text,
    searchable boolean,
    search_weight integer,
    CONSTRAINT system_fields_pkey PRIMARY KEY (id),
    CONSTRAINT system_fields_collection_field_key UNIQUE (collection, field)
);

COMMENT ON TABLE system_fields IS 'Settings of fields; a row whose collection has no such column is an alias field';
COMMENT ON COLUMN system_fields.special IS 'Markers that change how a value is stored or filled in: hash, conceal, date-created, m2m and the like';
COMMENT ON COLUMN system_fields.searchable IS 'Whether searches look into the field, and of a relation into related items; null is into the field alone';
COMMENT ON COLUMN system_fields.search_weight IS 'How much a searched word counts in the field; null is 1';
COMMENT ON COLUMN system_fields."group" IS 'The field of the same collection under which a form shows this one';

CREATE TABLE system_relations (
    id integer GENERATED BY DEFAULT AS IDENTITY,
    many_collection text NOT NULL,
    many_field text NOT NULL,
    one_collection text,
    one_field text,
    one_collection_field text,
    one_allowed_collections text[],
    junction_field text,
    sort_field text,
    one_deselect_action text NOT NULL DEFAULT 'nullify',
    dropped boolean NOT NULL DEFAULT false,
    CONSTRAINT system_relations_pkey PRIMARY KEY (id),
    CONSTRAINT system_relations_many_key UNIQUE (many_collection, many_field),
    CONSTRAINT system_relations_one_deselect_action_check CHECK (one_deselect_action IN ('nullify', 'delete'))
);

COMMENT ON COLUMN system_relations.one_field IS 'The alias field of one_collection that lists the rows which point to it';
COMMENT ON COLUMN system_relations.one_collection_field IS 'Many-to-any: the column that names the collection of the row pointed to';
COMMENT ON COLUMN system_relations.junction_field IS 'Many-to-many: the other foreign key of the junction table';
COMMENT ON COLUMN system_relations.one_deselect_action IS 'What becomes of a row that is left out of its list';
COMMENT ON COLUMN system_relations.dropped IS 'Somebody deleted the relation while its foreign key stayed, which alone would make it one again';

CREATE TRIGGER system_collections_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_collections
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('structure');

CREATE TRIGGER system_fields_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_fields
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('structure');

CREATE TRIGGER system_relations_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_relations
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('structure');


-- People and rights ------------------------------------------------------------------------------------

CREATE TABLE system_roles (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL,
    icon text NOT NULL DEFAULT 'supervised_user_circle',
    description text,
    parent uuid,
    ip_access json,
    enforce_tfa boolean NOT NULL DEFAULT false,
    admin_access boolean NOT NULL DEFAULT false,
    app_access boolean NOT NULL DEFAULT false,
    CONSTRAINT system_roles_pkey PRIMARY KEY (id),
    CONSTRAINT system_roles_parent_fkey FOREIGN KEY (parent) REFERENCES system_roles (id) ON DELETE SET NULL
);

CREATE INDEX system_roles_parent_idx ON system_roles (parent);

COMMENT ON COLUMN system_roles.parent IS 'The role whose rights this one adds to';
COMMENT ON COLUMN system_roles.ip_access IS 'Addresses and networks (CIDR) from which the role may be used; null or empty is everywhere';

CREATE TABLE system_users (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    first_name text,
    last_name text,
    email text,
    password text,
    location text,
    title text,
    description text,
    tags json,
    avatar uuid,
    language text,
    appearance text,
    theme_light text,
    theme_dark text,
    theme_light_overrides json,
    theme_dark_overrides json,
    tfa_secret text,
    status text NOT NULL DEFAULT 'active',
    role uuid,
    token text,
    last_access timestamptz,
    last_page text,
    email_notifications boolean NOT NULL DEFAULT true,
    provider text NOT NULL DEFAULT 'default',
    external_identifier text,
    auth_data json,
    failed_logins integer NOT NULL DEFAULT 0,
    login_after timestamptz,
    tfa_step bigint,
    unverified boolean NOT NULL DEFAULT false,
    CONSTRAINT system_users_pkey PRIMARY KEY (id),
    CONSTRAINT system_users_token_key UNIQUE (token),
    CONSTRAINT system_users_external_identifier_key UNIQUE (provider, external_identifier),
    CONSTRAINT system_users_role_fkey FOREIGN KEY (role) REFERENCES system_roles (id) ON DELETE SET NULL,
    CONSTRAINT system_users_status_check
        CHECK (status IN ('active', 'invited', 'draft', 'suspended', 'archived'))
);

CREATE UNIQUE INDEX system_users_email_key ON system_users (lower(email));
CREATE INDEX system_users_role_idx ON system_users (role);
CREATE INDEX system_users_avatar_idx ON system_users (avatar);

COMMENT ON COLUMN system_users.theme_light_overrides IS 'What an app shows otherwise than theme_light says';
COMMENT ON COLUMN system_users.theme_dark_overrides IS 'What an app shows otherwise than theme_dark says';
COMMENT ON COLUMN system_users.password IS 'Argon2 hash';
COMMENT ON COLUMN system_users.token IS 'SHA-256 digest of the static access token';
COMMENT ON COLUMN system_users.provider IS 'Where the user logs in: default is here, by password';
COMMENT ON COLUMN system_users.external_identifier IS 'The name of the user at the provider';
COMMENT ON COLUMN system_users.auth_data IS 'What the provider wants to be kept, such as its refresh token';
COMMENT ON COLUMN system_users.failed_logins IS 'Failed logins in a row, for the lockout; never shown';
COMMENT ON COLUMN system_users.login_after IS 'Until then no login is tried: how the last administrator is slowed down instead of suspended; never shown';
COMMENT ON COLUMN system_users.tfa_step IS 'The step of time whose code was used last, so that none is used twice; never shown';
COMMENT ON COLUMN system_users.unverified IS 'A registration whose link has not been followed yet; never shown';

CREATE TABLE system_recovery_codes (
    "user" uuid NOT NULL,
    digest text NOT NULL,
    CONSTRAINT system_recovery_codes_pkey PRIMARY KEY ("user", digest),
    CONSTRAINT system_recovery_codes_user_fkey FOREIGN KEY ("user") REFERENCES system_users (id) ON DELETE CASCADE
);

COMMENT ON TABLE system_recovery_codes IS 'Codes that stand in for a second factor, each once';
COMMENT ON COLUMN system_recovery_codes.digest IS 'SHA-256 of the code without its hyphens';

CREATE TABLE system_permissions (
    id integer GENERATED BY DEFAULT AS IDENTITY,
    role uuid,
    collection text NOT NULL,
    action text NOT NULL,
    permissions json,
    validation json,
    presets json,
    fields json,
    CONSTRAINT system_permissions_pkey PRIMARY KEY (id),
    CONSTRAINT system_permissions_role_fkey FOREIGN KEY (role) REFERENCES system_roles (id) ON DELETE CASCADE,
    CONSTRAINT system_permissions_action_check
        CHECK (action IN ('create', 'read', 'update', 'delete', 'share'))
);

CREATE INDEX system_permissions_role_idx ON system_permissions (role, collection, action);

COMMENT ON COLUMN system_permissions.role IS 'Null is the Public role';
COMMENT ON COLUMN system_permissions.permissions IS 'Filter that a row must match; null is every row';
COMMENT ON COLUMN system_permissions.fields IS 'Array of field names, * for all; null or empty is none';
COMMENT ON COLUMN system_permissions.presets IS 'Values merged under a payload';

CREATE TABLE system_sessions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    "user" uuid,
    share uuid,
    token text NOT NULL,
    expires timestamptz NOT NULL,
    ip text,
    user_agent text,
    origin text,
    created timestamptz NOT NULL DEFAULT now(),
    mode text NOT NULL DEFAULT 'json',
    logout_url text,
    used_tokens jsonb NOT NULL DEFAULT '{}',
    provider_token text,
    CONSTRAINT system_sessions_pkey PRIMARY KEY (id),
    CONSTRAINT system_sessions_user_fkey FOREIGN KEY ("user") REFERENCES system_users (id) ON DELETE CASCADE,
    CONSTRAINT system_sessions_holder_check CHECK (num_nonnulls("user", share) = 1),
    CONSTRAINT system_sessions_mode_check CHECK (mode IN ('json', 'cookie', 'session'))
);

CREATE INDEX system_sessions_user_idx ON system_sessions ("user");
CREATE INDEX system_sessions_share_idx ON system_sessions (share);
CREATE INDEX system_sessions_expires_idx ON system_sessions (expires);

COMMENT ON TABLE system_sessions IS 'One row for each login; refresh tokens rotate inside it';
COMMENT ON COLUMN system_sessions.token IS 'SHA-256 digest of the current refresh token, or of the session cookie';
COMMENT ON COLUMN system_sessions.mode IS 'What the client holds: json both tokens, cookie the refresh token in a cookie, session one cookie for everything';
COMMENT ON COLUMN system_sessions.used_tokens IS 'Digests of refresh tokens before the current one, with the times of their use in the last 10 seconds';
COMMENT ON COLUMN system_sessions.logout_url IS 'Where the session at the provider of an external login is ended';
COMMENT ON COLUMN system_sessions.provider_token IS 'The refresh token of the provider that confirmed the user, encrypted by the service';
COMMENT ON COLUMN system_sessions.share IS 'Set when the session was opened through a shared link, then without a user';


CREATE TABLE system_saml_answers (
    provider text NOT NULL,
    assertion text NOT NULL,
    request text NOT NULL,
    profile json,
    expires timestamptz NOT NULL,
    CONSTRAINT system_saml_answers_pkey PRIMARY KEY (provider, assertion)
);

CREATE INDEX system_saml_answers_request_idx ON system_saml_answers (request);
CREATE INDEX system_saml_answers_expires_idx ON system_saml_answers (expires);

COMMENT ON TABLE system_saml_answers IS 'Answers of login providers, so that none counts twice';
COMMENT ON COLUMN system_saml_answers.profile IS 'The user, until the browser that began the login asks for it';

-- Files ------------------------------------------------------------------------------------------------

CREATE TABLE system_folders (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL,
    parent uuid,
    CONSTRAINT system_folders_pkey PRIMARY KEY (id),
    CONSTRAINT system_folders_parent_fkey FOREIGN KEY (parent) REFERENCES system_folders (id) ON DELETE CASCADE
);

CREATE INDEX system_folders_parent_idx ON system_folders (parent);

-- The folder of a file has no ON DELETE: a row that is deleted by cascade would leave its content in the storage.
CREATE TABLE system_files (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    storage text NOT NULL,
    filename_disk text,
    filename_download text NOT NULL,
    title text,
    description text,
    type text,
    folder uuid,
    uploaded_by uuid,
    uploaded_on timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    modified_by uuid,
    modified_on timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    charset text,
    filesize bigint,
    width integer,
    height integer,
    duration integer,
    embed text,
    location text,
    tags json,
    metadata json,
    focal_point_x double precision,
    focal_point_y double precision,
    CONSTRAINT system_files_pkey PRIMARY KEY (id),
    CONSTRAINT system_files_folder_fkey FOREIGN KEY (folder) REFERENCES system_folders (id),
    CONSTRAINT system_files_uploaded_by_fkey FOREIGN KEY (uploaded_by)
        REFERENCES system_users (id) ON DELETE SET NULL,
    CONSTRAINT system_files_modified_by_fkey FOREIGN KEY (modified_by)
        REFERENCES system_users (id) ON DELETE SET NULL,
    CONSTRAINT system_files_focal_point_x_check CHECK (focal_point_x BETWEEN 0 AND 1),
    CONSTRAINT system_files_focal_point_y_check CHECK (focal_point_y BETWEEN 0 AND 1)
);

CREATE INDEX system_files_folder_idx ON system_files (folder);
CREATE INDEX system_files_uploaded_by_idx ON system_files (uploaded_by);
CREATE INDEX system_files_modified_by_idx ON system_files (modified_by);

COMMENT ON COLUMN system_files.storage IS 'Name of the storage location that holds the content';
COMMENT ON COLUMN system_files.filesize IS 'Bytes';
COMMENT ON COLUMN system_files.duration IS 'Milliseconds of sound or film';
COMMENT ON COLUMN system_files.embed IS 'Address of content that lives elsewhere';
COMMENT ON COLUMN system_files.metadata IS 'EXIF, IPTC and ICC values';
COMMENT ON COLUMN system_files.focal_point_x IS 'From 0 at the left edge to 1 at the right';
COMMENT ON COLUMN system_files.focal_point_y IS 'From 0 at the top edge to 1 at the bottom';

ALTER TABLE system_users
    ADD CONSTRAINT system_users_avatar_fkey FOREIGN KEY (avatar) REFERENCES system_files (id) ON DELETE SET NULL;


-- History ----------------------------------------------------------------------------------------------
-- Neither table has foreign keys: the history stays when a user or an item is deleted.

CREATE TABLE system_activity (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    action text NOT NULL,
    "user" uuid,
    "timestamp" timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    ip text,
    user_agent text,
    origin text,
    collection text NOT NULL,
    item text NOT NULL,
    comment text,
    CONSTRAINT system_activity_pkey PRIMARY KEY (id, "timestamp")
) PARTITION BY RANGE ("timestamp");

CREATE TABLE system_activity_default PARTITION OF system_activity DEFAULT;

CREATE INDEX system_activity_item_idx ON system_activity (collection, item);
CREATE INDEX system_activity_user_idx ON system_activity ("user", "timestamp");
CREATE INDEX system_activity_timestamp_idx ON system_activity ("timestamp");

COMMENT ON TABLE system_activity IS 'What was done by whom; one partition for each month (UTC)';
COMMENT ON TABLE system_activity_default IS 'Rows of a month that has no partition yet';
COMMENT ON COLUMN system_activity.origin IS 'The Origin header of the request';

CREATE TABLE system_revisions (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    activity bigint NOT NULL,
    collection text NOT NULL,
    item text NOT NULL,
    data json,
    delta json,
    parent bigint,
    version text,
    created timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_revisions_pkey PRIMARY KEY (id, created)
) PARTITION BY RANGE (created);

CREATE TABLE system_revisions_default PARTITION OF system_revisions DEFAULT;

CREATE INDEX system_revisions_item_idx ON system_revisions (collection, item, id);
CREATE INDEX system_revisions_activity_idx ON system_revisions (activity);
CREATE INDEX system_revisions_parent_idx ON system_revisions (parent) WHERE parent IS NOT NULL;

COMMENT ON TABLE system_revisions IS 'What items looked like after each write; one partition for each month (UTC)';
COMMENT ON TABLE system_revisions_default IS 'Rows of a month that has no partition yet';
COMMENT ON COLUMN system_revisions.data IS 'The whole row after the write, without secrets';
COMMENT ON COLUMN system_revisions.delta IS 'What the write changed, without secrets';
COMMENT ON COLUMN system_revisions.parent IS 'The revision of the write that this one was nested in';

CREATE TABLE system_dropped_collections (
    collection text NOT NULL,
    last_activity bigint NOT NULL,
    last_revision bigint NOT NULL,
    CONSTRAINT system_dropped_collections_pkey PRIMARY KEY (collection)
);

COMMENT ON TABLE system_dropped_collections IS 'Collections that are gone and have left a history: up to these ids it is of items that no table has any more';

-- Rules of permissions are tried on the items that revisions hold, as rows of the items' table.
CREATE FUNCTION system_revision_row(row_type anyelement, data json, columns text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 COST 5000 AS $$
DECLARE
    name text;
    value json;
    members text := '';
BEGIN
    FOREACH name IN ARRAY columns LOOP
        value := data -> name;
        IF value IS NULL THEN
            RETURN;
        END IF;
        IF value::text ~ '^"[+-]\d{6,7}-' AND EXISTS (
            SELECT FROM pg_type AS type
            JOIN pg_attribute AS attribute ON attribute.attrelid = type.typrelid
            WHERE type.oid = pg_typeof(row_type)
              AND attribute.attname = name
              AND attribute.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
        ) THEN
            value := system_stored_time(value);
        END IF;
        members := concat(members, ',', to_json(name), ':', value);
    END LOOP;
    RETURN NEXT json_populate_record(row_type, concat('{', substr(members, 2), '}')::json);
EXCEPTION
    -- A column that has another type by now: the revision holds no item of today's table.
    WHEN data_exception OR integrity_constraint_violation THEN
        RETURN;
END
$$;

COMMENT ON FUNCTION system_revision_row(anyelement, json, text[]) IS 'The row of a table that a revision holds, with these columns only; no row if it does not hold all of them';

-- A write that is one statement tries the rules of permissions on what it has written.
CREATE FUNCTION system_require_rule(passes boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF passes THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'a rule of a permission does not hold' USING ERRCODE = 'CM403';
END
$$;

COMMENT ON FUNCTION system_require_rule(boolean) IS 'Gives up the whole statement unless what it has written passes a rule';

-- A key that a client sends for a column with automatic keys advances the sequence, so that no later item gets the
-- same key.
CREATE FUNCTION system_column_sequence(table_name text, column_name text) RETURNS regclass
    LANGUAGE sql STABLE AS $$
    SELECT class.oid::regclass
    FROM pg_attribute AS attribute
    LEFT JOIN pg_attrdef AS definition
        ON definition.adrelid = attribute.attrelid AND definition.adnum = attribute.attnum
    JOIN LATERAL (
        SELECT refobjid AS sequence
        FROM pg_depend
        WHERE classid = 'pg_attrdef'::regclass AND objid = definition.oid AND refclassid = 'pg_class'::regclass
        UNION ALL
        SELECT objid
        FROM pg_depend
        WHERE refclassid = 'pg_class'::regclass AND refobjid = attribute.attrelid AND refobjsubid = attribute.attnum
          AND classid = 'pg_class'::regclass AND deptype = 'i'
    ) AS depend ON TRUE
    JOIN pg_class AS class ON class.oid = depend.sequence AND class.relkind = 'S'
    WHERE attribute.attrelid = to_regclass(quote_ident(table_name))
      AND attribute.attname = column_name
    LIMIT 1
$$;

COMMENT ON FUNCTION system_column_sequence(text, text) IS 'The sequence that a column takes its values from, whoever owns it';

CREATE FUNCTION system_advance_sequence(table_name text, column_name text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    sequence record;
    furthest numeric;
    half numeric;
    present numeric;
    steps numeric;
BEGIN
    SELECT
        seqrelid AS name,
        seqstart::numeric AS first,
        seqincrement::numeric AS increment,
        CASE WHEN seqincrement > 0 THEN least(seqmax, max_value) ELSE greatest(seqmin, -max_value - 1) END AS bound,
        seqcache AS cache_size
    INTO sequence
    FROM pg_sequence
    CROSS JOIN (
        -- A sequence that the column does not own may count further than the column does.
        WITH RECURSIVE types (type) AS (
            SELECT atttypid
            FROM pg_attribute
            WHERE attrelid = to_regclass(quote_ident(table_name))
              AND attname = column_name
            UNION ALL
            SELECT typbasetype
            FROM types
            JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
        )
        SELECT min(
            CASE type
                WHEN 'smallint'::regtype THEN 32767
                WHEN 'integer'::regtype THEN 2147483647
                ELSE 9223372036854775807
            END::numeric
        ) AS max_value
        FROM types
    ) AS column_type
    WHERE seqrelid = system_column_sequence(table_name, column_name);
    IF NOT FOUND OR NOT has_sequence_privilege(sequence.name, 'USAGE') THEN
        RETURN true;  -- the write is good without the sequence
    END IF;
    -- Calls take turns, because a sequence that two set at once could go back. The lock has the former name of this
    -- function, so that calls which began before an upgrade take turns with those behind it.
    PERFORM pg_advisory_xact_lock(hashtextextended('system_pass_keys', sequence.name::bigint));
    present := coalesce(pg_sequence_last_value(sequence.name), sequence.first - sequence.increment);
    -- A leap goes half of the way at most: a single key, also one of a write that is refused, must not use up all the
    -- others. Behind that the sequence still follows keys that are near. Nothing comes behind the last key of all.
    half := sequence.first + (sequence.bound - sequence.first) / 2;
    SELECT CASE WHEN sequence.increment > 0 THEN max(key) ELSE min(key) END INTO furthest
    FROM unnest(keys) AS key
    WHERE (sequence.bound - key) * sequence.increment > 0
      AND (
          (half - key) * sequence.increment >= 0
          OR (key - present) / sequence.increment <= 10000
          OR abs(sequence.bound - sequence.first) < 65536  -- too few to be worth it
      );
    steps := coalesce(floor((furthest - present) / sequence.increment), 0);
    IF steps BETWEEN 1 AND 10000 AND sequence.cache_size = 1 THEN
        -- Writes without keys draw meanwhile, and take no turn. nextval never moves the sequence back; setval could, and
        -- is for leaps that no such writes make up for between two steps of this function.
        PERFORM nextval(sequence.name) FROM generate_series(1, steps::integer);
    ELSIF steps > 0 AND has_sequence_privilege(sequence.name, 'UPDATE') THEN
        PERFORM setval(sequence.name, (present + steps * sequence.increment)::bigint);
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'CM001';
EXCEPTION WHEN SQLSTATE 'CM001' THEN
    RETURN true;  -- the turn ends here and not with the transaction; the sequence stays where it is
END
$$;

COMMENT ON FUNCTION system_advance_sequence(text, text, bigint[]) IS 'Moves the sequence of a column behind keys that are given for it, and never back';

-- Tables of other schemas count where rows of them go with rows of ours, directly or by way of others.
CREATE FUNCTION system_reached_tables() RETURNS SETOF oid
    LANGUAGE sql STABLE AS $$
    WITH RECURSIVE links (near, far) AS MATERIALIZED (
        SELECT confrelid, conrelid
        FROM pg_constraint
        WHERE contype = 'f' AND confdeltype IN ('c', 'n', 'd')
        UNION ALL
        SELECT inhparent, inhrelid
        FROM pg_inherits
        UNION ALL
        SELECT inhrelid, inhparent
        FROM pg_inherits
    ),
    reached (oid) AS (
        SELECT oid
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace
          AND relkind IN ('r', 'p', 'f', 'v', 'm')
        UNION
        SELECT links.far
        FROM reached
        JOIN links ON links.near = reached.oid
    )
    SELECT oid
    FROM reached
$$;

COMMENT ON FUNCTION system_reached_tables() IS 'The tables of the schema, and those of other schemas whose rows a deletion of ours may reach';

-- Changes of the tables by other programs are found without a call, by a fingerprint of PostgreSQL's catalogue.
CREATE FUNCTION system_structure_fingerprint() RETURNS text
    LANGUAGE sql STABLE AS $$
    WITH tables AS MATERIALIZED (
        SELECT oid, hashtextextended(concat_ws(' ', relname, relkind, relhastriggers), oid::bigint) AS hash
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace
          AND relkind IN ('r', 'p', 'f', 'v', 'm')
          AND NOT relispartition
    ),
    reached AS MATERIALIZED (
        SELECT oid
        FROM system_reached_tables() AS oid
    ),
    types AS MATERIALIZED (  -- all but those of other installations; in public may be those of several
        SELECT type.oid, type.typtype, type.xmin
        FROM pg_type AS type
        WHERE typtype IN ('d', 'e')
          AND (
              typnamespace IN (current_schema()::regnamespace, to_regnamespace('public'))
              OR typnamespace NOT IN (SELECT relnamespace FROM pg_class WHERE relname = 'system_migrations')
          )
    ),
    hashes AS (
        -- Without what TRUNCATE, VACUUM, GRANT and the like leave behind, which change no structure.
        SELECT hash
        FROM tables
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, attrelid::bigint * 2048 + attnum)
        FROM pg_attribute
        WHERE attnum > 0 AND attrelid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_constraint
        WHERE conrelid IN (SELECT oid FROM tables) OR contypid IN (SELECT oid FROM types)
        UNION ALL
        -- What goes with rows of ours may lie elsewhere: in partitions, and in tables of other schemas.
        SELECT hashint8extended(con.xmin::text::bigint, con.oid::bigint)
        FROM pg_constraint AS con
        JOIN pg_class AS class ON class.oid = con.conrelid AND class.relpersistence <> 't'
        WHERE con.contype = 'f'
          AND con.conparentid = 0
          AND con.confdeltype IN ('c', 'n', 'd')
          AND con.conrelid NOT IN (SELECT oid FROM tables)
          AND con.confrelid IN (SELECT oid FROM reached)
        UNION ALL
        SELECT hashint8extended(inhparent::bigint, inhrelid::bigint)
        FROM pg_inherits
        JOIN pg_class AS class ON class.oid = inhrelid
        WHERE class.relkind IN ('r', 'p')
          AND class.relpersistence <> 't'
          AND NOT class.relispartition
          AND inhrelid IN (SELECT oid FROM reached)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, indexrelid::bigint)
        FROM pg_index
        WHERE indrelid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_trigger
        WHERE tgrelid IN (SELECT oid FROM tables) AND NOT tgisinternal
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, objoid::bigint * 2048 + objsubid)
        FROM pg_description
        WHERE classoid = 'pg_class'::regclass AND objoid IN (SELECT oid FROM tables)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_enum
        WHERE enumtypid IN (SELECT oid FROM types)
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM types
        WHERE typtype = 'd'
        UNION ALL
        SELECT hashint8extended(xmin::text::bigint, oid::bigint)
        FROM pg_extension
    )
    SELECT sum(hash)::text
    FROM hashes
$$;

COMMENT ON FUNCTION system_structure_fingerprint() IS 'Differs when the tables, columns, keys, indexes, triggers, comments or types are others';

-- Web servers of the version before serve until they are restarted, and their statements call the functions below. A later
-- version drops them. They are in the language that they were in, because calls of them may be running while they change.
CREATE FUNCTION system_held(kind anyelement, held json, names text[]) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE ROWS 1 COST 5000 AS $$
BEGIN
    RETURN QUERY SELECT * FROM system_revision_row(kind, held, names);
END
$$;

COMMENT ON FUNCTION system_held(anyelement, json, text[]) IS 'The former name of system_revision_row(), for services of the version before';

CREATE FUNCTION system_require(held boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN system_require_rule(held);
END
$$;

COMMENT ON FUNCTION system_require(boolean) IS 'The former name of system_require_rule(), for services of the version before';

CREATE FUNCTION system_sequence(counted text, named text) RETURNS regclass
    LANGUAGE sql STABLE AS $$
    SELECT system_column_sequence(counted, named)
$$;

COMMENT ON FUNCTION system_sequence(text, text) IS 'The former name of system_column_sequence(), for services of the version before';

CREATE FUNCTION system_pass_keys(counted text, named text, keys bigint[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN system_advance_sequence(counted, named, keys);
END
$$;

COMMENT ON FUNCTION system_pass_keys(text, text, bigint[]) IS 'The former name of system_advance_sequence(), for services of the version before';

CREATE FUNCTION system_mark() RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT system_structure_fingerprint()
$$;

COMMENT ON FUNCTION system_mark() IS 'The former name of system_structure_fingerprint(), for services of the version before';

-- A month is created as a table of its own and then attached. Before that, rows of the month in the default partition
-- are moved to it; the lock keeps others from inserting more meanwhile.
CREATE FUNCTION system_make_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql
SET timezone = 'UTC'
AS $$
DECLARE
    month record;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' system_make_partitions'));
    FOR month IN
        SELECT format('%I.%I', n.nspname, c.relname) AS parent,
               format('%I.%I', n.nspname, c.relname || '_default') AS default_partition,
               format('%I.%I', n.nspname, c.relname || to_char(first, '_YYYY_MM')) AS name,
               time_column,
               first,
               first + interval '1 month' AS next
          FROM (VALUES ('system_activity'::regclass, 'timestamp'), ('system_revisions'::regclass, 'created'))
               AS history (id, time_column)
          JOIN pg_class AS c ON c.oid = history.id
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
         CROSS JOIN generate_series(0, months_ahead) AS months
         CROSS JOIN LATERAL (SELECT date_trunc('month', now()) + months * interval '1 month' AS first) AS start
    LOOP
        CONTINUE WHEN to_regclass(month.name) IS NOT NULL;
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', month.default_partition);
        EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING CONSTRAINTS)', month.name, month.parent);
        EXECUTE format(
            'WITH moved AS (DELETE FROM %s WHERE %I >= %L AND %2$I < %4$L RETURNING *) '
            'INSERT INTO %5$s SELECT * FROM moved',
            month.default_partition, month.time_column, month.first, month.next, month.name
        );
        EXECUTE format(
            'ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
            month.parent, month.name, month.first, month.next
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

COMMENT ON FUNCTION system_make_partitions(integer) IS 'Makes the missing partitions of activity and revisions from this month to so many ahead; returns how many it made';

CREATE FUNCTION system_prune_history(keep interval, OUT dropped text[], OUT deleted bigint)
LANGUAGE plpgsql
SET timezone = 'UTC'
AS $$
DECLARE
    oldest timestamptz := date_trunc('month', now() - keep);
    month record;
    old_rows bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || ' system_make_partitions'));
    dropped := '{}';
    deleted := 0;
    FOR month IN
        SELECT child.relname AS name, format('%I.%I', n.nspname, child.relname) AS table_name
          FROM pg_inherits
          JOIN pg_class AS child ON child.oid = inhrelid
          JOIN pg_namespace AS n ON n.oid = child.relnamespace
         WHERE inhparent IN ('system_activity'::regclass, 'system_revisions'::regclass)
           AND child.relname ~ '^system_(activity|revisions)_\d{4}_\d\d$'
           AND to_date(right(child.relname, 7), 'YYYY_MM') < oldest
         ORDER BY child.relname
    LOOP
        EXECUTE format('DROP TABLE %s', month.table_name);
        dropped := dropped || month.name::text;
    END LOOP;
    DELETE FROM system_activity_default WHERE "timestamp" < oldest;
    GET DIAGNOSTICS old_rows = ROW_COUNT;
    deleted := deleted + old_rows;
    DELETE FROM system_revisions_default WHERE created < oldest;
    GET DIAGNOSTICS old_rows = ROW_COUNT;
    deleted := deleted + old_rows;
END
$$;

COMMENT ON FUNCTION system_prune_history(interval) IS 'Drops the months of activity and revisions that ended before so long ago, and deletes older rows that had no month; returns their names, and how many rows';

SELECT system_make_partitions(3);


-- Automation and dashboards ----------------------------------------------------------------------------

CREATE TABLE system_flows (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL,
    icon text,
    color text,
    description text,
    status text NOT NULL DEFAULT 'active',
    trigger text,
    accountability text DEFAULT 'all',
    options json,
    operation uuid,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    user_created uuid,
    CONSTRAINT system_flows_pkey PRIMARY KEY (id),
    CONSTRAINT system_flows_user_created_fkey FOREIGN KEY (user_created)
        REFERENCES system_users (id) ON DELETE SET NULL,
    CONSTRAINT system_flows_status_check CHECK (status IN ('active', 'inactive')),
    CONSTRAINT system_flows_trigger_check
        CHECK (trigger IN ('event', 'webhook', 'schedule', 'manual', 'operation')),
    CONSTRAINT system_flows_accountability_check CHECK (accountability IN ('all', 'activity'))
);

CREATE INDEX system_flows_status_trigger_idx ON system_flows (status, trigger);
CREATE INDEX system_flows_operation_idx ON system_flows (operation);
CREATE INDEX system_flows_user_created_idx ON system_flows (user_created);

COMMENT ON COLUMN system_flows.operation IS 'The first operation';
COMMENT ON COLUMN system_flows.accountability IS 'What a run leaves behind: all is activity and log, null is nothing';

CREATE TABLE system_operations (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text,
    key text NOT NULL,
    type text NOT NULL,
    position_x integer NOT NULL DEFAULT 0,
    position_y integer NOT NULL DEFAULT 0,
    options json,
    resolve uuid,
    reject uuid,
    flow uuid NOT NULL,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    user_created uuid,
    CONSTRAINT system_operations_pkey PRIMARY KEY (id),
    CONSTRAINT system_operations_key_key UNIQUE (flow, key),
    CONSTRAINT system_operations_resolve_fkey FOREIGN KEY (resolve)
        REFERENCES system_operations (id) ON DELETE SET NULL,
    CONSTRAINT system_operations_reject_fkey FOREIGN KEY (reject)
        REFERENCES system_operations (id) ON DELETE SET NULL,
    CONSTRAINT system_operations_flow_fkey FOREIGN KEY (flow) REFERENCES system_flows (id) ON DELETE CASCADE,
    CONSTRAINT system_operations_user_created_fkey FOREIGN KEY (user_created)
        REFERENCES system_users (id) ON DELETE SET NULL
);

CREATE INDEX system_operations_resolve_idx ON system_operations (resolve);
CREATE INDEX system_operations_reject_idx ON system_operations (reject);
CREATE INDEX system_operations_user_created_idx ON system_operations (user_created);

COMMENT ON COLUMN system_operations.key IS 'The name under which later operations of the flow find its result';
COMMENT ON COLUMN system_operations.resolve IS 'The operation that follows a success or a true condition';
COMMENT ON COLUMN system_operations.reject IS 'The operation that follows a failure or a false condition';

ALTER TABLE system_flows
    ADD CONSTRAINT system_flows_operation_fkey FOREIGN KEY (operation)
        REFERENCES system_operations (id) ON DELETE SET NULL;

CREATE TRIGGER system_flows_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_flows
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('flows');

CREATE TRIGGER system_operations_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_operations
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('flows');

CREATE TABLE system_flow_runs (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    flow uuid NOT NULL,
    trigger text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    attempt integer NOT NULL DEFAULT 0,
    depth integer NOT NULL DEFAULT 0,
    input json,
    data json,
    accountability json,
    steps json,
    result json,
    reason text,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    date_started timestamptz,
    date_finished timestamptz,
    worker bigint,
    CONSTRAINT system_flow_runs_pkey PRIMARY KEY (id),
    CONSTRAINT system_flow_runs_state_check CHECK (state IN ('queued', 'running', 'done', 'rejected', 'failed'))
);

CREATE INDEX system_flow_runs_flow_idx ON system_flow_runs (flow, date_created, id);
CREATE INDEX system_flow_runs_date_finished_idx ON system_flow_runs (date_finished) WHERE date_finished IS NOT NULL;
CREATE INDEX system_flow_runs_unfinished_idx ON system_flow_runs (date_created) WHERE date_finished IS NULL;

COMMENT ON TABLE system_flow_runs IS 'Runs of flows, with the log of what their operations did; they outlive their flows';
COMMENT ON COLUMN system_flow_runs.trigger IS 'What caused the run: the kind of the flow''s trigger';
COMMENT ON COLUMN system_flow_runs.depth IS 'How many runs have led to this one, each by causing the next';
COMMENT ON COLUMN system_flow_runs.input IS 'What templates see as $trigger, as long as the run may be tried; never shown';
COMMENT ON COLUMN system_flow_runs.data IS 'The same without secrets';
COMMENT ON COLUMN system_flow_runs.accountability IS 'User, role and address of the caller; null is the service itself';
COMMENT ON COLUMN system_flow_runs.steps IS 'What each operation did, without secrets';
COMMENT ON COLUMN system_flow_runs.reason IS 'Why the run was rejected or has failed';
COMMENT ON COLUMN system_flow_runs.worker IS 'The worker of the last attempt; null is one that the queue does not know';

CREATE TABLE system_flow_schedules (
    flow uuid NOT NULL,
    schedule text NOT NULL,
    due timestamptz NOT NULL,
    CONSTRAINT system_flow_schedules_pkey PRIMARY KEY (flow)
);

COMMENT ON TABLE system_flow_schedules IS 'When flows with a schedule run next';
COMMENT ON COLUMN system_flow_schedules.schedule IS 'Time zone and cron expression that the time was computed from';

CREATE TABLE system_flow_deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY,
    flow uuid NOT NULL,
    operation uuid NOT NULL,
    run uuid,
    message text NOT NULL,
    url text NOT NULL,
    attempt integer NOT NULL,
    status integer,
    reason text,
    milliseconds double precision NOT NULL,
    "timestamp" timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    CONSTRAINT system_flow_deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT system_flow_deliveries_flow_fkey FOREIGN KEY (flow) REFERENCES system_flows (id) ON DELETE CASCADE,
    CONSTRAINT system_flow_deliveries_operation_fkey FOREIGN KEY (operation)
        REFERENCES system_operations (id) ON DELETE CASCADE
);

CREATE INDEX system_flow_deliveries_flow_idx ON system_flow_deliveries (flow, id);
CREATE INDEX system_flow_deliveries_operation_idx ON system_flow_deliveries (operation);
CREATE INDEX system_flow_deliveries_timestamp_idx ON system_flow_deliveries ("timestamp");

COMMENT ON TABLE system_flow_deliveries IS 'Attempts to deliver signed requests of flows';
COMMENT ON COLUMN system_flow_deliveries.run IS 'The run, which may be deleted before; null is one that is not kept';
COMMENT ON COLUMN system_flow_deliveries.message IS 'The header webhook-id, the same at every attempt of a run';
COMMENT ON COLUMN system_flow_deliveries.url IS 'Where it went, without the query';
COMMENT ON COLUMN system_flow_deliveries.status IS 'The status of the answer; null is no answer';
COMMENT ON COLUMN system_flow_deliveries.reason IS 'Why it failed; null is a success';

CREATE TABLE system_flow_outages (
    operation uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    failures integer NOT NULL DEFAULT 1,
    CONSTRAINT system_flow_outages_pkey PRIMARY KEY (operation),
    CONSTRAINT system_flow_outages_operation_fkey FOREIGN KEY (operation)
        REFERENCES system_operations (id) ON DELETE CASCADE
);

COMMENT ON TABLE system_flow_outages IS 'Signed requests that have failed ever since their last success';

CREATE TABLE system_dashboards (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL,
    icon text NOT NULL DEFAULT 'dashboard',
    color text,
    note text,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    user_created uuid,
    CONSTRAINT system_dashboards_pkey PRIMARY KEY (id),
    CONSTRAINT system_dashboards_user_created_fkey FOREIGN KEY (user_created)
        REFERENCES system_users (id) ON DELETE SET NULL
);

CREATE INDEX system_dashboards_user_created_idx ON system_dashboards (user_created);

CREATE TABLE system_panels (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    dashboard uuid NOT NULL,
    name text,
    icon text,
    color text,
    show_header boolean NOT NULL DEFAULT false,
    note text,
    type text NOT NULL,
    position_x integer NOT NULL DEFAULT 1,
    position_y integer NOT NULL DEFAULT 1,
    width integer NOT NULL DEFAULT 12,
    height integer NOT NULL DEFAULT 6,
    options json,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    user_created uuid,
    CONSTRAINT system_panels_pkey PRIMARY KEY (id),
    CONSTRAINT system_panels_dashboard_fkey FOREIGN KEY (dashboard)
        REFERENCES system_dashboards (id) ON DELETE CASCADE,
    CONSTRAINT system_panels_user_created_fkey FOREIGN KEY (user_created)
        REFERENCES system_users (id) ON DELETE SET NULL
);

CREATE INDEX system_panels_dashboard_idx ON system_panels (dashboard);
CREATE INDEX system_panels_user_created_idx ON system_panels (user_created);

COMMENT ON COLUMN system_panels.width IS 'Units of the dashboard''s grid, as are position and height';


-- What belongs to people -------------------------------------------------------------------------------

CREATE TABLE system_presets (
    id integer GENERATED BY DEFAULT AS IDENTITY,
    bookmark text,
    "user" uuid,
    role uuid,
    collection text,
    search text,
    layout text DEFAULT 'tabular',
    layout_query json,
    layout_options json,
    refresh_interval integer,
    filter json,
    icon text DEFAULT 'bookmark',
    color text,
    CONSTRAINT system_presets_pkey PRIMARY KEY (id),
    CONSTRAINT system_presets_user_fkey FOREIGN KEY ("user") REFERENCES system_users (id) ON DELETE CASCADE,
    CONSTRAINT system_presets_role_fkey FOREIGN KEY (role) REFERENCES system_roles (id) ON DELETE CASCADE
);

CREATE INDEX system_presets_user_idx ON system_presets ("user");
CREATE INDEX system_presets_role_idx ON system_presets (role);

COMMENT ON TABLE system_presets IS 'How a list of items is shown: to one user, else to a role, else (both null) to everybody';
COMMENT ON COLUMN system_presets.bookmark IS 'Name of a saved view; null is the view that a list opens with';
COMMENT ON COLUMN system_presets.refresh_interval IS 'Seconds';

CREATE TABLE system_notifications (
    id integer GENERATED BY DEFAULT AS IDENTITY,
    "timestamp" timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    status text NOT NULL DEFAULT 'inbox',
    recipient uuid NOT NULL,
    sender uuid,
    subject text NOT NULL,
    message text,
    collection text,
    item text,
    CONSTRAINT system_notifications_pkey PRIMARY KEY (id),
    CONSTRAINT system_notifications_recipient_fkey FOREIGN KEY (recipient)
        REFERENCES system_users (id) ON DELETE CASCADE,
    CONSTRAINT system_notifications_sender_fkey FOREIGN KEY (sender)
        REFERENCES system_users (id) ON DELETE SET NULL,
    CONSTRAINT system_notifications_status_check CHECK (status IN ('inbox', 'archived'))
);

CREATE INDEX system_notifications_recipient_idx ON system_notifications (recipient, status, "timestamp");
CREATE INDEX system_notifications_sender_idx ON system_notifications (sender);

-- A share is deleted with its role and with its creator: it must never grant more than either.
CREATE TABLE system_shares (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text,
    collection text NOT NULL,
    item text NOT NULL,
    role uuid,
    password text,
    date_start timestamptz,
    date_end timestamptz,
    times_used integer NOT NULL DEFAULT 0,
    max_uses integer,
    date_created timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    user_created uuid,
    failed_logins integer NOT NULL DEFAULT 0,
    login_after timestamptz,
    CONSTRAINT system_shares_pkey PRIMARY KEY (id),
    CONSTRAINT system_shares_role_fkey FOREIGN KEY (role) REFERENCES system_roles (id) ON DELETE CASCADE,
    CONSTRAINT system_shares_user_created_fkey FOREIGN KEY (user_created)
        REFERENCES system_users (id) ON DELETE CASCADE
);

CREATE INDEX system_shares_item_idx ON system_shares (collection, item);
CREATE INDEX system_shares_role_idx ON system_shares (role);
CREATE INDEX system_shares_user_created_idx ON system_shares (user_created);

COMMENT ON TABLE system_shares IS 'One item that is readable through a link';
COMMENT ON COLUMN system_shares.password IS 'Argon2 hash';
COMMENT ON COLUMN system_shares.max_uses IS 'Null is without limit';
COMMENT ON COLUMN system_shares.login_after IS 'After too many wrong passwords, when the next one is looked at';

ALTER TABLE system_sessions
    ADD CONSTRAINT system_sessions_share_fkey FOREIGN KEY (share) REFERENCES system_shares (id) ON DELETE CASCADE;

CREATE TABLE system_translations (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    language text NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    CONSTRAINT system_translations_pkey PRIMARY KEY (id),
    CONSTRAINT system_translations_key_key UNIQUE (key, language)
);

COMMENT ON TABLE system_translations IS 'Texts of the project''s own, by key and language';


-- Settings ---------------------------------------------------------------------------------------------

CREATE TABLE system_settings (
    id integer NOT NULL DEFAULT 1,
    project_name text NOT NULL DEFAULT 'CMS',
    project_descriptor text,
    project_url text,
    project_color text NOT NULL DEFAULT '#6644FF',
    project_logo uuid,
    public_favicon uuid,
    public_foreground uuid,
    public_background uuid,
    public_note text,
    default_language text NOT NULL DEFAULT 'en-US',
    auth_login_attempts integer DEFAULT 25,
    auth_password_policy text,
    public_registration boolean NOT NULL DEFAULT false,
    public_registration_role uuid,
    public_registration_verify_email boolean NOT NULL DEFAULT true,
    public_registration_email_filter json,
    storage_asset_transform text NOT NULL DEFAULT 'all',
    storage_asset_presets json,
    storage_default_folder uuid,
    custom_css text,
    custom_aspect_ratios json,
    CONSTRAINT system_settings_pkey PRIMARY KEY (id),
    CONSTRAINT system_settings_one_row CHECK (id = 1),
    CONSTRAINT system_settings_project_logo_fkey FOREIGN KEY (project_logo)
        REFERENCES system_files (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_public_favicon_fkey FOREIGN KEY (public_favicon)
        REFERENCES system_files (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_public_foreground_fkey FOREIGN KEY (public_foreground)
        REFERENCES system_files (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_public_background_fkey FOREIGN KEY (public_background)
        REFERENCES system_files (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_public_registration_role_fkey FOREIGN KEY (public_registration_role)
        REFERENCES system_roles (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_storage_default_folder_fkey FOREIGN KEY (storage_default_folder)
        REFERENCES system_folders (id) ON DELETE SET NULL,
    CONSTRAINT system_settings_auth_login_attempts_check CHECK (auth_login_attempts >= 1),
    CONSTRAINT system_settings_storage_asset_transform_check
        CHECK (storage_asset_transform IN ('all', 'none', 'presets'))
);

COMMENT ON TABLE system_settings IS 'Exactly one row';
COMMENT ON COLUMN system_settings.auth_login_attempts IS 'Failed logins before a user is suspended; null is never';
COMMENT ON COLUMN system_settings.auth_password_policy IS 'Regular expression that a new password must match';

INSERT INTO system_settings DEFAULT VALUES;

CREATE TRIGGER system_roles_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_roles
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_permissions_bump
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON system_permissions
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_users_bump
    AFTER DELETE OR TRUNCATE ON system_users
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_users_bump_on_update
    AFTER UPDATE ON system_users
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump_for_users();

CREATE TRIGGER system_shares_bump
    AFTER DELETE OR TRUNCATE ON system_shares
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_shares_bump_on_update
    AFTER UPDATE ON system_shares
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump_for_shares();

-- FOR EACH ROW, because the foreign keys to files run an update whenever a file is deleted, which mostly changes no
-- row: a trigger for each statement would move the counter all the same.
CREATE TRIGGER system_settings_bump
    AFTER INSERT OR UPDATE OR DELETE ON system_settings
    FOR EACH ROW EXECUTE FUNCTION system_bump('access');

CREATE TRIGGER system_settings_bump_on_truncate
    AFTER TRUNCATE ON system_settings
    FOR EACH STATEMENT EXECUTE FUNCTION system_bump('access');


-- Idempotency: calls that may be repeated --------------------------------------------------------------

CREATE TABLE system_idempotency (
    caller text NOT NULL,
    key text NOT NULL,
    request text NOT NULL,
    answer bytea,
    is_record boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT system_idempotency_pkey PRIMARY KEY (caller, key)
);

CREATE INDEX system_idempotency_created_idx ON system_idempotency (created);

COMMENT ON TABLE system_idempotency IS 'Answers of calls that named an Idempotency-Key, written with what the call wrote; kept for a day';
COMMENT ON COLUMN system_idempotency.key IS 'SHA-256 digest of the key';
COMMENT ON COLUMN system_idempotency.request IS 'SHA-256 digest of method, address and body';
COMMENT ON COLUMN system_idempotency.answer IS 'The body of the answer; null where there was none';
COMMENT ON COLUMN system_idempotency.is_record IS 'The answer is what stands under data, and not the whole body';


-- Search ----------------------------------------------------------------------------------------------

-- PostgreSQL inlines an immutable function only if all that it calls is immutable, and no CASE of one that is STRICT; any
-- other it calls row by row, which takes four times as long. It declares unaccent as stable because its dictionary can be
-- replaced, so that is called by a function of PL/pgSQL. A text of ASCII letters alone needs no dictionary, unless the
-- language or a dictionary of one's own treats these letters in another way. Without the extension searches distinguish
-- accents. Only texts with other letters than the Latin ones of Europe are decomposed, which takes four times as long:
-- points of Hebrew and vowel marks of Arabic are left out, and the two small sigmas of Greek are one letter.
CREATE PROCEDURE system_define_folding() LANGUAGE plpgsql AS $define$
DECLARE
    home text := (
        SELECT quote_ident(nspname)
        FROM pg_extension
        JOIN pg_namespace ON pg_namespace.oid = extnamespace
        WHERE extname = 'unaccent'
    );
    points text := '\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc'
        '\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed';
    latin text := 'lower($1)';
    other text := 'lower(normalize(regexp_replace(normalize($1, NFD), ''[' || points || ']'', '''', ''g''), NFC))';
    letters text;
    folded text := '%s';
    ascii text := (SELECT string_agg(chr(code), '') FROM generate_series(1, 127) AS code);
    index regclass;
BEGIN
    IF home IS NOT NULL THEN
        latin := format('lower(%1$s.unaccent(''%1$s.unaccent'', $1))', home);
        other := format('lower(%1$s.unaccent(''%1$s.unaccent'', ', home)
            || 'regexp_replace(normalize($1, NFD), ''[\u0300-\u036f' || points || ']'', '''', ''g'')))';
    END IF;
    letters := 'CASE WHEN $1 ~ ''[^\u0001-\u017f\u2010-\u20ff]'' THEN translate(' || other || ', ''ς'', ''σ'') ELSE '
        || latin || ' END';
    EXECUTE 'CREATE OR REPLACE FUNCTION system_fold_letters(text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE '
        || 'AS $f$BEGIN RETURN ' || letters || '; END$f$';
    IF system_fold_letters(ascii) = lower(ascii COLLATE "C") THEN
        folded := 'CASE WHEN octet_length($1) = length($1) THEN lower($1 COLLATE "C") ELSE %s END';
    END IF;
    EXECUTE 'CREATE OR REPLACE FUNCTION system_fold(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN '
        || format(folded, 'system_fold_letters($1)');
    -- No index matches this one: for words that none helps to find. With RETURN it depends on the extension, which then
    -- cannot be dropped from under searches.
    EXECUTE 'CREATE OR REPLACE FUNCTION system_fold_unindexed(text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE RETURN '
        || format(folded, letters);
    FOR index IN
        SELECT indexrelid FROM pg_index WHERE pg_get_expr(indexprs, indrelid) LIKE '%system_fold(%'
    LOOP
        EXECUTE format('REINDEX INDEX %s', index);
    END LOOP;
END
$define$;

COMMENT ON PROCEDURE system_define_folding() IS 'Defines how searches compare texts, with the extension unaccent where it is installed';

CALL system_define_folding();

COMMENT ON FUNCTION system_fold(text) IS 'A text as searches compare it: in small letters, without accents, points and vowel marks';
COMMENT ON FUNCTION system_fold_letters(text) IS 'The result of system_fold for texts with other letters than those of ASCII';
COMMENT ON FUNCTION system_fold_unindexed(text) IS 'The result of system_fold, which no index has';


-- JSON paths ----------------------------------------------------------------------------------------------

CREATE FUNCTION system_json_at(document json, path text[]) RETURNS json
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    member json := document;
    step text;
BEGIN
    -- U+0000 and half of a surrogate pair are no characters of a text: PostgreSQL reads nothing of such a document.
    IF strpos(document::text, '\u') > 0 AND document::text !~ ('^([^\\]|\\[^u]|\\u([1-9A-Ca-cEFef][[:xdigit:]]{3}'
        || '|0[1-9A-Fa-f][[:xdigit:]]{2}|00[1-9A-Fa-f][[:xdigit:]]|000[1-9A-Fa-f]|[Dd][0-7][[:xdigit:]]{2}'
        || '|[Dd][89ABab][[:xdigit:]]{2}\\u[Dd][C-Fc-f][[:xdigit:]]{2}))*$')
    THEN
        RETURN NULL;
    END IF;
    -- Behind the first step, a negative index is counted by another array of the document (in versions to 18).
    IF cardinality(path) > 1 AND strpos(path::text, '-') > 0 THEN
        FOREACH step IN ARRAY path LOOP
            member := member #> ARRAY[step];
        END LOOP;
    ELSE
        member := document #> path;
    END IF;
    RETURN CASE WHEN json_typeof(member) <> 'null' THEN member END;
END
$$;

COMMENT ON FUNCTION system_json_at(json, text[]) IS 'The value at a path of a document; NULL where it is null or missing, or the document holds what is no text';

CREATE FUNCTION system_json_at(document jsonb, path text[]) RETURNS json
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    member jsonb := document #> path;
BEGIN
    RETURN CASE WHEN jsonb_typeof(member) <> 'null' THEN member::json END;
END
$$;

COMMENT ON FUNCTION system_json_at(jsonb, text[]) IS 'The value at a path of a document; NULL where it is null or missing';

-- The order of jsonb is texts, numbers, booleans: one index serves all of them.
CREATE FUNCTION system_json_key(member json) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE json_typeof(member)
        WHEN 'string', 'boolean' THEN
            RETURN member::jsonb;
        WHEN 'number' THEN
            -- Others would exceed the range of numeric.
            RETURN CASE
                WHEN length(member::text) <= 2100 AND member::text !~ '[Ee][+-]?0*[1-9][0-9]{4}' THEN member::jsonb
            END;
        ELSE
            RETURN NULL;
    END CASE;
END
$$;

COMMENT ON FUNCTION system_json_key(json) IS 'A text, number or boolean as it is compared and sorted; NULL for arrays and objects';

CREATE FUNCTION system_json_text(member json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN json_typeof(member) = 'string' THEN member #>> '{}' END;
END
$$;

COMMENT ON FUNCTION system_json_text(json) IS 'The characters of a text; NULL for any other value';

CREATE FUNCTION system_json_number(member json) RETURNS numeric
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN CASE
        WHEN json_typeof(member) = 'number' AND length(member::text) <= 2100
            AND member::text !~ '[Ee][+-]?0*[1-9][0-9]{4}'
        THEN member::text::numeric
    END;
END
$$;

COMMENT ON FUNCTION system_json_number(json) IS 'A number; NULL for any other value';

CREATE TABLE system_json_paths (
    collection text NOT NULL,
    path text NOT NULL,
    last_used date NOT NULL DEFAULT CURRENT_DATE,
    uses bigint NOT NULL DEFAULT 1,
    CONSTRAINT system_json_paths_pkey PRIMARY KEY (collection, path)
);

COMMENT ON TABLE system_json_paths IS 'Paths into JSON that reads have searched or sorted by, a hundred of each collection: what cms doctor asks indexes for';
COMMENT ON COLUMN system_json_paths.path IS 'As the query language writes it, beginning with the field';
COMMENT ON COLUMN system_json_paths.uses IS 'How often a process has used it in a day, at most, rounded down to a power of two';

CREATE TABLE system_index_requests (
    collection text NOT NULL,
    field text NOT NULL,
    CONSTRAINT system_index_requests_pkey PRIMARY KEY (collection, field)
);

COMMENT ON TABLE system_index_requests IS 'Fields of large tables whose indexes were asked for and are not built yet';

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

-- Answers show times with all digits that are stored: three, or six where there are microseconds.
CREATE FUNCTION system_expanded_year(year numeric, rest text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    -- PostgreSQL has no year 0: before the year 1 comes -1, which ISO 8601 calls 0.
    iso_year numeric := CASE WHEN year < 0 THEN year + 1 ELSE year END;
    digits text := abs(iso_year)::text;
BEGIN
    RETURN concat(CASE WHEN iso_year < 0 THEN '-' ELSE '+' END, lpad(digits, greatest(6, length(digits)), '0'), rest);
END
$$;

COMMENT ON FUNCTION system_expanded_year(numeric, text) IS 'A date or moment of a year before 1 or beyond 9999 as ISO 8601 writes it: -000043-03-15';

CREATE FUNCTION system_date_text(day date) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN day >= '0001-01-01' AND day <= '9999-12-31' THEN day::text
        WHEN isfinite(day) THEN system_expanded_year(
            EXTRACT(YEAR FROM day)::numeric,
            concat('-', lpad(EXTRACT(MONTH FROM day)::text, 2, '0'), '-', lpad(EXTRACT(DAY FROM day)::text, 2, '0'))
        )
        ELSE day::text
    END
$$;

COMMENT ON FUNCTION system_date_text(date) IS 'How answers show a date';

CREATE FUNCTION system_time_text(moment time) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(moment, CASE
        WHEN moment::time(0) = moment THEN 'HH24:MI:SS'
        WHEN moment::time(3) = moment THEN 'HH24:MI:SS.MS'
        ELSE 'HH24:MI:SS.US'
    END)
$$;

COMMENT ON FUNCTION system_time_text(time) IS 'How answers show a time';

CREATE FUNCTION system_datetime_text(moment timestamp) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN moment >= '0001-01-01' AND moment < '10000-01-01' THEN to_char(moment, CASE
            WHEN moment::timestamp(0) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS'
            WHEN moment::timestamp(3) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS.MS'
            ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US'
        END)
        WHEN isfinite(moment) THEN system_expanded_year(EXTRACT(YEAR FROM moment)::numeric, to_char(moment, CASE
            WHEN moment::timestamp(0) = moment THEN '-MM-DD"T"HH24:MI:SS'
            WHEN moment::timestamp(3) = moment THEN '-MM-DD"T"HH24:MI:SS.MS'
            ELSE '-MM-DD"T"HH24:MI:SS.US'
        END))
        ELSE moment::text
    END
$$;

COMMENT ON FUNCTION system_datetime_text(timestamp) IS 'How answers show a date with a time';

CREATE FUNCTION system_timestamp_text(moment timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN moment >= '0001-01-01T00:00:00Z' AND moment < '10000-01-01T00:00:00Z' THEN
            to_char(moment AT TIME ZONE 'UTC', CASE
                WHEN moment::timestamptz(3) = moment THEN 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
                ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
            END)
        WHEN isfinite(moment) THEN
            system_expanded_year(
                EXTRACT(YEAR FROM moment AT TIME ZONE 'UTC')::numeric,
                to_char(moment AT TIME ZONE 'UTC', CASE
                    WHEN moment::timestamptz(3) = moment THEN '-MM-DD"T"HH24:MI:SS.MS"Z"'
                    ELSE '-MM-DD"T"HH24:MI:SS.US"Z"'
                END)
            )
        ELSE moment::text
    END
$$;

COMMENT ON FUNCTION system_timestamp_text(timestamptz) IS 'How answers show a moment, in UTC';

CREATE FUNCTION system_stored_time(shown json) RETURNS json
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    parts text[] := regexp_match(shown::text, '^"([+-]\d{6,7})(-[^"]*)"$');
    iso_year integer := parts[1]::integer;
BEGIN
    RETURN CASE
        WHEN parts IS NULL THEN shown
        WHEN iso_year > 0 THEN to_json(concat(iso_year, parts[2]))
        ELSE to_json(concat(lpad((1 - iso_year)::text, 4, '0'), parts[2], ' BC'))
    END;
END
$$;

COMMENT ON FUNCTION system_stored_time(json) IS 'A date or moment as PostgreSQL reads it, from what answers show; any other value as it is';
