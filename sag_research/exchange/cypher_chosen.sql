-- The chosen runs and the runs that they were forked from, and where their own events lie.
-- `counted` marks observations of their own, as in a cohort; the ancestors that nobody chose are
-- there for the forks to hang on.
WITH RECURSIVE chosen AS (
    SELECT run_id, kind <> 'extraction' AND copy_of IS NULL AND NOT hidden AS shown
    FROM (SELECT * FROM runs WHERE ({where}))
    WHERE {hidden} OR (kind <> 'extraction' AND copy_of IS NULL AND NOT hidden)
),
line AS (
    SELECT run_id FROM chosen
    UNION
    SELECT child.parent_id FROM line JOIN runs child ON child.run_id = line.run_id
    WHERE child.parent_id IS NOT NULL
),
extent AS (
    SELECT run_id, min(position) AS first_position, max(position) AS last_position
    FROM events GROUP BY run_id
)
SELECT r.run_id, r.parent_id, r.fork_position,
       coalesce(c.shown, false) AND r.parent_id IS NULL AND r.n_steps > 0 AS counted,
       x.first_position, x.last_position
FROM line JOIN runs r USING (run_id) JOIN extent x USING (run_id)
     LEFT JOIN chosen c USING (run_id)
ORDER BY r.run_id
