-- One portion of the entities that the chosen runs name or relate, under the decisions about names.
-- A decision may name an entity that no text does; its parts are read off its id.
WITH renamed AS (
    SELECT unnest($old::VARCHAR[]) AS entity_id, unnest($new::VARCHAR[]) AS canonical
),
wanted AS (SELECT unnest($runs::VARCHAR[]) AS run_id),
related AS (SELECT source_id, target_id FROM relations WHERE run_id IN (FROM wanted)),
seen AS (
    SELECT entity_id FROM mentions WHERE run_id IN (FROM wanted)
    UNION SELECT source_id FROM related
    UNION SELECT target_id FROM related
),
named AS (
    SELECT DISTINCT coalesce(n.canonical, s.entity_id) AS entity_id
    FROM seen s LEFT JOIN renamed n USING (entity_id)
),
chosen AS (SELECT * FROM named WHERE md5_number_lower(entity_id) % $parts = $part),
parts AS (
    SELECT entity_id,
           regexp_extract(
               entity_id, '^([^|]*)\|([^|]*)\|(.*)$', ['kind', 'scope', 'name'], 's'
           ) AS p
    FROM chosen
)
SELECT p.entity_id, coalesce(min(e.kind), p.p.kind) AS kind,
       coalesce(min(e.scope), p.p.scope) AS scope,
       coalesce(min(e.name), nullif(p.p.name, ''), p.entity_id) AS name
FROM parts p LEFT JOIN entities e USING (entity_id)
GROUP BY p.entity_id, p.p
ORDER BY p.entity_id
