-- How many entities and relations the chosen runs have at most, to read them in portions.
WITH wanted AS (SELECT unnest($runs::VARCHAR[]) AS run_id),
related AS (SELECT source_id, type, target_id FROM relations WHERE run_id IN (FROM wanted)),
seen AS (
    SELECT entity_id FROM mentions WHERE run_id IN (FROM wanted)
    UNION SELECT source_id FROM related
    UNION SELECT target_id FROM related
)
SELECT (SELECT count(*) FROM seen) AS entities,
       (SELECT count(*) FROM (SELECT DISTINCT * FROM related)) AS relations
