-- The cells of a picture of all runs: a row of pixels holds some runs, a column some steps.
-- Stands behind `WITH given AS (...)`, columns run_id, task_id, outcome, step, class, risk.
, lanes AS MATERIALIZED (
    SELECT run_id, any_value(task_id) AS task_id, any_value(outcome) AS outcome,
           max(step) + 1 AS length
    FROM given GROUP BY run_id
), placed AS (
    SELECT run_id, outcome, length,
           row_number() OVER (
               ORDER BY CASE WHEN $by_task THEN task_id END NULLS LAST, outcome, length, task_id,
                        run_id
           ) - 1 AS place,
           count(*) OVER () AS n_runs
    FROM lanes
), rows AS MATERIALIZED (
    SELECT run_id, outcome, length, place * least($rows::BIGINT, n_runs) // n_runs AS y FROM placed
), width AS (
    -- a few endless runs do not make all the others narrow
    SELECT greatest(1, ceil(quantile_cont(length, 0.995) / $columns))::BIGINT AS wide,
           ceil(quantile_cont(length, 0.995))::BIGINT AS shown
    FROM rows
)
SELECT 'cell' AS what, y, (step // wide)::BIGINT AS x, class::BIGINT AS class,
       count(*) AS n, sum(risk) AS risk, wide, NULL AS outcome, NULL::VARCHAR[] AS runs
FROM given JOIN rows USING (run_id), width
WHERE step < shown
GROUP BY y, x, class, wide
UNION ALL
SELECT 'row', y, max(length), NULL, count(*), NULL, wide, outcome, (list(run_id ORDER BY run_id))[:12]
FROM rows, width GROUP BY y, outcome, wide
ORDER BY what, y, x, class, outcome
