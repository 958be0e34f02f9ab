select run_id, parent_id, fork_position, task_id, agent, model, goal, outcome, exit_status, n_steps
from runs
where list_contains($runs::varchar[], run_id)
order by run_id
