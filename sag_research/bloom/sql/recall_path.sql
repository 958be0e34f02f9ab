-- The steps of recalled runs, what they took over included, each with its number in its lineage.
select s.run_id as recalled, s.writer_id as run_id, s.position, s.step, s.inherited, s.exit_code,
       row_number() over (partition by s.run_id order by s.position) as rank,
       left(s.thought, $clip) as thought, left(s.action, $clip) as action,
       left(s.observation, $clip) as observation
from steps_all s
where list_contains($runs::varchar[], s.run_id)
order by s.run_id, s.position
