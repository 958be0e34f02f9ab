-- Runs, steps and entities whose texts hold a text.
WITH chosen AS (SELECT run_id, task_id, goal, seq FROM runs WHERE {where})
SELECT * FROM (
    SELECT 'run' AS kind, run_id AS name, 0 AS position, 0 AS step,
           concat_ws(' · ', task_id, goal) AS text
    FROM chosen
    WHERE contains(lower(concat_ws(' ', run_id, task_id, goal)), lower({text}))
    ORDER BY seq LIMIT {most}
)
UNION ALL
SELECT * FROM (
    SELECT 'entity', entity_id, 0, 0, entity_id FROM entities
    WHERE contains(lower(name), lower({text})) ORDER BY length(name), entity_id LIMIT {most}
)
UNION ALL
SELECT * FROM (
    SELECT 'step', run_id, position, step, substr(concat_ws(' ', action, thought), 1, 200)
    FROM steps
    WHERE run_id IN (SELECT run_id FROM chosen)
      AND (contains(lower(action), lower({text})) OR contains(lower(thought), lower({text}))
           OR contains(lower(observation), lower({text})))
    LIMIT {most}
)
