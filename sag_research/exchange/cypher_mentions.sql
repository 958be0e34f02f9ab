-- Which events of a portion name which entities, counted per role, under the decisions about names.
WITH wanted AS (
    SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($first::BIGINT[]) AS first_position,
           unnest($last::BIGINT[]) AS last_position
),
renamed AS (
    SELECT unnest($old::VARCHAR[]) AS entity_id, unnest($new::VARCHAR[]) AS canonical
)
SELECT concat(m.run_id, ':', m.position) AS event_id,
       coalesce(n.canonical, m.entity_id) AS entity_id, count(*) AS n, min(m.rule) AS rule, m.role
FROM mentions m
     JOIN wanted w ON w.run_id = m.run_id
                  AND m.position BETWEEN w.first_position AND w.last_position
     LEFT JOIN renamed n ON n.entity_id = m.entity_id
GROUP BY m.run_id, m.position, coalesce(n.canonical, m.entity_id), m.role
ORDER BY m.run_id, m.position, 2, m.role
