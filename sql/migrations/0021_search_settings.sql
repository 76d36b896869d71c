-- What a search finds can be sorted by relevance, for which a word in one field may count more than in another.

ALTER TABLE system_fields ADD COLUMN search_weight integer;

COMMENT ON COLUMN system_fields.search_weight IS 'How much a searched word counts in the field; null is 1';

-- At a relation the setting asks to search the related items as well. Until now true was what nobody had set.
ALTER TABLE system_fields
    ALTER COLUMN searchable DROP NOT NULL,
    ALTER COLUMN searchable DROP DEFAULT,
    ALTER COLUMN searchable TYPE boolean USING nullif(searchable, TRUE);

COMMENT ON COLUMN system_fields.searchable IS 'Whether searches look into the field, and of a relation into related items; null is into the field alone';
