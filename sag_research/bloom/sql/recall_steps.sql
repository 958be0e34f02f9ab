-- The own steps of some runs, with texts cut at a length.
with wanted as (
    select unnest($runs::varchar[]) as run_id, unnest($numbers::bigint[]) as number
)
select w.number as run, s.step, left(s.thought, $clip) as thought, left(s.action, $clip) as action,
       left(s.observation, $clip) as observation, s.n_calls, s.tool, s.exit_code, s.flags
from steps s
join wanted w on w.run_id = s.run_id
where not s.inherited
order by w.number, s.position
