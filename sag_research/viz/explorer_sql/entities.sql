-- What one step names, and how many runs name it.
WITH here AS (
    SELECT kind, scope, name, bool_or(role = 'MUTATED') AS changed, count(*) AS n,
           string_agg(DISTINCT field, ', ' ORDER BY field) AS fields
    FROM mentions WHERE run_id = $run AND position = $position GROUP BY ALL
)
SELECT concat_ws('|', here.kind, here.scope, here.name), any_value(here.changed),
       any_value(here.n), count(DISTINCT m.run_id) AS runs, any_value(here.fields)
FROM here JOIN mentions m USING (kind, scope, name)
WHERE m.run_id = $run OR m.run_id NOT IN (SELECT run_id FROM visibility WHERE hidden)
GROUP BY here.kind, here.scope, here.name
ORDER BY runs, 1
