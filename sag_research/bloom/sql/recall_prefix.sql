-- The steps of a run up to a step, what it took over from its ancestors included.
select s.step, left(s.thought, $clip) as thought, left(s.action, $clip) as action,
       left(s.observation, $clip) as observation, s.n_calls, s.tool, s.exit_code, s.flags
from steps_all s
where s.run_id = $run and s.step <= $step
order by s.step, s.position
