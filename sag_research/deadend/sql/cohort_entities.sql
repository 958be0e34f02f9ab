-- The distinct entities of each step; rank is the step's place in its run, from 0.
WITH wanted AS (
    SELECT unnest($1::VARCHAR[]) AS run_id, generate_subscripts($1::VARCHAR[], 1) - 1 AS owner
),
placed AS (
    SELECT s.run_id, s.position, w.owner,
           row_number() OVER (PARTITION BY w.owner ORDER BY s.position) - 1 AS rank
    FROM steps s JOIN wanted w USING (run_id) WHERE NOT s.inherited
)
SELECT DISTINCT p.owner, p.rank, m.entity_id
FROM mentions m JOIN placed p ON m.run_id = p.run_id AND m.position = p.position
ORDER BY p.owner, p.rank, m.entity_id
