SELECT coalesce(body ->> '$.from', run_id) AS run_id FROM events
WHERE type IN ('deadend.predicted', 'run.backtracked', 'run.abandoned')
  AND (body ->> '$.step') IS NOT NULL
