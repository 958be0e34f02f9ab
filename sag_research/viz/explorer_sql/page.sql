-- A page of the list of runs.
WITH alarmed AS ({alarms})
SELECT run_id, task_id, model, outcome, n_steps, parent_id,
       run_id IN (SELECT run_id FROM alarmed) AS alarm
FROM runs WHERE {where} ORDER BY seq LIMIT {size} OFFSET {start}
