-- A table that was handed in.
SELECT run_id, task_id, outcome, step::BIGINT AS step, class::BIGINT AS class, risk::DOUBLE AS risk
FROM handed_in
