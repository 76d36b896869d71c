-- Searches find words of all scripts: texts are decomposed before they are compared. Indexes for searches are rebuilt.

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

DROP FUNCTION IF EXISTS system_unaccented(text);
