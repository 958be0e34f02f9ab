-- Which of these places hold an event.
SELECT run_id, position
FROM (SELECT DISTINCT unnest($runs::VARCHAR[]) AS run_id, unnest($positions::BIGINT[]) AS position)
     JOIN (SELECT run_id, position FROM events) USING (run_id, position)
