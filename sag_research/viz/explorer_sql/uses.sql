-- Steps that name an entity under any of its names.
WITH seen AS (
    SELECT DISTINCT run_id, position, step FROM mentions
    WHERE list_contains($names, entity_id)
      AND run_id NOT IN (SELECT run_id FROM visibility WHERE hidden)
    ORDER BY run_id, position LIMIT $most
)
SELECT seen.run_id, seen.position, seen.step, substr(s.action, 1, 200)
FROM seen LEFT JOIN steps s USING (run_id, position) ORDER BY seen.run_id, seen.position
