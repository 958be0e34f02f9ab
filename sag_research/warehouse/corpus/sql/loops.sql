-- loops: runs in which the same token stood several times in a row: how long at most, and from
-- which step on.
-- in: runs(run_id, task_id, outcome), steps(run_id, step, token), tokens(token, name)
-- out: run_id VARCHAR, task_id VARCHAR, outcome VARCHAR, name VARCHAR, first_step BIGINT, length BIGINT
-- with: min_length BIGINT = 3
WITH islands AS (
    SELECT run_id, token, step,
           step - row_number() OVER (PARTITION BY run_id, token ORDER BY step) AS island
    FROM steps
),
stretches AS (
    SELECT run_id, token, min(step) AS first_step, count(*) AS length
    FROM islands
    GROUP BY run_id, token, island
    HAVING count(*) >= $min_length
),
longest AS (
    SELECT run_id, token, first_step, length,
           row_number() OVER (PARTITION BY run_id ORDER BY length DESC, first_step) AS place
    FROM stretches
)
SELECT l.run_id, r.task_id, r.outcome, t.name, l.first_step, l.length
FROM longest l JOIN runs r ON l.run_id = r.run_id JOIN tokens t ON l.token = t.token
WHERE l.place = 1
ORDER BY l.run_id
