-- Values inside of JSON documents can be filtered, sorted and grouped by, and have indexes.
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
    CONSTRAINT system_json_paths_pkey PRIMARY KEY (collection, path)
);

COMMENT ON TABLE system_json_paths IS 'Paths into JSON that reads have searched or sorted by, the last thousand: what cms doctor asks indexes for';
COMMENT ON COLUMN system_json_paths.path IS 'As the query language writes it, beginning with the field';
