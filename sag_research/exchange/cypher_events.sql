SELECT e.run_id, e.position, e.type, s.step, e.cause, s.tool, s.exit_code, s.thought, s.action,
       s.observation
FROM events e LEFT JOIN steps s ON s.run_id = e.run_id AND s.position = e.position
WHERE e.run_id IN (SELECT unnest(?)) ORDER BY e.run_id, e.position
