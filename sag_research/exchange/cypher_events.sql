-- A portion of the events, under the runs that wrote them: of $runs those from $first to $last.
-- The body of a step is its texts again, so it is left out.
WITH wanted AS (
    SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($first::BIGINT[]) AS first_position,
           unnest($last::BIGINT[]) AS last_position
),
step AS (SELECT * FROM steps WHERE run_id IN (SELECT run_id FROM wanted))
SELECT concat(e.run_id, ':', e.position) AS event_id, e.run_id, e.position, e.type, e.actor,
       e.cause, s.step, s.tool, s.exit_code, s.seconds, s.tokens_in, s.tokens_out, s.cost_usd,
       s.started_at, coalesce(s.inherited, false) AS inherited,
       CASE WHEN {texts} THEN s.thought END AS thought,
       CASE WHEN {texts} THEN s.action END AS action,
       CASE WHEN {texts} THEN s.observation END AS observation,
       CASE WHEN {texts} AND s.step IS NULL THEN e.body END AS body
FROM events e
     JOIN wanted w ON w.run_id = e.run_id
                  AND e.position BETWEEN w.first_position AND w.last_position
     LEFT JOIN step s ON s.run_id = e.run_id AND s.position = e.position
ORDER BY e.run_id, e.position
